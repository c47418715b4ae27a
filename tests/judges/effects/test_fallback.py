"""While a judge is unavailable another one is asked; a score has one judge and names it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.judges.models import QUESTION, Answers, PlainModel
from tests.pipeline.virtual_time import now_s, run

from spanscore import evaluate
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError, JudgeUnavailable
from spanscore.judges import Cached, FallingBack, RateLimited, judge
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.cost import Budgeted
from spanscore.judges.effects.middleware import JudgeMiddleware, reads_instructions, unwrapped
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics import AspectCritic, Faithfulness
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="Where?", response="Rome.", retrieved_contexts=["It is in Rome."])
STATEMENTS = {"step": "extract_statements", "output": {"statements": ["It is in Rome."]}}
VERDICTS = {
    "step": "verify_statements",
    "output": {"statements": [{"statement": "It is in Rome.", "verdict": 1, "reason": ""}]},
}


class Away:
    """Which judges are away; a test moves them."""

    def __init__(self, *judges: Any) -> None:
        self.judges = list(judges)

    def __call__(self, one: Any) -> bool:
        return one in self.judges


class Of(Answers):
    """A judge of an account."""

    def __init__(self, model: str, **account: str) -> None:
        super().__init__(model)
        self.model = model
        self.account = Account("openai", model, **account)


async def test_a_judge_that_is_there_is_asked() -> None:
    first, second = Of("a"), Of("b")

    reply = await FallingBack(first, [second], Away()).ask(QUESTION)

    assert (reply.text, second.asked) == ("a", [])


async def test_the_first_that_is_not_away_stands_in_and_where_all_are_away_the_first_is_waited_for() -> None:
    judges = Of("a"), Of("b"), Of("c")
    away = Away(*judges[:2])
    falling = FallingBack(judges[0], judges[1:], away)

    with_one_left = await falling.ask(QUESTION)
    away.judges = list(judges)
    with_none = await falling.ask(QUESTION)

    assert (with_one_left.text, with_none.text) == ("c", "a")


@pytest.mark.parametrize(("begins", "model"), [(False, "a"), (True, "b")])
async def test_all_questions_of_a_score_are_asked_of_one_judge(begins: bool, model: str) -> None:
    first, second = Of("a"), Of("b")
    away = Away(first) if begins else Away()
    falling, score = FallingBack(first, [second], away), ScoreContext()

    with asked_by(score):
        replies = [await falling.ask(QUESTION)]
        away.judges = [] if begins else [first]
        replies.append(await falling.ask(QUESTION))

    assert [reply.text for reply in replies] == [model] * 2
    assert score.source == ("fallback" if begins else None)


@pytest.mark.parametrize("step", ["extract_statements", "verify_statements"])
async def test_a_score_of_several_steps_has_one_judge_and_is_of_its_series(step: str) -> None:
    first, second = (ScriptedJudge([STATEMENTS, VERDICTS], model=model) for model in "ab")
    away = Away(first) if step == "extract_statements" else Away()

    class Wavers(ScriptedJudge):
        async def ask(self, prompt: Prompt) -> Reply:
            away.judges = [first] if step == "verify_statements" else []
            return await super().ask(prompt)

    for one in (first, second):
        one.__class__ = Wavers
    metric = Faithfulness(FallingBack(first, [second], away))

    score = await metric.score(SAMPLE)

    asked = "b" if step == "extract_statements" else "a"
    assert (score.value, score.judge_model) == (1.0, asked)
    assert (score.evaluator_version.split("/")[1], score.source) == (asked, "fallback" if asked == "b" else None)
    assert metric.evaluator_version.split("/")[1] == "a"


class DownAtFirst(Of):
    """A judge that cannot be reached for so many seconds."""

    down_s = 3.0

    async def ask(self, prompt: Prompt) -> Reply:
        if now_s() < self.down_s:
            raise JudgeUnavailable("away", error_type="connection")
        return await super().ask(prompt)


def test_while_a_breaker_is_open_scores_that_begin_have_another_judge_and_those_that_began_do_not() -> None:
    falling = judge(DownAtFirst("a"), fallback=[Of("b")])

    async def replies() -> list[Any]:
        begun = asyncio.gather(*(falling.ask(QUESTION) for _ in range(20)))
        await asyncio.sleep(0.8)
        during = await falling.ask(QUESTION)
        await asyncio.sleep(60.0)
        return [during, await falling.ask(QUESTION), *await begun]

    assert [reply.text for reply in run(replies())] == ["b", *["a"] * 21]


def test_a_users_own_judge_gets_the_breaker_that_a_fallback_goes_by_once() -> None:
    made: Any = judge(judge(Of("a"), queue_timeout=60.0), fallback=[Of("b")])

    assert [type(one) for one in layers(made)].count(RateLimited) == 1
    assert [type(one) for one in layers(judge(Of("a"), fallback=[Of("b")]))].count(RateLimited) == 1


async def test_a_failure_of_the_fallback_is_of_its_stratum_too() -> None:
    first, second = ScriptedJudge(model="a"), ScriptedJudge(model="b")

    score = await Faithfulness(FallingBack(first, [second], Away(first))).score(SAMPLE)

    assert (score.outcome, score.source, score.evaluator_version.split("/")[1]) == (
        Outcome.JUDGE_ERROR,
        "fallback",
        "b",
    )


async def test_rows_of_a_fallback_are_in_no_mean_of_the_configured_judge() -> None:
    first, second = Answers('{"verdict": 1}'), Answers('{"verdict": 0}')
    away = Away()

    class Leaves(Answers):
        async def ask(self, prompt: Prompt) -> Reply:
            away.judges = [first]
            return await super().ask(prompt)

    first.__class__ = Leaves
    critic = AspectCritic(FallingBack(first, [second], away), definition="Is it polite?")

    result = await evaluate([SAMPLE, SAMPLE], [critic], concurrency=1)

    assert [row.source for row in result.rows] == [None, "fallback"]
    assert (result.mean(critic.name), result.summary(critic.name).fallback) == (1.0, 1)


def test_a_fallback_that_asks_the_same_account_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="fallback asks a again"):
        judge(Of("a"), fallback=[Of("b"), judge(Of("a"), max_attempts=2)])

    judge(Of("a"), fallback=[Of("a", key="another"), Of("a", address="http://gateway")])


def test_a_fallback_is_made_as_the_judge_is_and_none_where_there_is_none() -> None:
    made = judge(PlainModel(), fallback=[{"model": PlainModel(model_name="other"), "max_attempts": 1}], timeout=7.0)

    assert isinstance(made, FallingBack)
    assert [type(one) for one in layers(made.judges[0])] == [type(one) for one in layers(made.judges[1])]
    assert [one.model for one in made.judges] == ["plain-1", "other"]
    assert not isinstance(judge(PlainModel(), fallback=[]), FallingBack)


def test_questions_are_joined_only_where_every_judge_reads_what_they_say() -> None:
    model = judge(PlainModel())

    assert not reads_instructions(FallingBack(model, [Answers("x")]))
    assert reads_instructions(FallingBack(model, [judge(PlainModel(model_name="other"))]))
    assert unwrapped(FallingBack(model, [Answers("x")])) is unwrapped(model)


def test_each_judge_has_answers_of_its_own_and_a_cache_around_all_is_refused() -> None:
    made: Any = judge(Of("a"), fallback=[Of("b")], cache="memory")

    assert [type(one) for one in made.judges] == [Cached, Cached]
    with pytest.raises(ConfigurationError, match="give both at once"):
        judge(judge(Of("a"), fallback=[Of("b")]), cache="memory")


def test_every_judge_keeps_to_the_budget() -> None:
    made: Any = judge(Of("a"), fallback=[Of("b"), PlainModel()])

    assert [[type(one) for one in layers(each)].count(Budgeted) for each in made.judges] == [1, 1, 1]


def layers(made: Any) -> list[Any]:
    return [made, *(layers(made.judge) if isinstance(made, JudgeMiddleware) else ())]
