"""One question → one validated answer, one repair at most, every call on record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from tests.judges.models import QUESTION, Answer, Answers, ProviderError

from spanscore.core.context import is_judging
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import (
    JudgeError,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeTimeout,
    JudgeUnavailable,
    JudgeUnparseable,
)
from spanscore.judges import ask, recorded_calls
from spanscore.judges.ask import read
from spanscore.metrics.kit.condition import BinaryAnswer

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
        verdict: BinaryAnswer

    assert Row.model_validate({"verdict": given}).verdict == read_as


@pytest.mark.parametrize("given", [2, -1, 0.5, "yes", None])
def test_any_other_number_is_no_verdict(given: object) -> None:
    class Row(BaseModel):
        verdict: BinaryAnswer

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


async def test_the_repair_of_a_vote_keeps_its_number() -> None:
    judge = Answers("hm", '{"text": "{\\"verdict\\": 0}"}')

    await ask(judge, Prompt(step="critique", instruction="", evidence={}, output=Answer, vote_index=4))

    assert [prompt.vote_index for prompt in judge.asked] == [4, 4]


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


LOOSE = {
    "LaTeX": r'{"reason": "\(x^2 \le 4\), so \frac is \"right\"", "verdict": 1}',
    "a comma too many": '{"reason": "r", "verdict": 1,}',
    "a comma too many in a list": '{"reason": "r", "x": [1, 2,], "verdict": 1}',
    "Python": "{'reason': 'It isn\\'t \"wrong\", it\\'s right', 'x': [True, None], 'verdict': True}",
    "an apostrophe": "{'reason': 'It's the users' own', 'verdict': 1}",
    "curly quotes": '{\u201creason\u201d: \u201cIt\u2019s "right"\u201d, \u201cverdict\u201d: 1}',
    "single curly quotes": "{\u2018reason\u2019: \u2018It\u2019s right\u2019, \u2018verdict\u2019: 1}",
    "one curly key": '{\u201creason\u201d: "r", "verdict": 1}',
    "a comment": '{ // mine\n "reason": "http://x # y", # it is\n "verdict": /* one */ 1\n}',
    "blanks that do not break": '{\u00a0"verdict":\u00a01}',
    "a wrapper": '{"answer": {"reason": "r", "verdict": 1}}',
    "a wrapper with a fault": "{'answer': {'verdict': 1,},}",
    "other case": '{"Reason": "r", "VERDICT": 1}',
    "other case in a wrapper": '{"Critique": {"Verdict": 1}}',
    "a line": "Verdict: 1",
    "a bold line": "**Verdict:** 1.",
}


@pytest.mark.parametrize("text", LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize("around", ["{0}", "<think>0?</think>\n{0}"])
def test_an_answer_that_can_be_read_in_one_way_only_is_read(text: str, around: str) -> None:
    answer = read(around.replace("{0}", text), Answer, {"response": "r"})

    assert isinstance(answer, Answer)
    assert answer.verdict == 1


def test_what_was_not_quite_json_keeps_its_words() -> None:
    text = "{'reason': 'It\\'s \"\\(x\\)\"\\n\\u00e9 \\beta \\U0001', 'verdict': 1}"

    assert read(text, Answer) == Answer(reason='It\'s "\\(x\\)"\n\u00e9 \\beta \\U0001', verdict=1)


@pytest.mark.parametrize(
    "text",
    [
        '{"reason": "it says "no" there", "verdict": 1}',
        '{"Verdict": 1, "verdict": 0}',
        "{'verdict': 1, 'verdict': 0}",
        '{"verdict": 1 // was 0}',
        '{"verdict": 0 1}',
        '{"verdict": 1; }',
        "{'verdict': one}",
        "{verdict: 1}",
        '{"a": {"b": {"verdict": 1}}}',
        '{"first": {"verdict": 1}, "second": {"verdict": 1}}',
        "Verdict: 1 or 0",
        "Verdict: 1\nVerdict: 0",
        "The verdict: 1",
        "Page: 1",
    ],
)
def test_what_could_be_read_in_two_ways_is_not_read(text: str) -> None:
    assert read(text, Answer) is None


def test_keys_are_known_in_any_case_at_any_depth() -> None:
    class Row(BaseModel):
        end_state: str

    class Rows(BaseModel):
        rows: list[Row]

    assert read('{"Rows": [{"End State": "A"}, {"endState": "B"}]}', Rows) == Rows(
        rows=[Row(end_state="A"), Row(end_state="B")]
    )


def test_an_object_without_any_asked_key_is_no_answer_of_defaults() -> None:
    class Lists(BaseModel):
        found: list[str] = []

    assert read('{"other": 1, "more": 2}', Lists) is None
    assert read('{"result": {"found": ["a"]}}', Lists) == Lists(found=["a"])


async def test_a_repair_is_asked_for_the_bare_object() -> None:
    judge = Answers("hm", '{"verdict": 0}')

    assert await ask(judge, QUESTION) == Answer(verdict=0)
    assert judge.asked[1].output is Answer
    assert "text" not in judge.asked[1].instruction
