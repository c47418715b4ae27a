"""Properties of answers with a reference that the reference cases do not show."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError, JudgeUnavailable
from spanscore.metrics import AnswerCorrectness, FactualCorrectness
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge

SAMPLE = SingleTurnSample(user_input="When and who?", response="r", reference="f")
ALIKE = ScriptedEmbeddings({"r": [1.0, 0.0], "f": [1.0, 0.0]})


def test_a_statement_sorted_twice_counts_once_and_in_both_lists_is_wrong() -> None:
    judge = _sorting(["A.", "B."], ["C."], TP=["A.", "A.", "B."], FP=["B."], FN=[])

    score = AnswerCorrectness(judge, weights=(1, 0)).score_sync(SAMPLE)

    assert score.value == pytest.approx(2 * 0.5 * 1.0 / 1.5)  # one right, one wrong, none missing
    assert score.explanation is not None
    assert "Wrong: B." in score.explanation


def test_a_statement_the_judge_forgot_is_wrong() -> None:
    judge = _sorting(["A.", "B."], ["C."], TP=["A."], FP=[], FN=[])

    assert AnswerCorrectness(judge, weights=(1, 0)).score_sync(SAMPLE).value == pytest.approx(2 * 0.5 / 1.5)


def test_a_negative_wording_lowers_the_value_and_not_the_quality_below_zero() -> None:
    opposite = ScriptedEmbeddings({"r": [1.0, 0.0], "f": [-1.0, 0.0]})
    judge = _sorting(["A."], ["C."], TP=[], FP=["A."], FN=["C."])

    score = AnswerCorrectness(judge, opposite).score_sync(SAMPLE)

    assert (score.value, score.quality, score.scale.range) == (-0.25, 0.0, (-0.25, 1.0))


def test_without_a_length_nothing_is_classified() -> None:
    judge = _sorting(["A."], ["C."], TP=["A."], FP=[], FN=[])

    score = AnswerCorrectness(judge, ScriptedEmbeddings({"r": [0.0], "f": [1.0]})).score_sync(SAMPLE)

    assert score.outcome is Outcome.JUDGE_ERROR
    assert "classify_statements" not in [prompt.step for prompt in judge.calls]


def test_embeddings_are_needed_only_where_they_count() -> None:
    AnswerCorrectness(ScriptedJudge(), weights=(1, 0))

    with pytest.raises(ConfigurationError, match="answer_correctness needs embeddings"):
        AnswerCorrectness(ScriptedJudge())


def test_embeddings_that_fail_are_an_error_and_no_number() -> None:
    judge = _sorting(["A."], ["C."], TP=["A."], FP=[], FN=[])

    score = AnswerCorrectness(judge, ScriptedEmbeddings({})).score_sync(SAMPLE)

    assert (score.value, score.outcome, score.error_type) == (None, Outcome.JUDGE_ERROR, "script_ended")


@given(right=st.integers(0, 5), wrong=st.integers(0, 5), missed=st.integers(0, 5), beta=st.floats(0.1, 5))
def test_correctness_lies_on_its_scale_and_is_one_only_without_a_fault(
    right: int, wrong: int, missed: int, beta: float
) -> None:
    tp, fp, fn = (
        [f"{kind}{n}" for n in range(count)] for kind, count in zip("RWM", (right, wrong, missed), strict=True)
    )
    judge = _sorting(tp + fp, [f"T{n}" for n in range(right)] + fn, TP=tp, FP=fp, FN=fn)

    value = AnswerCorrectness(judge, weights=(1, 0), beta=beta).score_sync(SAMPLE).value

    assert value is not None
    assert 0.0 <= value <= 1.0
    assert (value == 1.0) == (wrong == missed == 0)


@pytest.mark.parametrize(("mode", "value"), [("precision", 0.5), ("recall", 0.25), ("f1", 1 / 3)])
def test_the_true_recall_is_the_share_of_the_references_claims(mode: Any, value: float) -> None:
    judge = _checking({"A": 1, "B": 0}, {"C": 1, "D": 0, "E": 0, "F": 0})

    assert FactualCorrectness(judge, mode=mode, recall="claims").score_sync(SAMPLE).value == pytest.approx(value)


def test_a_recall_of_no_claims_is_undefined() -> None:
    score = FactualCorrectness(_checking({"A": 1}, {}), recall="claims").score_sync(SAMPLE)

    assert (score.outcome, score.reason) == (Outcome.NO_VALUE, "the reference claims nothing")


def test_a_judge_without_a_single_verdict_has_failed() -> None:
    judge = ScriptedJudge(
        [
            {"step": "decompose_response", "output": {"claims": ["A"]}},
            {"step": "verify_response_claims", "output": {"statements": []}},
        ]
    )

    score = FactualCorrectness(judge, mode="precision").score_sync(SAMPLE)

    assert (score.value, score.error_type) == (None, "unparseable")


@pytest.mark.parametrize(
    "wrong", [{"mode": "f2"}, {"atomicity": "mid"}, {"coverage": ""}, {"recall": "all"}, {"beta": 0}]
)
def test_unknown_parameters_of_factual_correctness_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        FactualCorrectness(ScriptedJudge(), **wrong)


def test_finer_claims_are_another_version() -> None:
    versions = {FactualCorrectness("lexical", atomicity=a, coverage=c).version for a in _LEVELS for c in _LEVELS}

    assert len(versions) == 4


class Meeting:
    """A judge that answers only when as many questions are open at once as were announced; else it gives up."""

    model = "meeting"

    def __init__(self, at_once: int) -> None:
        self.at_once, self.open = at_once, 0
        self.met = asyncio.Event()

    async def ask(self, prompt: Prompt) -> Reply:
        self.open += 1
        if self.open == self.at_once:
            self.met.set()
        try:
            await asyncio.wait_for(self.met.wait(), timeout=20)
        except TimeoutError:
            raise JudgeUnavailable("nobody else came") from None
        return Reply(text='{"statements": [], "claims": []}')


@pytest.mark.parametrize("metric", [AnswerCorrectness, FactualCorrectness])
def test_both_texts_are_taken_apart_at_the_same_time(metric: Any) -> None:
    extra = {"weights": (1, 0)} if metric is AnswerCorrectness else {}

    score = metric(Meeting(2), **extra).score_sync(SAMPLE)

    assert score.outcome in (Outcome.SCORED, Outcome.NO_VALUE)


_LEVELS: tuple[Any, Any] = ("low", "high")


def _sorting(said: list[str], true: list[str], **sorted_: list[str]) -> ScriptedJudge:
    rows = {name: [{"statement": text, "reason": ""} for text in texts] for name, texts in sorted_.items()}
    return ScriptedJudge(
        [
            {"step": "extract_statements_response", "output": {"statements": said}},
            {"step": "extract_statements_reference", "output": {"statements": true}},
            {"step": "classify_statements", "output": rows},
        ]
    )


def _checking(response: dict[str, int], reference: dict[str, int]) -> ScriptedJudge:
    answers: list[dict[str, Any]] = []
    for side, claims in (("response", response), ("reference", reference)):
        rows = [{"statement": text, "reason": "", "verdict": verdict} for text, verdict in claims.items()]
        answers.append({"step": f"decompose_{side}", "output": {"claims": list(claims)}})
        answers.append({"step": f"verify_{side}_claims", "output": {"statements": rows}})
    return ScriptedJudge(answers)
