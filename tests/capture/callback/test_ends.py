"""Every root ends: by its event, with the task that it ran in, by age (``test_bounds``), or at the shutdown."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any
from uuid import uuid4
from weakref import ref

import pytest
from langchain_core.callbacks.manager import atrace_as_chain_group
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel
from langgraph import types
from langgraph._internal._runnable import RunnableCallable, RunnableSeq
from langgraph.graph import END, START, StateGraph
from tests.capture.callback.tree import captured, tree
from tests.live import QUESTION, a_line, identity_holds, open_roots, rag

from spanscore.capture.callback.runs import has_ended
from spanscore.capture.callback.spans import RunSpans
from spanscore.core.event_queue import EventQueue
from spanscore.scorer import pipeline_of

loses_ends = pytest.mark.skipif(
    not hasattr(types, "TracePolicy"),
    reason="this LangGraph has no trace policies, and with them no run that loses its end",
)


def lost_end() -> RunnableSeq:
    """If it is cancelled from inside, LangGraph's sequence reports its end to tracers only."""
    return RunnableSeq(
        RunnableCallable(lambda value: value, trace=False),
        RunnableCallable(lambda value: asyncio.current_task().cancel() or value, trace=False),
        trace_policy=types.TracePolicy(process_inputs=lambda _: {}, process_outputs=lambda _: {}),
        name="lost",
    )


def begin(handler: Any) -> None:
    handler.on_chain_start(None, {}, run_id=uuid4(), name="endless", metadata={})


async def lose_an_end(run: Any) -> None:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(lost_end().ainvoke({}, run.config()))


# --- with its task ------------------------------------------------------------------------------------------------


@loses_ends
def test_a_root_of_whose_end_nobody_tells_ends_with_its_task():
    with captured() as run:
        asyncio.run(lose_an_end(run))

    assert run.drawn() == tree("invoke_workflow lost cancelled")
    assert run.outcomes == {"no_sample": 1}


@loses_ends
async def test_it_does_so_while_the_loop_goes_on():
    with captured() as run:
        await lose_an_end(run)

    assert run.outcomes == {"no_sample": 1}


def test_a_task_is_over_when_it_is_done_or_forgotten_or_its_loop_is_closed():
    loop = asyncio.new_event_loop()
    done, hanging = loop.create_task(asyncio.sleep(0)), loop.create_task(asyncio.Event().wait())
    loop.run_until_complete(done)
    before = [has_ended(ref(done)), has_ended(ref(hanging))]
    loop.close()
    hanging._log_destroy_pending = False  # asyncio would report it

    assert (before, has_ended(ref(hanging))) == ([True, False], True)


# --- not before it is over ----------------------------------------------------------------------------------------


def goes_on(run: Any, roots: int = 1) -> bool:
    """Whether the roots run still, once the span thread has looked for tasks that are over: those it would open."""
    assert run.scorer.flush(5)
    opened = sum(run.scorer.status().pending.values())
    return (len(run.scorer.handler.memory.unread_roots()), opened) == (roots, 0)


async def read(stream: Any) -> None:
    async for _ in stream:
        pass


BOUND = {
    "ainvoke": (lambda chain, config: chain.ainvoke(QUESTION, config), True),
    "a graph's ainvoke": (lambda chain, config: in_a_graph(chain).ainvoke({}, config), True),
    "a batch of one": (lambda chain, config: chain.abatch([QUESTION], config), False),
    "astream": (lambda chain, config: read(chain.astream(QUESTION, config)), False),
    "astream_events": (lambda chain, config: read(chain.astream_events(QUESTION, config, version="v2")), False),
    "invoke inside a loop": (lambda chain, config: asyncio.sleep(0, chain.invoke(QUESTION, config)), False),
}


@pytest.mark.parametrize(("way", "bound"), BOUND.values(), ids=BOUND)
async def test_only_what_is_awaited_whole_is_bound_to_its_task(way, bound):
    found = []
    with captured() as run:

        def look(question: Any) -> Any:
            found.extend(root.task is not None for root in open_roots(run.scorer.handler))
            return question

        await way(RunnableLambda(look) | RunnableLambda(look), run.config())

    assert set(found) == {bound}


def in_a_graph(chain: Any) -> Any:
    async def node(_: Any, config: RunnableConfig) -> dict[str, Any]:
        return {"answer": await chain.ainvoke(QUESTION, config)}

    return StateGraph(dict).add_node("one", node).add_edge(START, "one").add_edge("one", END).compile()


def graph() -> Any:
    graph = StateGraph(dict).add_node("one", lambda _: {"answer": "1"}).add_node("two", lambda _: {"answer": "2"})
    return graph.add_edge(START, "one").add_edge("one", "two").add_edge("two", END).compile()


@pytest.mark.parametrize("chain", [rag, graph])
async def test_a_stream_begun_in_one_task_and_read_in_another_is_whole(chain):
    with captured() as run:
        stream = chain().astream({"question": QUESTION} if chain is graph else QUESTION, run.config())
        await asyncio.create_task(anext(stream))
        assert await asyncio.to_thread(goes_on, run)
        async for _ in stream:
            pass

    assert run.trees()[0].splitlines()[0].endswith(" completed")


async def test_a_batch_whose_roots_begin_in_tasks_of_their_own_is_whole():
    begun, released = asyncio.Semaphore(0), asyncio.Event()

    async def wait(question: str) -> str:
        begun.release()
        await released.wait()
        return question

    with captured() as run:
        batch = asyncio.create_task((RunnableLambda(wait) | rag()).abatch([QUESTION, QUESTION], run.config()))
        await begun.acquire()
        await begun.acquire()
        assert await asyncio.to_thread(goes_on, run, 2)
        released.set()
        await batch

    assert run.outcomes == {"scored": 2}


async def test_a_group_begun_in_one_task_and_left_in_another_is_whole():
    with captured() as run:
        group = atrace_as_chain_group("group", callback_manager=None, inputs={"question": QUESTION})
        run.scorer.install()
        await asyncio.create_task(group.__aenter__())
        assert await asyncio.to_thread(goes_on, run)
        await group.__aexit__(None, None, None)

    assert run.drawn() == tree("invoke_workflow chain completed")


async def test_a_run_that_another_tasks_end_outlives_is_whole():
    """A request's task is over long after its run, a run's child task long before."""

    async def child(_: Any) -> str:
        return await asyncio.create_task(asyncio.sleep(0, "done"))

    with captured() as run:
        await RunnableParallel(one=RunnableLambda(child), two=RunnableLambda(child)).ainvoke(QUESTION, run.config())
        assert await asyncio.to_thread(goes_on, run, 0)

    assert run.trees()[0].splitlines()[0].endswith(" completed")


@pytest.mark.parametrize("unseen", [True, False], ids=["one event", "an event per run"])
def test_a_root_whose_end_is_read_when_its_task_is_over_is_no_cancelled_one(monkeypatch, unseen):
    """The span thread looks at the task while the root's end is still to be read, and that of the last child."""
    take, ended, looked = EventQueue.take, Event(), Event()

    def withhold(queue: EventQueue[Any]) -> Any:
        is_due = looked.is_set() or (ended.is_set() and len(queue) > 2)
        return take(queue) if is_due else None

    monkeypatch.setattr(EventQueue, "take", withhold)
    monkeypatch.setattr(RunSpans, "starts_are_unobserved", unseen)
    with captured() as run:
        asyncio.run(rag().ainvoke(QUESTION, run.config()))
        ended.set()
        assert pipeline_of(run.scorer).span_thread.call(lambda: None, 5)  # a look, with the end still to be read
        looked.set()

    assert run.trees()[0].splitlines()[0].endswith(" completed")
    assert run.outcomes == {"scored": 1}


# --- at the shutdown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample_rate", [1.0, 0.0])
def test_what_never_ends_leaves_at_the_shutdown(sample_rate):
    with a_line(sample_rate=sample_rate) as (scorer, trace):
        begin(scorer.handler)
        scorer.shutdown(timeout=2)
        status = scorer.status()

        assert (status.pending, identity_holds(scorer)) == ({"grounded": 0}, True)
    (root,) = trace.roots
    assert root.attributes["spanscore.run.end"] == "abandoned"
    if sample_rate:
        assert status.outcomes["grounded"] == {"shutdown": 1}
        assert (root.attributes["spanscore.status"], root.attributes["spanscore.outcome.grounded"]) == (
            "not_scored",
            "shutdown",
        )


def test_what_ends_after_the_shutdown_leaves_no_second_span_and_no_memory():
    with a_line() as (scorer, trace):

        def outlive(question: Any) -> str:
            scorer.shutdown(timeout=1)
            return rag().invoke(question)

        RunnableLambda(outlive).invoke(QUESTION, config={"callbacks": [scorer.handler]})

        assert scorer.status().outcomes["grounded"] == {"shutdown": 1}
        assert (open_roots(scorer.handler), scorer.handler.memory.remembered()) == ([], 0)
    assert [span.attributes["spanscore.outcome.grounded"] for span in trace.spans] == ["shutdown"]
