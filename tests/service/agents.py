"""Requests of an application with agents, and their spans at a backend."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from tests.service.backend import Arrived

OURS = "spanscore."
QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


def agent_run(random: Random) -> list[Span]:
    """Return one trace: an agent, its model call, its tool, and a request over HTTP that no scorer cares for."""
    trace_id, now_ns = random.randbytes(16), time.time_ns()
    ids = [random.randbytes(8) for _ in range(4)]
    names = ("invoke_agent guide", "chat model", "execute_tool map", "GET /map")
    spans = [
        Span(
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=b"" if span_id is ids[0] else ids[0],
            name=name,
            start_time_unix_nano=now_ns,
            end_time_unix_nano=now_ns + 1_000_000,
        )
        for span_id, name in zip(ids, names, strict=True)
    ]
    for span in spans[:3]:
        _tell(span, {"gen_ai.operation.name": span.name.split()[0]})
    for span in spans[:2]:
        _tell(span, {"gen_ai.input.messages": _message("user", QUESTION)})
        _tell(span, {"gen_ai.output.messages": _message("assistant", ANSWER)})
    return spans


def requests_of(spans: Sequence[Span], size: int, scope_name: str = "my.agents") -> list[bytes]:
    """Return them in export requests of so many spans."""
    scope = InstrumentationScope(name=scope_name, version="1.2")
    parts = [spans[start : start + size] for start in range(0, len(spans), size)]
    return [
        ExportTraceServiceRequest(
            resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(scope=scope, spans=part)])]
        ).SerializeToString()
        for part in parts
    ]


class Seen(NamedTuple):
    """The spans at a backend.

    Attributes:
        times: span id → how often it came.
        changed: names of spans that differ from the sent ones by more than our attributes after their own bytes.
        marked: span id → our attributes on it, by name.
        scores: evaluation spans.
    """

    times: Mapping[bytes, int]
    changed: Sequence[str]
    marked: Mapping[bytes, Mapping[str, object]]
    scores: Sequence[Span]


def seen_at(requests: Iterable[Arrived], sent: Sequence[Span]) -> Seen:
    """Compare a backend's spans with the sent ones."""
    own = {span.span_id: span for span in sent}
    times: Counter[bytes] = Counter()
    changed, scores = list[str](), list[Span]()
    marked: dict[bytes, dict[str, object]] = {}
    for scope, span in _spans_in(requests):
        if scope.startswith("spanscore"):
            scores.append(span)
            continue
        times[span.span_id] += 1
        ours = _taken_off(span)
        if ours:
            marked[span.span_id] = ours
        if span.SerializeToString() != own[span.span_id].SerializeToString():
            changed.append(span.name)
    return Seen(times, changed, marked, scores)


def _spans_in(requests: Iterable[Arrived]) -> Iterable[tuple[str, Span]]:
    for one in requests:
        request = ExportTraceServiceRequest.FromString(one.body)
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    yield scope_spans.scope.name, span


def _taken_off(span: Span) -> dict[str, object]:
    """Remove our attributes, the last ones, from a span; return them."""
    ours = dict[str, object]()
    while span.attributes and span.attributes[-1].key.startswith(OURS):
        last = span.attributes.pop()
        ours[last.key] = getattr(last.value, str(last.value.WhichOneof("value")))
    return ours


def _tell(span: Span, attributes: Mapping[str, str]) -> None:
    for key, value in attributes.items():
        span.attributes.add(key=key).value.string_value = value


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
