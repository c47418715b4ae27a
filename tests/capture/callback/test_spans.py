"""A root is decided on the application's thread and created on the span thread: the effects on an application."""

import os
import threading
from contextvars import ContextVar
from uuid import uuid4

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, SamplingResult
from tests.live import QUESTION, Grounded, a_line, a_trace, rag

from spanscore import OnlineScorer
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.sampling import RateSampler
from spanscore.scorer import pipeline_of

tenant: ContextVar[str] = ContextVar("tenant", default="nobody's")


class Starts(SpanProcessor):
    """Records for each span the thread of its start, and the values in the application's context there."""

    def __init__(self):
        self.roots = []

    def on_start(self, span, parent_context=None):
        span.set_attribute("app.tenant", tenant.get())
        if span.parent is None:
            self.roots.append(threading.current_thread().name)


class Asked:
    """A head sampler with a fixed decision, which records its callers."""

    def __init__(self, *, keep=True):
        self.keep, self.calls = keep, []

    def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None):
        self.calls.append((threading.current_thread().name, trace_id, name, dict(attributes)))
        decision = Decision.RECORD_AND_SAMPLE if self.keep else Decision.DROP
        return SamplingResult(decision, {**attributes, "app.sampled.by": "rule 7"})

    def get_description(self):
        return "asked"


def invoke(scorer, **config):
    return rag().invoke(QUESTION, config={"callbacks": [scorer.handler], **config})


def test_processors_find_the_callers_context_though_another_thread_makes_the_span():
    starts, kept = Starts(), a_trace()
    kept.provider.add_span_processor(starts)
    with a_line(trace=kept) as (scorer, trace):
        token = tenant.set("acme")
        invoke(scorer)
        tenant.reset(token)
        assert scorer.flush(5)

    assert starts.roots == ["spanscore-spans"]
    assert trace.roots[0].attributes["app.tenant"] == "acme"


def test_the_head_sampler_is_asked_once_about_a_root_by_the_application_itself():
    sampler = Asked()
    with a_line(trace=a_trace(sampler=sampler)) as (scorer, trace):
        invoke(scorer)
        assert scorer.flush(5)

    of_root = [call for call in sampler.calls if call[2] == trace.roots[0].name]
    thread, trace_id, _, attributes = of_root[0]
    assert (len(of_root), thread) == (1, "MainThread")
    assert trace_id == trace.roots[0].context.trace_id
    assert attributes == {"gen_ai.operation.name": "invoke_workflow"}
    assert trace.roots[0].attributes["app.sampled.by"] == "rule 7"


def test_what_the_head_sampler_drops_is_counted_and_never_started():
    starts, kept = Starts(), a_trace(sampler=Asked(keep=False))
    kept.provider.add_span_processor(starts)
    with a_line(trace=kept) as (scorer, _):
        invoke(scorer)
        assert scorer.flush(5)

        assert scorer.status().outcomes["grounded"] == {"trace_not_sampled": 1}
    assert starts.roots == []


def test_a_root_stands_under_the_callers_span():
    with a_line() as (scorer, trace):
        with trace.provider.get_tracer("app").start_as_current_span("request") as request:
            invoke(scorer)
        assert scorer.flush(5)

    root = next(span for span in trace.spans if span.name.startswith("invoke_workflow"))
    assert root.parent.span_id == request.get_span_context().span_id
    assert root.context.trace_id == request.get_span_context().trace_id


def test_a_processor_that_raises_at_the_start_costs_its_own_unit_only():
    class Raises(SpanProcessor):
        times = 0

        def on_start(self, span, parent_context=None):
            self.times += 1
            if self.times == 1:
                raise ValueError("no")

    kept = a_trace()
    kept.provider.add_span_processor(Raises())
    with a_line(trace=kept) as (scorer, trace):
        invoke(scorer)
        assert scorer.flush(5)
        invoke(scorer)
        assert scorer.flush(5)

        assert scorer.status().outcomes["grounded"] == {"trace_not_sampled": 1, "scored": 1}
        assert scorer.handler.memory.remembered() == 0
    assert len(trace.roots) == 1


def test_a_tracer_that_is_switched_off_is_found_out_and_counted():
    kept = a_trace()
    if not hasattr(kept.provider, "_set_tracer_configurator"):
        pytest.skip("this version of the SDK cannot switch a tracer off")
    off = type(kept.provider.get_tracer("any")._tracer_config)(is_enabled=False)
    kept.provider._set_tracer_configurator(tracer_configurator=lambda _: off)
    with a_line(trace=kept) as (scorer, _):
        invoke(scorer)
        assert scorer.flush(5)

        assert scorer.status().outcomes["grounded"] == {"trace_not_sampled": 1}
        assert scorer.handler.memory.remembered() == 0


def watch_draws(monkeypatch):
    """Return the trace ids of roots that are drawn ahead, as they come."""
    drawn, preview = [], RateSampler.could_sample_trace

    def watch(sampler, trace_id):
        drawn.append(int.from_bytes(trace_id))
        return preview(sampler, trace_id)

    monkeypatch.setattr(RateSampler, "could_sample_trace", watch)
    return drawn


def test_roots_drawn_ahead_have_ids_of_their_own_and_the_samplers_word(monkeypatch):
    drawn = watch_draws(monkeypatch)
    with a_line(sample_rate=0.5) as (scorer, trace):
        for n in range(60):
            invoke(scorer)
            if not n % 20:  # after a pause, ids were drawn ahead; other roots draw their own
                assert scorer.flush(5)
        assert scorer.flush(5)
        sampler = pipeline_of(scorer).sampler

    roots = {root.context.trace_id: root for root in trace.roots}
    assert roots.keys() & drawn
    scored = {t for t, root in roots.items() if root.attributes["spanscore.status"] == "scored"}
    assert len(roots) == 60
    assert scored == {
        t
        for t, r in roots.items()
        if sampler.could_sample(SamplingContext(UnitKey(t, r.context.span_id), is_trace_root=True))
    }
    assert 0 < len(scored) < 60


def test_ids_that_somebody_generates_are_not_drawn_ahead():
    class Timed(RandomIdGenerator):
        """Writes the time into its ids, as a tracing backend may ask for."""

        traces = 0

        def generate_trace_id(self):
            self.traces += 1
            return super().generate_trace_id()

    ids = Timed()
    with a_line(trace=a_trace(id_generator=ids)) as (scorer, _):
        for _ in range(3):
            invoke(scorer)
            assert scorer.flush(5)

    assert ids.traces == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_does_not_use_the_ids_that_its_parent_drew(monkeypatch):
    run_id, drawn = uuid4(), watch_draws(monkeypatch)
    with a_line() as (scorer, _):
        for _ in range(2):
            invoke(scorer)
            assert scorer.flush(5)
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            invoke(scorer, run_id=run_id)
            os.write(write, f"{int(scorer.handler.trace_id(run_id)):032x}".encode())
            os._exit(0)
        os.waitpid(child, 0)

    assert drawn
    assert int(os.read(read, 64), 16) not in drawn


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_provider_that_is_not_the_sdks_starts_the_root_at_once(wrapped):
    inner, started = TracerProvider(sampler=ALWAYS_ON), []

    class Tracer(api.Tracer):
        def __init__(self):
            self.inner = inner.get_tracer("inner")

        def start_span(self, name, *arguments, **named):
            started.append((name, threading.current_thread().name))
            return self.inner.start_span(name, *arguments, **named)

        def start_as_current_span(self, *arguments, **named):
            return self.inner.start_as_current_span(*arguments, **named)

        def __getattr__(self, name):
            if wrapped:
                return getattr(self.inner, name)
            raise AttributeError(name)

    class Provider(api.TracerProvider):
        def get_tracer(self, *_, **__):
            return Tracer()

    with OnlineScorer([Grounded()], sample_rate=1.0, tracer_provider=Provider()) as scorer:
        invoke(scorer)
        assert started[0] == ("invoke_workflow RunnableSequence", "MainThread")
        assert scorer.flush(5)
        assert scorer.status().outcomes["grounded"] == {"scored": 1}
