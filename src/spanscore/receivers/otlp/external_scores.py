"""ExternalScores: scores that others made and that come over the wire → sums of a source of their own, ``external``.

Nobody declares their scales, so that a mean is of values from 0 to 1 alone, and of none of a name that had any other. Their
names and labels are somebody else's text: short, of one line, and of a hundred pairs at most; what is past that is ``other``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from spanscore import semconv
from spanscore.core.codecs.otlp_request import Taken, UnreadableRequest, WireSpan, kept
from spanscore.core.codecs.otlp_scan import SpanPlace
from spanscore.core.job import ExternalCount, ExternalCounts
from spanscore.core.log import log_internal_error
from spanscore.outputs.aggregates import OTHER, Labels, within
from spanscore.outputs.instrument_table import MOMENTS
from spanscore.pipeline.trace_index import ClosedKeys
from spanscore.receivers.otlp.claims import ScopeClaim
from spanscore.receivers.otlp.evaluations import MARKS, ExternalResult, LogResults, holds, results_on
from spanscore.receivers.scopes import Role

__all__ = ["ExternalScores"]

_REMEMBERED: Final = 100_000
"""Spans and records whose scores were counted: whoever had no answer sends them again."""
_WAYS: Final = ("event", "span", "record")
_MOST: Final = 100
"""Pairs of name and label that are told apart."""
_LONGEST: Final = 64
"""Characters of a name or a label. A longer one is most likely what was said, and not what it is called."""


@dataclass(slots=True)
class _NameTally:
    """Of one name: what was counted, and whether it ever had a value that is not from 0 to 1."""

    scores: int = 0
    weight: float = 0.0
    weight_value: float = 0.0
    off_scale: bool = False
    labels: Counter[str] = field(default_factory=Counter)

    def count(self) -> ExternalCount:
        mean = self.weight_value / self.weight if self.weight and not self.off_scale else None
        return ExternalCount(self.scores, mean, self.off_scale, dict(self.labels))


class ExternalScores:
    """Counts them, each once. Any thread.

    Args:
        count: adds to a sum: instrument, attributes, amount.
        own: name and evaluator version of all that is scored here. What another process says of the same evaluator version is a
            score like ours, and already in the sums of whoever made it: it, and ours that come back, are left out.
    """

    def __init__(self, count: Callable[[str, Labels, float], None], own: Collection[tuple[str, str]]) -> None:
        self._count = count
        self._own = frozenset(own)
        self.reset()

    def reset(self) -> None:
        """Forget what came: in a forked child."""
        self._lock = Lock()
        self._known = ClosedKeys(_REMEMBERED)
        self._told = ClosedKeys(_REMEMBERED)
        self._sets: set[tuple[str, str | None]] = set()
        self._tallies: dict[str, _NameTally] = {}
        self._undefined = self._again = 0

    def sought(self, taken: Taken, claims: Sequence[ScopeClaim], *, ours: int) -> list[WireSpan]:
        """Return the spans of a request that may hold scores of others; of most requests none, by their bytes.

        Args:
            ours: how many of the spans are of evaluators' scopes.
        """
        marks = [mark for mark in MARKS if holds(taken.body, mark)]
        if not marks and not ours:
            return []
        return [
            kept(taken.body, place, origin)
            for (origin, places), claim in zip(taken.places, claims, strict=True)
            for place in _select_spans(
                taken.body, places, marks, claim.role, of_spanscore=origin.scope_name == semconv.SCOPE
            )
        ]

    def read(self, spans: Iterable[WireSpan]) -> None:
        """Count what stands on spans; what cannot be read of them is logged, and no fault of the request's."""
        for span in spans:
            try:
                results = results_on(span)
            except UnreadableRequest as error:
                log_internal_error("read an evaluation", error)
                continue
            self._add(span.trace_id, span.span_id, results)

    def read_logs(self, results: LogResults) -> None:
        """Count what stands in log records."""
        for known_by, result in results.told:
            self._add(known_by, b"", [result])

    def counts(self) -> ExternalCounts | None:
        """Return what was counted, names in their order; None where nothing came."""
        with self._lock:
            if not (self._tallies or self._undefined or self._again):
                return None
            names = {name: tally.count() for name, tally in sorted(self._tallies.items())}
            return ExternalCounts(names, self._undefined, self._again)

    def _add(self, trace_id: bytes, span_id: bytes, results: Iterable[ExternalResult]) -> None:
        others = [
            result
            for result in results
            if result.evaluator_version is None or (result.name, result.evaluator_version) not in self._own
        ]
        if not others:
            return
        with self._lock:
            if trace_id and self._known.has(trace_id, span_id):
                self._again += 1
                return
            if trace_id:
                self._known.add(trace_id, span_id)
            for result in others:
                if self._was_told(result):
                    self._again += 1
                else:
                    self._take(result)

    def _was_told(self, result: ExternalResult) -> bool:
        """Whether it came in another way before, under that name of that span; one way may tell several, one a document."""
        if result.told is None:
            return False
        trace_id, span_id, way = result.told
        ids = {way_name: span_id + way_name.encode() + result.name.encode() for way_name in _WAYS}
        if any(self._told.has(trace_id, ids[way_name]) for way_name in _WAYS if way_name != way):
            return True
        self._told.add(trace_id, ids[way])
        return False

    def _take(self, result: ExternalResult) -> None:
        if result.value is None and result.label is None:
            self._undefined += 1
            return
        name, label = self._admit(_word(result.name), None if result.label is None else _word(result.label))
        tally = self._tallies.setdefault(name, _NameTally())
        tally.scores += 1
        tally.labels.update([] if label is None else [label])
        label_attributes = () if label is None else ((semconv.EVALUATION_SCORE_LABEL, label),)
        labels = ((semconv.EVALUATION_NAME, name), *label_attributes, *within(semconv.SOURCE_EXTERNAL))
        self._count(semconv.SCORED, labels, 1)
        value = result.value
        if value is None or name == OTHER:
            return
        tally.off_scale = tally.off_scale or not 0.0 <= value <= 1.0
        if not tally.off_scale:
            self._weigh(tally, labels, value, 1.0 / result.probability)

    def _weigh(self, tally: _NameTally, labels: Labels, y: float, w: float) -> None:
        tally.weight += w
        tally.weight_value += w * y
        moments = (w, w * y, w * y * y, w * w, w * w * y, w * w * y * y)
        for name, amount in zip(MOMENTS, moments, strict=True):
            self._count(name, labels, amount)

    def _admit(self, name: str, label: str | None) -> tuple[str, str | None]:
        """Return a name and its label, or what stands for all that there is no room for."""
        if (name, label) not in self._sets:
            if len(self._sets) >= _MOST or name == OTHER:
                return OTHER, None
            self._sets.add((name, label))
        return name, label


def _select_spans(
    body: bytes, places: Sequence[SpanPlace], marks: Sequence[bytes], role: Role, *, of_spanscore: bool
) -> Iterable[SpanPlace]:
    """Return the spans of one scope that may hold scores: of the evaluators' own scopes those of ``spanscore`` alone."""
    if role is Role.OURS:
        return places if of_spanscore else ()
    if role is Role.IGNORED or not marks:
        return ()
    return [place for place in places if any(body.find(mark, place[4], place[5]) >= 0 for mark in marks)]


def _word(text: str) -> str:
    return text if len(text) <= _LONGEST and text.isprintable() else OTHER
