"""Unit → Job, pure: dialect, then hooks; what cannot become a job ends here with its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spanscore.core.job import Job, SampledUnit
from spanscore.core.log import type_name
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import UNIT_KINDS, Unit, UnitKind
from spanscore.core.timebox import Hung, Timebox
from spanscore.protocols import SampleExtractor
from spanscore.scoring.hooks import Hooks

__all__ = ["Pipeline"]

_KINDS: Mapping[UnitKind, str] = {"workflow": "workflows", "agent": "agents", "chat": "a model that is called alone"}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Makes jobs.

    Attributes:
        dialects: asked in order; the first that claims the unit's root makes the samples.
        box: where the functions of the user that are among all this, if there are, run.
        kinds: kinds of units that are scored; others are ``filtered``.
    """

    dialects: Sequence[SampleExtractor]
    hooks: Hooks = field(default_factory=Hooks)
    box: Timebox = field(default_factory=Timebox)
    kinds: Sequence[UnitKind] = UNIT_KINDS

    async def job_in_time(self, sampled: SampledUnit) -> Job:
        """Make the job on a thread of the box; a hook that hangs is the outcome of its unit."""
        try:
            return await self.box.done(lambda: self.job(sampled))
        except Hung as hung:
            unit = sampled.unit.without_content()
            named = unit if sampled.redacted else unit.in_conversation(None)
            return _job(sampled, named, Samples(outcome=hung.outcome, reason=hung.reason))

    def job(self, sampled: SampledUnit) -> Job:
        """Make the job; ``job.samples.outcome`` says when there is nothing to score.

        Raises:
            Hung: a hook hangs, and nothing else.
        """
        try:
            samples = sampled.samples or self._samples(sampled.unit)
        except Hung:
            raise
        except BaseException as error:  # noqa: BLE001  (a user's Extract or dialect; the class only: its text may quote)
            samples = Samples(outcome=Outcome.NO_SAMPLE, reason=f"making the sample raised {type_name(error)}")
        unit = sampled.unit.without_content()
        named = unit if sampled.redacted else self.hooks.named(unit)
        return _job(sampled, named, self.hooks.apply(samples, redacted=sampled.redacted))

    def _samples(self, unit: Unit) -> Samples:
        root = unit.root
        if root is not None and unit.kind not in self.kinds:
            return Samples(outcome=Outcome.FILTERED, reason=f"units.kinds leaves out {_KINDS[unit.kind]}")
        for dialect in self.dialects:
            if root is not None and dialect.accepts(root):
                return dialect.extract(unit)
        return Samples(outcome=Outcome.NO_SAMPLE, reason="no dialect reads spans of this scope")


def _job(sampled: SampledUnit, unit: Unit, samples: Samples) -> Job:
    return Job(
        unit,
        samples,
        sampled.decisions,
        sampled.size_bytes,
        sampled.taken_s,
        sampled.held_until_s,
        sampled.undecided,
    )
