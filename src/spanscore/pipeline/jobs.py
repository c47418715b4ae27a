"""``JobBuilder`` makes the job of a sampled unit: an extractor makes its samples, then redactor and filter are applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from typing import TypeVar

from spanscore import semconv
from spanscore.core.codecs.media import IMAGE_LIMIT, ImageLimit, limit_images
from spanscore.core.codecs.text import safe_text
from spanscore.core.job import Job, SampledUnit
from spanscore.core.log import type_name
from spanscore.core.plugins import Entry, Registry
from spanscore.core.sample import MEASURES, Annotation, MultiTurnSample, Sample, Samples, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.core.span import UNIT_KINDS, Unit, UnitKind
from spanscore.core.timebox import HookTimeout, Timebox
from spanscore.errors import ConfigurationError
from spanscore.protocols import Filter, Redactor, SampleExtractor
from spanscore.samples.extraction import add_measures, add_tools
from spanscore.samples.redaction import redact, redact_sample

REDACTORS = Registry(kind="redactor", protocol=Redactor, example="my_pkg.privacy:redact", built_in={})


def redactor_in(entry: Redactor | Entry | None) -> Redactor | None:
    """Return the redactor of an entry: the entry itself, the named function, or an instance of the named class; None without
    an entry.

    Raises:
        ConfigurationError: there is no such function or class, or it cannot be called.
    """
    redactor: Redactor | None = None if entry is None else REDACTORS.one(entry)
    return redactor


S = TypeVar("S", SingleTurnSample, MultiTurnSample)


@dataclass(frozen=True, slots=True)
class Hooks:
    """The user's functions that are applied to samples before a judge reads them.

    Attributes:
        redactor: applied to the texts of a sample, except types and ids, and to the conversation id; not to images. If it
            raises, hangs or returns no text, the unit ends as ``redaction_error``. None = no redaction.
        keep: the filter, which returns whether a unit is scored. It is called with the unit's conversation and with its single
            turn. If a call returns false or raises, the unit ends as ``filtered``; if a call hangs, as ``metric_error``. None =
            each unit is scored.

    Raises:
        ConfigurationError: a hook is a coroutine function. Its result would not be awaited, and a coroutine counts as true.
    """

    redactor: Redactor | None = None
    keep: Filter | None = None

    def __post_init__(self) -> None:
        for name, hook in (("redactor", self.redactor), ("sample_filter", self.keep)):
            if iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
                raise ConfigurationError(f"{name} is a coroutine function, which is never awaited: remove its async")

    def within(self, box: Timebox) -> Hooks:
        """Return the same hooks with the deadline of a box."""
        redactor, keep = self.redactor, self.keep
        if redactor is not None:
            redactor = box.hook(redactor, "the redactor", Outcome.REDACTION_ERROR)
        if keep is not None:
            own = keep  # ``bool`` of its result may also run the user's code
            keep = box.hook(lambda sample: bool(own(sample)), "the filter", Outcome.METRIC_ERROR)
        return Hooks(redactor, keep)

    def apply(self, samples: Samples, *, redacted: bool = False) -> Samples:
        """Return the redacted samples, or samples with the outcome that ends the unit; ``redacted`` samples are only filtered.

        Raises:
            HookTimeout: a hook hangs; nothing else is raised.
        """
        if samples.outcome is not None or (self.redactor is None and self.keep is None):
            return samples
        try:
            if not redacted:
                single_turn, multi_turn = self._redact(samples.single_turn), self._redact(samples.multi_turn)
                samples = replace(samples, single_turn=single_turn, multi_turn=multi_turn)
        except HookTimeout:
            raise
        except BaseException as error:  # noqa: BLE001  (SystemExit too; the text may quote, so only the class is shown)
            return Samples(outcome=Outcome.REDACTION_ERROR, reason=f"the redactor raised {type_name(error)}")
        return self._apply_filter(samples)

    def redact_conversation_id(self, unit: Unit) -> Unit:
        """Return a unit with a redacted conversation id. If the redactor fails, the id is removed.

        Spans of spanscore's callback are already redacted.

        Raises:
            HookTimeout: a hook hangs; nothing else is raised.
        """
        root = unit.root
        if self.redactor is None or root is None or root.scope == semconv.CAPTURE_SCOPE:
            return unit
        conversation_id = root.attributes.get(semconv.CONVERSATION_ID)
        if conversation_id is None:
            return unit
        try:
            return unit.in_conversation(redact(str(conversation_id), self.redactor))
        except HookTimeout:
            raise
        except BaseException:  # noqa: BLE001  (fails closed)
            return unit.in_conversation(None)

    def redact_text(self, text: str, box: Timebox) -> str | None:
        """Return the form in which a text that may name a person is exported; None if the redactor fails. Never raises."""
        redactor = self.redactor
        if redactor is None:
            return safe_text(text)
        try:
            return safe_text(box.run(lambda: redact(text, redactor)))
        except BaseException:  # noqa: BLE001  (SystemExit, too: only a text from the redactor is exported)
            return None

    def redact_label(self, label: Annotation, box: Timebox) -> Annotation:
        """Return a label with redacted annotator, comment and key. Never raises.

        If the redactor fails, the comment or the key is left out, and the annotator becomes ``HUMAN``.
        """
        if self.redactor is None:
            return label
        annotator, unnamed = label.annotator, semconv.ANNOTATOR_HUMAN
        return replace(
            label,
            annotator=unnamed if annotator == unnamed else self.redact_text(annotator, box) or unnamed,
            comment=None if label.comment is None else self.redact_text(label.comment, box),
            key=None if label.key is None else self.redact_text(label.key, box),
        )

    def _apply_filter(self, samples: Samples) -> Samples:
        if self.keep is None:
            return samples
        forms: list[Sample | None] = [samples.multi_turn, samples.single_turn]
        try:
            kept = all(self.keep(sample) for sample in forms if sample is not None)
        except HookTimeout:
            raise
        except BaseException as error:  # noqa: BLE001
            return Samples(outcome=Outcome.FILTERED, reason=f"the filter raised {type_name(error)}")
        return samples if kept else Samples(outcome=Outcome.FILTERED, reason="the filter returned false")

    def _redact(self, sample: S | None) -> S | None:
        return sample if sample is None or self.redactor is None else redact_sample(sample, self.redactor)


_KINDS: Mapping[UnitKind, str] = {"workflow": "workflows", "agent": "agents", "chat": "single model calls"}


@dataclass(frozen=True, slots=True)
class JobBuilder:
    """Makes a job from a sampled unit. Has no side effects, except those of the hooks.

    Attributes:
        dialects: extractors in order; the first that accepts the unit's root makes the samples.
        kinds: kinds of units to score; others are ``filtered``. Inner units are not affected.
        on_demand: fields of ``ON_DEMAND`` to fill: the fields that some metric reads, or all if cases are collected.
        images: which images of a unit its samples keep.
    """

    dialects: Sequence[SampleExtractor]
    hooks: Hooks = field(default_factory=Hooks)
    box: Timebox = field(default_factory=Timebox)
    kinds: Sequence[UnitKind] = UNIT_KINDS
    on_demand: Set[str] = frozenset()
    images: ImageLimit = IMAGE_LIMIT

    async def job_in_time(self, sampled: SampledUnit) -> Job:
        """Make the job on a thread of ``box``.

        If a function of the user hangs, the unit ends as ``redaction_error`` (the redactor), ``metric_error`` (the filter) or
        ``no_sample`` (an extractor). Its conversation id is then removed, unless the unit was redacted before.
        """
        try:
            return await self.box.run_async(lambda: self.job(sampled))
        except HookTimeout as hung:
            unit = sampled.unit.without_content()
            unit = unit if sampled.redacted else unit.in_conversation(None)
            return _job(sampled, unit, Samples(outcome=hung.outcome, reason=hung.reason))

    def job(self, sampled: SampledUnit) -> Job:
        """Make the job; ``job.samples.outcome`` is set if there is no sample to score.

        Raises:
            HookTimeout: a hook hangs; nothing else is raised.
        """
        try:
            samples = limit_images(sampled.samples or self._samples(sampled.unit), *self.images)
        except HookTimeout:
            raise
        except BaseException as error:  # noqa: BLE001  (user's code; the text may quote, so only the class is shown)
            samples = Samples(outcome=Outcome.NO_SAMPLE, reason=f"making the sample raised {type_name(error)}")
        unit = sampled.unit.without_content()
        unit = unit if sampled.redacted else self.hooks.redact_conversation_id(unit)
        return _job(sampled, unit, self.hooks.apply(samples, redacted=sampled.redacted))

    def _samples(self, unit: Unit) -> Samples:
        root = unit.root
        if root is None:
            return Samples(outcome=Outcome.NO_SAMPLE, reason="the unit has no root")
        if unit.inner is None and unit.kind not in self.kinds:
            return Samples(outcome=Outcome.FILTERED, reason=f"units.kinds leaves out {_KINDS[unit.kind]}")
        for dialect in self.dialects:
            if dialect.accepts(root):
                samples = dialect.extract(unit)
                samples = add_tools(samples, unit) if "tools" in self.on_demand else samples
                return add_measures(samples, unit) if self.on_demand & MEASURES else samples
        return Samples(outcome=Outcome.NO_SAMPLE, reason="no dialect accepts the root")


def _job(sampled: SampledUnit, unit: Unit, samples: Samples) -> Job:
    size_bytes, taken_s, held_until_s = sampled.size_bytes, sampled.taken_s, sampled.held_until_s
    return Job(unit, samples, sampled.decisions, size_bytes, taken_s, held_until_s, sampled.undecided)
