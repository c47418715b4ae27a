"""Every reference case of every built-in metric: reproduced, or deviating exactly as METRICS.md section 5 recommends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spanscore.metrics.registry import BUILT_IN
from spanscore.model.sample import MultiTurnSample, Sample, SingleTurnSample
from spanscore.model.score import Ballots, Outcome, Score
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge, build_metric

VECTORS = Path(__file__).parents[3] / "shared" / "vectors"

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="the reference vectors (../shared/vectors) are not here")


def cases() -> Iterator[Any]:
    for name in sorted(BUILT_IN):
        file = VECTORS / f"{name}.json"
        content = json.loads(file.read_text("utf-8")) if file.exists() else {"cases": []}
        for case in content["cases"]:
            yield pytest.param(name, content["tolerance"], case, id=case["id"])


@pytest.mark.parametrize(("name", "tolerance", "case"), list(cases()))
def test_a_reference_case_comes_out_as_it_should(name: str, tolerance: float, case: dict[str, Any]) -> None:
    judge = ScriptedJudge(case["judge"])

    score = _run(name, case, judge)

    quirks = case.get("quirk", [])
    for quirk in quirks:
        EXPECTED[quirk](case, score, judge)
    if not quirks:
        assert score.value == (None if case["score"] is None else pytest.approx(case["score"], abs=tolerance))


@pytest.mark.parametrize(("name", "tolerance", "case"), list(cases()))
def test_the_judge_is_asked_with_the_evidence_of_the_reference(
    name: str, tolerance: float, case: dict[str, Any]
) -> None:
    judge = ScriptedJudge(case["judge"])

    _run(name, case, judge)

    expected = [(call["step"], call["input"]) for call in case["judge"] if "input" in call]
    asked = [(prompt.step, dict(prompt.evidence)) for prompt in judge.calls if prompt.step != "fix_output_format"]
    if not case.get("quirk") and case.get("via") != "votes" and not case.get("error"):
        assert _in_order(asked) == _in_order(expected)


def _run(name: str, case: dict[str, Any], judge: ScriptedJudge) -> Score:
    embeddings = ScriptedEmbeddings(case.get("embeddings") or {})
    metric: Any = build_metric(name, judge=judge, embeddings=embeddings, **case["params"])
    score: Score = metric.score_sync(_sample(case["sample"]))
    return score


def _sample(fields: dict[str, Any]) -> Sample:
    kind = MultiTurnSample if isinstance(fields.get("user_input"), list) else SingleTurnSample
    return kind.model_validate(fields)


def _in_order(calls: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return sorted((step, json.dumps(evidence, sort_keys=True)) for step, evidence in calls)


def _aligned(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    statements = _output(case, "extract_statements")["statements"]
    rows = {row["statement"]: row["verdict"] for row in _output(case, "verify_statements")["statements"]}
    assert score.value == pytest.approx(sum(rows.get(statement, 0) for statement in statements) / len(statements))
    assert score.explanation is not None
    assert ("No verdict" in score.explanation) == any(statement not in rows for statement in statements)


def _refused(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)
    assert [prompt.step for prompt in judge.calls][-1] == "fix_output_format"


def _field_missed_unpaid(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    assert (score.value, score.outcome) == (None, Outcome.MISSING_FIELD)
    assert judge.calls == []


def _reference_shown(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    assert score.value == case["score"]
    assert judge.calls[0].evidence["reference"] == case["sample"]["reference"]


def _ballots_cast(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    ballots = case["params"]["strictness"] | 1  # an even number becomes the next odd
    assert score.value == case["score"]
    assert [prompt.ballot for prompt in judge.calls] == list(range(ballots))
    assert score.ballots == Ballots(asked=ballots, received=len(case["judge"]))


def _tie_fails(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert (score.value, score.label) == (0.0, "fail")


def _output(case: dict[str, Any], step: str) -> Any:
    return next(call["output"] for call in case["judge"] if call["step"] == step)


EXPECTED: dict[str, Callable[[dict[str, Any], Score, ScriptedJudge], None]] = {
    "Q-ALIGN": _aligned,
    "Q-MISSING": _field_missed_unpaid,
    "Q-MT-REF": _reference_shown,
    "Q-RANGE": _refused,
    "Q-STRICTNESS": _ballots_cast,
    "Q-TIE": _tie_fails,
    "Q-TRUTHY": _refused,
}
