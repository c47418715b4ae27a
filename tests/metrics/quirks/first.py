"""The quirks of the first metrics."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from spanscore.core.score import Outcome, Score, Votes
from spanscore.testing import ScriptedJudge

TOLERANCE = 1e-6


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


def _votes_asked(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    votes = case["params"]["strictness"] | 1  # an even number becomes the next odd
    assert score.value == case["score"]
    assert [prompt.vote_index for prompt in judge.calls] == list(range(votes))
    assert score.votes == Votes(requested=votes, received=len(case["judge"]))


def _tie_fails(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert (score.value, score.label) == (0.0, "fail")


def _as_the_reference(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    """A deviation that this case does not show, or a choice that agrees with the reference."""
    assert score.value == pytest.approx(case["score"], abs=TOLERANCE)


def _raw_cosine(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    _as_the_reference(case, score, judge)
    assert score.quality == pytest.approx(max(0.0, case["score"]), abs=TOLERANCE)


def _empty_guesses_left_out(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    vectors, asked = case["embeddings"], case["sample"]["user_input"]
    questions = [call["output"]["question"] for call in case["judge"] if call["output"]["question"]]
    cosines = [_cosine(vectors[asked], vectors[question]) for question in questions]
    assert score.value == pytest.approx(sum(cosines) / len(cosines))


def _embedders_failure(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert (score.value, score.outcome, score.error_type) == (None, Outcome.JUDGE_ERROR, "unparseable")


def _undefined(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert (score.value, score.outcome) == (None, Outcome.NO_VALUE)
    assert score.reason


def _asked_again_then_padded(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    assert [prompt.vote_index for prompt in judge.calls if prompt.step == "classify_topics"] == [0, 1]
    if not _output(case, "classify_topics")["classifications"]:
        assert score.outcome is Outcome.JUDGE_ERROR
        return
    _as_the_reference(case, score, judge)
    assert "flag" in (score.explanation or "")


def _converted_one_by_one(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    flags = [
        str(flag).lower() in ("true", "1", "yes", "2") for flag in _output(case, "classify_topics")["classifications"]
    ]
    refused = [call["output"]["refused_to_answer"] for call in case["judge"] if call["step"] == "check_refusal"]
    hits = sum(inside and not no for inside, no in zip(flags, refused, strict=True))
    assert case["params"]["mode"] == "precision"
    assert score.value == pytest.approx(hits / refused.count(False))


def _nothing_for_nothing(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert score.value == 1.0


def _multisets(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    made = Counter(_calls(c for m in case["sample"]["user_input"] for c in m.get("tool_calls") or ()))
    expected = Counter(_calls(case["sample"]["reference_tool_calls"]))
    assert score.value == pytest.approx(2 * (made & expected).total() / (made.total() + expected.total()))


def _typed(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    (made,) = _calls(c for m in case["sample"]["user_input"] for c in m.get("tool_calls") or ())
    (expected,) = _calls(case["sample"]["reference_tool_calls"])
    assert score.value == float(made.replace("1.0", "1") == expected.replace("1.0", "1"))


def _calls(calls: Iterable[dict[str, Any]]) -> list[str]:
    return [json.dumps(call, sort_keys=True) for call in calls]


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


def _output(case: dict[str, Any], step: str) -> Any:
    return next(call["output"] for call in case["judge"] if call["step"] == step)


EXPECTED: dict[str, Callable[[dict[str, Any], Score, ScriptedJudge], None]] = {
    "Q-ALIGN": _aligned,
    "Q-EMPTYQ": _empty_guesses_left_out,
    "Q-MISSING": _field_missed_unpaid,
    "Q-MT-REF": _reference_shown,
    "Q-NEGCOS": _raw_cosine,
    "Q-NONCOMMITTAL": _as_the_reference,
    "Q-RANGE": _refused,
    "Q-STRICTNESS": _votes_asked,
    "Q-TA-EMPTY": _undefined,
    "Q-TA-LEN": _asked_again_then_padded,
    "Q-TA-MIXED": _converted_one_by_one,
    "Q-TA-REFUSE": _undefined,
    "Q-TC-EMPTY": _nothing_for_nothing,
    "Q-TC-EXTRA": _multisets,
    "Q-TC-NESTED": _as_the_reference,
    "Q-TC-SET": _multisets,
    "Q-TC-SORT": _multisets,
    "Q-TC-STR": _typed,
    "Q-TIE": _tie_fails,
    "Q-TRUTHY": _refused,
    "Q-ZERONORM": _embedders_failure,
}
