"""A unit comes by one event when its root has ended. Its spans and counts are those of an event for each of its runs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span
from tests.core.test_fork import in_child
from tests.live import Trace, a_line, a_trace, identity_holds, open_roots

from spanscore import Rule
from spanscore.capture.callback import handler, recorder
from spanscore.capture.callback.spans import RunSpans
from spanscore.config import Capture, RuleCondition, Sampling
from spanscore.outputs import spans as ids
from spanscore.scorer import pipeline_of
from spanscore.testing import ManualClock
from spanscore.wiring import build
from spanscore.wiring.span_thread import SpanThread

UNITS = 25
ANSWERED = LLMResult(
    generations=[
        [
            ChatGeneration(
                message=AIMessage(
                    "a",
                    usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
                    response_metadata={"finish_reason": "stop", "model_name": "m-1"},
                )
            )
        ]
    ]
)
REMOTE = SpanContext(7 << 64 | 9, 11, True, TraceFlags(1), TraceState([("ot", "th:8"), ("a", "b")]))


class GraphBubbleUp(Exception):
    """Named like LangGraph's exception for an interrupt of a graph."""


class Marking(Sampler):
    """Keeps every trace, and marks each decision."""

    def should_sample(self, *arguments: Any, **named: Any) -> SamplingResult:
        return SamplingResult(
            Decision.RECORD_AND_SAMPLE, {"kept.by": "us", "gen_ai.operation.name": "x"}, TraceState([("k", "v")])
        )

    def get_description(self) -> str:
        return "marking"


SCENES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing else": ({}, {}),
    "ratio": ({"sampler": TraceIdRatioBased(0.6)}, {}),
    "parent-based ratio": ({"sampler": ParentBased(TraceIdRatioBased(0.6))}, {}),
    "marking": ({"sampler": Marking()}, {}),
    "marking roots": ({"sampler": ParentBased(Marking(), remote_parent_sampled=ALWAYS_ON)}, {}),
    "few attributes": ({"span_limits": SpanLimits(max_span_attributes=4, max_span_attribute_length=3)}, {}),
    "steps": ({}, {"capture": Capture(all_runs=True)}),
    "metadata": ({}, {"capture": Capture(metadata=["thread_id", "tier"])}),
    "redactor": ({}, {"redactor": lambda text: text.replace("t", "*")}),
    "rules": (
        {},
        {"sampling": Sampling(rules=[Rule(name="gold", rate=1e-12, when=RuleCondition(metadata={"tier": "gold"}))])},
    ),  # each may be scored
    "content": ({}, {"capture": Capture(content=True)}),
}


@contextmanager
def by_hand(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], trace: Trace) -> Iterator[Any]:
    """A scorer with the test as its span thread, and with fixed times and ids."""
    ticks = count(1_000_000_000_000, 1_000)
    with monkeypatch.context() as patch:
        patch.setattr(SpanThread, "ensure", lambda self: None)
        for module in (handler, recorder):
            patch.setattr(module, "time_ns", lambda: next(ticks))
        ids.RANDOM.seed(5)
        with a_line(trace=trace, **{"sample_rate": 0.0, **options}) as (scorer, _):
            yield scorer


class Script:
    """Plays units of random shape to a handler, the same for the same seed."""

    def __init__(self, seed: int, on: Any, tick: Callable[[], None]) -> None:
        self.rng, self.on, self.tick = Random(seed), on, tick
        self.kinds: dict[UUID, str] = {}

    def new(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    def begin(self, parent: UUID | None) -> UUID:
        run_id, rng = self.new(), self.rng
        metadata = rng.choice([{}, {"thread_id": "t-1"}, {"tier": "gold"}, {"ls_model_name": "m", "ls_provider": "p"}])
        given: dict[str, Any] = {"run_id": run_id, "parent_run_id": parent, "metadata": metadata}
        kind = self.kinds[run_id] = rng.choice(["chain", "chain", "model", "tool", "retriever", "agent"])
        if kind == "chain":
            self.on.on_chain_start(None, {"input": "x"}, name="c", **given)
        elif kind == "agent":
            given["metadata"] = {"lc_agent_name": "helper"}
            self.on.on_chain_start(None, {"input": "x"}, name="helper", **given)
        elif kind == "model":
            self.on.on_chat_model_start(
                {"name": "ChatM"}, [[HumanMessage("q")]], invocation_params={"temperature": 0.1}, **given
            )
        elif kind == "tool":
            self.on.on_tool_start({"name": "t"}, "x", tool_call_id="call-1", **given)
        else:
            self.on.on_retriever_start(None, "q", **given)
        return run_id

    def end(self, run_id: UUID) -> None:
        kind, rng = self.kinds[run_id], self.rng
        name = {"model": "llm", "agent": "chain"}.get(kind, kind)
        if rng.random() < 0.3:
            errors = [ValueError("x"), GeneratorExit(), asyncio.CancelledError(), GraphBubbleUp()]
            getattr(self.on, f"on_{name}_error")(rng.choice(errors), run_id=run_id)
        elif name == "llm":
            self.on.on_llm_new_token("x", run_id=run_id)
            self.on.on_llm_end(ANSWERED, run_id=run_id)
        else:
            more = {"inputs": "x"} if name == "chain" and rng.random() < 0.2 else {}
            output = [Document("d")] if name == "retriever" else "x"
            getattr(self.on, f"on_{name}_end")(output, run_id=run_id, **more)

    def unit(self, *, ends: bool) -> None:
        """Play a unit: runs that begin and end in any order, some of them never, some after their root; it is read at any time.

        Args:
            ends: whether its root does.
        """
        rng = self.rng
        root = self.begin(None)
        below, running = [root], list[UUID]()
        for _ in range(rng.choice([0, 1, 3, 8, 30])):
            if running and rng.random() < 0.5:
                self.end(running.pop(rng.randrange(len(running))))
            else:
                running.append(self.begin(rng.choice(below)))
                below.append(running[-1])
            if rng.random() < 0.02:
                self.tick()
        left = [] if rng.random() < 0.7 else [running.pop() for _ in running[: rng.randrange(3)]]
        for run_id in reversed(running):
            self.end(run_id)
        if ends:
            self.end(root)
        if rng.random() < 0.2:
            left.append(self.begin(rng.choice(below)))
        if rng.random() < 0.5:
            self.tick()
        for run_id in left[: rng.randrange(len(left) + 1)]:
            self.end(run_id)
        self.tick()


def played(monkeypatch: pytest.MonkeyPatch, seed: int, scene: str, *, one_event: bool) -> tuple[Any, ...]:
    """Return the spans in the order of export, the counts, and the explanations."""
    provider, options = SCENES[scene]
    trace, clock = a_trace(**provider), ManualClock(10**18)
    if not one_event:
        monkeypatch.setattr(RunSpans, "starts_are_unobserved", property(lambda self: False))
    with by_hand(monkeypatch, options, trace) as scorer:
        thread = pipeline_of(scorer).span_thread
        thread.now_ns = clock

        def tick() -> None:
            clock.advance(0.2)
            thread.tick()

        script = Script(seed, scorer.handler, tick)
        for number in range(UNITS):
            with use_span(NonRecordingSpan(REMOTE)) if number % 5 == 4 else a_moment():
                script.unit(ends=number < UNITS - 1)  # the last one runs when the scorer is shut down
            clock.advance(1)
            tick()
        running = len(open_roots(scorer.handler))
        scorer.shutdown(timeout=1)
        assert identity_holds(scorer)
        status = scorer.status()
        traces = dict.fromkeys(span.context.trace_id for span in trace.spans)
        explained = [sorted(map(str, scorer.explain(f"{one:032x}"))) for one in traces]
        return [span.to_json() for span in trace.spans], status.outcomes, status.eligible, running, explained


@contextmanager
def a_moment() -> Iterator[None]:
    yield


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("seed", range(6))
def test_spans_and_counts_are_those_of_an_event_per_run(monkeypatch: pytest.MonkeyPatch, seed: int, scene: str) -> None:
    by_one = played(monkeypatch, seed, scene, one_event=True)
    by_each = played(monkeypatch, seed, scene, one_event=False)

    assert len(by_one[0]) > UNITS
    assert by_one == by_each


def a_chain(on: Any, root: UUID, models: int) -> None:
    on.on_chain_start(None, {}, run_id=root, name="agent", metadata={})
    for _ in range(models):
        run_id = uuid4()
        on.on_chat_model_start({"name": "m"}, [[HumanMessage("q")]], run_id=run_id, parent_run_id=root, metadata={})
        on.on_llm_end(ANSWERED, run_id=run_id)


@pytest.mark.parametrize("sample_rate", [0.0, 1.0])
def test_nothing_is_put_into_the_inbox_before_the_root_ends(
    monkeypatch: pytest.MonkeyPatch, sample_rate: float
) -> None:
    with by_hand(monkeypatch, {"sample_rate": sample_rate}, a_trace()) as scorer:
        root = uuid4()
        a_chain(scorer.handler, root, 3)
        assert len(pipeline_of(scorer).event_queue) == 0

        scorer.handler.on_chain_end("x", run_id=root)

        assert len(pipeline_of(scorer).event_queue) == 1


def test_what_a_long_lived_agent_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = a_trace()
    with by_hand(monkeypatch, {}, trace) as scorer:
        root = uuid4()
        a_chain(scorer.handler, root, 250)
        (running,) = open_roots(scorer.handler)
        assert running.kept_events is None
        assert len(pipeline_of(scorer).event_queue) == 250

        pipeline_of(scorer).span_thread.tick()

        assert len(trace.spans) == 250
        assert scorer.status().pending == {"grounded": 1}
        scorer.handler.on_chain_end("x", run_id=root)
    assert len(trace.spans) == 251


def test_a_unit_that_leaves_weighs_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "EVENT_QUEUE_BYTES", 100_000)
    with by_hand(monkeypatch, {}, a_trace()) as scorer:
        for _ in range(2):
            root = uuid4()
            a_chain(scorer.handler, root, 60)
            scorer.handler.on_chain_end("x", run_id=root)

        assert not pipeline_of(scorer).event_queue.admits()


def test_heavy_content_does_not_wait_for_its_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "EVENT_QUEUE_BYTES", 100_000)
    with by_hand(monkeypatch, {"sample_rate": 1.0}, a_trace()) as scorer:
        root, text = uuid4(), iter(f"{n}" * 60_000 for n in range(9))
        scorer.handler.on_chain_start(None, {}, run_id=root, name="agent", metadata={})
        for waiting, admits in [(0, True), (0, True), (3, False), (4, False), (5, False)]:
            run_id = uuid4()
            scorer.handler.on_retriever_start(None, "q", run_id=run_id, parent_run_id=root, metadata={})
            scorer.handler.on_retriever_end([Document(next(text))], run_id=run_id)
            assert (len(pipeline_of(scorer).event_queue), pipeline_of(scorer).event_queue.admits()) == (waiting, admits)

        scorer.handler.on_chain_end("x", run_id=root)
        pipeline_of(scorer).span_thread.tick()

        assert pipeline_of(scorer).event_queue.size_bytes == 0
        assert identity_holds(scorer)


@pytest.mark.parametrize("of_a_child", [True, False])
def test_a_run_id_that_comes_again_before_its_unit_was_read_is_another_unit(
    monkeypatch: pytest.MonkeyPatch, of_a_child: bool
) -> None:
    with by_hand(monkeypatch, {}, a_trace()) as scorer:
        on, root, child = scorer.handler, uuid4(), uuid4()
        on.on_chain_start(None, {}, run_id=root, name="one", metadata={})
        on.on_retriever_start(None, "q", run_id=child, parent_run_id=root, metadata={})
        on.on_retriever_end([], run_id=child)
        on.on_chain_end("x", run_id=root)
        again = child if of_a_child else root
        on.on_chain_start(None, {}, run_id=again, name="other", metadata={})
        pipeline_of(scorer).span_thread.tick()
        assert [one.name for one in open_roots(on)] == ["other"]
        on.on_chain_end("y", run_id=again)
        pipeline_of(scorer).span_thread.tick()

        assert scorer.status().outcomes["grounded"] == {"not_sampled": 2}
        assert (open_roots(on), on.memory.remembered()) == ([], 0)


def test_what_runs_when_the_scorer_is_shut_down_is_exported_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = a_trace()
    with by_hand(monkeypatch, {}, trace) as scorer:
        root = uuid4()
        a_chain(scorer.handler, root, 2)
        scorer.shutdown(timeout=1)
        scorer.handler.on_chain_end("late", run_id=root)

        assert scorer.status().outcomes["grounded"] == {"not_sampled": 1}
        assert scorer.status().eligible == {"grounded": 1}
    (left,) = trace.roots
    assert (left.attributes["spanscore.run.end"], len(trace.spans)) == ("abandoned", 3)


def test_a_span_thread_that_is_stuck_leaves_no_unit_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    with by_hand(monkeypatch, {}, a_trace()) as scorer:
        a_chain(scorer.handler, uuid4(), 2)
        monkeypatch.setattr(SpanThread, "call", lambda self, work, timeout_s: False)
        scorer.shutdown(timeout=0.1)

        assert scorer.status().outcomes["grounded"] == {"shutdown": 1}


def test_what_runs_for_long_is_in_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    with by_hand(monkeypatch, {}, a_trace()) as scorer:
        thread, clock = pipeline_of(scorer).span_thread, ManualClock(10**18)
        thread.now_ns = clock
        root = uuid4()
        a_chain(scorer.handler, root, 2)
        thread.tick()
        assert scorer.status().pending == {"grounded": 0}
        assert 0 < thread.timeout_s() <= 10

        clock.advance(10)
        thread.tick()

        assert scorer.status().pending == {"grounded": 1}
        scorer.handler.on_chain_end("x", run_id=root)
        thread.tick()
        assert scorer.status().outcomes["grounded"] == {"not_sampled": 1}
        assert thread.timeout_s() is None


def test_a_root_that_never_ends_is_given_up_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = a_trace()
    with by_hand(monkeypatch, {}, trace) as scorer:
        thread, clock = pipeline_of(scorer).span_thread, ManualClock(10**18)
        thread.now_ns = clock
        a_chain(scorer.handler, uuid4(), 1)
        for _ in range(2):
            thread.tick()
            clock.advance(10)
        clock.advance(3_600)
        thread.tick()

        assert scorer.status().outcomes["grounded"] == {"not_sampled": 1}
        assert open_roots(scorer.handler) == []
    assert trace.roots[0].attributes["spanscore.run.end"] == "abandoned"


def test_a_begin_wakes_a_span_thread_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    with by_hand(monkeypatch, {}, a_trace()) as scorer:
        woken = threading.Event()
        pipeline_of(scorer).event_queue.start_with_next(woken.set)
        a_chain(scorer.handler, uuid4(), 0)

        assert woken.is_set()


class Starts(SpanProcessor):
    """Records its calls of on_start."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.names.append(span.name)


def test_a_processor_that_looks_at_starts_is_given_them_while_the_root_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, starts = a_trace(), Starts()
    trace.provider.add_span_processor(starts)
    with by_hand(monkeypatch, {}, trace) as scorer:
        a_chain(scorer.handler, uuid4(), 1)
        pipeline_of(scorer).span_thread.tick()

        assert starts.names == ["invoke_workflow agent", "chat m"]


def test_one_that_comes_while_a_root_runs_is_given_all(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, starts = a_trace(), Starts()
    with by_hand(monkeypatch, {}, trace) as scorer:
        root = uuid4()
        a_chain(scorer.handler, root, 1)
        trace.provider.add_span_processor(starts)
        scorer.handler.on_chain_end("x", run_id=root)
        pipeline_of(scorer).span_thread.tick()

        assert starts.names == ["invoke_workflow agent", "chat m"]
        assert len(trace.spans) == 2


def test_a_processor_that_raises_costs_its_own_span_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(SpanProcessor):
        def on_end(self, span: Any) -> None:
            if span.name.startswith("chat"):
                raise SystemExit("no")

    trace = a_trace()
    trace.provider.add_span_processor(Picky())
    with by_hand(monkeypatch, {}, trace) as scorer:
        root = uuid4()
        a_chain(scorer.handler, root, 2)
        scorer.handler.on_chain_end("x", run_id=root)
        pipeline_of(scorer).span_thread.tick()

        assert len(trace.spans) == 3
        assert identity_holds(scorer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_in_a_forked_child_what_ran_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = a_trace()
    with by_hand(monkeypatch, {}, trace) as scorer:
        root = uuid4()
        a_chain(scorer.handler, root, 2)

        def end() -> str:
            scorer.handler.on_chain_end("x", run_id=root)
            pipeline_of(scorer).span_thread.tick()
            return str((trace.spans, scorer.status().eligible))

        assert in_child(end) == "([], {'grounded': 0})"


@pytest.mark.parametrize("models", [40, 130])
def test_children_that_end_on_many_threads_are_each_exported_once(models: int) -> None:
    """Some end before their root, and some after it; the span thread reads at the same time."""
    trace = a_trace()
    with a_line(trace=trace, sample_rate=0.0) as (scorer, _):
        on, roots = scorer.handler, [uuid4() for _ in range(20)]
        for root in roots:
            on.on_chain_start(None, {}, run_id=root, name="fan-out", metadata={})
            begun = [uuid4() for _ in range(models)]
            for run_id in begun:
                on.on_chat_model_start(
                    {"name": "m"}, [[HumanMessage("q")]], run_id=run_id, parent_run_id=root, metadata={}
                )
            threads = [threading.Thread(target=_end_all, args=(on, begun[n::4])) for n in range(4)]
            threads.append(threading.Thread(target=on.on_chain_end, args=("x",), kwargs={"run_id": root}))
            threads.append(threading.Thread(target=pipeline_of(scorer).event_queue.nudge))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert scorer.flush(20)
        assert scorer.status().outcomes["grounded"] == {"not_sampled": len(roots)}
        assert identity_holds(scorer)
    spans = [span.context.span_id for span in trace.spans]
    assert len(spans) == len(set(spans)) == len(roots) * (models + 1)
    assert {span.parent.span_id for span in trace.spans if span.parent} == {
        root.context.span_id for root in trace.roots
    }


def _end_all(on: Any, runs: list[UUID]) -> None:
    for run_id in runs:
        on.on_llm_end(ANSWERED, run_id=run_id)
