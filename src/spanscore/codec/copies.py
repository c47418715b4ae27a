"""Units ↔ copies of them on the wire: one request of OTLP each, with content, and with what was decided on the root.

Their attributes are GenAI names, whoever made the spans: who reads a copy translates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore import semconv
from spanscore.codec.jobs import Unreadable, json_of_samples, samples_of
from spanscore.codec.otlp_span import IS_REMOTE, KINDS, SAYS_REMOTE
from spanscore.codec.sdk import STATUS, WireAttributes, exported
from spanscore.codec.text import safe_text, wire_values
from spanscore.codec.wire import (
    Origin,
    UnreadableRequest,
    WireSpan,
    request_of,
    resource_message,
    span_data_of,
    with_attributes,
)
from spanscore.model.job import Decision
from spanscore.model.sample import Samples
from spanscore.model.span import Attributes, NoContent, SpanData, Unit, UnitKey, UpstreamDecision

__all__ = ["is_copy", "request_of_unit", "units_of"]

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
            units.append((_unit(key, of_one), _samples_in(of_one)))
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


def _unit(key: UnitKey, spans: Sequence[SpanData]) -> Unit:
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
    if isinstance(samples, Unreadable):
        raise ValueError(samples.because)  # noqa: TRY004  (it is what came, and no argument)
    return samples


def _as_it_was(span: SpanData, resource: Mapping[str, Any]) -> SpanData:
    attributes = span.attributes
    came = attributes.wire if isinstance(attributes, WireAttributes) else attributes  # with nothing parsed
    told: dict[str, Any] = {name: value for name, value in came.items() if name.startswith(_OURS)}
    decided = {
        name.removeprefix(semconv.SAMPLING_DECISION): _decided(str(mark))
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


def _decided(mark: str) -> UpstreamDecision:
    threshold, _, rule = mark.partition(" ")
    return UpstreamDecision(True, int(threshold, _HEX), rule)
