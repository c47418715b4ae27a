"""One question → one validated answer, one repair at most, every call on record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from tests.judges.models import QUESTION, Answer, Answers, ProviderError

from spanscore.context import is_judging
from spanscore.errors import (
    JudgeError,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeTimeout,
    JudgeUnavailable,
    JudgeUnparseable,
)
from spanscore.judges import ask, recorded_calls
from spanscore.judges.reader import read
from spanscore.metrics.kit.step import Verdict
from spanscore.model.prompt import Prompt, Reply

GOOD = '{"reason": "r", "verdict": 1}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```\nAnything else?",
        f"Sure. {GOOD} Hope that helps.",
        f"As source [1] says, {GOOD}",
        f"The form {{reason, verdict}} gives {GOOD}",
        f"An open brace {{ and then {GOOD}",
        '{"reason": "a } and a { and ```json in it", "verdict": 1}',
        '{"reason": "two\nlines", "verdict": "1"}',
        '{"verdict": true}',
        '{"verdict": 1.0, "extra": [1]}',
        f"[{GOOD}]",
    ],
)
def test_an_answer_is_found_whatever_stands_around_it(text: str) -> None:
    answer = read(text, Answer)

    assert isinstance(answer, Answer)
    assert answer.verdict == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no idea",
        "1",
        '{"verdict": 0.5}',
        '{"verdict": "yes"}',
        '{"verdict": null}',
        '{"reason": "r", "verdict": 1',
        "{}",
    ],
)
def test_what_is_no_answer_is_not_read_as_one(text: str) -> None:
    assert read(text, Answer) is None


@pytest.mark.parametrize("text", ["{" * 100_000, '{"a":' * 100_000, '{"verdict": ' + "[" * 100_000, '"{' * 50_000])
def test_an_answer_of_nothing_but_brackets_is_given_up_quickly(text: str) -> None:
    started = time.perf_counter()

    assert read(text, Answer) is None
    assert time.perf_counter() - started < 2.0


def test_a_row_of_a_broken_list_is_no_answer() -> None:
    assert read('{"statements": [{"reason": "r", "verdict": 1},], oops}', Answer) is None


@pytest.mark.parametrize(("given", "read_as"), [(0, 0), (1, 1), (True, 1), ("0", 0), (1.0, 1)])
def test_a_verdict_is_zero_or_one(given: object, read_as: int) -> None:
    class Row(BaseModel):
        verdict: Verdict

    assert Row.model_validate({"verdict": given}).verdict == read_as


@pytest.mark.parametrize("given", [2, -1, 0.5, "yes", None])
def test_any_other_number_is_no_verdict(given: object) -> None:
    class Row(BaseModel):
        verdict: Verdict

    with pytest.raises(ValueError, match="verdict"):
        Row.model_validate({"verdict": given})


async def test_an_unreadable_answer_is_repaired_once() -> None:
    judge = Answers("hm", '{"text": "{\\"verdict\\": 0}"}')

    answer = await ask(judge, QUESTION)

    assert answer == Answer(verdict=0)
    assert [prompt.step for prompt in judge.asked] == ["critique", "fix_output_format"]


@pytest.mark.parametrize("repair", ["still no", '{"text": "still no"}'])
async def test_a_second_repair_is_never_asked_for(repair: str) -> None:
    judge = Answers("hm", repair)

    with pytest.raises(JudgeUnparseable) as raised:
        await ask(judge, QUESTION)

    assert len(judge.asked) == 2
    assert "hm" not in str(raised.value).split()


async def test_a_question_that_is_cheaper_asked_again_is_not_repaired() -> None:
    judge = Answers("hm")

    with pytest.raises(JudgeUnparseable, match=r"^critique: the answer had not the asked form$"):
        await ask(judge, QUESTION, repair=False)

    assert len(judge.asked) == 1


async def test_a_shape_may_read_a_text_without_json_and_sees_the_evidence() -> None:
    class Word(BaseModel):
        word: str

        @classmethod
        def from_plain_text(cls, text: str, evidence: Mapping[str, Any]) -> Word | None:
            return cls(word=text) if text in evidence["words"] else None

    async def read_as(raw: str) -> Any:
        prompt = Prompt(step="pick", instruction="", evidence={"words": ["yes", "no"]}, output=Word)
        return await ask(Answers(raw), prompt, repair=False)

    assert await read_as("no") == Word(word="no")
    assert await read_as('{"word": "other"}') == Word(word="other")
    with pytest.raises(JudgeUnparseable):
        await read_as("maybe")


async def test_the_repair_of_a_ballot_keeps_its_number() -> None:
    judge = Answers("hm", '{"text": "{\\"verdict\\": 0}"}')

    await ask(judge, Prompt(step="critique", instruction="", evidence={}, output=Answer, ballot=4))

    assert [prompt.ballot for prompt in judge.asked] == [4, 4]


async def test_every_call_is_recorded_with_what_it_cost() -> None:
    judge = Answers("hm", '{"text": "{\\"verdict\\": 0}"}')

    with recorded_calls() as calls:
        await ask(judge, QUESTION)

    assert [(c.step, c.model, c.input_tokens, c.output_tokens, c.error_type) for c in calls] == [
        ("critique", "answers-1", 10, 2, "unparseable"),
        ("fix_output_format", "answers-1", 10, 2, None),
    ]
    assert all(call.duration_s >= 0 for call in calls)


async def test_a_failed_call_is_recorded_with_its_error() -> None:
    with recorded_calls() as calls, pytest.raises(JudgeUnavailable):
        await ask(Answers(JudgeUnavailable("gone", error_type="http_503")), QUESTION)

    assert [(call.step, call.error_type) for call in calls] == [("critique", "http_503")]


async def test_an_outer_block_sees_the_calls_of_inner_ones_and_they_see_their_own_alone() -> None:
    async def metric() -> int:
        with recorded_calls() as own:
            await ask(Answers(GOOD), QUESTION)
            await asyncio.sleep(0)
            await ask(Answers(GOOD), QUESTION)
        return len(own)

    with recorded_calls() as outer:
        own = await asyncio.gather(metric(), metric())

    assert own == [2, 2]
    assert len(outer) == 4


async def test_calls_made_before_a_cancellation_stay_on_record() -> None:
    async def metric() -> None:
        await ask(Answers(GOOD), QUESTION)
        await asyncio.Event().wait()

    with recorded_calls() as calls:
        task = asyncio.ensure_future(metric())
        await asyncio.wait({task}, timeout=0.01)
        task.cancel()

    assert len(calls) == 1


@pytest.mark.parametrize(
    ("raised", "kind", "error_type"),
    [
        (ValueError("SECRET"), JudgeError, "judge_error"),
        (SystemExit("SECRET"), JudgeError, "judge_error"),
        (TimeoutError("SECRET"), JudgeTimeout, "timeout"),
        (ConnectionResetError("SECRET"), JudgeUnavailable, "connection"),
        (ProviderError(429), JudgeOverloaded, "http_429"),
        (ProviderError(401), JudgeError, "not_allowed"),
    ],
)
async def test_whatever_a_judge_raises_is_the_judges_error_of_a_known_type_and_quotes_nothing(
    raised: BaseException, kind: type[JudgeError], error_type: str
) -> None:
    with pytest.raises(kind) as caught:
        await ask(Answers(raised), QUESTION)

    assert (caught.value.error_type, type(caught.value)) == (error_type, kind)
    assert type(raised).__name__ in str(caught.value)
    assert "SECRET" not in str(caught.value)


async def test_any_judge_is_asked_inside_the_suppression() -> None:
    class Looking(Answers):
        async def ask(self, prompt: Prompt) -> Reply:
            assert is_judging()
            return await super().ask(prompt)

    await ask(Looking(GOOD), QUESTION)

    assert not is_judging()


async def test_a_question_that_was_never_sent_is_no_call() -> None:
    with recorded_calls() as calls, pytest.raises(JudgeRateLimited):
        await ask(Answers(JudgeRateLimited("waited")), QUESTION)

    assert calls == []


async def test_a_question_that_was_given_up_is_a_call_of_what_it_may_have_come_to() -> None:
    late = JudgeTimeout("late", input_tokens=40)

    with recorded_calls() as calls, pytest.raises(JudgeTimeout):
        await ask(Answers(late), QUESTION)

    assert [(call.input_tokens, call.estimated, call.error_type) for call in calls] == [(40, True, "timeout")]
