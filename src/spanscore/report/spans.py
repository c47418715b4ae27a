"""Sorts the spans of a file into units and their evaluations, and makes the rows of a report from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final, TypeVar

from spanscore import semconv
from spanscore.core.codecs.text import as_text, plain_number, safe_text
from spanscore.core.score import Label, Outcome, Scale, ScoreValue, categorical
from spanscore.core.span import SessionEnd, SpanData, UnitKey
from spanscore.errors import ConfigurationError
from spanscore.monitoring.estimates import Moments, moments
from spanscore.monitoring.health import Applicability, applicability
from spanscore.pipeline.sampling import decode_threshold, probability
from spanscore.report.rows import PENDING, ReportRow, name_within, unit_name

_UNIT: Final = re.compile("[0-9a-f]{32}/[0-9a-f]{16}")
"""Name of a unit, as ``unit_name`` writes it."""

# --- population ------------------------------------------------------------------------------------------------------

_LOST = frozenset(outcome.value for outcome in Outcome if outcome.missing)


def population_sums(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> Moments:
    """Return the sums of a metric's scores, from which the mean of the whole traffic is estimated.

    Units that are lost or scored by a fallback are not in the mean: they count as lost.

    Args:
        rows: rows of a metric that has a quality.
        fallback: rows of the same metric with scores of a fallback judge.
    """
    pairs = [(row.quality, 1.0 / row.weight) for row in rows if row.quality is not None]
    return moments(pairs, [probability for _, probability in lost_units(rows, fallback)])


def lost_units(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> list[tuple[ReportRow, float]]:
    """Return lost units and units scored by a fallback, each with its probability; if that is unknown, the typical one.

    For the arguments see ``population_sums``.
    """
    scored = [row for row in rows if row.quality is not None]
    lost = _find_lost(rows) + [row for row in fallback if row.value is not None] + _find_lost(fallback)
    typical = len(scored) / sum(row.weight for row in scored) if scored else 1.0
    return [(row, row.probability or typical) for row in lost]


def population_applicability(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> Applicability | None:
    """Return the share of traffic to which a metric applies; None without an answer. For arguments see ``population_sums``."""
    decided = [(row.applies, 1.0 / row.weight) for row in rows if row.applies is not None]
    if not decided:
        return None
    typical = len(decided) / sum(1.0 / probability for _, probability in decided)
    missing = [*_find_lost(rows), *_find_lost(fallback), *(row for row in fallback if row.applies is not None)]
    return applicability(decided, [row.probability or typical for row in missing])


def _find_lost(rows: Sequence[ReportRow]) -> list[ReportRow]:
    return [row for row in rows if {*row.outcome.split(" or ")} & _LOST]


# --- spans -----------------------------------------------------------------------------------------------------------

_K = TypeVar("_K")
_N = TypeVar("_N")
_PAIR = 2
OPEN: SessionEnd = "open"
"""End of a conversation that goes on: its scores are provisional."""
_ANNOTATOR_KIND = semconv.OPENINFERENCE_EVALUATION + "annotator_kind"
_KIND_NAMES: Mapping[str, str] = {"multi_turn": "a conversation", "single_turn": "a single turn"}
"""Kind of sample that a metric may require in the place of a field → its name for people."""


@dataclass(slots=True)
class Spans:
    """Spans of a file, sorted into units, their evaluations and their descendants; each score counts once.

    A score may be on the unit's span, on an evaluation span, or on both. The evaluation span has more data (explanation,
    range, judge), so its row is used; the highest revision wins. An evaluation that was never started has no evaluation span.
    Its outcome is on the unit's span (``spanscore.outcome.…``), or follows from ``spanscore.status``: ``pending``,
    ``delegated`` or ``not_sampled``.

    Attributes:
        units: key → span with scores or a status; a span that comes twice counts once.
        evaluations: unit → metric → evaluation span of the highest revision.
        shadows: unit → metric → evaluation span of a second judge.
        after_feedback: unit → metric → evaluation span of a score that feedback on the unit has started.
        conversations: id of a conversation → metric → evaluation span of the highest final revision.
        provisional: id of a conversation → metric → evaluation span of the latest provisional score,
            given while the conversation was open.
        human_labels: unit → name and annotator → span of the person's last label.
        by_trace: trace id → span id → span, without evaluation spans and spans of judges.
    """

    units: dict[UnitKey, SpanData] = field(default_factory=dict)
    evaluations: dict[UnitKey, dict[str, SpanData]] = field(default_factory=dict)
    shadows: dict[UnitKey, dict[str, SpanData]] = field(default_factory=dict)
    after_feedback: dict[UnitKey, dict[str, SpanData]] = field(default_factory=dict)
    conversations: dict[str, dict[str, SpanData]] = field(default_factory=dict)
    provisional: dict[str, dict[str, SpanData]] = field(default_factory=dict)
    human_labels: dict[UnitKey, dict[tuple[str, str], SpanData]] = field(default_factory=dict)
    by_trace: dict[int, dict[int, SpanData]] = field(default_factory=dict)

    @classmethod
    def read(cls, spans: Iterable[SpanData]) -> Spans:
        """Group the spans, which may come in any order."""
        read = cls()
        for span in spans:
            if span.scope == semconv.SCOPE and span.attributes.get(semconv.EVALUATION_NAME):
                read._add_evaluation(span)
                continue
            if span.scope == semconv.JUDGE_SCOPE:
                continue
            read.by_trace.setdefault(span.trace_id, {}).setdefault(span.span_id, span)
            if semconv.STATUS in span.attributes or _scored_metrics(span):
                read.units.setdefault(UnitKey(span.trace_id, span.span_id), span)
        for key in read.evaluations:
            scored = read.by_trace.get(key.trace_id, {}).get(key.span_id)
            if scored is not None:  # if another instrumentation exports the unit, its own span has no scores
                read.units.setdefault(key, scored)
        return read

    def rows(self) -> list[ReportRow]:
        """Return one row per (unit × metric), in the order of time."""
        scales, metrics, rows = self._scales(), self._metrics_of_services(), list[ReportRow]()
        for key in {**self.units, **dict.fromkeys(self.evaluations)}:
            span, evaluations = self.units.get(key), self.evaluations.get(key, {})
            rows += (_from_evaluation(key, metric, evaluation, span) for metric, evaluation in evaluations.items())
            if span is not None:
                rows += _on_span_alone(key, span, evaluations, scales, metrics.get(_service(span), {}))
        rows += self._of_conversations({row.metric for row in rows})
        return sorted(rows, key=lambda row: (row.time_ns or 0, row.unit, row.metric))

    def shadow_rows(self) -> list[ReportRow]:
        """Return one row per evaluation by a second judge, under its metric's own name, only for comparison."""
        return [
            replace(_from_evaluation(key, metric, span, self.units.get(key)), metric=safe_text(metric))
            for key, of_unit in self.shadows.items()
            for metric, span in of_unit.items()
        ]

    def feedback_rows(self) -> list[ReportRow]:
        """Return one row per score that feedback on its unit has started; such a unit represents only itself."""
        return [
            _from_evaluation(key, metric, span, self.units.get(key))
            for key, of_unit in self.after_feedback.items()
            for metric, span in of_unit.items()
        ]

    def conversation_row(self, conversation: str, metric: str, span: SpanData) -> ReportRow:
        """Return the row of an evaluation span of a whole conversation, with the time of the last turn."""
        key = UnitKey(span.trace_id, span.parent_id or 0)
        last = self.by_trace.get(key.trace_id, {}).get(key.span_id)
        return replace(_from_evaluation(key, metric, span, last), unit=conversation, of_conversation=True)

    def unit(self, name: str) -> tuple[UnitKey, tuple[SpanData, ...]]:
        """Return a unit's key and its spans, with the root, in start order; no spans if the file has no spans of it.

        Args:
            name: "trace id/span id" in hex digits. Any other name, such as a conversation id, has no spans and the key (0, 0).
        """
        if not _UNIT.fullmatch(name):
            return UnitKey(0, 0), ()
        trace_id, _, span_id = name.partition("/")
        key = UnitKey(int(trace_id, 16), int(span_id, 16))
        within = self.by_trace.get(key.trace_id, {})
        return key, tuple(sorted(_under(within, key.span_id), key=lambda span: (span.start_ns, -span.end_ns)))

    def _add_evaluation(self, span: SpanData) -> None:
        attributes, unit = span.attributes, UnitKey(span.trace_id, span.parent_id or 0)
        name = as_text(attributes[semconv.EVALUATION_NAME])
        source = as_text(attributes.get(semconv.EVALUATION_SOURCE) or "")
        if attributes.get(_ANNOTATOR_KIND) == semconv.ANNOTATOR_HUMAN:
            annotator = as_text(attributes.get(semconv.ANNOTATOR) or semconv.ANNOTATOR_HUMAN)
            key = name, annotator
            # the revisions of different processes are unrelated, so the time decides first
            _keep_last(self.human_labels, unit, key, span, by=lambda label: (label.end_ns, _revision(label)))
        elif semconv.SESSION_END in attributes:
            conversation = safe_text(as_text(attributes.get(semconv.CONVERSATION_ID) or unit_name(unit)))
            if attributes[semconv.SESSION_END] == OPEN:
                _keep_last(self.provisional, conversation, name, span, by=turns_of)
            else:
                _keep_last(self.conversations, conversation, name, span)
        elif source != semconv.SOURCE_JUDGE_CHECK:
            by_source = {semconv.SOURCE_SHADOW: self.shadows, semconv.SOURCE_FEEDBACK: self.after_feedback}
            _keep_last(by_source.get(source, self.evaluations), unit, name, span)

    def _scales(self) -> dict[str, Scale]:
        """Return the scale of each metric, by its evaluation spans.

        A metric without evaluation spans has the scale 0…1, higher is better, if all its values on unit spans fit it,
        otherwise an open scale.
        """
        scales: dict[str, Scale] = {}
        for of_unit in self.evaluations.values():
            scales |= {metric: _scale(span.attributes) for metric, span in of_unit.items() if metric not in scales}
        on_units = {name for span in self.units.values() for name in _scored_metrics(span)}
        for name in on_units - scales.keys():
            values = [_finite(span.attributes.get(semconv.SCORE + name)) for span in self.units.values()]
            fits = all(0.0 <= value <= 1.0 for value in values if value is not None)
            scales[name] = Scale(range=(0.0, 1.0) if fits else None)
        return scales

    def _metrics_of_services(self) -> dict[Any, dict[str, None]]:
        """Return service → the metrics that its units mention, in order. Units of other services need not have them."""
        metrics: dict[Any, dict[str, None]] = {}
        for span in self.units.values():
            metrics.setdefault(_service(span), {}).update(
                dict.fromkeys([*_scored_metrics(span), *_read_outcomes(span)])
            )
        for of_unit in self.evaluations.values():
            for metric, span in of_unit.items():
                metrics.setdefault(_service(span), {})[metric] = None
        return metrics

    def _of_conversations(self, turn_metrics: Set[str]) -> Iterator[ReportRow]:
        """Yield a row per score of a whole conversation. A metric that also judged turns gets another name here."""
        for conversation, of_metric in self.conversations.items():
            for metric, span in of_metric.items():
                row = self.conversation_row(conversation, metric, span)
                name = name_within(row.metric, "conversations") if row.metric in turn_metrics else row.metric
                yield replace(row, metric=name)


def _on_span_alone(
    key: UnitKey,
    span: SpanData,
    evaluations: Mapping[str, SpanData],
    scales: Mapping[str, Scale],
    metrics: Mapping[str, None],
) -> Iterator[ReportRow]:
    """Yield a row for each metric without an evaluation span, from the unit's span.

    ``metrics`` are those of the unit's service.
    """
    own = {metric: _from_unit(key, metric, span, scales[metric]) for metric in _scored_metrics(span)}
    own |= {metric: _without_score(key, span, metric, *why) for metric, why in _read_outcomes(span).items()}
    yield from (row for metric, row in own.items() if metric not in evaluations)
    rest_outcome = _read_rest_outcome(span)
    with_row = {*evaluations, *own}
    if rest_outcome is not None:
        others = [metric for metric in metrics if metric not in with_row] if with_row or metrics else [""]
        yield from (_without_score(key, span, metric, rest_outcome) for metric in others)


def _revision(span: SpanData) -> float:
    return _finite(span.attributes.get(semconv.SCORE_REVISION)) or 0.0


def turns_of(span: SpanData) -> int:
    """Return the number of turns that an evaluation of a conversation saw; 0 = not known."""
    return int(_finite(span.attributes.get(semconv.SESSION_TURNS)) or 0)


def _keep_last(
    spans: dict[_K, dict[_N, SpanData]], key: _K, name: _N, span: SpanData, by: Callable[[SpanData], Any] = _revision
) -> None:
    """Store a span unless a later one is stored; of equal ones, the first stays. ``by`` returns the order of a span."""
    latest = spans.setdefault(key, {}).setdefault(name, span)
    if by(span) > by(latest):
        spans[key][name] = span


def _under(within: Mapping[int, SpanData], top: int) -> Iterator[SpanData]:
    """Yield a span and its descendants, each once, even if a span's parent is its own descendant."""
    children: dict[int, list[SpanData]] = {}
    for span in within.values():
        if span.parent_id is not None and span.span_id != top:
            children.setdefault(span.parent_id, []).append(span)
    waiting = [within[top]] if top in within else []
    seen: set[int] = set()
    while waiting:
        span = waiting.pop()
        if span.span_id not in seen:
            seen.add(span.span_id)
            yield span
            waiting += children.get(span.span_id, ())


def _service(span: SpanData) -> Any:
    return (span.resource or {}).get(semconv.SERVICE_NAME)


def _scored_metrics(span: SpanData) -> list[str]:
    """Return the metrics with a score on a unit's span: a number, or a category alone."""
    plain = span.without_content().attributes
    numbers = [name.removeprefix(semconv.SCORE) for name in plain if name.startswith(semconv.SCORE)
               and name not in {semconv.SCORE_ID, semconv.SCORE_REVISION} and _finite(plain[name]) is not None]  # fmt: skip
    categories = (name.removeprefix(semconv.LABEL) for name in plain if name.startswith(semconv.LABEL)
                  and _label(plain[name]) is None and isinstance(plain[name], str))  # fmt: skip
    return [*dict.fromkeys((*numbers, *categories))]


def _read_outcomes(span: SpanData) -> dict[str, tuple[str, str]]:
    """Return metric → outcome and missing fields, for the metrics that a unit's span names."""
    outcomes = dict[str, tuple[str, str]]()
    for name, text in span.without_content().attributes.items():
        if name.startswith(semconv.METRIC_OUTCOME):
            outcome, _, fields = as_text(text).partition(" ")
            outcomes[name.removeprefix(semconv.METRIC_OUTCOME)] = outcome, fields
    return outcomes


def _read_rest_outcome(span: SpanData) -> str | None:
    """Return the outcome of the metrics that a unit's span does not name; None if it has no status, or is an inner unit."""
    status = None if semconv.UNIT_KIND in span.attributes else span.attributes.get(semconv.STATUS)
    return str(status) if status in (PENDING, Outcome.DELEGATED.value, Outcome.NOT_SAMPLED.value) else None


def _unit_fields(key: UnitKey, span: SpanData) -> dict[str, Any]:
    return {"time_ns": span.end_ns, "name": safe_text(span.name), "trace_id": f"{key.trace_id:032x}"}


def _from_evaluation(key: UnitKey, metric: str, span: SpanData, unit: SpanData | None) -> ReportRow:
    attributes = span.attributes
    label, scale = attributes.get(semconv.EVALUATION_SCORE_LABEL), _scale(attributes)
    value = label if label in scale.categories else _finite(attributes.get(semconv.EVALUATION_SCORE_VALUE))
    quality, applies = _finite(attributes.get(semconv.QUALITY)), attributes.get(semconv.APPLICABLE)
    return ReportRow(
        unit=unit_name(key),
        metric=safe_text(name_within(metric, _source(attributes))),
        outcome=Outcome.SCORED.value
        if value is not None
        else as_text(attributes.get(semconv.OUTCOME) or "judge_error"),
        value=value,
        quality=quality if quality is not None or value is None else scale.quality(value),
        label=_label(attributes.get(semconv.VERDICT) if scale.categories else label),
        reason=_text_in(attributes, semconv.ERROR_TYPE),
        explanation=_text_in(attributes, semconv.EVALUATION_EXPLANATION),
        probability=_probability(attributes, metric),
        kind=scale.kind,
        range=scale.range,
        categories=scale.categories,
        direction=scale.direction,
        pass_at=_finite(attributes.get(semconv.METRIC_PASS_AT)),
        evaluator_version=_text_in(attributes, semconv.EVALUATOR_VERSION),
        judge_model=_text_in(attributes, semconv.JUDGE_MODEL),
        input_tokens=int(_finite(attributes.get(semconv.JUDGE_INPUT_TOKENS)) or 0),
        output_tokens=int(_finite(attributes.get(semconv.JUDGE_OUTPUT_TOKENS)) or 0),
        cost_usd=_finite(attributes.get(semconv.JUDGE_COST_USD)),
        left_out=_read_left_out(attributes, metric),
        applies=applies if isinstance(applies, bool) else None,
        **_unit_fields(key, unit or span),
    )


def _source(attributes: Mapping[str, Any]) -> Any:
    """Return the source of a score; for an inner unit, its kind and the name of its entry."""
    inner = [as_text(attributes[name]) for name in (semconv.UNIT_KIND, semconv.UNIT_NAME) if name in attributes]
    return " ".join(inner) or attributes.get(semconv.EVALUATION_SOURCE)


def _text_in(attributes: Mapping[str, Any], name: str) -> str | None:
    """Return an attribute as text; None if it is missing."""
    return None if attributes.get(name) is None else as_text(attributes[name])


def _without_score(key: UnitKey, span: SpanData, metric: str, outcome: str, missing: str = "") -> ReportRow:
    needed = _KIND_NAMES.get(missing, missing.replace(",", ", "))
    reason = f"needs {needed}" if needed else None
    name = safe_text(name_within(metric, _source(span.attributes)) if semconv.UNIT_KIND in span.attributes else metric)
    return ReportRow(unit=unit_name(key), metric=name, outcome=outcome, reason=reason, **_unit_fields(key, span))


def _from_unit(key: UnitKey, metric: str, span: SpanData, scale: Scale) -> ReportRow:
    label, number = span.attributes.get(semconv.LABEL + metric), span.attributes.get(semconv.SCORE + metric)
    value: ScoreValue = as_text(label) if number is None else float(number)
    return ReportRow(
        unit=unit_name(key),
        metric=safe_text(name_within(metric, _source(span.attributes))),
        value=value,
        quality=scale.quality(value),
        label=_label(label),
        probability=_probability(span.attributes, metric),
        left_out=_read_left_out(span.attributes, metric),
        kind="categorical" if isinstance(value, str) else scale.kind,
        range=scale.range,
        categories=scale.categories,
        direction=scale.direction,
        **_unit_fields(key, span),
    )


def _scale(attributes: Mapping[str, Any]) -> Scale:
    categories = attributes.get(semconv.METRIC_CATEGORIES)
    if isinstance(categories, (list, tuple)):
        with suppress(ConfigurationError):  # any program may have written the file
            return categorical("", categories)
    kind, direction = attributes.get(semconv.METRIC_KIND), attributes.get(semconv.METRIC_DIRECTION)
    bounds = attributes.get(semconv.METRIC_RANGE)
    low_high = tuple(_finite(bound) for bound in bounds) if isinstance(bounds, (list, tuple)) else ()
    bounded = len(low_high) == _PAIR and None not in low_high and low_high[0] < low_high[1]  # type: ignore[operator]  # no None
    return Scale(
        kind=kind if kind in {"binary", "ordinal", "continuous"} else "continuous",
        range=low_high if bounded else None,  # type: ignore[arg-type]  # two numbers
        direction="lower" if direction == "lower" else "higher",
        negatives_are_zero=bool(bounded and low_high[0] < 0),  # type: ignore[operator]  # only cosines go below zero
    )


def _probability(attributes: Mapping[str, Any], metric: str) -> float | None:
    chance = _finite(attributes.get(semconv.PROBABILITY + metric))
    if chance is None and isinstance(text := attributes.get(semconv.SAMPLING_THRESHOLD), str):
        threshold = decode_threshold(text)
        chance = None if threshold is None else probability(threshold)
    return chance if chance is not None and 0.0 < chance <= 1.0 else None


def _read_left_out(attributes: Mapping[str, Any], metric: str) -> float:
    return _finite(attributes.get(semconv.LEFT_OUT + metric)) or 0.0


def _label(value: Any) -> Label | None:
    return value if value in ("pass", "fail") else None


def _finite(value: Any) -> float | None:
    """Return a finite number; None for other values, as any program may have written the file."""
    number = plain_number(value)
    return None if number is None or not isfinite(number) else float(number)
