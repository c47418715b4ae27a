"""NoiseSensitivity: properties that the reference cases do not show."""

from __future__ import annotations

from typing import Any

import pytest
from tests.metrics.side_by_side import SideBySide

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError
from spanscore.metrics import NoiseSensitivity
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="q", response="said", reference="true", retrieved_contexts=["good", "bad"])


def rows(step: str, **verdicts: int) -> dict[str, Any]:
    return {"step": step, "output": {"statements": [{"statement": s, "verdict": v} for s, v in verdicts.items()]}}


def script() -> list[dict[str, Any]]:
    """Statement a is right; b is wrong and comes from the relevant context; c is wrong and comes from the other."""
    return [
        {"step": "extract_statements_reference", "output": {"statements": ["x"]}},
        {"step": "extract_statements_response", "output": {"statements": ["a", "b", "c"]}},
        rows("verify_reference_statements", x=1),
        rows("verify_reference_statements", x=0),
        rows("verify_response_statements", a=1, b=1, c=0),
        rows("verify_response_statements", a=1, b=1, c=1),
        rows("verify_response_against_reference", a=1, b=0, c=0),
    ]


@pytest.mark.parametrize(("mode", "blamed"), [("relevant", "b"), ("irrelevant", "c")])
def test_each_mode_blames_its_own_kind_of_context(mode: Any, blamed: str) -> None:
    score = NoiseSensitivity(ScriptedJudge(script()), mode=mode).score_sync(SAMPLE)

    assert score.value == pytest.approx(1 / 3)
    assert score.explanation == (
        f"1 of 3 statements are wrong and come from {mode} contexts; 1 of 2 contexts are relevant.\nWrong: {blamed}"
    )


def test_lower_is_better() -> None:
    score = NoiseSensitivity(ScriptedJudge(script()), pass_at=0.7).score_sync(SAMPLE)

    assert score.quality == pytest.approx(2 / 3)
    assert score.label == "fail"


def test_both_extractions_and_then_all_verdicts_are_asked_side_by_side() -> None:
    judge = SideBySide(script(), rounds=(2, 5))

    score = NoiseSensitivity(judge).score_sync(SAMPLE)

    assert score.outcome is Outcome.SCORED
    assert len(judge.calls) == 2 * 2 + 3


@pytest.mark.parametrize(
    "field", [{"user_input": ""}, {"response": ""}, {"reference": ""}, {"retrieved_contexts": []}], ids=str
)
def test_an_empty_field_is_undefined_before_anything_is_paid(field: dict[str, Any]) -> None:
    judge = ScriptedJudge(script())

    score = NoiseSensitivity(judge).score_sync(SAMPLE.model_copy(update=field))

    assert (score.outcome, score.reason) == (Outcome.NO_VALUE, f"{next(iter(field))} is empty")
    assert judge.calls == []


def test_a_lost_verdict_call_is_no_score() -> None:
    score = NoiseSensitivity(ScriptedJudge(script()[:-1])).score_sync(SAMPLE)

    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="mode is 'both'; it is one of relevant, irrelevant"):
        NoiseSensitivity(ScriptedJudge(), mode="both")  # type: ignore[arg-type]
