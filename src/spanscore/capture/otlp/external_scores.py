"""Reads the scores of other evaluators from OTLP spans and log records, and counts them under the score source ``external``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore import semconv
from spanscore.capture.otlp.claims import ScopeClaim
from spanscore.capture.scopes import Role
from spanscore.core.codecs.otlp_request import ParsedRequest, UnreadableRequest, WireSpan, copy_span, logs_from_json
from spanscore.core.codecs.otlp_scan import SpanPlace
from spanscore.core.codecs.otlp_span import MAY_HOLD_CONTENT, ContentRecord, content_of_record, log_records
from spanscore.core.codecs.otlp_span import attributes_of_pairs as attributes_of
from spanscore.core.codecs.text import plain_number
from spanscore.core.job import ExternalCount, ExternalCounts
from spanscore.core.log import log_internal_error, type_name
from spanscore.outputs.aggregates import OTHER, Labels, labels_of_source
from spanscore.outputs.instrument_table import MOMENTS
from spanscore.pipeline.sampling import decode_threshold, probability, upstream_of
from spanscore.pipeline.trace_index import ClosedKeys

# --- reading --------------------------------------------------------------------------------------------------------

# The results of other evaluators arrive over OTLP in three forms:
#
# 1. the event ``gen_ai.evaluation.result``: a log record, formerly an event of a span;
# 2. spans of the kind ``EVALUATOR``, with the attributes of OpenInference, of the conventions, or of Phoenix's experiments;
# 3. evaluation spans of another spanscore.
#
# Explanations are never read, because they may quote the application's content.

_KIND: Final = semconv.OPENINFERENCE_EVALUATOR.encode()
_SCORE: Final = semconv.EVALUATION_SCORE_VALUE.encode()
_SCORES: Final = _SCORE.removesuffix(b"value")
MARKS: Final = (bytes((len(_SCORE),)) + _SCORES, bytes((len(_KIND) + 2, 0x0A, len(_KIND))) + _KIND)
"""Byte strings of which every serialized span with results contains at least one.

1. the length and the start of ``gen_ai.evaluation.score.value`` and ``gen_ai.evaluation.score.label``, which are equally long
2. the length and the value ``EVALUATOR`` of OpenInference's kind

The lengths are control characters, which texts do not contain, so a search rarely stops. The event's name is no mark, because
its length, 0x18, is also the tag of every integer.
"""
_BYTES_PER_LOOK: Final = 128
_FLAT_NAME: Final = re.compile(
    r"((?:trace\.|session\.)?(?:"
    + "|".join(
        rf"{re.escape(before)}\d{{1,9}}{re.escape(behind)}" for before, behind in semconv.OPENINFERENCE_RESULTS.items()
    )
    + r"))(name|score|label)"
)
_NAMELESS: Final = "an evaluation that has no name"
_UNREADABLE: Final = "a log record that cannot be read"


ResultOrigin = tuple[bytes, bytes, Literal["event", "span", "record"]]
"""Trace and span of the scored span, and the form in which a result was received.

The scored span of an event or a record is its span; that of an evaluator is the linked span, else its parent.
"""


class ExternalResult(NamedTuple):
    """One result of another evaluator.

    Attributes:
        name: name of the evaluation, as received.
        value: finite number on an undeclared scale; None without a value. A result of another
            spanscore has its quality as its value, [0, 1].
        label: label as received; None without a label.
        probability: probability with which the scored unit was sampled, (0, 1]; 1 if it is unknown.
        evaluator_version: evaluator version of a result of spanscore; None for other evaluators.
        origin: trace, span and form of the result; None if a record does not name its subject.
    """

    name: str
    value: float | None
    label: str | None
    probability: float
    evaluator_version: str | None = None
    origin: ResultOrigin | None = None


class LogResults(NamedTuple):
    """The results and the content in a request of log records.

    Attributes:
        results: results, each with the bytes of its record, which identify a record that is sent again. The bytes are empty if
            the record has neither a time nor a span.
        rejected: fault → number of rejected records. Faults do not quote records.
    """

    results: list[tuple[bytes, ExternalResult]]
    rejected: Mapping[str, int]
    content: Sequence[ContentRecord]


def contains_mark(body: bytes, mark: bytes) -> bool:
    """Return whether a request contains a mark.

    The mark's first byte is searched first, which is fast (``memchr``), because it is rare in most requests. If it is frequent,
    the whole mark is searched, at some 0.2 ns per byte.
    """
    first, size = mark[0], len(mark)
    at = body.find(first)
    for _ in range(len(body) // _BYTES_PER_LOOK + 1):
        if at < 0 or body[at : at + size] == mark:
            return at >= 0
        at = body.find(first, at + 1)
    return body.find(mark, at) >= 0


def results_on(span: WireSpan) -> list[ExternalResult]:
    """Return the results on a span: from its events, else from its attributes.

    For an evaluation span of another spanscore, only the first and final scores of sampled units are returned, because only
    these are in the means of that process. Human labels are not scores.

    Raises:
        UnreadableRequest: the bytes are not a span.
    """
    try:
        message = Span.FromString(span.raw)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None
    attributes = attributes_of(message.attributes)
    if span.origin.scope_name == semconv.SCOPE:
        return [*_own_results(attributes, message.trace_state, _origin_of(message, "span"))]
    events = [attributes_of(event.attributes) for event in message.events if event.name == semconv.EVALUATION_EVENT]
    if attributes.get(semconv.OPENINFERENCE_KIND) != semconv.OPENINFERENCE_EVALUATOR:
        return [*_results(events, (message.trace_id, message.span_id, "event"), message.trace_state)]
    if events:
        return [*_results(events, _origin_of(message, "event"), message.trace_state)]
    results = _results_of_evaluator(attributes, message.name)
    return [*_results(results, _origin_of(message, "span"), message.trace_state)]


def _origin_of(evaluator: Span, form: Literal["event", "span"]) -> ResultOrigin:
    for link in evaluator.links:
        return link.trace_id, link.span_id, form
    return evaluator.trace_id, evaluator.parent_span_id or evaluator.span_id, form


def results_in_logs(body: bytes, *, is_json: bool = False) -> LogResults:
    """Return the results and the content of spans in an ``ExportLogsServiceRequest``. Other records are ignored.

    A request without results and content is not parsed.

    Raises:
        UnreadableRequest: the body is not such a request.
    """
    if not any(mark in body for mark in MAY_HOLD_CONTENT):
        return LogResults([], {}, [])
    try:
        request = ExportLogsServiceRequest.FromString(logs_from_json(body) if is_json else body)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error), "ExportLogsServiceRequest") from None
    return _read_records(log_records(request))


def _read_records(records: Iterable[tuple[str, Any]]) -> LogResults:
    results_by_record, content = list[tuple[bytes, ExternalResult]](), list[ContentRecord]()
    rejected = Counter[str]()
    for scope, record in records:
        attributes = attributes_of(record.attributes)
        if not record.ByteSize():
            rejected[_UNREADABLE] += 1
        elif semconv.EVALUATION_EVENT in (record.event_name, attributes.get(semconv.EVENT_NAME)):
            origin: ResultOrigin | None = (record.trace_id, record.span_id, "record")
            origin = origin if record.trace_id and record.span_id else None
            results = [*_results([attributes], origin)]
            if not results:
                rejected[_NAMELESS] += 1
            results_by_record += [(_identify(record), result) for result in results]
        elif (content_record := content_of_record(record, scope, attributes)) is not None:
            content.append(content_record)
    return LogResults(results_by_record, rejected, content)


def _identify(record: Any) -> bytes:
    has_identity = record.time_unix_nano or record.observed_time_unix_nano or record.span_id
    return bytes(record.SerializeToString()) if has_identity else b""


def _own_results(attributes: Mapping[str, Any], trace_state: str, origin: ResultOrigin) -> Iterator[ExternalResult]:
    is_excluded = (
        attributes.get(semconv.EVALUATION_SOURCE)
        or attributes.get(semconv.SCORE_REVISION)
        or semconv.ANNOTATOR in attributes
    )
    if is_excluded or attributes.get(semconv.SESSION_END) == "open":
        return
    for result in _results([attributes], origin, trace_state):
        yield result._replace(
            value=_number(attributes.get(semconv.QUALITY)),
            evaluator_version=_text(attributes.get(semconv.EVALUATOR_VERSION)) or "",
        )


def _results_of_evaluator(attributes: Mapping[str, Any], span_name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the results in an evaluator's attributes, under the names of the conventions."""
    if semconv.EVALUATION_NAME in attributes:
        yield attributes
        return
    flat: dict[str, dict[str, Any]] = {}
    for name, value in attributes.items():
        if (match := _FLAT_NAME.fullmatch(name)) is not None:
            flat.setdefault(match[1], {})[match[2]] = value
    if (
        not flat
        and span_name.startswith(semconv.PHOENIX_EVALUATION)
        and ("score" in attributes or "label" in attributes)
    ):
        flat[""] = {**attributes, "name": span_name.removeprefix(semconv.PHOENIX_EVALUATION)}
    for result in flat.values():
        yield {
            semconv.EVALUATION_NAME: result.get("name"),
            semconv.EVALUATION_SCORE_VALUE: result.get("score"),
            semconv.EVALUATION_SCORE_LABEL: result.get("label"),
        }


def _results(
    evaluations: Iterable[Mapping[str, Any]], origin: ResultOrigin | None, trace_state: str = ""
) -> Iterator[ExternalResult]:
    for attributes in evaluations:
        name = _text(attributes.get(semconv.EVALUATION_NAME))
        if name is not None:
            value = _number(attributes.get(semconv.EVALUATION_SCORE_VALUE))
            label = _text(attributes.get(semconv.EVALUATION_SCORE_LABEL))
            yield ExternalResult(name, value, label, _probability(attributes, trace_state), origin=origin)


def _probability(attributes: Mapping[str, Any], trace_state: str) -> float:
    """Return the sampling probability of a scored unit: from spanscore's attribute, else from the head sampler's threshold."""
    threshold = _text(attributes.get(semconv.SAMPLING_THRESHOLD))
    threshold_sent = None if threshold is None else decode_threshold(threshold)
    threshold_sent = upstream_of(trace_state) if threshold_sent is None else threshold_sent
    share = 1.0 if threshold_sent is None else probability(threshold_sent)
    return share if 0.0 < share <= 1.0 else 1.0


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    number = float(value) if isinstance(value, bool) else plain_number(value)
    return number if number is not None and isfinite(number) else None


# --- counting -------------------------------------------------------------------------------------------------------

# External scores have no declared scale. A name has a mean only while all of its values are from 0 to 1. Names and labels are
# foreign text: a text longer than 64 characters, or with control characters, is counted as ``other``. At most a hundred pairs
# of name and label are counted separately; further pairs are ``other``.

_REMEMBERED: Final = 100_000
"""Number of spans and records that are remembered: clients resend requests that got no response."""
_FORMS: Final = ("event", "span", "record")
_MOST: Final = 100
"""Number of pairs of name and label that are counted separately."""
_LONGEST: Final = 64
"""Longest name or label, in characters. A longer text is most likely an explanation."""


@dataclass(slots=True)
class _NameTally:
    """The counts of one name.

    Attributes:
        off_scale: whether a value of the name was outside 0 to 1.
    """

    scores: int = 0
    weight: float = 0.0
    weight_value: float = 0.0
    off_scale: bool = False
    labels: Counter[str] = field(default_factory=Counter)

    def count(self) -> ExternalCount:
        mean = self.weight_value / self.weight if self.weight and not self.off_scale else None
        return ExternalCount(self.scores, mean, self.off_scale, dict(self.labels))


class ExternalScores:
    """Counts the scores of other evaluators under the source ``external``. Thread-safe.

    A score that arrives again is not counted if it is among the latest 100,000.

    Args:
        count: function that adds to a sum: instrument, attributes, amount.
        own: name and evaluator version of every metric of this scorer. Their results are not counted here, because the process
            that made them (this one, or a replica) has already counted them.
    """

    def __init__(self, count: Callable[[str, Labels, float], None], own: Collection[tuple[str, str]]) -> None:
        self._count = count
        self.own = frozenset(own)
        self._lock = Lock()
        self._read_ids = ClosedKeys(_REMEMBERED)  # spans and log records that were read
        self._seen_results = ClosedKeys(_REMEMBERED)  # scored span, form and name of each result
        self._sets: set[tuple[str, str | None]] = set()
        self._tallies: dict[str, _NameTally] = {}
        self._undefined = self._repeated = 0

    def select_spans(self, request: ParsedRequest, claims: Sequence[ScopeClaim], *, ours: int) -> list[WireSpan]:
        """Return the spans of a request that may have external scores, by their bytes; most requests have none.

        ``claims`` are those of the request's scopes, in order. ``ours`` is the number of spans in spanscore's own scopes.
        """
        marks = [mark for mark in MARKS if contains_mark(request.body, mark)]
        if not marks and not ours:
            return []
        return [
            copy_span(request.body, place, origin)
            for (origin, places), claim in zip(request.places, claims, strict=True)
            for place in _select_in_scope(
                request.body, places, marks, claim.role, of_spanscore=origin.scope_name == semconv.SCOPE
            )
        ]

    def read(self, spans: Iterable[WireSpan]) -> None:
        """Count the scores on spans. An unreadable span is logged; the request is not rejected."""
        for span in spans:
            try:
                results = results_on(span)
            except UnreadableRequest as error:
                log_internal_error("read an evaluation", error)
                continue
            self._add(span.trace_id, span.span_id, results)

    def read_logs(self, results: LogResults) -> None:
        """Count the scores in log records."""
        for record_id, result in results.results:
            self._add(record_id, b"", [result])

    def counts(self) -> ExternalCounts | None:
        """Return the counts, names in alphabetical order; None before the first score."""
        with self._lock:
            if not (self._tallies or self._undefined or self._repeated):
                return None
            names = {name: tally.count() for name, tally in sorted(self._tallies.items())}
            return ExternalCounts(names, self._undefined, self._repeated)

    def _add(self, trace_id: bytes, span_id: bytes, results: Iterable[ExternalResult]) -> None:
        others = [
            result
            for result in results
            if result.evaluator_version is None or (result.name, result.evaluator_version) not in self.own
        ]
        if not others:
            return
        with self._lock:
            if trace_id and self._read_ids.has(trace_id, span_id):
                self._repeated += 1
                return
            if trace_id:
                self._read_ids.add(trace_id, span_id)
            for result in others:
                if self._is_repeated(result):
                    self._repeated += 1
                else:
                    self._count_result(result)

    def _is_repeated(self, result: ExternalResult) -> bool:
        """Return whether a result was read before in another form, otherwise remember it."""
        # Results in the same form are no repetitions: several evaluators may use one name.
        if result.origin is None:
            return False
        trace_id, span_id, form = result.origin
        ids = {form_name: span_id + form_name.encode() + result.name.encode() for form_name in _FORMS}
        if any(self._seen_results.has(trace_id, ids[form_name]) for form_name in _FORMS if form_name != form):
            return True
        self._seen_results.add(trace_id, ids[form])
        return False

    def _count_result(self, result: ExternalResult) -> None:
        if result.value is None and result.label is None:
            self._undefined += 1
            return
        label = None if result.label is None else _limit_text(result.label)
        name, label = self._limit_labels(_limit_text(result.name), label)
        tally = self._tallies.setdefault(name, _NameTally())
        tally.scores += 1
        tally.labels.update([] if label is None else [label])
        label_attributes = () if label is None else ((semconv.EVALUATION_SCORE_LABEL, label),)
        labels = ((semconv.EVALUATION_NAME, name), *label_attributes, *labels_of_source(semconv.SOURCE_EXTERNAL))
        self._count(semconv.SCORED, labels, 1)
        value = result.value
        if value is None or name == OTHER:
            return
        tally.off_scale = tally.off_scale or not 0.0 <= value <= 1.0
        if tally.off_scale:
            return
        y, w = value, 1.0 / result.probability
        tally.weight += w
        tally.weight_value += w * y
        # The sums from which means and intervals are computed.
        moments = (w, w * y, w * y * y, w * w, w * w * y, w * w * y * y)
        for moment, amount in zip(MOMENTS, moments, strict=True):
            self._count(moment, labels, amount)

    def _limit_labels(self, name: str, label: str | None) -> tuple[str, str | None]:
        """Return a name and its label; (``other``, None) for a new pair beyond the maximum number of pairs."""
        if (name, label) not in self._sets:
            if len(self._sets) >= _MOST or name == OTHER:
                return OTHER, None
            self._sets.add((name, label))
        return name, label


def _select_in_scope(
    body: bytes, places: Sequence[SpanPlace], marks: Sequence[bytes], role: Role, *, of_spanscore: bool
) -> Iterable[SpanPlace]:
    """Return the spans of one scope that may have scores. Only one of spanscore's own scopes has scores: ``spanscore``."""
    if role is Role.OURS:
        return places if of_spanscore else ()
    if role is Role.IGNORED or not marks:
        return ()
    return [place for place in places if any(body.find(mark, place[4], place[5]) >= 0 for mark in marks)]


def _limit_text(text: str) -> str:
    return text if len(text) <= _LONGEST and text.isprintable() else OTHER
