"""A question that is too long for its judge loses contexts and middle turns, by a rule; the score reports how much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.judges.models import Answer, Answers

from spanscore.core.prompt import Passages, Prompt
from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample, ToolCall, ToolMessage
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges import ask, judge, recorded_calls, render
from spanscore.judges.rendering import LEFT_OUT, bound_of, estimate, fenced, fit
from spanscore.metrics import AspectCritic, Faithfulness
from spanscore.testing import ScriptedJudge

GOOD = '{"reason": "r", "verdict": 1}'
LONG = "The first is here. The second is there! Is the third? " * 200


def question(**evidence: Any) -> Prompt:
    return Prompt(step="critique", instruction="Is it true?", evidence=evidence, output=Answer)


def tokens(prompt: Prompt) -> int:
    return estimate("".join(render(prompt)))


def test_a_question_that_fits_is_left_alone() -> None:
    prompt = question(question="q", context=LONG)

    assert fit(prompt, tokens(prompt)) == (prompt, 0.0)
    assert fit(prompt, 100_000)[0] is prompt


def test_contexts_lose_from_the_end_of_the_longest_first() -> None:
    contexts = ["A short one.", LONG, "Another short one."]

    prompt, left_out = fit(question(question="q", response="a", retrieved_contexts=contexts), 1_000)

    first, long, last = prompt.evidence["retrieved_contexts"]
    assert (first, last) == (contexts[0], contexts[2])
    assert long.endswith(f" {LEFT_OUT}")
    assert LONG.startswith(long.removesuffix(f" {LEFT_OUT}"))
    assert long.removesuffix(f" {LEFT_OUT}")[-1] in ".!?"
    assert left_out == pytest.approx(1 - tokens(prompt) / 3_160, abs=0.03)
    assert 950 < tokens(prompt) <= 1_000


def test_texts_joined_to_one_context_lose_as_they_would_apart() -> None:
    joined = Passages.of(["A short one.", LONG, "Another short one."])

    prompt, _ = fit(question(text=joined), 500)

    assert prompt.evidence["text"].startswith("A short one.\nThe first is here.")
    assert prompt.evidence["text"].endswith(f"{LEFT_OUT}\nAnother short one.")


@pytest.mark.parametrize(
    ("name", "value"), [("seen", Passages.of([LONG])), ("my_contexts", [LONG]), ("retrieved_contexts", (LONG, LONG))]
)
def test_a_users_own_metric_says_so_what_its_contexts_are(name: str, value: Any) -> None:
    prompt, left_out = fit(question(question="q", **{name: value}), 400)

    assert tokens(prompt) <= 400
    assert left_out > 0
    assert prompt.evidence["question"] == "q"


@pytest.mark.parametrize("name", ["question", "response", "reference", "context"])
def test_all_else_stays_whole_and_is_too_long_alone(name: str) -> None:
    with pytest.raises(JudgeError, match="critique: the question is too long: about 3") as raised:
        fit(question(contexts=["c"], **{name: LONG}), 1_000)

    assert raised.value.error_type == "too_long"


TALK: list[Any] = [
    HumanMessage(content="Which ferry goes first?"),
    AIMessage(tool_calls=[ToolCall(name="search", args={"q": "ferry"})]),
    ToolMessage(content=LONG),
    *(HumanMessage(content=f"And number {number}? Please say.") for number in range(200)),
    AIMessage(content="The one at 4:50."),
]


def test_a_conversation_loses_its_middle_turns() -> None:
    messages = MultiTurnSample(user_input=TALK).messages()

    prompt, left_out = fit(question(user_input=messages), 1_500)

    kept = prompt.evidence["user_input"]
    gap = kept.index({"role": "note", "content": LEFT_OUT})
    assert (kept[:2], kept[gap + 1 :]) == (messages[:2], messages[len(messages) - len(kept) + gap + 1 :])
    assert kept[2]["content"].endswith(f" {LEFT_OUT}")
    assert 2 < gap < len(kept) - 2
    assert left_out > 0.5
    assert 1_400 < tokens(prompt) <= 1_500


def test_the_arguments_of_a_tool_are_left_out_where_they_are_long() -> None:
    call = AIMessage(content="I write.", tool_calls=[ToolCall(name="write", args={"text": "x" * 10_000})])
    messages = MultiTurnSample(user_input=[TALK[0], call, HumanMessage(content="And?"), TALK[-1]]).messages()

    kept = fit(question(user_input=messages), 1_000)[0].evidence["user_input"]

    written = {"role": "assistant", "content": "I write.", "tool_calls": [{"name": "write", "args": LEFT_OUT}]}
    assert kept == [messages[0], written, *messages[2:]]


def test_first_and_last_message_stay_whole() -> None:
    messages = [{"role": "user", "content": LONG}, {"role": "tool", "content": LONG}, {"role": "user", "content": "?"}]

    kept = fit(question(user_input=messages), 3_300)[0].evidence["user_input"]

    assert (kept[0], kept[-1]) == (messages[0], messages[-1])
    assert kept[1]["content"].endswith(LEFT_OUT)
    with pytest.raises(JudgeError, match="is too long"):
        fit(question(user_input=messages), 3_000)


@given(st.lists(st.text(max_size=300), max_size=6), st.integers(60, 400))
def test_what_is_fitted_fits_or_is_refused(contexts: list[str], most: int) -> None:
    prompt = question(question="q", contexts=contexts)
    least = question(question="q", contexts=[min(text, LEFT_OUT, key=_size) for text in contexts])

    if tokens(least) > most:
        with pytest.raises(JudgeError, match="is too long"):
            fit(prompt, most)
        return
    fitted, left_out = fit(prompt, most)

    assert tokens(fitted) <= most
    assert 0 <= left_out < 1
    assert len(fitted.evidence["contexts"]) == len(contexts)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_of_a_conversation_without_a_middle_nothing_is_left_out(number: int) -> None:
    messages = [{"role": "user", "content": LONG}] * number

    with pytest.raises(JudgeError, match="is too long"):
        fit(question(user_input=messages, response=LONG), 2_000)


def test_a_text_in_any_script_is_counted() -> None:
    assert estimate("word " * 7) == 10
    assert estimate("漢" * 7) == 6


async def test_nothing_is_sent_where_the_answer_alone_is_too_long() -> None:
    asked = Answers(GOOD)

    with recorded_calls() as calls, pytest.raises(JudgeError) as raised:
        await ask(judge(asked, max_input_tokens=1_000), question(response=LONG))

    assert (raised.value.error_type, asked.asked, calls) == ("too_long", [], [])


async def test_what_was_left_out_is_on_the_call_that_it_was_left_out_of() -> None:
    small = judge(Answers(GOOD), max_input_tokens=1_000)

    with recorded_calls() as calls:
        await ask(small, question(contexts=[LONG]))
        await ask(small, question(contexts=["c"]))

    assert [round(call.input_truncated_ratio, 1) for call in calls] == [0.7, 0.0]


def test_the_score_says_the_most_that_any_question_lost() -> None:
    script = [
        {"step": "extract_statements", "output": {"statements": ["It is."]}},
        {"step": "verify_statements", "output": {"statements": [{"statement": "It is.", "verdict": 1}]}},
    ]
    sample = SingleTurnSample(user_input="q", response="It is.", retrieved_contexts=["a", LONG])

    score = Faithfulness(judge(ScriptedJudge(script), max_input_tokens=1_000)).score_sync(sample)

    assert score.value == 1.0
    assert score.usage.input_truncated_ratio == pytest.approx(0.7, abs=0.05)


def test_an_answer_that_is_too_long_is_a_judge_error_of_its_own_type() -> None:
    critic = AspectCritic(judge(Answers(GOOD), max_input_tokens=1_000), definition="Is it true?")

    score = critic.score_sync(SingleTurnSample(response=LONG))

    assert (score.outcome, score.error_type, score.usage.calls) == ("judge_error", "too_long", ())


class Window(Answers):
    """A judge with a known window."""

    max_input_tokens = 2_000


def test_a_judge_tells_how_much_it_reads_through_all_that_stands_around_it() -> None:
    around = {"max_attempts": 2, "max_concurrency": 1, "timeout": 1.0}

    assert bound_of(judge(Window(GOOD), **around)) == 2_000
    assert bound_of(judge(Window(GOOD), max_input_tokens=700, **around)) == 700
    assert bound_of(Answers(GOOD)) == 96_000


@pytest.mark.parametrize(
    ("model", "bound"), [("gpt-4o-mini", 124_000), ("gpt-4", 6_144), ("a-gateways-own-model", 96_000)]
)
def test_of_a_chat_model_the_window_counts_less_room_for_the_answer(model: str, bound: int) -> None:
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=model, api_key="x")

    assert bound_of(judge(chat)) == bound_of(judge(chat.bind(seed=1))) == bound


@pytest.mark.parametrize("most", [0, -1])
def test_a_bound_that_lets_nothing_through_is_refused(most: int) -> None:
    with pytest.raises(ConfigurationError, match="max_input_tokens is"):
        judge(Answers(GOOD), max_input_tokens=most)


def _size(text: str) -> int:
    return len(fenced(text).encode())


WITHOUT_SENTENCES = {
    "words": "ferries sail at nine from the quay " * 900,
    "a row": "ferry,nine|" * 2_800,
    "one word": "x" * 30_000,
    "Chinese commas": "渡轮九点开航，" * 1_500,
    "Chinese": "渡轮九点开航" * 1_500,
    "Thai": "เรือออกตอนเก้าโมงจากท่าเหนือ" * 350,
    "Hindi": "नाव नौ बजे चलती है। " * 500,
    "Arabic": "تبحر العبارة الساعة التاسعة؟ " * 500,
    "a sentence, then none": "It is. " + "ferries sail " * 2_500,
    "accents apart": "e\u0301" * 8_000,
}


@pytest.mark.parametrize("text", WITHOUT_SENTENCES.values(), ids=WITHOUT_SENTENCES)
@pytest.mark.parametrize("most", [400, 2_000, 6_000])
def test_a_text_is_never_dropped_whole(text: str, most: int) -> None:
    prompt, left_out = fit(question(contexts=["A short one.", text]), most)

    short, cut = prompt.evidence["contexts"]
    kept = cut.removesuffix(f" {LEFT_OUT}")
    assert (short, cut) == ("A short one.", f"{kept} {LEFT_OUT}")
    assert text.startswith(kept)
    assert text[len(kept)] != "\u0301"
    assert most / 2 < tokens(prompt) <= most
    assert 0 < left_out < 1


def test_a_word_is_not_cut_where_there_are_words() -> None:
    cut = fit(question(contexts=[WITHOUT_SENTENCES["words"]]), 2_000)[0].evidence["contexts"][0]

    assert cut.removesuffix(f" {LEFT_OUT}").rpartition(" ")[2] in WITHOUT_SENTENCES["words"].split()
