"""Jobs ↔ JSON for a disk, and units ↔ OTLP requests for another process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import BaseModel

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
from spanscore.core.codecs.otlp_span import IS_REMOTE, KINDS, SAYS_REMOTE
from spanscore.core.codecs.sdk import STATUS, WireAttributes, exported
from spanscore.core.codecs.text import jsonable, safe_text, wire_values
from spanscore.core.job import Decision, Job
from spanscore.core.log import type_name
from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    ToolCall,
    ToolMessage,
)
from spanscore.core.score import JudgeCall, Outcome, Scale, Score, Transcript, Usage, Votes
from spanscore.core.span import (
    Attributes,
    NoContent,
    SamplingContext,
    Session,
    SpanData,
    Unit,
    UnitKey,
    UpstreamDecision,
)

__all__ = [
    "VERSION",
    "UnreadableJob",
    "fields_known",
    "fields_told",
    "hex_of",
    "is_copy",
    "job_of",
    "json_of_job",
    "json_of_samples",
    "json_of_scores",
    "of_hex",
    "request_of_unit",
    "samples_of",
    "scores_of",
    "units_of",
]

# --- fields ---------------------------------------------------------------------------------------------------------

# Dataclasses ↔ JSON objects, field by field: what is not there has its default, and what is not known is left alone.


def fields_told(thing: Any, /, **named: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults.

    Args:
        thing: of a frozen dataclass whose values, but for those that are ``named``, JSON can carry.
        named: field → how it is written; None = it is left out.
    """
    values = dict[str, Any]()
    for name, default in _defaults(thing.__class__):
        value = named[name] if name in named else getattr(thing, name)
        if value is not None and (default is None or value != default):
            values[name] = value
    return values


def fields_known(kind: type, given: Mapping[str, Any], /, **read: Any) -> Any:
    """Make a dataclass of those fields of a JSON object that it has.

    Args:
        kind: the dataclass.
        given: the object.
        read: field → its value, where that is not what stands there.
    """
    return kind(**{name: given[name] for name, _ in _defaults(kind) if name in given} | read)


def hex_of(number: int | None, digits: int) -> str | None:
    """Return a number as hex digits; None stays None."""
    return None if number is None else f"{number:0{digits}x}"


def of_hex(text: str | None) -> int | None:
    """Return the number that hex digits stand for; None stays None."""
    return None if text is None else int(text, 16)


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple((one.name, _default(one)) for one in fields(kind) if one.init)


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


# --- jobs -----------------------------------------------------------------------------------------------------------

# Jobs ↔ JSON: a unit that waits for its scores, and those that are in, as they are kept on a disk for another process.
#
# One object each, ``version: 1``; ids as hex, thresholds as the 14 digits that ``tracestate`` has them in. What was decided
# travels as it was: whoever reads a job throws no dice and weighs nothing again. Fields that a newer writer has added are
# left alone; of another version nothing is read.

VERSION: Final = 1
_TRACE_ID, _SPAN_ID, _THRESHOLD = 32, 16, 14
"""Hex digits."""
_LEVELS: Final = 4
"""Those above a message: the document, its samples, a conversation, its messages."""
_Given: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnreadableJob:
    """A document of which nothing was made.

    Attributes:
        because: what is wrong with it; quotes nothing of it.
    """

    because: str


def json_of_job(job: Job, resource: Mapping[str, Any] | None = None) -> bytes:
    """Return a job as one JSON object; when it was taken, and what waits for it, are this process's own and left out.

    What a sample that was made by hand holds and JSON cannot carry is written as ``core/codecs/text.py`` renders it.

    Args:
        resource: of this process, whose spans name none: who scores them may be of another release, or another service.
    """
    return _dumped(
        {
            "version": VERSION,
            "unit": _told_unit(job.unit, resource),
            "samples": _told_samples(job.samples),
            "decisions": {name: _told_decision(one) for name, one in job.decisions.items()},
            "size_bytes": job.size_bytes,
            "undecided": None if job.undecided is None else _told_facts(job.undecided, resource),
        }
    )


def job_of(document: bytes) -> Job | UnreadableJob:
    """Return the job of a document, as one that was handed over; or why there is none."""
    return _read(document, _job)


def json_of_scores(scores: Sequence[Score]) -> bytes:
    """Return scores as one JSON object."""
    return _dumped({"version": VERSION, "scores": [_told_score(score) for score in scores]})


def scores_of(document: bytes) -> tuple[Score, ...] | UnreadableJob:
    """Return the scores of a document; or why there are none."""
    return _read(document, lambda given: tuple(map(_score, given["scores"])))


def json_of_samples(samples: Samples) -> bytes:
    """Return samples as one JSON object."""
    return _dumped({"version": VERSION, "samples": _told_samples(samples)})


def samples_of(document: bytes) -> Samples | UnreadableJob:
    """Return the samples of a document; or why there are none."""
    return _read(document, lambda given: _samples(given["samples"]))


def _dumped(document: Any) -> bytes:
    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):  # made by hand: nan, a key that is no text, an object
        text = json.dumps(_rendered(document, _LEVELS), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")  # as ``json.loads`` reads it: a text comes back as it was


def _rendered(value: Any, levels: int) -> Any:
    """Render what is below so many levels, each value within bounds of its own: a long conversation is not cut."""
    if levels and isinstance(value, dict):
        return {name: _rendered(inner, levels - 1) for name, inner in value.items()}
    if levels and isinstance(value, list):
        return [_rendered(inner, levels - 1) for inner in value]
    return jsonable(value)


def _read(document: bytes, read: Callable[[_Given], T]) -> T | UnreadableJob:
    try:
        given = json.loads(document)
        if (version := given["version"]) != VERSION:
            return UnreadableJob(f"it is of version {version!r}, and this spanscore reads {VERSION}"[:100])
        return read(given)
    except Exception as error:  # noqa: BLE001  (whatever stands there; the class only: a text may quote)
        return UnreadableJob(f"it cannot be read ({type_name(error)})")


# --- the unit --------------------------------------------------------------------------------------------------


def _told_key(key: UnitKey) -> list[str | None]:
    return [hex_of(key.trace_id, _TRACE_ID), hex_of(key.span_id, _SPAN_ID)]


def _key(given: Sequence[str]) -> UnitKey:
    trace_id, span_id = given
    return UnitKey(int(trace_id, 16), int(span_id, 16))


def _told_unit(unit: Unit, resource: _Given | None) -> dict[str, Any]:
    return fields_told(
        unit,
        key=_told_key(unit.key),
        spans=[_told_span(span, resource) for span in unit.spans],
        session=None if unit.session is None else _told_session(unit.session),
    )


def _unit(given: _Given) -> Unit:
    unit: Unit = fields_known(
        Unit,
        given,
        key=_key(given["key"]),
        spans=tuple(map(_span, given.get("spans", ()))),
        session=_session(given["session"]) if "session" in given else None,
    )
    return unit


def _told_session(session: Session) -> dict[str, Any]:
    return fields_told(session, key=_told_key(session.key), links=[*map(_told_key, session.links)] or None)


def _session(given: _Given) -> Session:
    session: Session = fields_known(
        Session, given, key=_key(given["key"]), links=tuple(map(_key, given.get("links", ())))
    )
    return session


def _told_span(span: SpanData, resource: _Given | None) -> dict[str, Any]:
    whose = resource if span.resource is None else span.resource
    return fields_told(
        span,
        trace_id=hex_of(span.trace_id, _TRACE_ID),
        span_id=hex_of(span.span_id, _SPAN_ID),
        parent_id=hex_of(span.parent_id, _SPAN_ID),
        attributes=dict(span.attributes) or None,
        metadata=jsonable(dict(span.metadata)) if span.metadata else None,  # the application's own objects
        resource=None if whose is None else dict(whose),
        events=[[name, dict(attributes)] for name, attributes in span.events] or None,
        no_content=None if span.no_content is None else [*span.no_content],
        decided=_told_decided(span.decided),
    )


def _span(given: _Given) -> SpanData:
    span: SpanData = fields_known(
        SpanData,
        given,
        trace_id=int(given["trace_id"], 16),
        span_id=int(given["span_id"], 16),
        parent_id=of_hex(given.get("parent_id")),
        events=tuple((name, attributes) for name, attributes in given.get("events", ())),
        no_content=NoContent(*given["no_content"]) if "no_content" in given else None,
        decided=_decided(given.get("decided")),
    )
    return span


def _told_decided(decided: Mapping[str, UpstreamDecision] | None) -> dict[str, Any] | None:
    if decided is None:
        return None
    return {name: [one.take, hex_of(one.threshold, _THRESHOLD), one.rule] for name, one in decided.items()}


def _decided(given: _Given | None) -> dict[str, UpstreamDecision] | None:
    if given is None:
        return None
    return {name: UpstreamDecision(take, int(threshold, 16), rule) for name, (take, threshold, rule) in given.items()}


def _told_facts(facts: SamplingContext, resource: _Given | None) -> dict[str, Any]:
    own = None if resource is None else resource.get(semconv.SERVICE_NAME)
    return facts._asdict() | {
        "key": _told_key(facts.key),
        "metadata": jsonable(facts.metadata),
        "models": None if facts.models is None else sorted(facts.models),
        "decided": _told_decided(facts.decided),
        "sampled_by": None if facts.sampled_by is None else _told_key(facts.sampled_by),
        "service_name": own if facts.service_name is None else facts.service_name,
    }


def _facts(given: _Given) -> SamplingContext:
    known = {name: given[name] for name in SamplingContext._fields if name in given}
    models = known.get("models")
    return SamplingContext(**known)._replace(
        key=_key(given["key"]),
        models=None if models is None else frozenset(models),
        decided=_decided(known.get("decided")),
        sampled_by=None if known.get("sampled_by") is None else _key(known["sampled_by"]),
    )


# --- samples and decisions -------------------------------------------------------------------------------------


def _told_samples(samples: Samples) -> dict[str, Any]:
    return fields_told(
        samples,
        single_turn=_told_model(samples.single_turn),
        multi_turn=_told_model(samples.multi_turn),
        searched=[*map(list, samples.searched)] or None,
    )


def _told_model(model: BaseModel | None) -> dict[str, Any] | None:
    """Return a model's fields; pydantic's own way stops at a value that is not of the field's type (2.9)."""
    if model is None:
        return None
    told = {name: _told_value(getattr(model, name)) for name in type(model).model_fields}
    return {name: value for name, value in told.items() if value is not None}


def _told_value(value: Any) -> Any:
    if type(value) is str or value is None:  # most are; to ask whether a value is a model runs code of pydantic's
        return value
    if isinstance(value, BaseModel):
        return _told_model(value)
    return [*map(_told_value, value)] if isinstance(value, list) else value


def _samples(given: _Given) -> Samples:
    samples: Samples = fields_known(
        Samples,
        given,
        single_turn=_single(given.get("single_turn")),
        multi_turn=_multi(given.get("multi_turn")),
        outcome=Outcome(given["outcome"]) if "outcome" in given else None,
        searched=tuple((field, place) for field, place in given.get("searched", ())),
    )
    return samples


def _single(given: _Given | None) -> SingleTurnSample | None:
    return None if given is None else SingleTurnSample.model_validate(_known(SingleTurnSample, given))


def _multi(given: _Given | None) -> MultiTurnSample | None:
    if given is None:
        return None
    sample = _known(MultiTurnSample, given)
    sample["user_input"] = [_message(message) for message in given["user_input"]]
    if "reference_tool_calls" in given:
        sample["reference_tool_calls"] = [_known(ToolCall, call) for call in given["reference_tool_calls"]]
    return MultiTurnSample.model_validate(sample)


def _message(given: _Given) -> dict[str, Any]:
    message = _known(_MESSAGES[given["type"]], given)
    if "tool_calls" in message:
        message["tool_calls"] = [_known(ToolCall, call) for call in message["tool_calls"]]
    return message


_MESSAGES: Final[Mapping[str, type[BaseModel]]] = {"human": HumanMessage, "ai": AIMessage, "tool": ToolMessage}


def _known(kind: type[BaseModel], given: _Given) -> dict[str, Any]:
    """Return the fields that a model has: it takes no other, and a newer writer may have some."""
    return {name: value for name, value in given.items() if name in kind.model_fields}


def _told_decision(decision: Decision) -> dict[str, Any]:
    return fields_told(
        decision,
        threshold=hex_of(decision.threshold, _THRESHOLD),
        randomness=hex_of(decision.randomness, _THRESHOLD),
        met=hex_of(decision.met, _THRESHOLD),
        rates=[*map(list, decision.rates)] or None,
    )


def _decision(given: _Given) -> Decision:
    decision: Decision = fields_known(
        Decision,
        given,
        threshold=int(given["threshold"], 16),
        randomness=of_hex(given.get("randomness")),
        met=of_hex(given.get("met")),
        rates=tuple((name, rate) for name, rate in given.get("rates", ())),
    )
    return decision


def _job(given: _Given) -> Job:
    undecided = given.get("undecided")
    return Job(
        _unit(given["unit"]),
        _samples(given["samples"]),
        {name: _decision(one) for name, one in given["decisions"].items()},
        given["size_bytes"],
        undecided=None if undecided is None else _facts(undecided),
        delegated=True,
    )


# --- scores ----------------------------------------------------------------------------------------------------


def _told_score(score: Score) -> dict[str, Any]:
    return fields_told(
        score,
        scale=fields_told(score.scale) | {"range": score.scale.range},  # None is another than the default
        missing=list(score.missing) or None,
        usage=[*map(_told_call, score.usage.calls)] or None,
        votes=None if score.votes is None else fields_told(score.votes),
        threshold=hex_of(score.threshold, _THRESHOLD),
    )


def _told_call(call: JudgeCall) -> dict[str, Any]:
    return fields_told(call, transcript=None if call.transcript is None else fields_told(call.transcript))


def _score(given: _Given) -> Score:
    score: Score = fields_known(
        Score,
        given,
        outcome=Outcome(given["outcome"]),
        scale=_scale(given["scale"]),
        missing=tuple(given.get("missing", ())),
        usage=Usage(tuple(map(_call, given.get("usage", ())))),
        votes=fields_known(Votes, given["votes"]) if "votes" in given else None,
        threshold=of_hex(given.get("threshold")),
    )
    return score


def _scale(given: _Given) -> Scale:
    scale: Scale = fields_known(Scale, given, range=None if given["range"] is None else tuple(given["range"]))
    return scale


def _call(given: _Given) -> JudgeCall:
    call: JudgeCall = fields_known(JudgeCall, given)
    if call.transcript is None:
        return call
    return replace(call, transcript=fields_known(Transcript, given["transcript"]))


# --- copies ---------------------------------------------------------------------------------------------------------

# Units ↔ copies of them on the wire: one request of OTLP each, with content, and with what was decided on the root.
#
# Their attributes are GenAI names, whoever made the spans: who reads a copy translates nothing.

_NO_CONTENT: Final = f"{semconv.FORWARDED_UNIT}.no_content"
_SAMPLES: Final = f"{semconv.FORWARDED_UNIT}.samples"
_HEX: Final = 16


def request_of_unit(
    unit: Unit,
    decisions: Mapping[str, Decision],
    content: Mapping[int, Mapping[str, Any]],
    resource: Mapping[str, Any],
    samples: Samples | None = None,
) -> bytes:
    """Return a unit as an ``ExportTraceServiceRequest``.

    Args:
        decisions: of the metrics that take it.
        content: span id → the span's attributes, as they may leave.
        resource: of spans that name none of their own.
        samples: of a unit that somebody submitted, likewise.
    """
    marks = {semconv.SAMPLING_DECISION + name: f"{one.threshold:014x} {one.rule}" for name, one in decisions.items()}
    if samples is not None:
        marks[_SAMPLES] = str(json_of_samples(samples), "utf-8", "replace")
    spans = list[tuple[Origin, bytes]]()
    for span in unit.spans:
        told = _told(span, unit.key) | (marks if span.span_id == unit.key.span_id else {})
        attributes = {**exported(content[span.span_id]), **told}
        spans.append((_origin(span, resource), with_attributes(_bare(span), attributes)))
    return request_of(spans)


def is_copy(resource: Mapping[str, Any]) -> bool:
    """Whether spans of this resource are copies."""
    return resource.get(semconv.FORWARDED_UNIT) is True


def units_of(spans: Iterable[WireSpan], unreadable: Callable[[Exception], None]) -> list[tuple[Unit, Samples | None]]:
    """Return the units of copies, with what was decided on the root of each, and samples where some were submitted.

    Args:
        unreadable: told of each span that is none, or does not say of which unit it is, and of each unit without a root or
            with a decision that is none.
    """
    by_unit: dict[UnitKey, list[SpanData]] = {}
    for span in spans:
        try:
            data = span_data_of(span)
            key = UnitKey(data.trace_id, int(str(data.attributes.get(semconv.FORWARDED_UNIT)), _HEX))
        except (UnreadableRequest, ValueError) as error:
            unreadable(error)
        else:
            by_unit.setdefault(key, []).append(data)
    units = list[tuple[Unit, Samples | None]]()
    for key, of_one in by_unit.items():
        try:
            units.append((_make_unit(key, of_one), _samples_in(of_one)))
        except (ValueError, TypeError) as error:
            unreadable(error)
    return units


def _told(span: SpanData, key: UnitKey) -> dict[str, Any]:
    told: dict[str, Any] = {semconv.FORWARDED_UNIT: f"{key.span_id:016x}"}
    if span.no_content is not None:
        told[_NO_CONTENT] = [*span.no_content]
    return told


def _origin(span: SpanData, resource: Mapping[str, Any]) -> Origin:
    whose = wire_values(resource if span.resource is None else span.resource)
    scope = InstrumentationScope(name=safe_text(span.scope)).SerializeToString()
    return Origin(resource_message({**whose, semconv.FORWARDED_UNIT: True}), scope, span.scope)


def _bare(span: SpanData) -> bytes:
    message: Any = Span(  # the stubs know enums by their names alone
        trace_id=span.trace_id.to_bytes(16),
        span_id=span.span_id.to_bytes(8),
        parent_span_id=b"" if span.parent_id is None else span.parent_id.to_bytes(8),
        trace_state=safe_text(span.trace_state),
        name=safe_text(span.name),
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        flags=span.trace_flags | _flags(span.parent_is_remote),
    )
    message.kind = KINDS.index(span.kind) or 1
    message.status.code = STATUS.index(span.status)
    return bytes(message.SerializeToString())


def _flags(is_remote: bool | None) -> int:
    if is_remote is None:
        return 0
    return IS_REMOTE if is_remote else SAYS_REMOTE


def _make_unit(key: UnitKey, spans: Sequence[SpanData]) -> Unit:
    resource = {name: value for name, value in (spans[0].resource or {}).items() if name != semconv.FORWARDED_UNIT}
    read = tuple(_as_it_was(span, resource) for span in sorted(spans, key=lambda span: span.start_ns))
    unit = Unit(key, read)
    if unit.root is None:
        raise ValueError("a copy without its root")
    return replace(unit, eligible_metrics=frozenset(unit.root.decided or {}))


def _samples_in(spans: Sequence[SpanData]) -> Samples | None:
    """Return the samples that stand on a root.

    Raises:
        ValueError: they cannot be read.
    """
    found = next((span.attributes[_SAMPLES] for span in spans if _SAMPLES in span.attributes), None)
    if found is None:
        return None
    samples = samples_of(str(found).encode())
    if isinstance(samples, UnreadableJob):
        raise ValueError(samples.because)  # noqa: TRY004  (it is what came, and no argument)
    return samples


def _as_it_was(span: SpanData, resource: Mapping[str, Any]) -> SpanData:
    attributes = span.attributes
    came = attributes.wire if isinstance(attributes, WireAttributes) else attributes  # with nothing parsed
    told: dict[str, Any] = {name: value for name, value in came.items() if name.startswith(_OURS)}
    decided = {
        name.removeprefix(semconv.SAMPLING_DECISION): _read_decision(str(mark))
        for name, mark in told.items()
        if name.startswith(semconv.SAMPLING_DECISION)
    }
    no_content = told.get(_NO_CONTENT)
    return replace(
        span,
        attributes=attributes.with_plain(dict.fromkeys(told)) if isinstance(attributes, Attributes) else attributes,
        resource=resource,
        no_content=None if no_content is None else NoContent(*map(str, no_content)),
        decided=decided or None,
    )


_OURS: Final = (semconv.FORWARDED_UNIT, semconv.SAMPLING_DECISION)


def _read_decision(mark: str) -> UpstreamDecision:
    threshold, _, rule = mark.partition(" ")
    return UpstreamDecision(True, int(threshold, _HEX), rule)
