"""A stored trace → its units, their known scores, what is to be scored now, and cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from heapq import heappush, heapreplace
from math import log
from pathlib import Path
from random import Random
from typing import Final

from spanscore import semconv
from spanscore.capture.otlp.claims import WireClaims
from spanscore.capture.otlp.spans import units_of
from spanscore.capture.otlp.streams import bounds_of
from spanscore.capture.scopes import Role
from spanscore.config.collect import CaseCondition
from spanscore.config.reading import read_settings
from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, span_data_of
from spanscore.core.codecs.text import as_text, plain_number
from spanscore.core.job import Decision, Job
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, score_id
from spanscore.core.span import SpanData, Unit, UnitKey, UpstreamDecision
from spanscore.metrics.catalog.registry import built_ins
from spanscore.outputs.collected_cases import CollectedCase, FoundScore, case_sample
from spanscore.pipeline.sampling import decode_threshold
from spanscore.pipeline.trace_index import ClosedUnit
from spanscore.pipeline.traces import TraceTable
from spanscore.protocols import Metric
from spanscore.samples.normalizers.registry import SpanNormalizers
from spanscore.stored.traces import StoredTrace

__all__ = [
    "NO_CONTENT",
    "CaseCounts",
    "EvaluatedUnit",
    "EvaluatedUnits",
    "StoredUnit",
    "UnitPlan",
    "UnitReader",
    "drawn",
    "folded",
    "found",
    "plan_of",
    "reading_settings",
]

# --- evaluated ------------------------------------------------------------------------------------------------------

# Evaluation spans of a store → what was decided on units and scored of them already.

_OF_NO_UNIT: Final = frozenset({semconv.SOURCE_SHADOW, semconv.SOURCE_JUDGE_CHECK, semconv.SOURCE_FEEDBACK})
_FAILED: Final = frozenset(outcome.value for outcome in Outcome if outcome.failed)
_ANNOTATOR: Final = semconv.OPENINFERENCE_EVALUATION + "annotator_kind"


@dataclass(slots=True)
class EvaluatedUnit:
    """What a store says of one unit's scores.

    Attributes:
        decided: metric → how it was chosen, by its latest score.
        scores: metric → score id → its revision, and whether it failed.
        found: metric → its latest score.
    """

    decided: dict[str, UpstreamDecision] = field(default_factory=dict)
    scores: dict[str, dict[str, tuple[int, bool]]] = field(default_factory=dict)
    found: dict[str, FoundScore] = field(default_factory=dict)

    def latest(self, key: UnitKey, metric: Metric) -> tuple[int, bool] | None:
        """Return the highest revision of a metric's score in its present version, and whether that failed; None: none."""
        known = [
            (revision, failed)
            for identity, (revision, failed) in self.scores.get(metric.name, {}).items()
            if identity == score_id(key, metric.name, metric.version, revision)
        ]
        return max(known, default=None)


class EvaluatedUnits:
    """What evaluation spans say, by unit. In any order; of a decision the latest revision's stands."""

    def __init__(self) -> None:
        self._units: dict[UnitKey, EvaluatedUnit] = {}

    def read(self, spans: Iterable[SpanData]) -> None:
        """Take in what is an evaluation of a unit; anything else is passed over."""
        for span in spans:
            if span.scope == semconv.SCOPE and span.parent_id is not None and _is_of_unit(span):
                self._add(UnitKey(span.trace_id, span.parent_id), span)

    def of(self, key: UnitKey) -> EvaluatedUnit | None:
        """Return what is known of a unit; None: nothing."""
        return self._units.get(key)

    def _add(self, key: UnitKey, span: SpanData) -> None:
        held = span.attributes
        metric, revision = (
            as_text(held[semconv.EVALUATION_NAME]),
            int(plain_number(held.get(semconv.SCORE_REVISION)) or 0),
        )
        unit = self._units.setdefault(key, EvaluatedUnit())
        scores = unit.scores.setdefault(metric, {})
        is_latest = revision >= max((known for known, _ in scores.values()), default=0)
        scores[as_text(held.get(semconv.SCORE_ID))] = revision, held.get(semconv.OUTCOME) in _FAILED
        if not is_latest:
            return
        unit.found[metric] = _found(held, metric)
        if (decided := _decided(held)) is not None:
            unit.decided[metric] = decided


def _is_of_unit(span: SpanData) -> bool:
    held = span.attributes
    return (
        semconv.EVALUATION_NAME in held
        and semconv.SESSION_END not in held
        and held.get(semconv.EVALUATION_SOURCE) not in _OF_NO_UNIT
        and held.get(_ANNOTATOR) != semconv.ANNOTATOR_HUMAN
    )


def _decided(held: Mapping[str, object]) -> UpstreamDecision | None:
    threshold, rule = held.get(semconv.SAMPLING_THRESHOLD), held.get(semconv.SAMPLING_RULE)
    known = decode_threshold(threshold) if isinstance(threshold, str) else None
    return None if known is None or not isinstance(rule, str) else UpstreamDecision(True, known, rule)


def _found(held: Mapping[str, object], metric: str) -> FoundScore:
    label, evaluator_version = held.get(semconv.EVALUATION_SCORE_LABEL), held.get(semconv.EVALUATOR_VERSION)
    return FoundScore(
        plain_number(held.get(semconv.EVALUATION_SCORE_VALUE)),
        label if isinstance(label, str) else None,
        evaluator_version if isinstance(evaluator_version, str) else None,
        plain_number(held.get(semconv.PROBABILITY + metric)),
    )


# --- reading --------------------------------------------------------------------------------------------------------

# UnitReader: a stored trace → its units, and what is known of their scores. By the rules of spans that come over the wire.

NO_CONTENT = "none with content: capture.content was off; set Capture(content=True), in a file capture: {content: true}"
"""Of the units of a file, and what to do so that the next ones have some."""


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """A unit as a store has it.

    Attributes:
        unit: its root says what was decided.
        dialect: that reads its root; empty where none does.
        evaluated: what is known of its scores.
        spans: its spans, still the bytes that came.
    """

    unit: Unit
    dialect: str
    evaluated: EvaluatedUnit
    spans: Sequence[WireSpan]

    @property
    def has_content(self) -> bool:
        """Whether a span of it holds a prompt, an answer or a document."""
        return any(semconv.is_content(name) for span in self.unit.spans for name in span.attributes)


class UnitReader:
    """Reads one trace after the other. One thread.

    Args:
        settings: which spans are read, and how.
        known: of scores, beside what the traces themselves say.

    Attributes:
        translator: counts what each dialect has read.
        claims: knows which spans may be of a unit.
        mended: what was not as it should be → spans.
        orphans: spans that may be of a unit whose root is not there.
    """

    def __init__(self, settings: ScorerSettings, known: EvaluatedUnits | None = None) -> None:
        self.translator = SpanNormalizers(settings.units.translations)
        self.mended: Counter[str] = Counter()
        self.orphans = 0
        self.claims = WireClaims(self.translator, listed=settings.units.scopes, ignored=settings.units.ignore_scopes)
        self._known = known or EvaluatedUnits()
        bounds = bounds_of(settings.units)
        self._table = TraceTable(bounds, follows=lambda root: True, stands_alone=self.claims.stands_alone)
        self._over_ns = bounds.orphan_wait_ns + bounds.quiet_ns + 1

    def units(self, trace: StoredTrace) -> list[StoredUnit]:
        """Return the units of a whole trace, in the order of their starts."""
        known, table = EvaluatedUnits(), self._table
        for span in trace.spans:
            if self.claims.of(span.origin).role is Role.OURS:
                known.read(_read(span))
            else:
                table.add(span, claimed=self.claims.claims(span), now_ns=0)
        closed = table.due(self._over_ns)
        self.orphans += table.orphans
        table.reset()
        read = [stored for one in closed for stored in self._units(one, known)]
        return sorted(read, key=lambda one: one.unit.spans[0].start_ns)

    def _units(self, closed: ClosedUnit, in_trace: EvaluatedUnits) -> Iterator[StoredUnit]:
        if self.claims.is_none(closed):
            return
        came = {int.from_bytes(span.span_id): span for span in closed.spans}
        for unit in units_of(closed, self.translator, self.mended):
            if not unit.spans:
                continue
            evaluated = _joined(in_trace.of(unit.key), self._known.of(unit.key))
            spans = [replace(one, decided=evaluated.decided) if one is unit.root else one for one in unit.spans]
            members = [came[one.span_id] for one in unit.spans if one.span_id in came]
            yield StoredUnit(replace(unit, spans=tuple(spans)), self._dialect(unit, came), evaluated, members)

    def _dialect(self, unit: Unit, came: Mapping[int, WireSpan]) -> str:
        """Return the translation of the first span with content, the speaker before others; empty if none reads the unit."""
        order = [span for span in (unit.content_span, *unit.spans) if span is not None and span.operation is not None]
        named = next((span for span in order if span.no_content is None), unit.root)
        raw = None if named is None else came.get(named.span_id)
        read = [] if raw is None else _read(raw)
        return next((name for span in read if (name := self.translator.reads(span)) is not None), "")


def reading_settings(config: Path | None) -> ScorerSettings:
    """Return the settings of a configuration file; the defaults if there is no file.

    Raises:
        ConfigurationError: the configuration is wrong.
    """
    return ScorerSettings() if config is None else read_settings(config).settings


def _joined(first: EvaluatedUnit | None, second: EvaluatedUnit | None) -> EvaluatedUnit:
    joined = EvaluatedUnit()
    for one in (second, first):
        if one is not None:
            joined.decided |= one.decided
            joined.found |= one.found
            for metric, scores in one.scores.items():
                joined.scores[metric] = joined.scores.get(metric, {}) | scores
    return joined


def _read(span: WireSpan) -> list[SpanData]:
    try:
        return [span_data_of(span)]
    except UnreadableRequest:
        return []


# --- planning -------------------------------------------------------------------------------------------------------

# A stored unit → what is to be scored of it now: which metrics, and as which revision.


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """What becomes of one unit.

    Attributes:
        units: to be handed over, one for each revision that some metric is at; none where no metric takes it.
        taken: metrics that score it now.
        skipped: that took it, and have scored it already.
        told: of those that take it, whose decision a score in the store tells; the others' was made anew.
    """

    units: Sequence[Unit]
    taken: Set[str]
    skipped: Set[str]
    told: Set[str]


def plan_of(
    stored: StoredUnit, metrics: Sequence[Metric], decide: Callable[[Unit], Mapping[str, Decision]], *, again: bool
) -> UnitPlan:
    """Return what is to be done with a unit.

    What has a score by each metric in its present version is left alone; an evaluation that failed is tried again, as a
    revision above the one that failed.

    Args:
        stored: the unit.
        metrics: all of them.
        decide: what the sampler says of it.
        again: score everything that is taken, as a revision above what is there.
    """
    decisions = decide(stored.unit)
    takers = [metric for metric in metrics if decisions[metric.name].take]
    revisions = {metric.name: _revision(stored, metric, again=again) for metric in takers}
    wanted = {name: revision for name, revision in revisions.items() if revision is not None}
    at = sorted(set(wanted.values()))
    units = [_only(stored.unit, decisions, {name for name in wanted if wanted[name] == one}, one) for one in at]
    told = {name for name in revisions if name in stored.evaluated.decided}
    return UnitPlan(
        units or [_only(stored.unit, decisions, set(), 0)], wanted.keys(), revisions.keys() - wanted.keys(), told
    )


def _revision(stored: StoredUnit, metric: Metric, *, again: bool) -> int | None:
    """Return as which revision a metric scores a unit; None: it has."""
    known = stored.evaluated.latest(stored.unit.key, metric)
    if known is None:
        return 0
    revision, failed = known
    return revision + 1 if failed or again else None


def _only(unit: Unit, decisions: Mapping[str, Decision], names: Set[str], revision: int) -> Unit:
    """Return a unit which, of those that take it, only these metrics score."""
    others = {
        name: UpstreamDecision(False, one.threshold, one.rule)
        for name, one in decisions.items()
        if one.take and name not in names
    }
    root = unit.root
    if root is None or not (others or revision):
        return unit
    decided = replace(root, decided={**(root.decided or {}), **others})
    return replace(unit, spans=tuple(decided if one is root else one for one in unit.spans), revision=revision)


# --- cases ----------------------------------------------------------------------------------------------------------

# Stored units → cases: those of which a condition holds, each question once, or a draw of them.

_NO_SCORE: Final = frozenset({semconv.SCORE_ID, semconv.SCORE_REVISION})


@dataclass(slots=True)
class CaseCounts:
    """What was looked through.

    Attributes:
        traces: that were read; likewise ``units``.
        unscored: units that nobody has scored.
        matched: units of which a condition holds.
        without_content: of these, those on whose spans there is no content; reason → units.
        unusable: likewise, those of which no sample could be made for another reason.
        metrics: that some unit has a score of.
    """

    traces: int = 0
    units: int = 0
    unscored: int = 0
    matched: int = 0
    without_content: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    metrics: set[str] = field(default_factory=set)


def found(
    units: Iterable[StoredUnit],
    conditions: Sequence[CaseCondition],
    read: Callable[[StoredUnit], Job],
    counts: CaseCounts,
) -> Iterator[CollectedCase]:
    """Yield the units of which a condition holds, all where there is none, that can be a case.

    Args:
        units: of a store.
        conditions: any of them will do.
        read: makes a unit's sample, redacted.
        counts: takes in what was seen.
    """
    for unit in units:
        scores = unit.evaluated.found or _on_root(unit)
        counts.units += 1
        counts.unscored += not scores
        counts.metrics.update(scores)
        held = {one.metric for one in conditions if one.holds(scores)}
        if held or not conditions:
            counts.matched += 1
            yield from _case(unit, scores, held or scores.keys(), read(unit).samples, counts)


def _case(
    unit: StoredUnit,
    scores: Mapping[str, FoundScore],
    metrics: Collection[str],
    samples: Samples,
    counts: CaseCounts,
) -> Iterator[CollectedCase]:
    """Yield the case of a unit; nothing where no sample could be made, which is counted."""
    requires = {name: built_ins()[name].requires for name in metrics if name in built_ins()}
    sample = case_sample(samples, metrics, requires)
    if sample is None:
        bare = not any(semconv.is_content(name) for span in unit.unit.spans for name in span.attributes)
        (counts.without_content if bare else counts.unusable)[samples.reason or "no sample"] += 1
        return
    yield CollectedCase.of(unit.unit.key, sample, scores)


def _on_root(unit: StoredUnit) -> Mapping[str, FoundScore]:
    """Return the scores that stand on the unit's own span: all that there is of them where evaluation spans are off."""
    held = {} if unit.unit.root is None else unit.unit.root.attributes
    values = {name.removeprefix(semconv.SCORE): name for name in held if name.startswith(semconv.SCORE)}
    known = {metric: plain_number(held[name]) for metric, name in values.items() if name not in _NO_SCORE}
    return {
        metric: FoundScore(
            value,
            held.get(semconv.LABEL + metric),
            None,
            plain_number(held.get(semconv.PROBABILITY + metric)),
        )
        for metric, value in known.items()
    }


def folded(cases: Iterable[CollectedCase]) -> list[CollectedCase]:
    """Return cases with equal questions as one, the first, which says how many they were."""
    by_question: dict[str, CollectedCase] = {}
    for case in cases:
        first = by_question.setdefault(case.question, case)
        if first is not case:
            first.times += case.times
    return list(by_question.values())


def drawn(cases: Iterable[CollectedCase], number: int, seed: int) -> list[CollectedCase]:
    """Draw cases without replacement, each with a chance in proportion to the units for which it stands, 1/probability.

    So rules that score some traffic more often do not shape the draw. A case of which nobody says how probable it was stands
    for itself. Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006), algorithm A-Res.
    """
    random, kept = Random(seed), list[tuple[float, int, CollectedCase]]()
    for place, case in enumerate(cases):
        draw = log(1.0 - random.random()) * (case.probability or 1.0), place, case  # log(u) / w
        if len(kept) < number:
            heappush(kept, draw)
        elif draw[0] > kept[0][0]:
            heapreplace(kept, draw)
    return [case for _, _, case in sorted(kept, key=lambda one: one[1])]
