"""``Ledger`` gives every eligible unit exactly one outcome per metric; also remarks, the log of failures, and score batches."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from spanscore import semconv
from spanscore.core.job import CONFIGURED, STATED, UNKNOWN, Decision, Source, UnitCounts, Weights
from spanscore.core.log import log_once
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Unit, UnitKey
from spanscore.outputs.aggregates import ComparedValues
from spanscore.protocols import Sink

_MISSING = frozenset(outcome for outcome in Outcome if outcome.missing)


class Ledger:
    """Counts the outcome of each eligible unit for each metric, and implements ``Counts``.

    A unit is *open* until each of its metrics has an outcome. At any moment eligible = Σ outcomes + pending, per metric; after
    a drain, eligible = Σ outcomes. A lost unit and its weight are added in one step, so that no loss is left out or added
    twice. The methods that count one unit are O(metrics); ``pending``, ``open_units`` and ``count_units`` are O(open units).
    All are safe from any thread, except ``record_compared_value``.

    Args:
        metrics: names of the metrics for which a unit is eligible if ``enter`` gets no names.
        compared: values of the compared releases, each with separate weights as in ``excluded``; None = no comparison.
        source: source that all scores of this ledger have, such as ``inner``, and that ``settle`` counts like None. None = the
            scores of the configured judge, which have no source.

    Attributes:
        compared_values: open unit → its value of the compared attribute; empty without a comparison.
        refused: number of units that were rejected because the event queue was full.
        since_s: time at which the counts began at zero, with the process, seconds since the epoch.
    """

    def __init__(
        self, metrics: Iterable[str], compared: ComparedValues | None = None, source: str | None = None
    ) -> None:
        self._metrics = tuple(metrics)
        self._source = source
        self._compared = compared
        self._lock = threading.RLock()  # a signal handler that reads the status may interrupt its holder
        self.since_s = time()
        self.refused = 0
        self._eligible: Counter[str] = Counter()
        self._open: dict[UnitKey, dict[str, float]] = {}  # open unit → metric without an outcome → 1/π
        self._outcomes: Counter[tuple[str, Outcome]] = Counter()
        self._of_sources: Counter[tuple[str, Outcome, Source]] = Counter()
        self._excluded: dict[tuple[str, Outcome, Source], Weights] = {}
        self.compared_values: dict[UnitKey, str] = {}
        self._by_value: dict[tuple[str, str], Weights] = {}  # (metric, compared value) → weights as in ``excluded``

    def change(self, metrics: Iterable[str]) -> None:
        """Make later units eligible for other metrics. All counts are kept, including those of removed metrics."""
        self._metrics = tuple(metrics)

    def enter(self, key: UnitKey, metrics: Iterable[str] | None = None) -> bool:
        """Open a unit and make it eligible for these metrics; None = every metric. Returns False if it is already open."""
        with self._lock:
            if key in self._open:
                return False
            self._open[key] = waiting = dict.fromkeys(self._metrics if metrics is None else metrics, 1.0)
            for metric in waiting:
                self._eligible[metric] += 1
            return True

    def record_compared_value(self, unit: Unit) -> None:
        """Record the compared value of an open unit, if releases are compared. Call on the span thread: no lock is used."""
        if self._compared is not None and self.is_open(unit.ledger_key):
            self.compared_values[unit.ledger_key] = self._compared.of_unit(unit)

    def record_probabilities(self, key: UnitKey, decisions: Mapping[str, Decision]) -> None:
        """Record the probability π with which metrics sampled an open unit. A later loss weighs 1/π, an earlier loss 1."""
        with self._lock:
            waiting = self._open.get(key, {})
            waiting |= {name: 1.0 / decision.probability for name, decision in decisions.items() if name in waiting}

    def record_rejected(self, outcome: Outcome, units: int = 1) -> None:
        """Count units that were never open: eligible, with this outcome, for every metric."""
        with self._lock:
            self.refused += units if outcome is Outcome.EVENT_QUEUE_FULL else 0
            # One call less than ``outcome.missing``, for each run that a head sampler drops.
            is_missing = outcome in _MISSING
            for metric in self._metrics:
                self._eligible[metric] += units
                self._outcomes[metric, outcome] += units
                if is_missing:
                    self._add_excluded((metric, outcome, None), None, units)

    def settle(self, key: UnitKey, metric: str, outcome: Outcome, source: str | None = None) -> bool:
        """Give a metric of an open unit its outcome, and count it. Returns False, and counts nothing, if it has one already.

        ``source`` is the ``Score.source`` of the score.
        """
        with self._lock:
            waiting = self._open.get(key)
            if waiting is None or metric not in waiting:
                return False
            source = None if source == self._source else source
            self._weigh(key, metric, outcome, source, waiting.pop(metric))
            self._outcomes[metric, outcome] += 1
            if source is not None:
                self._of_sources[metric, outcome, source] += 1
            if not waiting:
                del self._open[key]
                self.compared_values.pop(key, None)
            return True

    def settle_all(self, key: UnitKey, outcome: Outcome) -> frozenset[str]:
        """Give this outcome to each metric of a unit that has none yet; return the names of these metrics."""
        with self._lock:
            waiting = self._open.pop(key, None)
            if waiting is None:
                return frozenset()
            for metric, weight in waiting.items():
                self._outcomes[metric, outcome] += 1
                self._weigh(key, metric, outcome, None, weight)
            self.compared_values.pop(key, None)
            return frozenset(waiting)

    def is_open(self, key: UnitKey) -> bool:
        """Whether a unit has a metric without an outcome."""
        return key in self._open

    def open_units(self) -> list[UnitKey]:
        """Return the units with a metric without an outcome, in the order of entry."""
        with self._lock:
            return list(self._open)

    def eligible(self) -> Mapping[str, int]:
        """Metric → number of eligible units."""
        with self._lock:
            return {**dict.fromkeys(self._metrics, 0), **self._eligible}  # another process's job may have other metrics

    def outcomes(self) -> Mapping[tuple[str, Outcome], int]:
        """(metric, outcome) → number of units with that outcome; outcomes without a unit are absent."""
        with self._lock:
            return self._outcomes.copy()

    def outcomes_by_source(self) -> Mapping[tuple[str, Outcome, Source], int]:
        """(metric, outcome, source) → number of units with that outcome; source None = sampled traffic."""
        with self._lock:
            counts = Counter(self._of_sources)
            for (metric, outcome), units in self._outcomes.items():
                counts[metric, outcome, None] = units
            for (metric, outcome, _), units in self._of_sources.items():
                counts[metric, outcome, None] -= units
            return counts

    def excluded(self) -> Mapping[tuple[str, Outcome, Source], Weights]:
        """(metric, outcome, source) → weights of units that are lost, or scored by a source, such as a fallback."""
        with self._lock:
            return self._excluded.copy()

    def lost(self) -> Mapping[str, Weights]:
        """Metric → sum of its weights in ``excluded``."""
        weights = dict.fromkeys(self.eligible(), Weights())
        for (metric, _, _), (w, w2) in self.excluded().items():
            so_far = weights.get(metric, Weights())
            weights[metric] = Weights(so_far.w + w, so_far.w2 + w2)
        return weights

    def count_units(self) -> UnitCounts:
        """Return all counts at one moment. Counts that are read one after another do not add up, as units end meanwhile."""
        with self._lock:
            counts = self.eligible(), self.outcomes_by_source(), self.pending(), self.excluded()
            return UnitCounts(*counts, compared=dict(self._by_value))

    def pending(self) -> Mapping[str, int]:
        """Metric → number of eligible units without an outcome yet."""
        with self._lock:
            pending = Counter(dict.fromkeys(self.eligible(), 0))
            for waiting in self._open.values():
                pending.update(waiting.keys())
            return pending

    def _weigh(self, key: UnitKey, metric: str, outcome: Outcome, source: str | None, weight: float) -> None:
        """Add the weight of a unit, if it is lost or its score has a source."""
        if outcome.missing or (outcome is Outcome.SCORED and source is not None):
            self._add_excluded((metric, outcome, source), self.compared_values.get(key), 1, weight)

    def _add_excluded(
        self, entry: tuple[str, Outcome, Source], value: str | None, units: int, weight: float = 1.0
    ) -> None:
        """Add the weight of units to an entry of ``excluded``; ``value`` is their compared value, None = unknown."""
        self._excluded[entry] = _plus(self._excluded.get(entry), units, weight)
        if self._compared is not None:
            value = self._compared.of_unit(None) if value is None else value
            by_value = entry[0], self._compared.of_loss(entry[0], value)
            self._by_value[by_value] = _plus(self._by_value.get(by_value), units, weight)


def _plus(weights: Weights | None, units: int, weight: float) -> Weights:
    w, w2 = weights or Weights()
    return Weights(w + units * weight, w2 + units * weight * weight)


_MAX_UNPRICED = 10
"""Number of recorded models without a price. Further ones are not recorded, because a judge may answer under many names."""
_OWN_SENTENCES = re.compile(
    r"the judge('s answer)? could not be (reached|read) \(\w+\)|the judge's provider answered HTTP \d+"
    r"|the judge('s client)? raised \w+"
    r"|(the )?\w+ raised \w+ at [\w.<>-]+:\d+|\w+ gave \w+; a metric gives [\w, ]+"
)
"""Sentences of spanscore that occur in reasons and contain no text of a user or a judge."""
_REMEDIES = (
    (re.compile("HTTP 40[13]"), "; check its API key"),
    (re.compile("HTTP 404|could not be re"), "; check the model's name and base_url"),
)
"""Cause → remedy, which ends the line in the log."""
_NAME = re.compile(r"[A-Za-z_]\w{0,60}\Z")
_BY_OUTCOME = {
    Outcome.TIMEOUT: "there was no score in time",
    Outcome.JUDGE_ERROR: "the judge gave no usable answer",
    Outcome.METRIC_ERROR: "a metric failed",
    Outcome.REDACTION_ERROR: "the redactor failed",
    Outcome.JUDGE_UNAVAILABLE: "the judge's limit was reached",
    Outcome.BUDGET_EXHAUSTED: "the judge's budget is spent",
}
"""Outcome → sentence in the log, if the error type has no sentence and the reason none of ``_OWN_SENTENCES``."""
_BY_ERROR_TYPE = {
    "declined": "the judge declined to answer",
    "cut": "the judge's answer was cut at its maximum length",
    "too_long": "the question was too long for the judge",
    "too_big": "the judge's answer was too big to read",
    "empty": "the judge's answer was empty",
    "quota": "the judge's account has no money left",
    "breaker_open": "the judge was down for too long",
}
"""Error type → sentence in the log."""


class Notes:
    """Remarks on scores for ``status()``, the latest of each kind. Written on the span thread, read on any.

    Attributes:
        reasons: (metric, outcome) → the latest reason, and its unit; the latest last.
        kinds: kind of unit → number of sampled units.
        head_sampling: source of the share that a head sampler keeps (``Decision.upstream_by``) → number of sampled units.
        sample_sources: how question and answer were found (``Samples.source``) → number of samples.
        unpriced: models of judges without a known price, 10 or a few more at most.
        images_left_out: number of images that samples lack (``Samples.images_left_out``).
    """

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, Outcome], tuple[str, UnitKey]] = {}
        self.kinds: Counter[str] = Counter()
        self.head_sampling = dict.fromkeys((STATED, CONFIGURED, UNKNOWN), 0)
        self.sample_sources: Counter[str] = Counter()
        self.unpriced: dict[str, None] = {}
        self.images_left_out = 0

    def record_sampled_unit(self, kind: str, decisions: Mapping[str, Decision]) -> None:
        """Count a sampled unit; ``decisions`` are those of the metrics that sampled it, all with one ``upstream_by``."""
        self.kinds[kind] += 1
        head = next(iter(decisions.values())).upstream_by
        if head in self.head_sampling:
            self.head_sampling[head] += 1

    def record_scores(self, key: UnitKey, scores: Sequence[Score]) -> None:
        """Record the reasons of scores without a value, and models without a price."""
        self._note({(score.metric, score.outcome): (score.reason, key) for score in scores if score.reason})
        self.record_unpriced(scores)

    def record_unscored(self, key: UnitKey, outcomes: Mapping[str, Outcome], reason: str | None) -> None:
        """Record the reason for missing scores of a unit."""
        if reason:
            self._note(dict.fromkeys(outcomes.items(), (reason, key)))

    def _note(self, reasons: Mapping[tuple[str, Outcome], tuple[str, UnitKey]]) -> None:
        for outcome in reasons:
            self.reasons.pop(outcome, None)
        self.reasons |= reasons

    def record_unpriced(self, scores: Sequence[Score]) -> None:
        """Record the models without a price."""
        if len(self.unpriced) < _MAX_UNPRICED:
            self.unpriced |= {model: None for score in scores for model in sorted(score.usage.unpriced)}

    def record_sample(self, attributes: Mapping[str, Any]) -> None:
        """Count a sample by its source, and the images that it lacks, from its attributes."""
        self.images_left_out += attributes.get(semconv.IMAGES_LEFT_OUT, 0)
        if source := attributes.get(semconv.SAMPLE_SOURCE):
            self.sample_sources[source] += 1


def log_failures(scores: Iterable[Score]) -> None:
    """Log failed scores: each cause once, and then hourly at most. Metrics and judges with the same cause share one line.

    A reason may contain text of a user's judge. So only spanscore's own sentences are logged, and the class of other errors.
    """
    for score in scores:
        if score.outcome.failed:
            cause = _cause(score)
            remedy = next((remedy for pattern, remedy in _REMEDIES if pattern.search(cause)), "")
            message = f"{score.outcome}: {cause}: units are not scored, see scorer.status(){remedy}"
            log_once(f"{score.outcome} {cause}", message)


def _cause(score: Score) -> str:
    if score.error_type in _BY_ERROR_TYPE:
        return _BY_ERROR_TYPE[score.error_type]
    if sentence := _OWN_SENTENCES.search(score.reason or ""):
        return sentence[0]
    name = score.error_type or ""
    suffix = f" ({name})" if _NAME.match(name) and name != score.outcome else ""
    return _BY_OUTCOME[score.outcome] + suffix


_SCORE_BYTES = 2_000
"""Approximate bytes of a score with its usage and an explanation."""


@dataclass(slots=True, eq=False)
class ScoreBatch:
    """Scores of one unit in the export queue of the span buffer; a sink gets them at the pace of the spans.

    Attributes:
        sink: a sink that never raises.
        ledger: ledger of a source, which counts each score after its export; None = the scores are counted already.
        spans: approximate number of spans: one per score, and one per call of a traced judge.
        size: approximate size in bytes: 2,000 per span, and one per character of the transcripts.
    """

    sink: Sink
    unit: Unit
    scores: Sequence[Score]
    ledger: Ledger | None = None
    spans: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Compute ``spans`` and ``size`` once, because both are read when the batch is queued and when it is exported."""
        sizes = [call.transcript.size for score in self.scores for call in score.usage.calls if call.transcript]
        self.spans = len(self.scores) + len(sizes)
        self.size = _SCORE_BYTES * self.spans + sum(sizes)

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Emit the scores, and then count them."""
        self.sink.emit(self.unit, self.scores)
        self.count()

    def count(self) -> None:
        """Count the scores in the ledger of their source, if they are from a source."""
        if self.ledger is not None:
            for score in self.scores:
                self.ledger.settle(self.unit.key, score.metric, score.outcome)


def has_span(score: Score) -> bool:
    """Whether the sinks get a score: its evaluation ended, with a value or not, or it has judge calls."""
    outcome = score.outcome
    has_ended = outcome in (Outcome.SCORED, Outcome.NOT_APPLICABLE, Outcome.NO_VALUE) or outcome.failed
    return has_ended or bool(score.usage.calls)
