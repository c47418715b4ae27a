"""Several runs at once under one run id: each is a unit of its own, with its own question and answer."""

import asyncio
import threading
from contextlib import suppress
from uuid import UUID, uuid4

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from tests.live import Grounded, a_line, identity_holds

from spanscore.metrics import Finding

SHARED = UUID(int=4711)
ASKED = [f"question {n}" for n in range(4)]


class Pairs(Grounded):
    """Keeps question and answer."""

    requires = {"single_turn": ("user_input", "response")}  # noqa: RUF012

    async def measure(self, sample):
        self._seen.append((sample.user_input, sample.response))
        return Finding(value=1.0)


def answer(question):
    return f"answer to {question}"


def chain(before=lambda: None):
    """A chain with a model that repeats its question after ``before`` has returned."""

    async def ask(question):
        await asyncio.sleep(0.01)
        return question

    def wait(question):
        before()
        return question

    model = RunnableLambda(lambda question: FakeListChatModel(responses=[answer(question)]).invoke(question))
    return RunnableLambda(wait, afunc=ask) | model | StrOutputParser()


def at_once(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)


def invoke(config, asked=ASKED):
    together = threading.Barrier(len(asked))
    runnable = chain(lambda: together.wait(5))
    at_once([lambda question=question: runnable.invoke(question, config) for question in asked])


async def _ainvoke(config):
    await asyncio.gather(*(chain().ainvoke(question, config) for question in ASKED))


async def _astream(config):
    async def read(question):
        return [chunk async for chunk in chain().astream(question, config)]

    await asyncio.gather(*(read(question) for question in ASKED))


def ainvoke(config):
    asyncio.run(_ainvoke(config))


def astream(config):
    asyncio.run(_astream(config))


@pytest.mark.parametrize("run", [invoke, ainvoke, astream])
@pytest.mark.parametrize("way", ["handler", "twice", "install"])
def test_each_run_has_its_own_question_and_answer(run, way):
    metric = Pairs()
    with a_line(metric) as (scorer, trace):
        if way == "install":
            scorer.install()
        handlers = [] if way == "install" else [scorer.handler] * (2 if way == "twice" else 1)
        run({"run_id": SHARED, "callbacks": handlers})
        assert scorer.flush(5)

        assert sorted(metric.seen) == [(question, answer(question)) for question in ASKED]
        assert (scorer.status().units, scorer.status().outcomes["grounded"]) == (4, {"scored": 4})
        assert identity_holds(scorer)
        assert scorer.handler.memory.roots == {}
    models = [span for span in trace.spans if span.name.startswith("chat")]
    assert len({span.context.trace_id for span in models}) == len(trace.roots) == 4


def test_the_same_question_at_once_is_as_many_units():
    metric = Pairs()
    with a_line(metric) as (scorer, _):
        invoke({"run_id": SHARED, "callbacks": [scorer.handler]}, [ASKED[0]] * 3)
        assert scorer.flush(5)

        assert scorer.status().outcomes["grounded"] == {"scored": 3}


def test_one_after_another_they_are_units_too_also_when_some_were_at_once():
    metric = Pairs()
    with a_line(metric) as (scorer, _):
        config = {"run_id": SHARED, "callbacks": [scorer.handler]}
        for _ in range(2):
            invoke(config)
            for question in ASKED:
                chain().invoke(question, config)
        assert scorer.flush(5)

        assert sorted(set(metric.seen)) == [(question, answer(question)) for question in ASKED]
        assert len(metric.seen) == scorer.status().units == 16


def test_models_called_alone_under_one_id_are_units():
    metric, together = Pairs(), threading.Barrier(3)

    class Waits(FakeListChatModel):
        def _call(self, *args, **kwargs):
            together.wait(5)
            return super()._call(*args, **kwargs)

    with a_line(metric) as (scorer, _):
        config = {"run_id": SHARED, "callbacks": [scorer.handler]}
        at_once(
            [
                lambda question=question: Waits(responses=[answer(question)]).invoke(question, config)
                for question in ASKED[:3]
            ]
        )
        assert scorer.flush(5)

        assert sorted(metric.seen) == [(question, answer(question)) for question in ASKED[:3]]


def test_an_error_of_one_is_not_that_of_another():
    metric, together = Pairs(), threading.Barrier(2)

    def fail_or_answer(question):
        together.wait(5)
        if question == ASKED[0]:
            raise ValueError("no answer")
        return answer(question)

    def call(question):
        with suppress(ValueError):
            RunnableLambda(fail_or_answer).invoke(question, config)

    with a_line(metric) as (scorer, trace):
        config = {"run_id": SHARED, "callbacks": [scorer.handler]}
        at_once([lambda question=question: call(question) for question in ASKED[:2]])
        assert scorer.flush(5)

        assert metric.seen == [(ASKED[1], answer(ASKED[1]))]
    assert sorted(root.status.status_code.name for root in trace.roots) == ["ERROR", "UNSET"]


def test_ids_of_units_are_those_of_the_caller_s_own_run():
    units = []

    with a_line(Pairs()) as (scorer, trace):
        together = threading.Barrier(3)

        def ask(question):
            together.wait(5)
            units.append(scorer.unit_id(SHARED).span_id)
            return answer(question)

        config = {"run_id": SHARED, "callbacks": [scorer.handler]}
        at_once([lambda question=question: RunnableLambda(ask).invoke(question, config) for question in ASKED[:3]])
        assert scorer.flush(5)

    assert sorted(units) == sorted(f"{root.context.span_id:016x}" for root in trace.roots)


def test_other_run_ids_are_as_ever_on_a_handler_that_met_one_twice():
    metric = Pairs()
    with a_line(metric) as (scorer, trace):
        invoke({"run_id": SHARED, "callbacks": [scorer.handler]})
        for question in ASKED:
            chain().invoke(question, {"run_id": uuid4(), "callbacks": [scorer.handler]})
        assert scorer.flush(5)

        assert len(metric.seen) == len(trace.roots) == 8


def test_two_scorers_each_lead_events_to_their_own_roots():
    first, second = Pairs("first"), Pairs("second")
    with a_line(first) as (one, _), a_line(second) as (two, _):
        invoke({"run_id": SHARED, "callbacks": [one.handler, two.handler]})
        assert one.flush(5)
        assert two.flush(5)

    expected = [(question, answer(question)) for question in ASKED]
    assert (sorted(first.seen), sorted(second.seen)) == (expected, expected)


def test_a_run_that_its_thread_has_left_open_is_counted_and_the_next_one_is_a_unit():
    metric = Pairs()
    with a_line(metric) as (scorer, trace):
        config = {"run_id": SHARED, "callbacks": [scorer.handler]}
        left = chain().stream(ASKED[0], config)
        next(left)
        chain().invoke(ASKED[1], config)
        assert scorer.flush(5)

        assert metric.seen == [(ASKED[1], answer(ASKED[1]))]
        assert (scorer.status().units, identity_holds(scorer)) == (2, True)
        del left
    assert sorted(root.attributes["spanscore.run.end"] for root in trace.roots) == ["abandoned", "completed"]
