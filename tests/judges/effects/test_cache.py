"""A repeated question is not sent; differences that make two questions; and answers that are never kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from tests.judges.models import QUESTION, Answer, Answers, PlainModel

from spanscore.core.prompt import Reply
from spanscore.errors import JudgeUnavailable, JudgeUnparseable
from spanscore.judges import ask, judge, recorded_calls
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.cache import Cached, MemoryAnswers, answers_kept, key_of
from spanscore.judges.effects.limited import limiters_of

GOOD = '{"verdict": 1}'


class Wide(Answer):
    """An answer with one field more."""

    doubt: float = 0.0


class Placed(Answers):
    """A judge with a known account."""

    def __init__(self, *, drawing: dict[str, Any] | None = None, **account: str) -> None:
        super().__init__(GOOD)
        self.account = Account(**{"provider": "openai", "model": "m", **account})
        self.drawing = drawing or {}


class Clock:
    """Seconds, moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_question_that_was_answered_is_not_asked_again() -> None:
    inner = Answers(GOOD)
    cached = judge(inner, cache="memory")

    with recorded_calls() as calls:
        for _ in range(2):
            await ask(cached, QUESTION)

    assert len(inner.asked) == 1
    assert [(call.cached, call.model, call.input_tokens, call.error_type) for call in calls] == [
        (False, "answers-1", 10, None),
        (True, "answers-1", 0, None),
    ]
    assert calls[1].duration_s == 0


@pytest.mark.parametrize(
    "other",
    [
        replace(QUESTION, vote_index=1),
        replace(QUESTION, step="rate"),
        replace(QUESTION, output=Wide),
        replace(QUESTION, instruction="Is it kind?"),
        replace(QUESTION, evidence={"response": "Go away."}),
    ],
    ids=["vote", "step", "schema", "instruction", "evidence"],
)
async def test_another_question_is_asked(other: Any) -> None:
    inner = Answers(GOOD)
    cached = judge(inner, cache="memory")

    await cached.ask(QUESTION)
    reply = await cached.ask(other)

    assert (reply.cached, len(inner.asked)) == (False, 2)


def test_a_question_to_another_model_or_drawn_another_way_is_another_question() -> None:
    judges = [
        Placed(),
        Placed(model="m2"),
        Placed(provider="azure"),
        Placed(address="http://gateway"),
        Placed(drawing={"temperature": 1.0}),
        Placed(drawing={"seed": 1}),
        Placed(drawing={"n": 2}),
    ]

    assert len({key_of(one, QUESTION) for one in judges}) == len(judges)


def test_a_question_with_another_key_of_the_same_account_is_the_same_question() -> None:
    assert key_of(Placed(key="old"), QUESTION) == key_of(judge(Placed(key="new"), max_attempts=2), QUESTION)


def test_a_chat_model_says_how_it_draws_its_answers() -> None:
    class Drawing(PlainModel):
        temperature: float = 0.5
        seed: int | None = None

    keys = {key_of(judge(Drawing(temperature=t, seed=s)), QUESTION) for t, s in ((0.0, None), (1.0, None), (0.0, 7))}

    assert len(keys) == 3


async def test_the_state_of_the_account_counts_what_was_not_asked() -> None:
    made = judge(PlainModel(), cache="memory")

    for _ in range(3):
        await made.ask(QUESTION)

    assert [(limiter.state.calls, limiter.state.cached) for limiter in limiters_of(made)] == [(1, 2)]


async def test_a_failure_is_not_kept() -> None:
    inner = Answers(JudgeUnavailable("away", error_type="connection"), GOOD)
    cached = judge(inner, cache="memory")

    with pytest.raises(JudgeUnavailable):
        await cached.ask(QUESTION)

    assert not (await cached.ask(QUESTION)).cached


async def test_an_answer_that_cannot_be_read_is_not_kept_and_a_repair_is_always_asked() -> None:
    inner = Answers("It is kind.")
    cached = judge(inner, cache="memory")

    for _ in range(2):
        with pytest.raises(JudgeUnparseable):
            await ask(cached, QUESTION)

    assert [prompt.step for prompt in inner.asked] == ["critique", "fix_output_format"] * 2


async def test_votes_are_cast_and_the_same_vote_is_cast_once() -> None:
    inner = Answers(GOOD)
    cached = judge(inner, cache="memory")

    replies = await asyncio.gather(*(cached.ask(replace(QUESTION, vote_index=vote)) for vote in (1, 2, 3, 1, 2, 3)))

    assert ([reply.cached for reply in replies], len(inner.asked)) == ([False] * 3 + [True] * 3, 3)


async def test_a_chat_model_is_asked_every_time_unless_a_run_keeps_its_answers() -> None:
    model = PlainModel()
    made = judge(model)

    with answers_kept(MemoryAnswers()):
        kept = [(await made.ask(QUESTION)).cached for _ in range(2)]
    after = (await made.ask(QUESTION)).cached

    assert (kept, after, len(model.seen)) == ([False, True], False, 2)


async def test_a_run_that_asks_everything_asks_past_a_judges_own_cache_too() -> None:
    inner = Answers(GOOD)
    cached = judge(inner, cache="memory")

    await cached.ask(QUESTION)
    with answers_kept(None):
        reply = await cached.ask(QUESTION)

    assert (reply.cached, len(inner.asked)) == (False, 2)


async def test_judges_with_one_store_share_their_answers() -> None:
    store, asked = MemoryAnswers(), [Placed(), Placed()]

    replies = [await Cached(one, store).ask(QUESTION) for one in asked]

    assert [reply.cached for reply in replies] == [False, True]


async def test_an_answer_grows_too_old() -> None:
    clock = Clock()
    store = MemoryAnswers(max_age_s=60.0, clock=clock)
    store.keep(b"key", Reply(text="said"))

    clock.now = 59.0
    young = await store.find(b"key")
    clock.now = 60.0

    assert (young, await store.find(b"key")) == (Reply(text="said", cached=True, duration_s=0.0), None)


async def test_the_answer_least_asked_for_makes_room() -> None:
    store = MemoryAnswers(max_answers=2)

    for key in (b"a", b"b"):
        store.keep(key, Reply(text="said"))
    await store.find(b"a")
    store.keep(b"c", Reply(text="said"))

    assert [await store.find(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]


async def test_answers_take_no_more_room_than_there_is() -> None:
    store = MemoryAnswers(max_bytes=10_000)

    for key in (b"a", b"b", b"b", b"c"):
        store.keep(key, Reply(text="x" * 4_000))

    assert [await store.find(key) is not None for key in (b"a", b"b", b"c")] == [False, True, True]


class Slow:
    """A judge that answers on request."""

    model: ClassVar[str] = "slow"

    def __init__(self) -> None:
        self.asked = 0
        self.answer = asyncio.Event()

    async def ask(self, _: Any) -> Reply:
        self.asked += 1
        await self.answer.wait()
        return Reply(text=GOOD, input_tokens=10)


async def test_a_thousand_equal_questions_at_once_are_one_request() -> None:
    inner = Slow()
    cached = judge(inner, cache="memory")

    with recorded_calls() as calls:
        tasks = [asyncio.ensure_future(ask(cached, QUESTION)) for _ in range(1_000)]
        await asyncio.sleep(0)  # all have asked; the request goes out in the next turn
        inner.answer.set()
        await asyncio.gather(*tasks)

    assert (inner.asked, len(calls), sum(call.cached for call in calls)) == (1, 1_000, 999)
    assert sum(call.input_tokens for call in calls) == 10
