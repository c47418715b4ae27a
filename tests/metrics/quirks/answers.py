"""The quirks of the metrics on answers with a reference, grades, goals and calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import permutations, zip_longest
from typing import Any

import pytest
import sacrebleu

from spanscore.core.score import Outcome, Score
from spanscore.testing import ScriptedJudge

TOLERANCE = 1e-6


def _steps(judge: ScriptedJudge) -> list[str]:
    return [prompt.step for prompt in judge.calls]


def _as_the_reference(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert score.value == pytest.approx(case["score"], abs=TOLERANCE)


def _undefined(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert (score.value, score.outcome) == (None, Outcome.NO_VALUE)
    assert score.reason


def _output(case: dict[str, Any], step: str) -> Any:
    return next(call["output"] for call in case["judge"] if call["step"] == step)


def _nothing_sorted_is_repaired_then_an_error(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)
    assert _steps(judge)[-2:] == ["classify_statements", "fix_output_format"]


def _sorted_rows_brought_back(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    """A statement of the answer without a row is wrong; a row too many does not count."""
    said = len(_output(case, "extract_statements_response")["statements"])
    found = _output(case, "classify_statements")
    right = min(said, len(found["TP"]))
    precision = right / said
    recall = right / (right + len(found["FN"]))
    facts = 2 * precision * recall / (precision + recall)
    assert score.value == pytest.approx(0.75 * facts + 0.25 * _similarity(case), abs=TOLERANCE)


def _one_sided_unasked(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    assert score.value == pytest.approx(0.25 * _similarity(case), abs=TOLERANCE)
    assert "classify_statements" not in _steps(judge)


def _unasked_for_nothing(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    assert score.value == pytest.approx(_similarity(case), abs=TOLERANCE)
    assert judge.calls == []


def _similarity(case: dict[str, Any]) -> float:
    one, other = (case["embeddings"][case["sample"][field] or " "] for field in ("response", "reference"))
    return sum(x * y for x, y in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


def _threshold_reached(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert score.value == float(_similarity(case) >= case["params"]["threshold"] - 1e-9) == 1.0


def _claims_aligned(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    (right, said), (covered, wanted) = _supported(case, "response"), _supported(case, "reference")
    precision, recall = right / said, right / (right + wanted - covered)
    assert score.value == pytest.approx(2 * precision * recall / (precision + recall), abs=TOLERANCE)


def _supported(case: dict[str, Any], side: str) -> tuple[int, int]:
    claims = _output(case, f"decompose_{side}")["claims"]
    rows = {row["statement"]: row["verdict"] for row in _output(case, f"verify_{side}_claims")["statements"]}
    return sum(rows.get(claim, 0) for claim in claims), len(claims)


def _mixed_recall(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    """Ragas's formula, not rounded; other quirks of the same case are checked by their own."""
    if case["quirk"] == ["Q-FC-RECALL"] or "Q-FC-EMPTY" in case["quirk"]:
        assert score.value == pytest.approx(case["score"], abs=0.005 + TOLERANCE)


def _no_call_for_no_claims(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    empty = [side for side in ("response", "reference") if not _output(case, f"decompose_{side}")["claims"]]
    assert not {f"verify_{side}_claims" for side in empty} & set(_steps(judge))
    if len(empty) == 2:
        _undefined(case, score, judge)
    else:
        assert score.value == pytest.approx(case["score"], abs=0.005 + TOLERANCE)


def _not_rounded(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    right, said = _supported(case, "response")
    assert score.value == pytest.approx(right / said, abs=1e-12)


def _lower_median(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    votes = sorted(call["output"]["score"] for call in case["judge"])
    assert score.value == votes[(len(votes) - 1) // 2]


def _reference_contexts_hidden(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    _as_the_reference(case, score, judge)
    assert "reference_contexts" not in judge.calls[0].evidence


def _open_scale(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    """No range is declared, so every whole number is a value, and none has a quality."""
    _as_the_reference(case, score, judge)
    assert score.quality is None


def _bare_verdict(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    _as_the_reference(case, score, judge)
    assert "fix_output_format" not in _steps(judge)


def _whole_texts(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    response, reference = case["sample"]["response"], case["sample"]["reference"]
    bleu = sacrebleu.corpus_bleu([response], [[reference]], use_effective_order=True).score / 100
    assert score.value == pytest.approx(min(1.0, bleu), abs=TOLERANCE)


def _calls_paired(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    """By brute force: every way to pair the calls; the best of the allowed ones."""
    made = [(c["name"], c["args"]) for m in case["sample"]["user_input"] for c in m.get("tool_calls") or ()]
    wanted = [(c["name"], c["args"]) for c in case["sample"]["reference_tool_calls"]]
    strict = case["params"].get("strict_order", True)
    names = [[name for name, _ in calls] for calls in (made, wanted)]
    if not made and not wanted:
        expected = 1.0
    elif len(made) == len(wanted) and (names[0] != names[1] if strict else sorted(names[0]) != sorted(names[1])):
        expected = 0.0
    elif len(made) == len(wanted) and strict:
        expected = sum(map(_alike, made, wanted)) / len(made)
    else:
        short, long = sorted((made, wanted), key=len)
        ways = [way for way in permutations(range(len(long)), len(short)) if not strict or list(way) == sorted(way)]
        best = max(sum(_alike(call, long[at]) for call, at in zip(short, way, strict=True)) for way in ways)
        expected = best / len(long)
    assert score.value == pytest.approx(expected, abs=TOLERANCE)


def _alike(one: tuple[str, Any], other: tuple[str, Any]) -> float:
    names = one[1].keys() | other[1].keys()
    if one[0] != other[0]:
        return 0.0
    same = [name in one[1] and name in other[1] and _equal(one[1][name], other[1][name]) for name in names]
    return sum(same) / len(same) if same else 1.0


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _rows(case: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [list(rows) for rows in zip_longest(*case["sample"]["inputs"])]


def voted_on_what_is_there(case: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    ids = dict.fromkeys(row["id"] for voter in case["sample"]["inputs"] for row in voter)
    assert [row["id"] for row in rows] == list(ids)
    for row in rows:
        votes = [r["verdict"] for v in case["sample"]["inputs"] for r in v if r["id"] == row["id"] and "verdict" in r]
        assert row["verdict"] == sorted(votes, key=lambda vote: (-votes.count(vote), vote))[0]


def row_of_a_winner(case: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    for row, given in zip(rows, _rows(case), strict=True):
        assert row in given
        assert [other["verdict"] for other in given].count(row["verdict"]) > len(given) / 2


def tie_fails(case: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    voted_on_what_is_there(case, rows)


VOTES: dict[str, Callable[[dict[str, Any], Sequence[dict[str, Any]]], None]] = {
    "Q-ENS-FIELDS": row_of_a_winner,
    "Q-ENS-LEN": voted_on_what_is_there,
    "Q-TIE": tie_fails,
}
"""Cases of ``majority_vote``, which is a function over rows."""

EXPECTED: dict[Any, Callable[[dict[str, Any], Score, ScriptedJudge], None]] = {
    "Q-AC-EMPTYCLASS": _nothing_sorted_is_repaired_then_an_error,
    "Q-AC-ONESIDED": _one_sided_unasked,
    "Q-BLEU": _whole_texts,
    "Q-FC-EMPTY": _no_call_for_no_claims,
    "Q-FC-RECALL": _mixed_recall,
    "Q-GOAL-STR": _bare_verdict,
    "Q-ROUND": _not_rounded,
    "Q-SC-REFCTX": _reference_contexts_hidden,
    "Q-SP-EMPTY": _undefined,
    "Q-TC-COVERAGE": _calls_paired,
    "Q-THR-BORDER": _threshold_reached,
    "Q-THR0": _threshold_reached,
    "Q-WASTED": _unasked_for_nothing,
    ("answer_correctness", "Q-ALIGN"): _sorted_rows_brought_back,
    ("factual_correctness", "Q-ALIGN"): _claims_aligned,
    ("simple_criteria_score", "Q-RANGE"): _open_scale,
    ("simple_criteria_score", "Q-TIE"): _lower_median,
    **{
        ("tool_call_accuracy", f"Q-TC-{name}"): _calls_paired
        for name in ("EMPTY", "EXTRA", "NESTED", "SET", "SORT", "STR")
    },
}
