"""An ended span without observers before its end equals the one that the SDK would have made."""

import json

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, ParentBased, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)  # fmt: skip
from tests.live import a_line, a_trace, run_rag

from spanscore.outputs.exporters import BuiltProviders
from spanscore.outputs.spans import DeferredSpan, EarlyReaders, PresetSpanFactory

CALLER = SpanContext(0xABC, 0xDEF, True, TraceFlags(0x03), TraceState.from_header(["ot=th:8", "shop=1"]))
ATTRIBUTES = {
    "text": "Seine " * 20,
    "whole": 7,
    "share": 0.5,
    "flag": True,
    "listed": ["a", "b"],
    "nested": [["a"]],
    "mapped": {"a": 1},
    "none": None,
}


class Watching(SpanProcessor):
    """Looks at starts, and does nothing with them."""

    def on_start(self, span, parent_context=None):
        self.seen = span


class Adding:
    """A head sampler that adds to the attributes and rewrites the trace state."""

    def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None):
        added = {**(attributes or {}), "sampled.by": ["rule", "7"]}
        return SamplingResult(Decision.RECORD_AND_SAMPLE, added, TraceState.from_header(["ot=th:0"]))

    def get_description(self):
        return "adding"


def spans_of(watched, *, caller=None, **options):
    """Return a parent and its child, made the same way with or without an observer of starts."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(resource=Resource({"service.name": "shop"}), **options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if watched:
        provider.add_span_processor(Watching())
    chosen = PresetSpanFactory.of(provider.get_tracer("scope", "1.0", attributes={"a": "b"}))
    context = Context() if caller is None else set_span_in_context(NonRecordingSpan(caller), Context())
    given = {"kind": SpanKind.CLIENT, "attributes": ATTRIBUTES, "start_time": 5}
    parent = chosen.start_span(
        "parent", context=context, trace_id=0x123, span_id=0x456, links=[Link(CALLER, {})], **given
    )
    child = chosen.start_span("child", context=set_span_in_context(parent, context), span_id=0x789, **given)
    assert isinstance(parent, DeferredSpan) is not watched
    child.set_status(Status(StatusCode.ERROR, "no"))
    child.end(9)
    assert parent.is_recording()
    parent.set_attributes({"late": ["x"]})
    parent.set_attribute("later", 1)
    parent.end(11)
    parent.end(12)
    assert not parent.is_recording()
    return exporter.get_finished_spans()


@pytest.mark.parametrize("caller", [None, CALLER], ids=["first", "called"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": ALWAYS_ON},
        {"sampler": ParentBased(TraceIdRatioBased(1.0))},
        {"sampler": Adding()},
        {"span_limits": SpanLimits(max_span_attributes=4)},
        {"span_limits": SpanLimits(max_span_attributes=0)},
        {"span_limits": SpanLimits(max_span_attribute_length=3)},
        {"span_limits": SpanLimits(max_span_attributes=SpanLimits.UNSET)},
    ],
    ids=["default", "always", "ratio", "adding", "four", "none", "short", "unset"],
)
def test_it_is_the_span_that_the_sdk_makes(options, caller):
    ours, theirs = spans_of(False, caller=caller, **options), spans_of(True, caller=caller, **options)

    assert [json.loads(span.to_json()) for span in ours] == [json.loads(span.to_json()) for span in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert (one.context, one.parent, one.dropped_attributes) == (
            other.context,
            other.parent,
            other.dropped_attributes,
        )
        assert dict(one.attributes) == dict(other.attributes)
        assert (one.resource, one.instrumentation_scope) == (other.resource, other.instrumentation_scope)


def factory_of(watched, **options):
    """Return an exporter, and a factory of the spans that it gets."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(**options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if watched:
        provider.add_span_processor(Watching())
    return exporter, PresetSpanFactory.of(provider.get_tracer("scope"))


def test_a_later_value_of_an_attribute_replaces_the_former():
    exporter, chosen = factory_of(False)

    span = chosen.start_span("one", context=Context(), attributes={"a": 1, "b": 1}, start_time=1)
    span.set_attributes({"a": 2})
    span.end()

    assert dict(exporter.get_finished_spans()[0].attributes) == {"a": 2, "b": 1}


@pytest.mark.parametrize("watched", [False, True])
def test_an_attribute_that_is_set_after_the_end_is_not_exported(watched):
    exporter, chosen = factory_of(watched)

    span = chosen.start_span("one", context=Context(), attributes={"a": 1}, start_time=1)
    span.end()
    span.set_attribute("b", 1)
    span.set_attributes({"c": 1})

    assert dict(exporter.get_finished_spans()[0].attributes) == {"a": 1}


@pytest.mark.parametrize("watched", [False, True])
def test_an_attribute_that_is_set_again_is_not_the_oldest_which_a_limit_drops(watched):
    exporter, chosen = factory_of(watched, span_limits=SpanLimits(max_span_attributes=2))

    span = chosen.start_span("one", context=Context(), attributes={"operation": "chat"}, start_time=1)
    span.set_attributes({"document": "a", "operation": "chat", "model": "m"})
    span.set_attribute("operation", "chat")
    span.set_attribute("tool", "search")
    span.end()

    assert dict(exporter.get_finished_spans()[0].attributes) == {"operation": "chat", "tool": "search"}


def test_a_child_that_the_head_sampler_drops_is_not_exported():
    class RootsOnly(Adding):
        def should_sample(self, parent_context, trace_id, name, *_, **__):
            return SamplingResult(Decision.RECORD_AND_SAMPLE if name == "parent" else Decision.DROP)

    assert [span.name for span in spans_of(False, sampler=RootsOnly())] == ["parent"]


@pytest.mark.parametrize("sampled_by", [ALWAYS_ON, ParentBased(ALWAYS_ON)], ids=["always", "parent"])
def test_ids_that_are_not_chosen_are_generated(sampled_by):
    chosen = PresetSpanFactory.of(TracerProvider(sampler=sampled_by).get_tracer("scope"))

    spans = [chosen.start_span("one", context=Context(), attributes={}, start_time=1) for _ in range(50)]

    assert len({span.get_span_context().trace_id for span in spans}) == 50
    assert len({span.get_span_context().span_id for span in spans}) == 50


def test_a_processor_that_looks_at_starts_is_heard_from_when_it_is_added():
    watching = Watching()
    with a_line(trace=a_trace()) as (scorer, trace):
        run_rag(scorer)
        trace.provider.add_span_processor(watching)
        run_rag(scorer)

    assert watching.seen.name.startswith("evaluation")
    assert len(trace.roots) == 2


@pytest.mark.parametrize(
    ("watched", "processors"),
    [
        (False, []),
        (False, [BatchSpanProcessor(InMemorySpanExporter()), SimpleSpanProcessor(InMemorySpanExporter())]),
        (True, [SimpleSpanProcessor(InMemorySpanExporter()), Watching()]),
    ],
    ids=["nobody", "sdk", "watching"],
)
def test_the_sdks_own_processors_look_at_ended_spans_only(watched, processors):
    provider = TracerProvider()
    for processor in processors:
        provider.add_span_processor(processor)

    assert bool(EarlyReaders(provider.get_tracer("scope"))) is watched


def test_our_own_exporter_looks_at_ended_spans_only():
    provider = BuiltProviders("shop").provider("traces")

    assert not EarlyReaders(provider.get_tracer("scope"))
    provider.shutdown()


def test_a_processor_that_looks_at_spans_about_to_end_sees_them():
    class Ending(SpanProcessor):
        def _on_ending(self, span):
            span.set_attribute("seen", True)

    if not hasattr(SpanProcessor, "_on_ending"):
        pytest.skip("this version of the SDK has no such moment")
    provider = TracerProvider()
    provider.add_span_processor(Ending())

    assert EarlyReaders(provider.get_tracer("scope"))


def test_a_provider_that_counts_its_spans_makes_them_itself(monkeypatch):
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    tracer = TracerProvider().get_tracer("scope")
    if type(getattr(tracer, "_tracer_metrics", None)).__name__ in {"NoneType", "NoOpTracerMetrics"}:
        pytest.skip("this version of the SDK does not count its spans")

    assert EarlyReaders(tracer)
