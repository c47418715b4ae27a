"""What others say of quality: a span or log records of OTLP → the results of evaluations that stand in them.

They come as the event ``gen_ai.evaluation.result``, a log record or in older ways an event of a span; as spans of the kind
``EVALUATOR`` with the attributes of OpenInference, of the conventions, or of Phoenix's experiments; and as evaluation spans of
another spanscore. Explanations, which quote, are never looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Literal, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore import semconv
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, logs_from_json
from spanscore.core.codecs.otlp_span import MAY_HOLD_CONTENT, ContentRecord, log_records, record_of
from spanscore.core.codecs.otlp_span import attributes_of_pairs as attributes_of
from spanscore.core.codecs.text import plain_number
from spanscore.core.log import type_name
from spanscore.pipeline.sampling import decode_threshold, probability, upstream_of

__all__ = ["MARKS", "ExternalResult", "LogResults", "ToldOf", "holds", "results_in_logs", "results_on"]

_KIND: Final = semconv.OPENINFERENCE_EVALUATOR.encode()
_SCORE: Final = semconv.EVALUATION_SCORE_VALUE.encode()
_SCORES: Final = _SCORE.removesuffix(b"value")
MARKS: Final = (bytes((len(_SCORE),)) + _SCORES, bytes((len(_KIND) + 2, 0x0A, len(_KIND))) + _KIND)
"""The key of an event's or span's value or label, which are of one length, and an evaluator's kind, as they stand in a span.

Each behind its length: bytes that no text holds, and hardly a number (0x18, that of the event's name, begins every integer).
"""
_BYTES_PER_LOOK: Final = 128
_FLAT: Final = re.compile(
    r"((?:trace\.|session\.)?(?:"
    + "|".join(
        rf"{re.escape(before)}\d{{1,9}}{re.escape(behind)}" for before, behind in semconv.OPENINFERENCE_TOLD.items()
    )
    + r"))(name|score|label)"
)
_NAMELESS: Final = "an evaluation that has no name"
_UNREADABLE: Final = "a log record that cannot be read"


class ToldOf(NamedTuple):
    """Of what a result is, and how it was told.

    Attributes:
        span_id: of what was scored: the span of an event or a record; of an evaluator's, what it links to, else its parent.
        way: the form in which it came.
    """

    trace_id: bytes
    span_id: bytes
    way: Literal["event", "span", "record"]


class ExternalResult(NamedTuple):
    """What somebody says of something.

    Attributes:
        name: of the evaluation, as it is given.
        value: of no declared scale; finite; None where there is none. Of spanscore's own it is the quality, [0, 1].
        label: as it is given; None where there is none.
        probability: with which what is scored was chosen, (0, 1]; 1 where nobody says.
        evaluator_version: of spanscore's own; None of all others.
        told: of what and how; None where a record does not say of what.
    """

    name: str
    value: float | None
    label: str | None
    probability: float
    evaluator_version: str | None = None
    told: ToldOf | None = None


class LogResults(NamedTuple):
    """What stands in a request of logs.

    Attributes:
        told: each with the bytes of its record, by which it is known when it comes again; empty where nothing says when or of
            what it is.
        rejected: what is wrong → how many records; it quotes nothing of them.
        content: of spans.
    """

    told: list[tuple[bytes, ExternalResult]]
    rejected: Mapping[str, int]
    content: Sequence[ContentRecord]


def holds(body: bytes, mark: bytes) -> bool:
    """Whether a request holds a mark: by its first byte, which C finds at once and which is rare, so that most cost nothing.

    A body that is full of that byte is searched for the whole mark: some 0.2 ns a byte, whatever is in it.
    """
    first, size = mark[0], len(mark)
    at = body.find(first)
    for _ in range(len(body) // _BYTES_PER_LOOK + 1):
        if at < 0 or body[at : at + size] == mark:
            return at >= 0
        at = body.find(first, at + 1)
    return body.find(mark, at) >= 0


def results_on(span: WireSpan) -> list[ExternalResult]:
    """Return the results on a span: those of its events, else those of its attributes.

    Of another spanscore's, the population's first and final scores: what stands beside it there, or supersedes, is in no mean
    there, either; and what people say is no score.

    Raises:
        UnreadableRequest: it is no span.
    """
    try:
        message = Span.FromString(span.raw)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None
    held = attributes_of(message.attributes)
    if span.origin.scope_name == semconv.SCOPE:
        return [*_of_spanscore(held, message.trace_state, _beside(message, "span"))]
    events = [attributes_of(event.attributes) for event in message.events if event.name == semconv.EVALUATION_EVENT]
    if held.get(semconv.OPENINFERENCE_KIND) != semconv.OPENINFERENCE_EVALUATOR:
        return [*_results(events, ToldOf(message.trace_id, message.span_id, "event"), message.trace_state)]
    if events:
        return [*_results(events, _beside(message, "event"), message.trace_state)]
    return [*_results(_of_evaluator(held, message.name), _beside(message, "span"), message.trace_state)]


def _beside(evaluator: Span, way: Literal["event", "span"]) -> ToldOf:
    for link in evaluator.links:
        return ToldOf(link.trace_id, link.span_id, way)
    return ToldOf(evaluator.trace_id, evaluator.parent_span_id or evaluator.span_id, way)


def results_in_logs(body: bytes, *, is_json: bool = False) -> LogResults:
    """Return what is read of an ``ExportLogsServiceRequest``: results of evaluations, and content of spans.

    Other records are left alone, and so is a request that holds none of the two.

    Raises:
        UnreadableRequest: it is none.
    """
    if not any(mark in body for mark in MAY_HOLD_CONTENT):
        return LogResults([], {}, [])
    try:
        request = ExportLogsServiceRequest.FromString(logs_from_json(body) if is_json else body)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error), "ExportLogsServiceRequest") from None
    return _read_in(log_records(request))


def _read_in(records: Iterable[tuple[str, Any]]) -> LogResults:
    results_by_record, content = list[tuple[bytes, ExternalResult]](), list[ContentRecord]()
    rejected = Counter[str]()
    for scope, record in records:
        held = attributes_of(record.attributes)
        if not record.ByteSize():
            rejected[_UNREADABLE] += 1
        elif semconv.EVALUATION_EVENT in (record.event_name, held.get(semconv.EVENT_NAME)):
            of = ToldOf(record.trace_id, record.span_id, "record") if record.trace_id and record.span_id else None
            results = [*_results([held], of)]
            if not results:
                rejected[_NAMELESS] += 1
            results_by_record += [(_identify(record), result) for result in results]
        elif (content_record := record_of(record, scope, held)) is not None:
            content.append(content_record)
    return LogResults(results_by_record, rejected, content)


def _identify(record: Any) -> bytes:
    has_identity = record.time_unix_nano or record.observed_time_unix_nano or record.span_id
    return bytes(record.SerializeToString()) if has_identity else b""


def _of_spanscore(held: Mapping[str, Any], trace_state: str, of: ToldOf) -> Iterator[ExternalResult]:
    beside = held.get(semconv.EVALUATION_SOURCE) or held.get(semconv.SCORE_REVISION) or semconv.ANNOTATOR in held
    if beside or held.get(semconv.SESSION_END) == "open":
        return
    for result in _results([held], of, trace_state):
        yield result._replace(
            value=_number(held.get(semconv.QUALITY)), evaluator_version=_text(held.get(semconv.EVALUATOR_VERSION)) or ""
        )


def _of_evaluator(held: Mapping[str, Any], span_name: str) -> Iterator[Mapping[str, Any]]:
    """Yield what the attributes of an evaluator's span say, in the names of the conventions."""
    if semconv.EVALUATION_NAME in held:
        yield held
        return
    flat: dict[str, dict[str, Any]] = {}
    for name, value in held.items():
        if (match := _FLAT.fullmatch(name)) is not None:
            flat.setdefault(match[1], {})[match[2]] = value
    if not flat and span_name.startswith(semconv.PHOENIX_EVALUATION) and ("score" in held or "label" in held):
        flat[""] = {**held, "name": span_name.removeprefix(semconv.PHOENIX_EVALUATION)}
    for result in flat.values():
        yield {
            semconv.EVALUATION_NAME: result.get("name"),
            semconv.EVALUATION_SCORE_VALUE: result.get("score"),
            semconv.EVALUATION_SCORE_LABEL: result.get("label"),
        }


def _results(
    attributes: Iterable[Mapping[str, Any]], of: ToldOf | None, trace_state: str = ""
) -> Iterator[ExternalResult]:
    for held in attributes:
        name = _text(held.get(semconv.EVALUATION_NAME))
        if name is not None:
            value = _number(held.get(semconv.EVALUATION_SCORE_VALUE))
            label = _text(held.get(semconv.EVALUATION_SCORE_LABEL))
            yield ExternalResult(name, value, label, _probability(held, trace_state), told=of)


def _probability(held: Mapping[str, Any], trace_state: str) -> float:
    """Return the share of the traffic that a score stands for: spanscore's own word, else the head sampler's."""
    threshold = _text(held.get(semconv.SAMPLING_THRESHOLD))
    threshold_sent = None if threshold is None else decode_threshold(threshold)
    threshold_sent = upstream_of(trace_state) if threshold_sent is None else threshold_sent
    share = 1.0 if threshold_sent is None else probability(threshold_sent)
    return share if 0.0 < share <= 1.0 else 1.0


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    number = float(value) if isinstance(value, bool) else plain_number(value)
    return number if number is not None and isfinite(number) else None
