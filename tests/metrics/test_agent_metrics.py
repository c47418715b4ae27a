"""The metrics of agents: cases written by hand, and the promises that all of them keep."""

from __future__ import annotations

from typing import Any

import pytest
from tests.metrics.agent_cases import CASES, Case

from spanscore.core.score import Outcome, Score
from spanscore.metrics import create
from spanscore.testing import ScriptedJudge

STEPS = {
    "tool_selection": "judge_selection",
    "tool_arguments": "judge_arguments",
    "step_efficiency": "judge_steps",
    "error_recovery": "judge_recovery",
    "plan_adherence": "judge_plan",
    "answer_completeness": "judge_parts",
}
OF_CALLS = ["tool_selection", "tool_arguments", "step_efficiency", "error_recovery"]
EACH = [pytest.param(metric, case, id=f"{metric}: {case.why}") for metric, cases in CASES.items() for case in cases]


def output(rows: dict[Any, Any]) -> dict[str, Any]:
    """Return a judge's answer with these verdicts."""
    if all(isinstance(key, int) for key in rows) and rows:
        pairs = {key: verdict if isinstance(verdict, tuple) else (None, verdict) for key, verdict in rows.items()}
        failed = {key: {} if found is None else {"failed": found} for key, (found, _) in pairs.items()}
        return {"calls": [{"call": key, "verdict": pairs[key][1], **failed[key]} for key in rows]}
    return {"parts": [{"part": key, "verdict": verdict} for key, verdict in rows.items()]}


def scored(metric: str, case: Case, *more: dict[str, Any]) -> tuple[Score, ScriptedJudge]:
    judge = ScriptedJudge([{"step": STEPS[metric], "output": answer} for answer in (output(case.rows), *more)])
    return create(metric, judge=judge).score_sync(case.sample), judge


@pytest.mark.parametrize(("metric", "case"), EACH)
def test_a_case_has_its_value(metric: str, case: Case) -> None:
    score, _ = scored(metric, case)

    assert score.outcome is (Outcome.NO_VALUE if case.value is None else Outcome.SCORED), score.reason
    assert score.value == (None if case.value is None else pytest.approx(case.value)), case.why


@pytest.mark.parametrize("metric", CASES)
def test_each_metric_has_twelve_cases(metric: str) -> None:
    assert len(CASES[metric]) == 12


@pytest.mark.parametrize(("metric", "case"), EACH)
def test_all_calls_of_a_conversation_are_asked_about_in_one_question(metric: str, case: Case) -> None:
    _, judge = scored(metric, case)

    assert len(judge.calls) <= 1
    if metric in OF_CALLS:
        asked = [call["call"] for prompt in judge.calls for call in prompt.evidence["calls"]]
        assert asked == [*case.rows]


AGREEMENT = {
    "tool_selection": 10,
    "tool_arguments": 12,
    "step_efficiency": 9,
    "error_recovery": 10,
    "plan_adherence": 10,
    "answer_completeness": 9,
}
"""Metric → number of its twelve cases in which the offline judge gives the value."""


@pytest.mark.parametrize("metric", CASES)
def test_the_offline_judge_agrees_with_most_cases(metric: str) -> None:
    made = create(metric, judge="lexical")
    values = [(made.score_sync(case.sample).value, case) for case in CASES[metric]]

    right = [case.why for value, case in values if value == (None if case.value is None else pytest.approx(case.value))]

    assert len(right) == AGREEMENT[metric], [case.why for _, case in values if case.why not in right]
