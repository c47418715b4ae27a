"""No metric waits for another's judge: units are scored concurrently, and each score is posted when it is there."""

from __future__ import annotations

import asyncio
import json
import threading

from tests.live import QUESTION, Grounded, HeldThread, a_line, identity_holds, rag
from tests.servers.server import poll

from spanscore.config import Limits, Outputs
from spanscore.core.prompt import Reply
from spanscore.metrics import AspectCritic
from spanscore.testing import MemorySink


class Answers:
    """A judge that answers yes."""

    model = "answers"

    async def ask(self, prompt):
        return Reply(text=json.dumps({"reason": "so it is", "verdict": 1}), model=self.model)


class Hangs(Answers):
    """A judge that never answers, unless it is let go."""

    model = "hangs"

    def __init__(self):
        self.asked = 0
        self.back = False

    async def ask(self, prompt):
        self.asked += 1
        while not self.back:  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.01)
        return await super().ask(prompt)


def critic(name, judge):
    return AspectCritic(judge, name=name, definition="Is it right?")


def ask(scorer, units):
    rag().batch([QUESTION] * units, config={"callbacks": [scorer.handler]})


def until(scorer, metric, **outcomes):
    poll(lambda: scorer.status().outcomes[metric] == outcomes, deadline_s=10, what=f"{metric} to be {outcomes}")


def test_a_judge_that_hangs_holds_back_no_score_of_another():
    sink, hanging = MemorySink(), Hangs()
    with a_line(
        critic("held", hanging),
        critic("well", Answers()),
        limits=Limits(workers=2),
        outputs=Outputs(hold=0.0, sinks=[sink]),
    ) as (scorer, _):
        ask(scorer, 6)

        until(scorer, "well", scored=6)
        poll(lambda: len(sink.scores) == 6, deadline_s=10, what="six scores in the sink")

        assert scorer.status().pending == {"held": 6, "well": 0}
        assert identity_holds(scorer)
        hanging.back = True


def test_a_metric_that_computes_goes_on_beside_a_judge_that_hangs():
    hanging = Hangs()
    with a_line(critic("held", hanging), Grounded(), limits=Limits(workers=2, queue_size=4)) as (scorer, _):
        for number in range(1, 8):
            ask(scorer, 1)
            until(scorer, "grounded", scored=number)

        assert scorer.status().outcomes["held"] == {"queue_full": 4}
        assert identity_holds(scorer)
        hanging.back = True


def test_metrics_that_ask_one_judge_have_the_whole_queue():
    judge = Hangs()
    with a_line(critic("one", judge), critic("other", judge), limits=Limits(queue_size=4)) as (scorer, _):
        ask(scorer, 4)

        poll(lambda: judge.asked == 8, deadline_s=10, what="eight questions")

        assert scorer.status().pending == {"one": 4, "other": 4}
        judge.back = True


def test_a_unit_that_computes_keeps_its_worker():
    go_on = threading.Event()
    with a_line(HeldThread(go_on), critic("well", Answers()), limits=Limits(workers=1)) as (scorer, _):
        ask(scorer, 3)
        until(scorer, "well", scored=1)
        assert not scorer.flush(0.5)
        assert scorer.status().outcomes["well"] == {"scored": 1}
        go_on.set()
        assert scorer.flush(5)

        assert scorer.status().outcomes == {"held": {"scored": 3}, "well": {"scored": 3}}
