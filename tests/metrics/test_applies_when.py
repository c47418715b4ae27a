"""A condition: if it does not hold there is no pass and no fail; the judge decides that in the same call."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from pydantic import BaseModel

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome, Votes
from spanscore.errors import ConfigurationError
from spanscore.judges.rendering import render
from spanscore.metrics import AspectCritic, Rubrics, SimpleCriteria
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import Step
from spanscore.testing import ScriptedJudge

REFUND = SingleTurnSample(user_input="May I have a refund for my ticket?", response="Yes, within 14 days.")
WEATHER = SingleTurnSample(user_input="Will it rain tomorrow?", response="It will not.")
WHEN = "the user asks for a refund"


def critic(judge, **more):
    return AspectCritic(judge, name="refunds", definition="The deadline is told.", applies_when=WHEN, **more)


def scripted(*answers):
    return ScriptedJudge({"step": "critique", "output": answer} for answer in answers)


@pytest.mark.parametrize("rest", [{}, {"reason": "", "verdict": 0}, {"verdict": None}, {"verdict": 7}])
def test_what_does_not_apply_is_neither_passed_nor_failed(rest):
    score = critic(scripted({"applies": 0, **rest})).score_sync(WEATHER)

    assert (score.outcome, score.value, score.label) == (Outcome.NOT_APPLICABLE, None, None)
    assert score.reason == "not applicable"
    assert score.usage.calls[0].error_type is None


def test_what_applies_is_judged_as_ever():
    score = critic(scripted({"applies": 1, "reason": "It says 14 days.", "verdict": 1})).score_sync(REFUND)

    assert (score.value, score.label, score.explanation) == (1.0, "pass", "It says 14 days.")


def test_an_answer_that_does_not_say_whether_it_applies_is_none():
    score = critic(scripted({"reason": "Fine.", "verdict": 1})).score_sync(REFUND)

    assert score.outcome is Outcome.JUDGE_ERROR


def test_one_call_asks_both_and_the_condition_first():
    judge = scripted({"applies": 0})
    critic(judge).score_sync(WEATHER)

    (asked,) = judge.calls
    text = render(asked).user
    assert text.index(WHEN) < text.index("The deadline is told.")
    assert text.index('"applies"') < text.index('"verdict"')


def test_most_votes_say_whether_it_applies():
    no, yes = {"applies": 0}, {"applies": 1, "verdict": 1}

    assert critic(scripted(no, yes, no), strictness=3).score_sync(REFUND).reason == "not applicable"
    judged = critic(scripted(no, yes, yes), strictness=3).score_sync(REFUND)
    assert (judged.value, judged.votes) == (1.0, Votes(requested=3, received=2))


def test_the_condition_is_part_of_the_version():
    plain = AspectCritic("lexical", definition="Polite?")
    refunds = AspectCritic("lexical", definition="Polite?", applies_when=WHEN)
    weather = AspectCritic("lexical", definition="Polite?", applies_when="it rains")

    assert len({plain.version, refunds.version, weather.version}) == 3


@pytest.mark.parametrize(
    "metric",
    [
        critic("lexical"),
        SimpleCriteria("lexical", definition="Score 1 to 5.", range=[1, 5], applies_when=WHEN),
        Rubrics("lexical", applies_when=WHEN),
    ],
    ids=["aspect", "criteria", "rubrics"],
)
def test_the_lexical_judge_looks_for_the_words_of_the_condition(metric):
    assert metric.score_sync(REFUND).outcome is Outcome.SCORED
    assert metric.score_sync(WEATHER).reason == "not applicable"


@pytest.mark.parametrize("condition", ["", "  ", 3])
def test_a_condition_that_says_nothing_is_refused(condition):
    with pytest.raises(ConfigurationError, match="applies_when"):
        AspectCritic("lexical", definition="Polite?", applies_when=condition)


def test_a_users_example_shows_a_case_where_it_holds_or_says_that_it_does_not():
    examples = [
        {"evidence": {"response": "Within 14 days."}, "output": {"reason": "told", "verdict": 1}},
        {"evidence": {"response": "Rain."}, "output": {"applies": 0}},
    ]
    judge = scripted({"applies": 0})
    critic(judge, prompts={"critique": {"examples": examples}}).score_sync(WEATHER)

    rows = [example.output for example in judge.calls[0].examples]
    assert rows == [{"applies": 1, "reason": "told", "verdict": 1}, {"applies": 0}]


class Deadline(BaseModel):
    """A metric that records whether it has a deadline."""

    verdict: BinaryAnswer


class Deadlines(JudgedMetric):
    """A metric of one's own with a condition on its step."""

    name = "deadlines"
    requires = MappingProxyType({"single_turn": ("response",)})
    questions = (Step("deadline", "Is a deadline told?", Deadline, applies_when=WHEN),)

    async def measure(self, sample):
        answer = await self.ask(self.questions[0], {"response": sample.response})
        return answer.verdict


def test_the_step_of_ones_own_metric_may_have_one():
    none = ScriptedJudge([{"step": "deadline", "output": {"applies": False}}])
    some = ScriptedJudge([{"step": "deadline", "output": {"applies": True, "verdict": 1}}])

    assert Deadlines(none).score_sync(WEATHER).reason == "not applicable"
    assert Deadlines(some).score_sync(REFUND).value == 1.0
