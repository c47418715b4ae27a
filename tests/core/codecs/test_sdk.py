"""ReadableSpan ↔ SpanData: a span made by the SDK is read back with its values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from tests.core.codecs.payloads import TEXTS, payloads

from spanscore import semconv
from spanscore.core.codecs.sdk import encode_attributes, span_data
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.core.span import SpanData

MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "Grüße"}]}]


def ended(attributes: dict[str, Any] | None = None, **start: Any) -> ReadableSpan:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "bot"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("some.scope").start_span("chat m", start_time=10, **start)
    span.set_attributes(attributes or {})
    span.set_status(StatusCode.ERROR, "x")
    span.end(end_time=30)
    (readable,) = exporter.get_finished_spans()
    return readable


def parent(state: TraceState | None = None) -> Any:
    ids = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=state or TraceState())
    return trace.set_span_in_context(trace.NonRecordingSpan(ids))


def test_ids_times_kind_status_scope_and_resource_are_kept() -> None:
    readable = ended({"gen_ai.operation.name": "chat"}, context=parent(), kind=SpanKind.CLIENT)

    data = span_data(readable)

    assert data == SpanData(
        trace_id=1,
        span_id=readable.get_span_context().span_id,
        parent_id=2,
        name="chat m",
        start_ns=10,
        end_ns=30,
        scope="some.scope",
        kind="client",
        status="error",
        attributes=data.attributes,
        trace_flags=1,
        trace_state="",
        resource={"service.name": "bot"},
        parent_is_remote=True,
        events=(("exception", {"exception.message": "x"}),),  # the description of the status
    )
    assert dict(data.attributes) == {"gen_ai.operation.name": "chat"}


def test_the_trace_state_is_kept_as_its_header() -> None:
    state = TraceState([("ot", "th:8"), ("vendor", "x")])

    assert span_data(ended(context=parent(state))).trace_state == "ot=th:8,vendor=x"


def test_a_root_has_no_parent() -> None:
    assert span_data(ended()).parent_id is None


@given(st.sampled_from(sorted(semconv.CONTENT_ATTRIBUTES)), payloads())
def test_content_that_was_exported_reads_back(name: str, value: object) -> None:
    form = jsonable(value)

    read = span_data(ended(encode_attributes({name: form}))).attributes.get(name)

    if name == semconv.RETRIEVAL_QUERY:
        assert read == (None if form is None else as_text(form) if isinstance(form, str) else read)
    elif isinstance(form, (str, list, dict)) or form is None:
        assert read == form
    else:
        assert read == as_text(form)


@given(st.dictionaries(TEXTS, payloads(4), max_size=5))
def test_nothing_raises_on_the_way_out(attributes: dict[str, Any]) -> None:
    for name, value in encode_attributes(attributes).items():
        assert name.encode().decode() == name
        assert not isinstance(value, str) or value.encode().decode() == value


def test_text_stays_text_and_structures_become_compact_json() -> None:
    assert encode_attributes({semconv.INPUT_VALUE: "Grüße", semconv.INPUT_MESSAGES: MESSAGES}) == {
        semconv.INPUT_VALUE: "Grüße",
        semconv.INPUT_MESSAGES: '[{"role":"user","parts":[{"type":"text","content":"Grüße"}]}]',
    }


def test_plain_attributes_pass_as_they_are() -> None:
    plain = {"a": 1, "b": 1.5, "c": True, "d": ["x", "y"], "e": "text", "f": (1, 2)}

    assert encode_attributes({**plain, "none": None}) == {**plain, "f": [1, 2]}


def test_a_lone_surrogate_is_made_safe() -> None:
    assert encode_attributes({"a": "\ud800", "b": ["\ud800"], semconv.OUTPUT_VALUE: {"x": "\ud800"}}) == {
        "a": "?",
        "b": ["?"],
        semconv.OUTPUT_VALUE: '{"x":"?"}',
    }


@pytest.mark.parametrize("cut", ['[{"role": "user", "par', "{", '"'])
def test_json_that_was_cut_on_its_way_stays_text(cut: str) -> None:
    assert span_data(ended({semconv.INPUT_MESSAGES: cut})).attributes[semconv.INPUT_MESSAGES] == cut


def test_a_query_is_never_read_as_json() -> None:
    assert span_data(ended({semconv.RETRIEVAL_QUERY: "[1]"})).attributes[semconv.RETRIEVAL_QUERY] == "[1]"


def test_structured_attributes_of_the_sdk_are_read() -> None:
    readable = ReadableSpan(
        name="chat",
        context=SpanContext(1, 2, is_remote=False),
        attributes={semconv.INPUT_MESSAGES: ({"role": "user", "parts": ({"type": "text", "content": "q"},)},)},  # type: ignore[dict-item]
    )

    assert span_data(readable).attributes[semconv.INPUT_MESSAGES] == [
        {"role": "user", "parts": [{"type": "text", "content": "q"}]}
    ]


def test_content_is_parsed_when_it_is_first_read() -> None:
    data = span_data(ended({semconv.INPUT_VALUE: "{}", "gen_ai.operation.name": "chat"}))

    assert data.operation == "chat"
    assert data.without_content().attributes == {"gen_ai.operation.name": "chat"}


def test_a_span_without_ids_is_refused() -> None:
    with pytest.raises(ValueError, match="has no context"):
        span_data(ReadableSpan(name="x"))


def test_no_attribute_both_quotes_and_does_not() -> None:
    assert not [name for name in semconv.PLAIN_ATTRIBUTES if semconv.is_content(name)]
