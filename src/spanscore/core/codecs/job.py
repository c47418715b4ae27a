"""Encodes jobs as JSON for the spool, and units as OTLP requests for another process; and decodes both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import BaseModel, ValidationError

from spanscore import semconv
from spanscore.core.codecs.otlp_request import (
    Origin,
    UnreadableRequest,
    WireSpan,
    request_of,
    resource_message,
    span_data_of,
    with_attributes,
)
from spanscore.core.codecs.otlp_span import HAS_IS_REMOTE, IS_REMOTE, KINDS
from spanscore.core.codecs.sdk import STATUS, WireAttributes, encode_attributes
from spanscore.core.codecs.text import jsonable, safe_text, wire_values
from spanscore.core.job import Decision, Job
from spanscore.core.log import type_name
from spanscore.core.sample import MultiTurnSample, Samples, SingleTurnSample
from spanscore.core.score import JudgeCall, JuryVotes, Outcome, Scale, Score, Transcript, Usage, Votes
from spanscore.core.span import (
    Attributes,
    InnerGroup,
    NoContent,
    SamplingContext,
    Session,
    SpanData,
    Unit,
    UnitKey,
    UpstreamDecision,
)

# --- jobs -----------------------------------------------------------------------------------------------------------

# Jobs, scores and samples ↔ JSON documents, which other processes read from a spool.
#
# A document is one object with ``version: 1``; ids are hex, thresholds 14 hex digits as in ``tracestate``. Sampling decisions
# are stored unchanged, so a reader of a job does not sample it again. Unknown fields of a newer writer are ignored; a document
# of another version is rejected.

VERSION: Final = 1
_TRACE_ID, _SPAN_ID, _THRESHOLD = 32, 16, 14
"""Numbers of hex digits."""
_LEVELS: Final = 4
"""Number of levels above a message: the document, its samples, a conversation, its messages."""
_Stored: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnreadableJob:
    """A document that cannot be decoded.

    Attributes:
        because: the error, without a quotation of the document.
    """

    because: str


def json_of_job(job: Job, resource: Mapping[str, Any] | None = None) -> bytes:
    """Return a job as one JSON object, without the fields that only this process can use (``taken_s``, ``held_until_s``).

    Values of a submitted sample that JSON cannot represent are rendered by ``core/codecs/text.py``.

    Args:
        resource: resource of this process, for spans without a resource, because the process that scores the job may have
            another release or service name; None = such spans get no resource.
    """
    unit, facts = _fields_of(job.unit), None if job.undecided is None else _fields_of(job.undecided)
    if resource is not None:
        for span in unit["spans"]:
            span.setdefault("resource", dict(resource))
        if facts is not None:
            facts.setdefault("service_name", resource.get(semconv.SERVICE_NAME))
    return _dump(
        {
            "version": VERSION,
            "unit": unit,
            "samples": _fields_of(job.samples),
            "decisions": {name: _fields_of(decision) for name, decision in job.decisions.items()},
            "size_bytes": job.size_bytes,
            "undecided": facts,
        }
    )


def job_of(document: bytes) -> Job | UnreadableJob:
    """Return the job of a document, marked as delegated, or the reason why it cannot be decoded."""
    return _read(document, _read_job)


def _read_job(stored: _Stored) -> Job:
    undecided = stored.get("undecided")
    return Job(
        _make(Unit, stored["unit"]),
        _make(Samples, stored["samples"]),
        {name: _make(Decision, decision) for name, decision in stored["decisions"].items()},
        stored["size_bytes"],
        undecided=None if undecided is None else _make(SamplingContext, undecided),
        delegated=True,
    )


def json_of_scores(scores: Sequence[Score]) -> bytes:
    """Return scores as one JSON object."""
    return _dump({"version": VERSION, "scores": [_fields_of(score) for score in scores]})


def scores_of(document: bytes) -> tuple[Score, ...] | UnreadableJob:
    """Return the scores of a document, or the reason why it cannot be decoded."""
    return _read(document, lambda stored: tuple(_make(Score, score) for score in stored["scores"]))


def _dump(document: Any) -> bytes:
    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):  # a submitted sample: NaN, a key that is not a text, an object
        text = json.dumps(_render(document, _LEVELS), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")  # ``json.loads`` restores such a text exactly


def _render(value: Any, levels: int) -> Any:
    """Render the values below ``levels`` levels, each within its own limits, so that a long conversation is not cut."""
    if levels and isinstance(value, dict):
        return {name: _render(inner, levels - 1) for name, inner in value.items()}
    if levels and isinstance(value, list):
        return [_render(inner, levels - 1) for inner in value]
    return jsonable(value)


def _read(document: bytes, read: Callable[[_Stored], T]) -> T | UnreadableJob:
    try:
        stored = json.loads(document)
        if (version := stored["version"]) != VERSION:
            return UnreadableJob(f"it has version {version!r}, and this spanscore reads {VERSION}"[:100])
        return read(stored)
    except Exception as error:  # noqa: BLE001  (any content is possible; without the error's text, which may quote it)
        return UnreadableJob(f"it cannot be read ({type_name(error)})")


# --- fields ----------------------------------------------------------------------------------------------------


class _Codec(NamedTuple):
    """Conversion of a field's value to JSON and back. None stays None, and a field without a value is left out."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _fields_of(thing: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or a named tuple that differ from their defaults."""
    kind: Any = type(thing)
    codecs, written = _codecs_of(kind), dict[str, Any]()
    for name, default in _defaults(kind):
        value = getattr(thing, name)
        if value is None:
            continue
        if name in codecs:
            value = codecs[name].write(value)
            if value is not None:
                written[name] = value
        elif default is None or value != default:
            written[name] = value
    return written


def _make(kind: Callable[..., T], stored: _Stored) -> T:
    """Make a dataclass or a named tuple from the present fields of a JSON object; missing fields have their defaults."""
    values = {name: stored[name] for name, _ in _defaults(kind) if name in stored}
    for name, codec in _codecs_of(kind).items():
        if values.get(name) is not None:
            values[name] = codec.read(values[name])
    return kind(**values)


@cache
def _codecs_of(kind: Any) -> Mapping[str, _Codec]:
    return next((_CODECS[base] for base in kind.__mro__ if base in _CODECS), {})


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the name and the default of each field; ``MISSING`` = no default."""
    if not is_dataclass(kind):
        return tuple((name, kind._field_defaults.get(name, MISSING)) for name in kind._fields)
    factories = ((field, field.default_factory) for field in fields(kind) if field.init)
    return tuple((field.name, field.default if factory is MISSING else factory()) for field, factory in factories)


def _hex(digits: int) -> _Codec:
    return _Codec(lambda number: f"{number:0{digits}x}", lambda text: int(text, 16))


def _tuple_of(codec: _Codec) -> _Codec:
    """Return the codec of a tuple of values; an empty tuple is left out."""
    return _Codec(lambda values: [*map(codec.write, values)] or None, lambda stored: tuple(map(codec.read, stored)))


def _object_of(kind: Callable[..., Any]) -> _Codec:
    return _Codec(_fields_of, partial(_make, kind))


def _write_key(key: UnitKey) -> list[str]:
    return [f"{key.trace_id:0{_TRACE_ID}x}", f"{key.span_id:0{_SPAN_ID}x}"]


def _read_key(stored: Sequence[str]) -> UnitKey:
    trace_id, span_id = stored
    return UnitKey(int(trace_id, 16), int(span_id, 16))


def _write_decided(decided: Mapping[str, UpstreamDecision]) -> dict[str, Any]:
    return {
        name: [decision.take, f"{decision.threshold:0{_THRESHOLD}x}", decision.rule]
        for name, decision in decided.items()
    }


def _read_decided(stored: _Stored) -> dict[str, UpstreamDecision]:
    return {name: UpstreamDecision(take, int(threshold, 16), rule) for name, (take, threshold, rule) in stored.items()}


def _read_span(stored: _Stored) -> SpanData:
    return _make(SpanData, {"parent_id": None, **stored})


# --- samples ---------------------------------------------------------------------------------------------------


def _write_model(model: BaseModel) -> dict[str, Any]:
    """Return a model's fields. pydantic's own serializer (2.9) raises for a value that is not of the field's type."""
    written = {name: _write_value(getattr(model, name)) for name in type(model).model_fields}
    return {name: value for name, value in written.items() if value is not None}


def _write_value(value: Any) -> Any:
    if type(value) is str or value is None:  # most values are; ``isinstance`` on a model class runs code of pydantic
        return value
    if isinstance(value, BaseModel):
        return _write_model(value)
    return [*map(_write_value, value)] if isinstance(value, list) else value


def _read_model(kind: type[BaseModel], stored: _Stored) -> BaseModel:
    """Read a model. It rejects unknown fields, which a newer writer may have added: they are removed from ``stored``."""
    try:
        return kind.model_validate(stored)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            if fault["type"] == "extra_forbidden":
                _remove(stored, fault["loc"])
    return kind.model_validate(stored)


def _remove(stored: Any, place: tuple[int | str, ...]) -> None:
    for part in place[:-1]:
        has_part = isinstance(stored, list) or part in stored
        stored = stored[part] if has_part else stored  # in pydantic's place, the type of a message follows its position
    del stored[place[-1]]


_KEY: Final = _Codec(_write_key, _read_key)
_PAIRS: Final = _tuple_of(_Codec(list, tuple))
_OUTCOME: Final = _Codec(Outcome, Outcome)
_DECIDED: Final = _Codec(_write_decided, _read_decided)
_CALLS: Final = _tuple_of(_object_of(JudgeCall))
_CODECS: Final[Mapping[type, Mapping[str, _Codec]]] = {
    Unit: {
        "key": _KEY,
        "spans": _Codec(lambda spans: [*map(_fields_of, spans)], lambda stored: tuple(map(_read_span, stored))),
        "session": _object_of(Session),
        "inner": _object_of(InnerGroup),
    },
    Session: {"key": _KEY, "links": _tuple_of(_KEY)},
    SpanData: {
        "trace_id": _hex(_TRACE_ID),
        "span_id": _hex(_SPAN_ID),
        "parent_id": _hex(_SPAN_ID),
        "attributes": _Codec(lambda attributes: dict(attributes) or None, dict),
        "metadata": _Codec(lambda metadata: jsonable(dict(metadata)) or None, dict),  # the application's own objects
        "resource": _Codec(dict, dict),
        "events": _tuple_of(_Codec(lambda event: [event[0], dict(event[1])], tuple)),
        "no_content": _Codec(list, lambda stored: NoContent(*stored)),
        "decided": _DECIDED,
    },
    SamplingContext: {
        "key": _KEY,
        "metadata": _Codec(jsonable, dict),
        "models": _Codec(sorted, frozenset),
        "decided": _DECIDED,
        "sampled_by": _KEY,
        "inner": _object_of(InnerGroup),
    },
    Samples: {
        "single_turn": _Codec(_write_model, partial(_read_model, SingleTurnSample)),
        "multi_turn": _Codec(_write_model, partial(_read_model, MultiTurnSample)),
        "outcome": _OUTCOME,
        "searched": _PAIRS,
    },
    Decision: {
        "threshold": _hex(_THRESHOLD),
        "randomness": _hex(_THRESHOLD),
        "met": _hex(_THRESHOLD),
        "rates": _PAIRS,
    },
    Score: {
        "outcome": _OUTCOME,
        "scale": _Codec(lambda scale: _fields_of(scale) | {"range": scale.range}, partial(_make, Scale)),
        "missing": _Codec(lambda missing: list(missing) or None, tuple),
        "usage": _Codec(lambda usage: _CALLS.write(usage.calls), lambda stored: Usage(_CALLS.read(stored))),
        "votes": _object_of(Votes),
        "jury": _object_of(JuryVotes),
        "threshold": _hex(_THRESHOLD),
    },
    JuryVotes: dict.fromkeys(("models", "values", "left_out"), _Codec(list, tuple)),
    Scale: dict.fromkeys(("range", "categories", "bad"), _Codec(list, tuple)),  # None differs from the default range
    JudgeCall: {"transcript": _object_of(Transcript)},
}
"""Class → its fields that JSON cannot represent directly."""


# --- copies ---------------------------------------------------------------------------------------------------------

# Units ↔ copies for remote scoring: one OTLP request each, with content, and with the sampling decisions on the root.
#
# Attributes have GenAI names, whatever the instrumentation is, so a reader of a copy needs no normalizer.

_NO_CONTENT: Final = f"{semconv.FORWARDED_UNIT}.no_content"
_SAMPLES: Final = f"{semconv.FORWARDED_UNIT}.samples"
_MARKS: Final = (semconv.FORWARDED_UNIT, semconv.SAMPLING_DECISION)
"""Prefixes of the attributes that only copies have."""
_REMOTE_FLAGS: Final[Mapping[bool | None, int]] = {None: 0, False: HAS_IS_REMOTE, True: IS_REMOTE}


def request_of_unit(
    unit: Unit,
    decisions: Mapping[str, Decision],
    content: Mapping[int, Mapping[str, Any]],
    resource: Mapping[str, Any],
    samples: Samples | None = None,
) -> bytes:
    """Return a unit as an ``ExportTraceServiceRequest``.

    Args:
        decisions: decisions of the metrics that sample the unit.
        content: span id → the span's attributes, redacted for export.
        resource: resource of spans without one.
        samples: redacted samples of a submitted unit; None for every other unit.
    """
    marks = {
        semconv.SAMPLING_DECISION + name: f"{decision.threshold:014x} {decision.rule}"
        for name, decision in decisions.items()
    }
    if samples is not None:
        marks[_SAMPLES] = str(_dump({"version": VERSION, "samples": _fields_of(samples)}), "utf-8", "replace")
    spans = list[tuple[Origin, bytes]]()
    for span in unit.spans:
        attributes = encode_attributes(content[span.span_id]) | {semconv.FORWARDED_UNIT: f"{unit.key.span_id:016x}"}
        if span.no_content is not None:
            attributes[_NO_CONTENT] = [*span.no_content]
        if span.span_id == unit.key.span_id:
            attributes |= marks
        spans.append((_origin(span, resource), with_attributes(_span_message(span), attributes)))
    return request_of(spans)


def is_copy(resource: Mapping[str, Any]) -> bool:
    """Whether spans of this resource are copies."""
    return resource.get(semconv.FORWARDED_UNIT) is True


def units_of(spans: Iterable[WireSpan], unreadable: Callable[[Exception], None]) -> list[tuple[Unit, Samples | None]]:
    """Return the units of copies, with the decisions on their roots, and the samples of submitted units.

    Args:
        unreadable: called with the error of each invalid span, of each span without its unit's id, and of each unit without a
            root or with an invalid decision.
    """
    by_unit: dict[UnitKey, list[SpanData]] = {}
    for span in spans:
        try:
            data = span_data_of(span)
            key = UnitKey(data.trace_id, int(str(data.attributes.get(semconv.FORWARDED_UNIT)), 16))
        except (UnreadableRequest, ValueError) as error:
            unreadable(error)
        else:
            by_unit.setdefault(key, []).append(data)
    units = list[tuple[Unit, Samples | None]]()
    for key, data_of_unit in by_unit.items():
        try:
            units.append((_make_unit(key, data_of_unit), _samples_in(data_of_unit)))
        except (ValueError, TypeError) as error:
            unreadable(error)
    return units


def _origin(span: SpanData, resource: Mapping[str, Any]) -> Origin:
    attributes = wire_values(resource if span.resource is None else span.resource)
    scope = InstrumentationScope(name=safe_text(span.scope)).SerializeToString()
    return Origin(resource_message({**attributes, semconv.FORWARDED_UNIT: True}), scope, span.scope)


def _span_message(span: SpanData) -> bytes:
    """Return a span without attributes as a ``Span`` message."""
    message: Any = Span(  # the stubs know enums by their names alone
        trace_id=span.trace_id.to_bytes(16),
        span_id=span.span_id.to_bytes(8),
        parent_span_id=b"" if span.parent_id is None else span.parent_id.to_bytes(8),
        trace_state=safe_text(span.trace_state),
        name=safe_text(span.name),
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        flags=span.trace_flags | _REMOTE_FLAGS[span.parent_is_remote],
    )
    message.kind = KINDS.index(span.kind) or 1
    message.status.code = STATUS.index(span.status)
    return bytes(message.SerializeToString())


def _make_unit(key: UnitKey, spans: Sequence[SpanData]) -> Unit:
    resource = {name: value for name, value in (spans[0].resource or {}).items() if name != semconv.FORWARDED_UNIT}
    unit = Unit(key, tuple(_without_marks(span, resource) for span in sorted(spans, key=lambda span: span.start_ns)))
    if unit.root is None:
        raise ValueError("a copy without its root")
    return replace(unit, eligible_metrics=frozenset(unit.root.decided or {}))


def _samples_in(spans: Sequence[SpanData]) -> Samples | None:
    encoded = next((span.attributes[_SAMPLES] for span in spans if _SAMPLES in span.attributes), None)
    if encoded is None:
        return None
    samples = _read(str(encoded).encode(), lambda stored: _make(Samples, stored["samples"]))
    if isinstance(samples, UnreadableJob):
        raise ValueError(samples.because)  # noqa: TRY004  (the received value is wrong, not an argument's type)
    return samples


def _without_marks(span: SpanData, resource: Mapping[str, Any]) -> SpanData:
    """Return a span of a copy as the application's span, with the values of its marks."""
    attributes = span.attributes
    received = attributes.wire if isinstance(attributes, WireAttributes) else attributes  # unparsed
    marks: dict[str, Any] = {name: value for name, value in received.items() if name.startswith(_MARKS)}
    decided = dict[str, UpstreamDecision]()
    for name, mark in marks.items():
        if name.startswith(semconv.SAMPLING_DECISION):
            threshold, _, rule = str(mark).partition(" ")
            decided[name.removeprefix(semconv.SAMPLING_DECISION)] = UpstreamDecision(True, int(threshold, 16), rule)
    no_content = marks.get(_NO_CONTENT)
    return replace(
        span,
        attributes=attributes.with_plain(dict.fromkeys(marks)) if isinstance(attributes, Attributes) else attributes,
        resource=resource,
        no_content=None if no_content is None else NoContent(*map(str, no_content)),
        decided=decided or None,
    )
