"""The agent with planted faults has the same calls, tools and failing metrics through every instrumentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from tests.live import a_line
from tests.traces.agent_faults import EXAMPLE, run
from tests.traces.record import INSTRUMENTATIONS

from spanscore import MultiTurnSample
from spanscore.core.score import Outcome
from spanscore.metrics import BaseMetric, Finding
from spanscore.metrics.judged_tool_calls import made_calls
from spanscore.testing import ScriptedJudge

CALLBACK = "callback"
WRITERS = [CALLBACK, "openinference-langchain", "genai-langchain", "openllmetry-langchain"]
FAULTS = [*EXAMPLE["SCRIPTS"]]


class Witness(BaseMetric):
    """Keeps the conversations with their tools."""

    name = "witness"

    def __init__(self, seen: list[Any]) -> None:
        self.requires = {"multi_turn": ("user_input", "tools")}
        self._seen = seen

    async def measure(self, sample: Any) -> Finding:
        self._seen.append(sample)
        return Finding(value=1.0)


@cache
def samples(writer: str) -> dict[str, MultiTurnSample]:
    """Return fault → conversation, as a writer's spans have it."""
    if writer != CALLBACK:
        command = [sys.executable, "-m", "tests.traces.agent_faults", writer]
        environment = {**os.environ, **INSTRUMENTATIONS[writer].shown}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return {fault: MultiTurnSample(**sample) for fault, sample in json.loads(done.stdout).items()}
    found, seen = {}, list[Any]()
    with a_line(Witness(seen)) as (scorer, _):
        for fault in FAULTS:
            run(fault, callbacks=[scorer.handler])
            assert scorer.flush(10)
            found[fault] = seen[-1]
    return found


def calls_of(sample: MultiTurnSample) -> list[tuple[str, dict[str, Any], str | None]]:
    return [(made.call.name, made.call.args, made.result) for made in made_calls(sample.user_input)]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("writer", WRITERS[1:])
def test_calls_and_tools_are_those_of_our_own_capture(writer: str, fault: str) -> None:
    own, other = samples(CALLBACK)[fault], samples(writer)[fault]

    assert calls_of(other) == calls_of(own) != []
    assert other.tools == own.tools
    assert [tool.name for tool in own.tools or ()] == [tool.name for tool in EXAMPLE["TOOLS"]]


def failing(sample: MultiTurnSample, judge: Any) -> list[str]:
    scores = [metric.score_sync(sample) for metric in EXAMPLE["agent_metrics"](judge)]
    assert {score.outcome for score in scores} <= {Outcome.SCORED, Outcome.NO_VALUE}, scores
    return [score.metric for score in scores if score.value is not None and score.value < 1]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_fault_fails_the_metric_that_is_for_it_and_no_other(writer: str, fault: str) -> None:
    assert failing(samples(writer)[fault], "lexical") == EXAMPLE["FOUND_BY"][fault]


def careful_judge(fault: str, calls: int) -> ScriptedJudge:
    """Return a judge that sees the planted fault and no other, whatever it is asked."""
    wrong = set(EXAMPLE["FOUND_BY"][fault])
    about_calls = {
        "judge_selection": {"verdict": int("tool_selection" not in wrong)},
        "judge_arguments": {"verdict": int("tool_arguments" not in wrong)},
        "judge_steps": {"verdict": 1},  # the loop is of equal calls, which no judge is asked about
        "judge_recovery": {"verdict": int("error_recovery" not in wrong), "failed": 1},
    }
    rows = {step: [{"call": n, **row} for n in range(1, calls + 1)] for step, row in about_calls.items()}
    parts = {"judge_plan": _parts("plan_adherence", wrong), "judge_parts": _parts("answer_completeness", wrong)}
    answers = [{"step": step, "output": {"calls": found}} for step, found in rows.items()]
    return ScriptedJudge([*answers, *({"step": step, "output": {"parts": found}} for step, found in parts.items())])


def _parts(metric: str, wrong: set[str]) -> list[dict[str, Any]]:
    return [{"part": "the first", "verdict": 1}, {"part": "the second", "verdict": int(metric not in wrong)}]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_careful_judge_finds_each_fault_by_its_own_metric(fault: str) -> None:
    sample = samples(CALLBACK)[fault]

    assert failing(sample, careful_judge(fault, len(calls_of(sample)))) == EXAMPLE["FOUND_BY"][fault]
