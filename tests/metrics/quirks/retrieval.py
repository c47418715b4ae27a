"""The quirks of the context metrics, the ratings and string similarity."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.metrics.quirks import Check

from spanscore.core.score import Outcome, Score
from spanscore.testing import ScriptedJudge

TOLERANCE = 1e-6


def _as_the_reference(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert score.value == pytest.approx(case["score"], abs=TOLERANCE)


def _undefined(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert (score.value, score.outcome) == (None, Outcome.NO_VALUE)
    assert score.reason


def _undefined_and_unpaid_from_there(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    _undefined(case, score, judge)
    assert sorted(prompt.step for prompt in judge.calls) == [
        "extract_statements_reference",
        "extract_statements_response",
    ]


def _noise_aligned(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    """The reference implementation's formula over rows matched to their statements, a missing one not supported."""
    statements = _outputs(case, "extract_statements_response")[0]["statements"]
    sources = list(
        zip(_rows(case, "verify_reference_statements"), _rows(case, "verify_response_statements"), strict=True)
    )
    if case.get("error"):  # the reference raised before it asked the last question: the script has no answer to it
        assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)
        return
    (truth,) = _rows(case, "verify_response_against_reference")
    blamed = 0
    for statement in statements:
        found = [any(reference.values()) for reference, response in sources if response.get(statement)]
        from_mode = any(found) if case["params"].get("mode") != "irrelevant" else found and not any(found)
        blamed += bool(not truth.get(statement) and from_mode)
    assert score.value == pytest.approx(blamed / len(statements))
    assert "No verdict" in (score.explanation or "")


def _reference_set_counts(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    reference, found = (
        {" ".join(entity.casefold().split()) for entity in _outputs(case, f"extract_entities_{side}")[0]["entities"]}
        for side in ("reference", "contexts")
    )
    assert score.value == pytest.approx(len(reference & found) / len(reference))


def _refused(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    """Contexts are judged side by side, so that the repair of one need not be the last call."""
    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)
    assert "fix_output_format" in [prompt.step for prompt in judge.calls]


def _empty_precision(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    if case["sample"]["retrieved_contexts"]:
        assert score.value == 0.0
    else:
        _undefined(case, score, judge)


def _empty_recall(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    if case["sample"]["reference_contexts"]:
        assert score.value == 0.0
    else:
        _undefined(case, score, judge)


def _equal_to_the_threshold_counts(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    assert score.value == 1.0


def _one_number_or_asked_again(allowed: tuple[int, ...]) -> Check:
    def check(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
        ratings = {}
        for call in case["judge"]:
            number = re.fullmatch(r"-?[\d.]+", call["raw"].strip())
            if number and (rating := float(number.group())) in allowed:
                ratings.setdefault(call["step"], rating / allowed[-1])
        assert score.value == pytest.approx(sum(ratings.values()) / len(ratings))
        unread = 2 - len(ratings)
        assert len(judge.calls) == 2 + unread  # asked again, and the script has no more
        assert ("could not be had" in (score.explanation or "")) == bool(unread)

    return check


def _the_other_rating_alone(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    (rated,) = [call for call in case["judge"] if call["output"]]
    top = 4 if "accuracy" in rated["step"] else 2
    assert score.value == rated["output"]["rating"] / top
    assert score.votes is not None
    assert (score.votes.requested, score.votes.received) == (2, 1)
    assert len(judge.calls) == 6


def _only_the_whole_text(case: dict[str, Any], score: Score, judge: ScriptedJudge) -> None:
    context = "\n".join(case["sample"]["retrieved_contexts"]).strip()
    if case["sample"]["response"].strip() == context:
        assert (score.value, judge.calls) == (1.0, [])
    else:
        assert {prompt.step for prompt in judge.calls} == {"judge_groundedness_1", "judge_groundedness_2"}
        assert score.value is None  # the script has no answer


def _invented_do_not_count(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    context = "\n".join(case["sample"]["retrieved_contexts"])
    total = case["intermediates"]["n_context_sentences"]
    kept = [sentence for sentence in _outputs(case, "extract_sentences")[0]["sentences"] if sentence in context]
    assert case["params"]["strictness"] == 1
    assert score.value == pytest.approx(min(len(kept) / total, 1.0))
    assert "not in the contexts" in (score.explanation or "")


def _order_does_not_count(case: dict[str, Any], score: Score, _: ScriptedJudge) -> None:
    answers = [set(output["sentences"]) for output in _outputs(case, "extract_sentences")]
    total = case["intermediates"]["n_context_sentences"]
    pairs = [len(a & b) / len(a | b) for i, a in enumerate(answers) for b in answers[i + 1 :]]
    overlap = sum(min(len(answer) / total, 1.0) for answer in answers) / len(answers)
    assert score.value == pytest.approx(overlap * sum(pairs) / len(pairs))


def _outputs(case: dict[str, Any], step: str) -> list[Any]:
    return [call["output"] for call in case["judge"] if call["step"] == step]


def _rows(case: dict[str, Any], step: str) -> list[dict[str, int]]:
    return [{row["statement"]: row["verdict"] for row in output["statements"]} for output in _outputs(case, step)]


EXPECTED: dict[Any, Check] = {
    ("llm_context_precision_with_reference", "Q-EPS0"): _undefined,
    ("llm_context_precision_without_reference", "Q-EPS0"): _undefined,
    ("llm_context_precision_with_reference", "Q-TRUTHY"): _refused,
    ("llm_context_precision_without_reference", "Q-TRUTHY"): _refused,
    ("context_entity_recall", "Q-EPS0"): _undefined,
    ("noise_sensitivity", "Q-ALIGN"): _noise_aligned,
    ("non_llm_context_precision", "Q-NLCTX-EMPTY"): _empty_precision,
    ("non_llm_context_recall", "Q-NLCTX-EMPTY"): _empty_recall,
    ("answer_accuracy", "Q-DIGIT"): _one_number_or_asked_again((0, 2, 4)),
    ("context_relevance", "Q-DIGIT"): _one_number_or_asked_again((0, 1, 2)),
    ("response_groundedness", "Q-DIGIT"): _one_number_or_asked_again((0, 1, 2)),
    "Q-CR-INVENT": _invented_do_not_count,
    "Q-CR-ORDER": _order_does_not_count,
    "Q-DUPENT": _reference_set_counts,
    "Q-GROUND-SUB": _only_the_whole_text,
    "Q-NANMAX": _the_other_rating_alone,
    "Q-NS-EMPTY": _undefined_and_unpaid_from_there,
    "Q-SURFACE": _reference_set_counts,
    "Q-THREQ": _equal_to_the_threshold_counts,
}
