"""A verdict that contradicts its own reason: how often that is seen, and how often in vain, on a table of labelled pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from spanscore.core.sample import SingleTurnSample
from spanscore.metrics import AspectCritic, Faithfulness
from spanscore.metrics.kit.condition import BinaryAnswer, contradictions_in, contradicts
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import Step
from spanscore.testing import ScriptedJudge

DATA = Path(__file__).parents[2] / "data"
TABLE = [json.loads(line) for line in (DATA / "contradictions.jsonl").read_text(encoding="utf-8").splitlines()]
SAMPLE = SingleTurnSample(user_input="When?", response="In 1887.", retrieved_contexts=["It opened in 1889."])
AGAINST = "The answer fails to name the deadline."


class Measured(NamedTuple):
    """How many pairs there are, and how right the list is about them."""

    pairs: int
    precision: float
    recall: float


def measured(*, held_out: bool) -> Measured:
    pairs = [one for one in TABLE if one["held_out"] is held_out]
    rows = [one["contradicts"] for one in pairs if contradicts(one["reason"], passed=bool(one["verdict"]))]
    return Measured(len(pairs), sum(rows) / len(rows), sum(rows) / sum(one["contradicts"] for one in pairs))


def test_the_list_is_as_right_as_documented() -> None:
    """The forms were written for the first part of the table; the second part is older and for testing only."""
    assert len(TABLE) >= 60
    assert measured(held_out=False) == Measured(70, 1.0, 1.0)
    assert measured(held_out=True) == pytest.approx(Measured(43, 0.94, 0.76), abs=0.005)


def test_nothing_reports_the_answers_of_other_tests() -> None:
    """Judges' answers in the vectors of the metrics: none of them contradicts itself."""
    pairs = {
        pair for file in (DATA / "vectors").glob("*.json") for pair in pairs_in(json.loads(file.read_text("utf-8")))
    }

    assert len(pairs) > 90
    assert [reason for verdict, reason in pairs if contradicts(reason, passed=bool(verdict))] == []


def pairs_in(given: Any) -> Iterator[tuple[int, str]]:
    if isinstance(given, Mapping):
        verdict, reason = given.get("verdict", given.get("attributed")), given.get("reason")
        if verdict in (0, 1) and isinstance(reason, str):
            yield verdict, reason
        for value in given.values():
            yield from pairs_in(value)
    elif isinstance(given, list):
        for value in given:
            yield from pairs_in(value)
    elif isinstance(given, str) and given.startswith("{"):
        yield from pairs_in(json.loads(given))


@pytest.mark.parametrize("quoted", ["“{}”", '"{}"', "'{}'", "`{}`", "«{}»", 'and "{}'])
def test_what_a_judge_quotes_is_not_its_own_word(quoted: str) -> None:
    reason = "this violates the contract, and the response fails to say so"

    assert contradicts(f"The response {reason}.", passed=True)
    assert not contradicts(f"Its last line: {quoted.format(reason)}", passed=True)


def test_another_language_says_nothing() -> None:
    assert not contradicts("Die Antwort erfüllt das Kriterium nicht.", passed=True)
    assert not contradicts("La réponse ne respecte pas la règle.", passed=True)


def test_of_a_long_reason_the_beginning_is_read() -> None:
    assert contradicts(AGAINST + " It greets." * 1_000, passed=True)
    assert not contradicts("It greets. " * 100 + AGAINST, passed=True)


def scripted(step: str, *outputs: Mapping[str, Any]) -> ScriptedJudge:
    return ScriptedJudge({"step": step, "output": output} for output in outputs)


def test_the_verdict_stands_and_the_score_tells_of_it() -> None:
    critic = AspectCritic(scripted("critique", {"reason": AGAINST, "verdict": 1}), definition="The deadline is named.")

    score = critic.score_sync(SAMPLE)

    assert (score.value, score.label, score.contradictions) == (1.0, "pass", 1)


def test_each_vote_counts_and_none_of_another_score() -> None:
    votes = [{"reason": AGAINST, "verdict": verdict} for verdict in (1, 0, 1)]
    good = {"reason": "It names it.", "verdict": 1}
    critic = AspectCritic(scripted("critique", *votes, good, good, good), definition="It is named.", strictness=3)

    assert [critic.score_sync(SAMPLE).contradictions for _ in range(2)] == [2, 0]


def test_where_lower_is_better_the_criterion_is_no_praise() -> None:
    """The verdict 0 passes there, and an answer that does not meet the criterion is good."""

    def said(reason: str, verdict: int) -> int:
        judge = scripted("critique", {"reason": reason, "verdict": verdict})
        return AspectCritic(judge, definition="It insults.", direction="lower").score_sync(SAMPLE).contradictions

    assert said("The response does not meet the criterion.", 0) == 0
    assert said("The response meets the criterion.", 1) == 0
    assert said("The response violates the policy on insults.", 1) == 0
    assert said("The response violates the policy on insults.", 0) == 1


def test_statements_are_judged_one_by_one() -> None:
    rows = [
        {"statement": "It opened in 1887.", "reason": "The statement is not supported by the context.", "verdict": 1},
        {"statement": "It opened.", "reason": "The statement is supported by the context.", "verdict": 1},
        {"statement": "It is tall.", "reason": "The statement is fully supported by the context.", "verdict": 0},
    ]
    judge = ScriptedJudge(
        [
            {"step": "extract_statements", "output": {"statements": [row["statement"] for row in rows]}},
            {"step": "verify_statements", "output": {"statements": rows}},
        ]
    )

    score = Faithfulness(judge).score_sync(SAMPLE)

    assert (score.value, score.contradictions) == (pytest.approx(2 / 3), 2)


class Tone(BaseModel):
    """An answer of one's own."""

    explanation: str
    verdict: BinaryAnswer


class Polite(JudgedMetric):
    """A metric of one's own."""

    name = "polite"
    requires = {"single_turn": ("response",)}  # noqa: RUF012
    questions = (Step("judge_tone", "Is it polite?", Tone, applies_when="somebody is addressed"),)

    async def measure(self, sample: Any) -> int:
        return int((await self.ask(self.questions[0], {"response": sample.response})).verdict)


def test_a_step_of_ones_own_is_read_too_and_its_condition_is_no_verdict() -> None:
    judge = scripted("judge_tone", {"applies": 1, "explanation": AGAINST, "verdict": 1}, {"applies": 0})
    metric = Polite(judge)

    assert [metric.score_sync(SAMPLE).contradictions for _ in range(2)] == [1, 0]


class Ranked(BaseModel):
    """An answer with a grade, which is no verdict."""

    reason: str
    score: int


def test_a_grade_is_no_verdict() -> None:
    assert contradictions_in(Ranked(reason=AGAINST, score=1)) == 0
