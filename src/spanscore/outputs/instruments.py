"""The sums of a scorer (``Telemetry``), and the OpenTelemetry instruments that export the sums of all scorers on a meter."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from operator import methodcaller
from threading import Lock, local
from typing import TypeAlias

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from spanscore import semconv
from spanscore.core.job import Source, UnitCounts, Weights
from spanscore.core.log import plain_text
from spanscore.core.score import JudgeCall, Outcome, Score
from spanscore.core.span import SpanData, Unit
from spanscore.core.threads import call_in_child, renew_lock_in_child
from spanscore.outputs.aggregates import (
    MAX_SETS,
    OTHER,
    BoundedSums,
    ComparedValues,
    GaugeReading,
    Labels,
    Points,
    add_up,
    checked_dimensions,
    combine_readings,
    is_conditional,
    labels_of_applicability,
    labels_of_calls,
    labels_of_compared,
    labels_of_histogram,
    labels_of_metric,
    labels_of_outcome,
    labels_of_score,
    possible_labels,
    source_of,
)
from spanscore.outputs.instrument_table import APPLICABLE, INSTRUMENTS, MOMENTS, POINTS, READ, SUMS
from spanscore.protocols import Counts, Metric

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Buckets in s, those of the GenAI conventions for a model's call."""
WAIT_BUCKETS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Buckets in s; the last is the usual ``queue_timeout``."""
_BUCKETS: Mapping[str, Sequence[float]] = {
    semconv.QUALITY_HISTOGRAM: semconv.QUALITY_BUCKETS,
    semconv.JURY_DISAGREEMENT: semconv.QUALITY_BUCKETS,
    semconv.JUDGE_DURATION: DURATION_BUCKETS,
    semconv.JUDGE_QUEUE_DURATION: WAIT_BUCKETS,
}

_Reader: TypeAlias = "Callable[[Telemetry], Mapping[Labels, float]]"


class MeterInstruments:
    """The instruments of one meter, which add up the numbers of all scorers on it.

    The SDK would silently ignore the callbacks of a second scorer's instruments with the same names.
    """

    def __init__(self, meter: Meter) -> None:
        self.abandoned = False
        self._scorers: list[Telemetry] = []
        self._make_sums()
        call_in_child(self, MeterInstruments._make_sums)
        self._make_observable(meter)
        self.histograms = {
            name: meter.create_histogram(name, **_about(name), explicit_bucket_boundaries_advisory=buckets)
            for name, buckets in _BUCKETS.items()
        }

    def join(self, scorer: Telemetry) -> None:
        """Add the numbers of one more scorer."""
        with self._lock:
            self._scorers.append(scorer)

    def leave(self, scorer: Telemetry) -> None:
        """Remove a scorer. Its last counts and pending units stay in the exported numbers; its other gauges do not."""
        with self._lock:
            if scorer in self._scorers:
                self._scorers.remove(scorer)
                for name, read in self._lasting.items():
                    add_up(self._past_sums.setdefault(name, {}), read(scorer))
                self._past_points |= scorer.points()

    def record_wait(self, provider: str, model: str, seconds: float) -> None:
        """Record the time that a question has waited to be sent."""
        if not self.abandoned:
            attributes = {semconv.PROVIDER_NAME: provider, semconv.REQUEST_MODEL: model}
            self.histograms[semconv.JUDGE_QUEUE_DURATION].record(seconds, attributes)

    def _make_sums(self) -> None:
        self._lock = Lock()
        self._past_sums: dict[str, dict[Labels, float]] = {}
        self._past_points: dict[Hashable, GaugeReading] = {}

    def _make_observable(self, meter: Meter) -> None:
        read: dict[str, _Reader] = {
            semconv.ELIGIBLE: lambda scorer: scorer.eligible(),
            semconv.EVALUATIONS: lambda scorer: scorer.evaluations(),
            semconv.PENDING: lambda scorer: scorer.pending(),
            semconv.MISSING_WEIGHT: lambda scorer: _weights(scorer.missing_weights(), "w"),
            semconv.MISSING_WEIGHT2: lambda scorer: _weights(scorer.missing_weights(), "w2"),
            semconv.COMPARED_MISSING_WEIGHT: lambda scorer: _weights(scorer.compared_missing_weights(), "w"),
            semconv.COMPARED_MISSING_WEIGHT2: lambda scorer: _weights(scorer.compared_missing_weights(), "w2"),
            **{name: methodcaller("sums", name) for name in SUMS},
            **{name: methodcaller("reading", name) for name in READ},
        }
        self._lasting = {name: reader for name, reader in read.items() if _is_counter(name) or name == semconv.PENDING}
        observed = {name: partial(self._observe, name, reader) for name, reader in read.items()}
        observed |= {name: partial(self._observe_points, name) for name in POINTS}
        for name, observe in observed.items():
            make = meter.create_observable_counter if _is_counter(name) else meter.create_observable_gauge
            make(name, [observe], **_about(name))

    def _observe(self, name: str, read: _Reader, _: CallbackOptions) -> list[Observation]:
        with self._lock:
            total = dict(self._past_sums.get(name, {}))
            for scorer in self._scorers:
                add_up(total, read(scorer))
        return [Observation(value, dict(labels)) for labels, value in total.items()]

    def _observe_points(self, name: str, _: CallbackOptions) -> list[Observation]:
        """Return the present readings; for a counter, which must not decrease, also the last readings of removed scorers."""
        with self._lock:
            points = dict(self._past_points) if _is_counter(name) else {}
            for scorer in self._scorers:
                points |= scorer.points()
        return [Observation(value, dict(labels)) for labels, value in combine_readings(name, points.values()).items()]


def _weights(weights: Mapping[Labels, Weights], name: str) -> dict[Labels, float]:
    return {labels: getattr(own, name) for labels, own in weights.items()}


def _is_counter(name: str) -> bool:
    return INSTRUMENTS[name].kind == "counter"


def _about(name: str) -> dict[str, str]:
    return {"unit": INSTRUMENTS[name].unit, "description": INSTRUMENTS[name].description}


class _InstrumentsByMeter:
    """The instruments of every meter, made at the first use of the meter. Thread-safe."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Meter, MeterInstruments] = weakref.WeakKeyDictionary()
        self._lock = Lock()
        renew_lock_in_child(self)

    def get(self, meter: Meter) -> MeterInstruments:
        with self._lock:
            if meter not in self._made:
                self._made[meter] = MeterInstruments(meter)
            return self._made[meter]


_instruments = _InstrumentsByMeter()

Reading: TypeAlias = Callable[[], float | Mapping[str, float]]
"""Function that returns one number, or ``reason`` → number."""
Waits: TypeAlias = Callable[[Callable[[str, str, float], None]], None]
"""Function that registers a listener, once, which gets provider, model and seconds of each question's wait."""

UNKNOWN = "unknown"


class Telemetry:
    """The sums of one scorer, which observable instruments read. Thread-safe; no content of a score makes it raise.

    Because the sums are kept here and not in the SDK,

    - declared attribute sets are 0 from the first collection on,
    - a forked child starts at 0 and does not export its parent's counts again,
    - a meter that is added later gets all counts.

    The sums contain quality and w = 1/π, never raw values. So they only grow: replicas add up, and PromQL's ``increase()``
    handles restarts.

    Args:
        meter: meter of the export; None = no export yet, but sums are kept.
        gauges: instrument of ``READ`` → function that returns its number; a mapping has one number per ``reason``.
        points: returns the readings of accounts, budgets, judge checks and partitions.
        waits: registers a listener for the waits of questions; None = no waits are recorded.
        dimensions: attribute or metadata key → its separate values; any other value is ``other``.
        compared: reads the compared value of a unit; None = no releases are compared.
        max_sets: undeclared attribute sets per instrument; models, agents and evaluator versions above it are ``other``.

    Attributes:
        on_collection: called at the beginning of each collection, on its thread.

    Raises:
        ConfigurationError: a dimension has the name of an attribute of spanscore.
    """

    def __init__(
        self,
        meter: Meter | None,
        counts: Counts,
        gauges: Mapping[str, Reading] | None = None,
        *,
        points: Points = dict,
        waits: Waits | None = None,
        dimensions: Mapping[str, Sequence[str]] | None = None,
        compared: ComparedValues | None = None,
        max_sets: int = MAX_SETS,
    ) -> None:
        self.counts = counts
        self.on_collection: Callable[[], object] = object
        self._collection = local()
        self.gauges = dict(gauges or {})
        self._points, self._waits = points, waits
        self._dimensions = checked_dimensions(dimensions or {})
        self._compared = compared
        self._declared_values: set[tuple[str, str]] = set()
        self._metrics: Mapping[tuple[str, Source], Metric] = {}
        self._sums = BoundedSums(max_sets)
        self._exported: Mapping[Meter, MeterInstruments] = {}
        call_in_child(self._sums, BoundedSums.begin_at_zero)
        if meter is not None:
            self.export_to(meter)

    @property
    def overflowed(self) -> int:
        """Number of measurements in sets with ``other``, because their instrument had too many sets."""
        return self._sums.overflowed

    @property
    def overflowing(self) -> Mapping[str, str]:
        """Metric → its attribute with too many values; only metrics above the limit."""
        return dict(self._sums.overflowing)

    def export_to(self, meter: Meter) -> None:
        """Export to this meter, too: all sums from the beginning, but histograms only from now on."""
        if meter not in self._exported:
            instruments = _instruments.get(meter)
            instruments.join(self)
            self._exported = {**self._exported, meter: instruments}
            self.record_waits()

    def record_waits(self) -> None:
        """Record the waits of all present accounts. Call it after accounts were added."""
        if self._waits is not None:
            for instruments in self._exported.values():
                self._waits(instruments.record_wait)

    def abandon(self, meter: Meter) -> None:
        """Stop recording on this meter, without a call of the meter: in a forked child, its locks may be locked for ever."""
        if meter in self._exported:
            self._exported[meter].abandoned = True
        self._exported = {other: kept for other, kept in self._exported.items() if other is not meter}

    def declare(self, metrics: Iterable[Metric], source: Source = None) -> None:
        """Create all sums of these metrics, in a source, with the value 0. Call it before their first unit."""
        for metric in metrics:
            self._metrics = {**self._metrics, (metric.name, source): metric}  # a collection may read the old one now
            # before the first score of a release, the only compared value is ``other``
            self._declare_sums(metric, source, {} if self._compared is None else {semconv.COMPARED: ()})
            if source is None:
                self._sums.add(semconv.DECLINED, labels_of_metric(metric.name), 0)
            for applies in (True, False) if source is None and is_conditional(metric) else ():
                labels = labels_of_applicability(metric.name, metric.evaluator_version, applies)
                self._sums.declare(labels, dict.fromkeys(APPLICABLE, 0.0))

    def declare_calls(self, metric: str, model: str, *, have_price: bool) -> None:
        """Create the sums of a metric's calls of a model with the value 0; the cost only if the model has a price."""
        labels = labels_of_calls(metric, model)
        for kind in _tokens(JudgeCall(step="", model=model)):
            self._sums.add(semconv.JUDGE_TOKENS, (*labels, (semconv.JUDGE_TOKEN_TYPE, kind)), 0)
        costs = (semconv.JUDGE_COST,) if have_price else ()
        for name in (semconv.JUDGE_CALLS, semconv.JUDGE_CALLS_WITHOUT_USAGE, semconv.JUDGE_SELF_CONTRADICTIONS, *costs):
            self._sums.add(name, labels, 0)

    def record(self, unit: Unit | None, score: Score, context: Context | None = None) -> None:
        """Count one score and its cost.

        A provisional score, or one that replaces an earlier one (``revision`` > 0), adds only its cost, because sums never
        decrease.

        Args:
            unit: source of the names of model and agent, and of the segments; None = unknown.
            context: contains the scored span's context, to which the exemplar points.
        """
        for call in score.usage.calls:
            self._record_call(score, call)
        if score.contradictions:
            labels = labels_of_calls(score.metric, score.judge_model or UNKNOWN)
            self._sums.add(semconv.JUDGE_SELF_CONTRADICTIONS, labels, score.contradictions)
        if score.revision or (unit is not None and unit.is_provisional):
            return
        self._record_disagreement(unit, score, context)
        if score.applies is not None and not score.source:
            w, labels = _weight(score), labels_of_applicability(score.metric, score.evaluator_version, score.applies)
            self._sums.add_all(labels, zip(APPLICABLE, (w, w * w), strict=True))
        if score.value is not None:
            self._record_value(unit, score, context)
        elif score.error_type == _DECLINED and not score.source:
            self._sums.add(semconv.DECLINED, labels_of_metric(score.metric), 1)

    def count(self, name: str, labels: Labels, amount: float = 1) -> None:
        """Add to a sum that does not depend on a score."""
        self._sums.add(name, labels, amount)

    def close(self) -> None:
        """End the gauges of this scorer. Its counts stay exported, because a counter must not decrease.

        The number of pending units stays, too: after a shutdown it is 0, and without it a store would show the last value for
        minutes.
        """
        for instruments in self._exported.values():
            instruments.leave(self)

    def _record_value(self, unit: Unit | None, score: Score, context: Context | None) -> None:
        # an external metric may return a quality outside [0, 1], or NaN, which the SDK would drop
        w, y = _weight(score), score.quality if score.quality is not None and 0.0 <= score.quality <= 1.0 else None
        segment = self._segment_of(None if unit is None else unit.root)
        if self._compared is not None:
            segment += ((semconv.COMPARED, self._compared_value(self._compared, unit, score)),)
        labels = labels_of_score(
            score.metric, score.exported_label, score.evaluator_version, segment, source_of(unit, score)
        )
        if y is None and score.category is not None:  # a share needs weights; without quality there is no mean
            self._sums.add_all(labels, zip(_OF_CATEGORY, (1, w, w * w), strict=True))
            return
        if y is None:  # a weight without a quality would pull the mean to 0: missing is not zero
            self._sums.add(semconv.SCORED, labels, 1)
            return
        amounts = (1, w, w * y, w * y * y, w * w, w * w * y, w * w * y * y)
        self._sums.add_all(labels, zip(_OF_SCORE, amounts, strict=True))
        self._record_histogram(semconv.QUALITY_HISTOGRAM, labels_of_histogram(unit, score), y, context)

    def _record_disagreement(self, unit: Unit | None, score: Score, context: Context | None) -> None:
        if score.jury is None or score.jury.disagreement is None:
            return
        labels = labels_of_score(score.metric, None, score.evaluator_version, (), source_of(unit, score))
        self._record_histogram(semconv.JURY_DISAGREEMENT, labels, score.jury.disagreement, context)

    def _record_call(self, score: Score, call: JudgeCall) -> None:
        labels = labels_of_calls(score.metric, call.model or score.judge_model or UNKNOWN)
        self._sums.add(semconv.JUDGE_CALLS, labels, 1)
        for kind, tokens in _tokens(call).items():
            self._sums.add(semconv.JUDGE_TOKENS, (*labels, (semconv.JUDGE_TOKEN_TYPE, kind)), tokens)
        if not (call.input_tokens or call.output_tokens or call.cached or call.error_type):
            self._sums.add(semconv.JUDGE_CALLS_WITHOUT_USAGE, labels, 1)
        if call.cost_usd is not None:
            self._sums.add(semconv.JUDGE_COST, labels, call.cost_usd)
        if call.error_type:
            self._sums.add(semconv.JUDGE_ERRORS, (*labels, (semconv.ERROR_TYPE, call.error_type)), 1)
        if not call.cached:  # a cached answer has no duration
            self._record_histogram(semconv.JUDGE_DURATION, labels, max(0.0, call.duration_s), None)

    def _record_histogram(self, name: str, labels: Labels, value: float, context: Context | None) -> None:
        bounded = dict(self._sums.limit_labels(name, labels))
        for instruments in self._exported.values():
            instruments.histograms[name].record(value, bounded, context=context)

    def _declare_sums(self, metric: Metric, source: Source, compared: Mapping[str, Sequence[str]]) -> None:
        scale = metric.scale
        _, *weighted = _OF_CATEGORY if scale.categories and not scale.has_quality else _OF_SCORE
        for labels in possible_labels(metric, {**self._dimensions, **compared}, source):
            self._sums.declare(labels, {semconv.SCORED: 0, **dict.fromkeys(weighted, 0.0)})

    def _compared_value(self, compared: ComparedValues, unit: Unit | None, score: Score) -> str:
        """Return the compared value of a score. At the first score of a value, create all sums of the value as 0."""
        value = compared.of_score(unit, score)
        metric = score.metric if compared.by == semconv.EVALUATOR_VERSION else ""
        if (metric, value) not in self._declared_values:
            self._declared_values.add((metric, value))
            for (_, source), declared in self._metrics.items():
                if metric in ("", declared.name):
                    self._declare_sums(declared, source, {semconv.COMPARED: (value,)})
        return value

    def _segment_of(self, root: SpanData | None) -> Labels:
        """Return the value of each dimension on a unit, from the root's metadata, attributes or resource."""
        segment, places = [], () if root is None else (root.metadata, root.attributes, root.resource or {})
        for key, values in self._dimensions.items():
            text = plain_text(next((place[key] for place in places if key in place), None))
            segment.append((key, text if text is not None and text in values else OTHER))
        return tuple(segment)

    # --- read by the observable instruments ---

    def sums(self, name: str) -> dict[Labels, float]:
        """Return attributes → value of one sum."""
        return self._sums.read(name)

    def eligible(self) -> dict[Labels, float]:
        """Return the eligible units per metric. A collection reads them before all other counts of units."""
        self.on_collection()
        self._collection.counts = self.counts.count_units()
        return self._per_metric(lambda counts: counts.eligible)

    def evaluations(self) -> dict[Labels, float]:
        """Return the units with an outcome, per metric and outcome; 0 for the other outcomes of a declared metric."""
        ended = dict.fromkeys(self._declared_outcomes(Outcome), 0)
        for _, counts in self._unit_counts().parts:
            ended.update(counts.outcomes)
        return {labels_of_outcome(*key): count for key, count in ended.items()}

    def pending(self) -> dict[Labels, float]:
        """Return the units without an outcome yet, per metric."""
        return self._per_metric(lambda counts: counts.pending)

    def missing_weights(self) -> dict[Labels, Weights]:
        """Return the weights of lost units per metric and outcome; 0 for the other outcomes of a declared metric."""
        weights = dict.fromkeys(self._declared_outcomes(_LOSSES), Weights())
        for _, counts in self._unit_counts().parts:
            weights.update(counts.excluded)
        return {labels_of_outcome(*key): own for key, own in weights.items()}

    def compared_missing_weights(self) -> dict[Labels, Weights]:
        """Return the weights of lost units per metric and compared value."""
        if self._compared is None:
            return {}
        population = [metric for metric, source in self._metrics if source is None]
        zeros = {(metric, value): Weights() for metric in population for value in self._compared.values_of(metric)}
        return {labels_of_compared(*key): own for key, own in {**zeros, **self._unit_counts().compared}.items()}

    def _unit_counts(self) -> UnitCounts:
        """Return the counts at the start of this thread's collection, so that all instruments agree; otherwise those of now."""
        return getattr(self._collection, "counts", None) or self.counts.count_units()

    def _declared_outcomes(self, outcomes: Iterable[Outcome]) -> Iterator[tuple[str, Outcome, Source]]:
        return ((metric, outcome, source) for (metric, source), outcome in product(self._metrics, outcomes))

    def _per_metric(self, number: Callable[[UnitCounts], Mapping[str, int]]) -> dict[Labels, float]:
        counts = dict.fromkeys(self._metrics, 0)
        for source, of_source in self._unit_counts().parts:
            counts |= {(metric, source): units for metric, units in number(of_source).items()}
        return {labels_of_metric(*key): units for key, units in counts.items()}

    def reading(self, name: str) -> dict[Labels, float]:
        """Return the numbers of an instrument of ``gauges``; empty if it has no function, or if the function fails."""
        try:
            value = self.gauges[name]() if name in self.gauges else {}
        except Exception:  # noqa: BLE001  (the SDK would print it at each collection; a missing point is visible)
            return {}
        if isinstance(value, Mapping):
            return {(("reason", reason),): number for reason, number in value.items()}
        return {(): value}

    def points(self) -> Mapping[Hashable, GaugeReading]:
        """Return the readings of accounts, budgets and the like; empty if their function fails."""
        try:
            return self._points()
        except Exception:  # noqa: BLE001  (as in ``reading``)
            return {}


def _tokens(call: JudgeCall) -> Mapping[str, int]:
    """Return the tokens by type; each token has one type, so that the types add up."""
    cached = min(call.cached_input_tokens, call.input_tokens)
    written = min(call.cache_write_tokens, call.input_tokens - cached)
    plain = call.input_tokens - cached - written
    return {"input": plain, "cached_input": cached, "cache_write": written, "output": call.output_tokens}


_OF_SCORE = (semconv.SCORED, *MOMENTS)
_OF_CATEGORY = (semconv.SCORED, semconv.WEIGHT, semconv.WEIGHT2)
_DECLINED = "declined"
_LOSSES = tuple(outcome for outcome in Outcome if outcome.missing)


def _weight(score: Score) -> float:
    """Return the weight w = 1/π of a score; 1 for a score outside sampling."""
    return 1.0 / score.probability if score.probability else 1.0
