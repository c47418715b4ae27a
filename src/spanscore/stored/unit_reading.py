"""Reads the units of stored traces with their earlier scores, plans which metrics score them again, and collects cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush, heappushpop
from math import expm1, inf, log
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

from spanscore import semconv
from spanscore.capture.otlp.claims import WireClaims
from spanscore.capture.otlp.spans import units_of
from spanscore.capture.otlp.streams import trace_bounds
from spanscore.capture.scopes import Role
from spanscore.config.collect import CaseCondition
from spanscore.config.reading import read_settings
from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, span_data_of
from spanscore.core.codecs.text import as_text, plain_number
from spanscore.core.job import Decision
from spanscore.core.sample import Samples
from spanscore.core.score import Label, Outcome, score_id
from spanscore.core.span import SpanData, Unit, UnitKey, UpstreamDecision
from spanscore.metrics.catalog.registry import built_ins
from spanscore.outputs.collected_cases import CollectedCase, FoundScore, case_sample
from spanscore.pipeline.sampling import decode_threshold
from spanscore.pipeline.trace_index import ClosedUnit
from spanscore.pipeline.traces import TraceTable
from spanscore.protocols import Metric
from spanscore.samples.normalizers.registry import SpanNormalizers
from spanscore.stored.traces import StoredTrace

_NOT_OF_UNIT: Final = frozenset({semconv.SOURCE_SHADOW, semconv.SOURCE_JUDGE_CHECK, semconv.SOURCE_FEEDBACK})
"""Sources of scores that do not count as the score of a unit."""
_FAILED: Final = frozenset(outcome.value for outcome in Outcome if outcome.failed)
_ANNOTATOR: Final = semconv.OPENINFERENCE_EVALUATION + "annotator_kind"


@dataclass(slots=True)
class EvaluatedUnit:
    """The scores and sampling decisions of one unit, as read from its evaluation spans.

    Attributes:
        decided: metric → sampling decision that its latest score has.
        scores: metric → score id → revision of the score, and whether its evaluation failed.
        found: metric → its latest score.
    """

    decided: dict[str, UpstreamDecision] = field(default_factory=dict)
    scores: dict[str, dict[str, tuple[int, bool]]] = field(default_factory=dict)
    found: dict[str, FoundScore] = field(default_factory=dict)

    def latest(self, key: UnitKey, metric: Metric) -> tuple[int, bool] | None:
        """Return the highest revision of a score of the metric's present version, and whether it failed; None = no such score.

        A score id is computed from the metric's version, so it shows whether a score is of the present version.
        """
        revisions = [
            (revision, failed)
            for identity, (revision, failed) in self.scores.get(metric.name, {}).items()
            if identity == score_id(key, metric.name, metric.version, revision)
        ]
        return max(revisions, default=None)

    def add(self, span: SpanData) -> None:
        """Add an evaluation span of the unit, in any order; the latest revision has the unit's score and decision."""
        attributes = span.attributes
        metric = as_text(attributes[semconv.EVALUATION_NAME])
        revision = int(plain_number(attributes.get(semconv.SCORE_REVISION)) or 0)
        scores = self.scores.setdefault(metric, {})
        is_latest = revision >= max((earlier for earlier, _ in scores.values()), default=0)
        scores[as_text(attributes.get(semconv.SCORE_ID))] = revision, attributes.get(semconv.OUTCOME) in _FAILED
        if not is_latest:
            return
        label, version = attributes.get(semconv.EVALUATION_SCORE_LABEL), attributes.get(semconv.EVALUATOR_VERSION)
        value = plain_number(attributes.get(semconv.EVALUATION_SCORE_VALUE))
        explanation = attributes.get(semconv.EVALUATION_EXPLANATION)
        self.found[metric] = FoundScore(
            *_value_and_label(value, label, attributes.get(semconv.VERDICT)),
            version if isinstance(version, str) else None,
            plain_number(attributes.get(semconv.PROBABILITY + metric)),
            None if explanation is None else as_text(explanation),
            plain_number(attributes.get(semconv.JURY_DISAGREEMENT)),
        )
        text, rule = attributes.get(semconv.SAMPLING_THRESHOLD), attributes.get(semconv.SAMPLING_RULE)
        threshold = decode_threshold(text) if isinstance(text, str) else None
        if threshold is not None and isinstance(rule, str):
            self.decided[metric] = UpstreamDecision(True, threshold, rule)

    def __or__(self, later: EvaluatedUnit) -> EvaluatedUnit:
        """Return the union. If both have a decision or a latest score of a metric, that of ``later`` counts."""
        metrics = {**self.scores, **later.scores}
        scores = {metric: self.scores.get(metric, {}) | later.scores.get(metric, {}) for metric in metrics}
        return EvaluatedUnit(self.decided | later.decided, scores, self.found | later.found)


def _value_and_label(value: float | None, label: Any, verdict: Any = None) -> tuple[float | str | None, str | None]:
    """Return the value and the label of a score. For a category, the exported label is the value, and the verdict the label."""
    if value is None and isinstance(label, str) and label not in get_args(Label):
        return label, verdict if verdict in get_args(Label) else None
    return value, label if isinstance(label, str) else None


class EvaluatedUnits:
    """The scores of many units, as read from their evaluation spans."""

    def __init__(self) -> None:
        self._units: dict[UnitKey, EvaluatedUnit] = {}

    def read(self, spans: Iterable[SpanData]) -> None:
        """Add the evaluation spans of units, in any order; other spans are skipped."""
        for span in spans:
            attributes = span.attributes
            if (
                span.scope == semconv.SCOPE
                and span.parent_id is not None
                and semconv.EVALUATION_NAME in attributes
                and semconv.SESSION_END not in attributes
                and attributes.get(semconv.EVALUATION_SOURCE) not in _NOT_OF_UNIT
                and attributes.get(_ANNOTATOR) != semconv.ANNOTATOR_HUMAN
            ):
                self._units.setdefault(UnitKey(span.trace_id, span.parent_id), EvaluatedUnit()).add(span)

    def of(self, key: UnitKey) -> EvaluatedUnit:
        """Return the scores of a unit; without scores an empty value."""
        return self._units.get(key) or EvaluatedUnit()


NO_CONTENT = "none with content: capture.content was off; set Capture(content=True), in a file capture: {content: true}"
"""End of a sentence about units without content: the reason, and the setting that changes it."""


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """A unit from a store.

    Attributes:
        unit: the unit. The root has the sampling decisions.
        dialect: name of the dialect that reads the unit; empty = no dialect.
        evaluated: earlier scores of the unit.
        spans: spans of the unit as the original bytes.
        inner: id of a span below the root that was scored as a unit of its own (an inner unit) → its earlier scores.
    """

    unit: Unit
    dialect: str
    evaluated: EvaluatedUnit
    spans: Sequence[WireSpan]
    inner: Mapping[int, EvaluatedUnit] = field(default_factory=dict)

    @property
    def has_content(self) -> bool:
        """Whether a span of the unit has a prompt, an answer or a document."""
        return any(semconv.is_content(name) for span in self.unit.spans for name in span.attributes)


class UnitReader:
    """Makes the units of traces, one after the other, by the rules for received spans. Use it from one thread.

    Args:
        earlier: earlier scores that are not in the traces; None = no such scores.

    Attributes:
        translator: normalizers of the spans; they also count the spans of each dialect.
        claims: decides which spans may belong to a unit.
        mended: corrected defect → number of spans.
        orphans: number of spans of units without a root.
    """

    def __init__(self, settings: ScorerSettings, earlier: EvaluatedUnits | None = None) -> None:
        self.translator = SpanNormalizers(settings.units.translations)
        self.mended: Counter[str] = Counter()
        self.orphans = 0
        self.claims = WireClaims(self.translator, listed=settings.units.scopes, ignored=settings.units.ignore_scopes)
        self._earlier = earlier or EvaluatedUnits()
        bounds = trace_bounds(settings.units)
        self._make_table = partial(TraceTable, bounds, follows=lambda root: True, is_unit_root=self.claims.is_unit_root)
        self._all_closed_ns = bounds.orphan_wait_ns + bounds.quiet_ns + 1

    def units(self, trace: StoredTrace) -> list[StoredUnit]:
        """Return the units of a whole trace, in the order of their starts."""
        in_trace, table = EvaluatedUnits(), self._make_table()
        for span in trace.spans:
            if self.claims.of(span.origin).role is Role.OURS:
                in_trace.read(_read(span))
            else:
                table.add(span, claimed=self.claims.claims(span), now_ns=0)
        closed = table.due(self._all_closed_ns)
        self.orphans += table.orphans
        units = [stored for closed_unit in closed for stored in self._units(closed_unit, in_trace)]
        return sorted(units, key=lambda stored: stored.unit.spans[0].start_ns)

    def _units(self, closed: ClosedUnit, in_trace: EvaluatedUnits) -> Iterator[StoredUnit]:
        if self.claims.has_no_unit(closed):
            return
        wire_spans = {int.from_bytes(span.span_id): span for span in closed.spans}
        for unit in units_of(closed, self.translator, self.mended):
            if not unit.spans:
                continue
            evaluated = self._earlier.of(unit.key) | in_trace.of(unit.key)
            spans = [replace(span, decided=evaluated.decided) if span is unit.root else span for span in unit.spans]
            members = [wire_spans[span.span_id] for span in unit.spans if span.span_id in wire_spans]
            yield StoredUnit(
                replace(unit, spans=tuple(spans)),
                self._dialect(unit, wire_spans),
                evaluated,
                members,
                self._inner_scores(unit, in_trace),
            )

    def _inner_scores(self, unit: Unit, in_trace: EvaluatedUnits) -> Mapping[int, EvaluatedUnit]:
        keys = (UnitKey(span.trace_id, span.span_id) for span in unit.spans if span is not unit.root)
        evaluated = {key.span_id: self._earlier.of(key) | in_trace.of(key) for key in keys}
        return {span_id: own for span_id, own in evaluated.items() if own.scores}

    def _dialect(self, unit: Unit, wire_spans: Mapping[int, WireSpan]) -> str:
        """Return the dialect of the unit's first span with content, its content span first; empty if no dialect reads it."""
        order = [span for span in (unit.content_span, *unit.spans) if span is not None and span.operation is not None]
        first = next((span for span in order if span.no_content is None), unit.root)
        wire = None if first is None else wire_spans.get(first.span_id)
        spans = [] if wire is None else _read(wire)
        return next((name for span in spans if (name := self.translator.normalizer_of(span)) is not None), "")


def reading_settings(config: Path | None) -> ScorerSettings:
    """Return the settings of a configuration file; the defaults if there is no file.

    Raises:
        ConfigurationError: the configuration is wrong.
    """
    return ScorerSettings() if config is None else read_settings(config).settings


def _read(span: WireSpan) -> list[SpanData]:
    try:
        return [span_data_of(span)]
    except UnreadableRequest:
        return []


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """The metrics that score a stored unit now, and the revision of their scores.

    Attributes:
        units: copies of the unit to hand over, one for each revision among ``taken``; if ``taken`` is empty, one with revision
            0.
        taken: metrics that score the unit now.
        skipped: metrics that sample the unit and have already scored it.
        from_store: metrics that sample the unit because the store has their sampling decision; the sampler decided for the
            others.
    """

    units: Sequence[Unit]
    taken: Set[str]
    skipped: Set[str]
    from_store: Set[str]


def plan_of(
    stored: StoredUnit, metrics: Sequence[Metric], decide: Callable[[Unit], Mapping[str, Decision]], *, again: bool
) -> UnitPlan:
    """Return the plan of a unit.

    Args:
        stored: the unit.
        metrics: metrics of the configuration.
        decide: returns the sampling decision of each metric.
        again: whether metrics with a score of their present version score the unit again, with the next revision; if not, they
            are left out. A failed evaluation is always repeated with the next revision.
    """
    decisions = decide(stored.unit)
    chosen = [metric for metric in metrics if decisions[metric.name].take]
    revisions = dict[str, int]()
    for metric in chosen:
        latest = stored.evaluated.latest(stored.unit.key, metric)
        if latest is None:
            revisions[metric.name] = 0
        elif latest[1] or again:
            revisions[metric.name] = latest[0] + 1
    unit = _mark_scored(stored, metrics)
    units = [
        _limit_to(unit, decisions, {name for name in revisions if revisions[name] == revision}, revision)
        for revision in sorted({*revisions.values()} or {0})
    ]
    names = {metric.name for metric in chosen}
    return UnitPlan(units, revisions.keys(), names - revisions.keys(), names & stored.evaluated.decided.keys())


def _mark_scored(stored: StoredUnit, metrics: Sequence[Metric]) -> Unit:
    """Return a unit whose spans have the sampling decisions of their inner units.

    A metric with a score of its present version does not score the inner unit again, not even if that evaluation failed: an
    inner unit has no revisions.
    """
    if not stored.inner:
        return stored.unit
    spans = list(stored.unit.spans)
    for at, span in enumerate(spans):
        evaluated, key = stored.inner.get(span.span_id), UnitKey(span.trace_id, span.span_id)
        if evaluated is not None:
            scored = {metric.name for metric in metrics if evaluated.latest(key, metric) is not None}
            decided = {name: own._replace(take=name not in scored) for name, own in evaluated.decided.items()}
            spans[at] = replace(span, decided=decided)
    return replace(stored.unit, spans=tuple(spans))


def _limit_to(unit: Unit, decisions: Mapping[str, Decision], names: Set[str], revision: int) -> Unit:
    others = {
        name: UpstreamDecision(False, decision.threshold, decision.rule)
        for name, decision in decisions.items()
        if decision.take and name not in names
    }
    root = unit.root
    if root is None or not (others or revision):
        return unit
    decided = replace(root, decided={**(root.decided or {}), **others})
    return replace(unit, spans=tuple(decided if span is root else span for span in unit.spans), revision=revision)


_NO_SCORE: Final = frozenset({semconv.SCORE_ID, semconv.SCORE_REVISION})
"""Attributes with the prefix of scores that have no score."""
_MOST_WORDS: Final = 100


@dataclass(slots=True)
class CaseCounts:
    """Counts of the units that were searched for cases.

    Attributes:
        units: number of units.
        unscored: number of units without a score.
        matched: number of units that meet a condition.
        without_content: reason → number of matched units without content on their spans.
        unusable: reason → number of matched units that give no sample for another reason.
        metrics: metric → labels and categories of its scores, at most 100; metrics without a score are missing.
    """

    units: int = 0
    unscored: int = 0
    matched: int = 0
    without_content: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, set[str]] = field(default_factory=dict)

    def add_scores(self, scores: Mapping[str, FoundScore]) -> None:
        """Add the metrics of a unit's scores, with their labels and categories."""
        for metric, score in scores.items():
            words = self.metrics.setdefault(metric, set())
            if len(words) < _MOST_WORDS:
                words.update(word for word in (score.label, score.value) if isinstance(word, str))

    def has_word(self, condition: CaseCondition) -> bool:
        """Return whether a condition can hold: its metric has scores, with its category if the condition names one."""
        words = self.metrics.get(condition.metric)
        return words is not None and (
            condition.is_label or condition.bound in words or isinstance(condition.bound, float)
        )


def find_cases(
    units: Iterable[StoredUnit],
    conditions: Sequence[CaseCondition],
    read_samples: Callable[[Unit], Samples],
    counts: CaseCounts,
) -> Iterator[CollectedCase]:
    """Yield a case for each unit that meets one of the conditions and gives a sample; update the counts.

    Without conditions, every unit matches. ``read_samples`` returns the redacted samples of a unit.
    """
    for stored in units:
        scores = stored.evaluated.found or _read_root_scores(stored.unit)
        counts.units += 1
        counts.unscored += not scores
        counts.add_scores(scores)
        metrics = {condition.metric for condition in conditions if condition.holds(scores)}
        if conditions and not metrics:
            continue
        counts.matched += 1
        samples, metrics = read_samples(stored.unit), metrics or {*scores}
        sample = case_sample(
            samples, metrics, {name: built_ins()[name].requires for name in metrics & built_ins().keys()}
        )
        if sample is None:
            reasons = counts.unusable if stored.has_content else counts.without_content
            reasons[samples.reason or "no sample"] += 1
        else:
            yield CollectedCase(stored.unit.key, sample, scores)


def _read_root_scores(unit: Unit) -> Mapping[str, FoundScore]:
    """Return the scores on the unit's own span, which are the only scores if evaluation spans are off."""
    attributes = {} if unit.root is None else unit.root.attributes
    scores = (name for name in attributes if name.startswith(semconv.SCORE) and name not in _NO_SCORE)
    categories = (name.removeprefix(semconv.LABEL) for name in attributes if name.startswith(semconv.LABEL))
    return {
        metric: FoundScore(
            *_value_and_label(
                plain_number(attributes.get(semconv.SCORE + metric)), attributes.get(semconv.LABEL + metric)
            ),
            None,
            plain_number(attributes.get(semconv.PROBABILITY + metric)),
        )
        for metric in dict.fromkeys((*(name.removeprefix(semconv.SCORE) for name in scores), *categories))
    }


def fold_cases(cases: Iterable[CollectedCase]) -> list[CollectedCase]:
    """Return the first case of each question, with the number of all its cases."""
    by_question: dict[str, CollectedCase] = {}
    for case in cases:
        first = by_question.setdefault(case.question, case)
        if first is not case:
            first.times += case.times
    return list(by_question.values())


def draw_cases(cases: Iterable[CollectedCase], number: int, seed: int) -> list[CollectedCase]:
    """Draw cases without replacement, each with a chance proportional to the units that it represents, 1/probability.

    So rules that score some traffic more often do not bias the draw. A case with an unknown probability represents only
    itself. The probabilities of a drawn case are multiplied by its chance in the draw, so weights by 1/probability stay
    unbiased. Sources: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006), algorithm A-Res; Cohen
    and Kaplan, "Summarizing data using bottom-k sketches" (2007): the chance, given the first rank that is not drawn.
    """
    random = Random(seed)
    heap: list[tuple[float, int, CollectedCase]] = []  # the ``number`` highest ranks, and the next one
    for place, case in enumerate(cases):
        rank = log(1.0 - random.random()) * (case.probability or 1.0), place, case  # log(u) / w
        if len(heap) <= number:
            heappush(heap, rank)
        else:
            heappushpop(heap, rank)
    first_left_out = heappop(heap)[0] if len(heap) > number else -inf
    drawn = [case for _, _, case in sorted(heap, key=lambda rank: rank[1])]
    return [case.multiply_probabilities(-expm1(first_left_out / (case.probability or 1.0))) for case in drawn]
