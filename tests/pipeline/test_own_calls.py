"""A model call by a metric, a filter or a redactor is not a run of the application, which would be evaluated again."""

import asyncio
import re

import pytest
from langsmith.run_helpers import get_tracing_context
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, a_line, model, rag

from spanscore import SingleTurnSample, metric
from spanscore.config import Capture
from spanscore.core.context import is_judging
from spanscore.core.score import UNIT_INTERVAL
from spanscore.metrics import BaseMetric, Finding
from spanscore.testing import make_score

SAMPLE = SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT])


@metric
async def waits(sample) -> float:
    return float((await model().ainvoke(sample.user_input)).content == ANSWER)


@metric
def blocks(sample) -> float:
    return float(model().invoke(sample.user_input).content == ANSWER)


class Threaded(BaseMetric):
    """Runs a whole chain on a thread of its own choice."""

    name = "threaded"

    async def measure(self, sample):
        return Finding(value=float(await asyncio.to_thread(rag().invoke, sample.user_input) == ANSWER))


class Foreign:
    """Keeps the protocol, and shares nothing with our own metrics."""

    name, version, evaluator_version, scale, cpu_bound = "external", "1", "1", UNIT_INTERVAL, False
    requires = {"single_turn": ()}  # noqa: RUF012

    async def score(self, sample):
        value = float((await model().ainvoke(sample.user_input)).content == ANSWER)
        return make_score(value, self.name)


class Computing(Foreign):
    """Computes on a thread of the pool."""

    name, cpu_bound = "computing", True

    async def score(self, sample):
        rag().invoke(sample.user_input)
        return make_score(1.0, self.name)


def used(*metrics, **options):
    """Return the status and the captured spans' names after one run of an application that is watched as a whole."""
    with a_line(*metrics, **options) as (scorer, trace):
        scorer.install()
        rag().invoke(QUESTION, config={"metadata": {"session_id": "of 1987"}})
        for _ in range(2):  # exports that an evaluation caused would have arrived by then
            assert scorer.flush(10)
        scorer.uninstall()
        captured = [s.name for s in trace.spans if s.instrumentation_scope.name == "spanscore.capture"]
        return scorer.status(), captured


@pytest.mark.parametrize("asking", [waits, blocks, Threaded(), Foreign(), Computing()], ids=lambda m: m.name)
def test_a_metric_that_asks_a_model_itself_is_not_evaluated(asking):
    status, captured = used(asking)

    assert (status.units, status.outcomes) == (1, {asking.name: {"scored": 1}})
    assert captured == ["retrieval Library", "chat GenericFakeChatModel", "invoke_workflow RunnableSequence"]


@pytest.mark.parametrize("asking", [waits, blocks, Threaded()], ids=lambda m: m.name)
async def test_nor_is_it_when_it_is_called_by_hand(asking):
    with a_line() as (scorer, trace):
        scorer.install()
        assert (await asking.score(SAMPLE)).value == asking.score_sync(SAMPLE).value == 1.0
        await asyncio.to_thread(scorer.flush, 5)
        scorer.uninstall()

        assert (scorer.status().units, trace.spans) == (0, [])
    assert not is_judging()


def test_a_filter_or_a_redactor_that_asks_a_model_is_not_evaluated():
    def without_years(text):
        rag().invoke(text)
        return re.sub(r"\d+", "#", text)

    kept = {"sample_filter": lambda sample: rag().invoke(sample.user_input) == ANSWER, "redactor": without_years}
    status, captured = used(seen := Grounded(), capture=Capture(content=True), **kept)

    assert (status.units, len(captured)) == (1, 3)
    assert status.outcomes == {"grounded": {"scored": 1}}
    assert seen.seen[0].retrieved_contexts == [CONTEXT.replace("987", "#")]


@pytest.mark.parametrize("on_a_thread", [False, True])
def test_whoever_else_traces_is_reported_too(on_a_thread):
    seen = {}

    def look(_) -> float:
        seen["opentelemetry"] = context.get_value(_SUPPRESS_INSTRUMENTATION_KEY)
        seen["langsmith"] = get_tracing_context()["enabled"]
        seen["ours"] = is_judging()
        return 1.0

    used(metric(name="looks", cpu_bound=on_a_thread)(look))

    assert seen == {"opentelemetry": True, "langsmith": False, "ours": True}
