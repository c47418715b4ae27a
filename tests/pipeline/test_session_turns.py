"""Turns with the history, with a part of it and without: each message is in the conversation once."""

from random import Random

import pytest
from tests.pipeline.conversations import alone, talk, thread

from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    ToolCall,
    ToolMessage,
)
from spanscore.pipeline.session_turns import join_turn, messages_in, segment_of

WEATHER = ToolCall(name="weather", args={"city": "Oslo"}, id="call-1")
ASKED = HumanMessage(content="rain?")
CALLS = AIMessage(tool_calls=[WEATHER])
FOUND = ToolMessage(content="sun", tool_call_id="call-1")
ANSWERED = AIMessage(content="no rain")


def gathered(*turns):
    segments = []
    for end_ns, samples in enumerate(turns):
        segments = join_turn(segments, segment_of(samples.multi_turn or samples.single_turn, end_ns))
    return segments


def conversation(*turns):
    messages = messages_in(gathered(*turns))
    return MultiTurnSample(user_input=messages).user_input


def texts(*turns):
    return " ".join(message.content for message in conversation(*turns))


@pytest.mark.parametrize(
    ("turns", "whole"),
    [
        ([alone("q1", "a1"), alone("q2", "a2")], "q1 a1 q2 a2"),
        ([alone("q1", "a1"), thread(*talk("q1", "a1", "q2", "a2"))], "q1 a1 q2 a2"),
        ([thread(*talk("q1", "a1", "q2", "a2"))], "q1 a1 q2 a2"),
        ([alone("q1", "a1"), thread(*talk("q1", "a1", "q2", "a2", "q3", "a3"))], "q1 a1 q2 a2 q3 a3"),
        ([alone("q1", "a1"), alone("q2", "a2"), thread(*talk("q2", "a2", "q3", "a3"))], "q1 a1 q2 a2 q3 a3"),
        ([alone("q1", "a1"), alone("q2", "a2"), thread(*talk("in short", "yes", "q3", "a3"))], "q1 a1 q2 a2 q3 a3"),
        ([alone("q1", "a1"), thread(*talk(" q1\n", "a1", "q2", "a2"))], "q1 a1 q2 a2"),
        ([alone("q1", "a1"), thread(*talk("q1", "other", "q2", "a2"))], "q1 a1 q2 a2"),
        ([alone("q1", None), alone(None, "a1")], "q1 a1"),
    ],
)
def test_turns_make_one_conversation(turns, whole):
    assert texts(*turns).split() == whole.split()


def test_what_is_said_again_is_no_history():
    ok = alone("ok", "fine")

    assert texts(ok, ok, ok) == "ok fine ok fine ok fine"
    assert texts(ok, thread(*talk("ok", "fine", "ok", "fine"))) == "ok fine ok fine"
    assert texts(ok, thread(*talk("ok", "fine", "ok", "fine")), ok) == "ok fine ok fine ok fine"


def test_a_shortened_history_that_begins_with_what_was_said_before_is_not_taken_for_all():
    turns = [alone(*["ok", "fine"]), alone("q2", "a2"), alone("ok", "fine"), thread(*talk("ok", "fine", "q4", "a4"))]

    assert texts(*turns) == "ok fine q2 a2 ok fine q4 a4"
    assert not gathered(*turns)[-1].has_history


def test_a_turn_brings_its_calls_of_tools():
    turns = [alone("q1", "a1"), thread(*talk("q1", "a1"), ASKED, CALLS, FOUND, ANSWERED)]

    assert conversation(*turns) == [*talk("q1", "a1"), ASKED, CALLS, FOUND, ANSWERED]


def test_calls_that_the_history_is_without_are_kept():
    turns = [thread(ASKED, CALLS, FOUND, ANSWERED), thread(ASKED, ANSWERED, *talk("q2", "a2"))]

    assert conversation(*turns) == [ASKED, CALLS, FOUND, ANSWERED, *talk("q2", "a2")]
    assert gathered(*turns)[-1].has_history


def test_texts_that_only_the_history_shows_are_taken_from_it():
    between = AIMessage(content="let me think")
    turns = [alone("q1", "a1"), thread(HumanMessage(content="q1"), between, *talk("q1", "a1", "q2", "a2")[1:])]

    assert texts(*turns) == "q1 let me think a1 q2 a2"


@pytest.mark.parametrize("before", [[], [alone("q0", "a0")]])
def test_a_run_that_was_interrupted_goes_on_with_its_exchange(before):
    resumed = thread(ASKED, CALLS, FOUND, ANSWERED)

    assert conversation(*before, thread(ASKED, CALLS), resumed)[-4:] == [ASKED, CALLS, FOUND, ANSWERED]
    assert len(gathered(*before, thread(ASKED, CALLS), resumed)) == len(before) + 1


def test_a_thread_that_was_interrupted_goes_on_with_its_history():
    said = talk("q1", "a1")

    turns = [alone("q1", "a1"), thread(*said, ASKED, CALLS), thread(*said, ASKED, CALLS, FOUND, ANSWERED)]

    assert conversation(*turns) == [*said, ASKED, CALLS, FOUND, ANSWERED]


def test_a_thread_that_was_interrupted_more_than_once_goes_on():
    again = AIMessage(tool_calls=[ToolCall(name="weather", args={"city": "Rome"}, id="call-2")])
    waiting = [ASKED, CALLS, HumanMessage(content="and Rome?"), again]
    resumed = [*waiting, ToolMessage(content="sun", tool_call_id="call-2"), ANSWERED]

    assert conversation(thread(ASKED, CALLS), thread(*waiting), thread(*resumed)) == resumed


def test_a_tool_that_answers_twice_alike_was_called_twice():
    again = ToolCall(name="weather", args={"city": "Oslo"}, id="call-2")
    once = [ASKED, CALLS, FOUND]
    twice = [ASKED, AIMessage(tool_calls=[again]), ToolMessage(content="sun", tool_call_id="call-2")]

    assert conversation(thread(*once), thread(*twice)) == [*once, *twice]


def test_arguments_that_no_json_can_carry_do_no_harm():
    strange = AIMessage(content="\ud800", tool_calls=[ToolCall(name="send", args={"to": object(), "n": float("nan")})])

    kept = conversation(thread(HumanMessage(content="q"), strange))

    assert kept[1].tool_calls[0].args == {"to": {"type": "object"}, "n": "NaN"}


def test_a_turn_in_which_nothing_was_said_is_no_part():
    assert segment_of(SingleTurnSample(), 0) is None


@pytest.mark.parametrize("seed", range(300))
def test_whatever_turns_bring_the_conversation_is_one_that_can_be(seed):
    rng = Random(seed)
    turns = [MultiTurnSample(user_input=random_messages(rng)) for _ in range(6)]

    assert conversation(*(Samples(multi_turn=turn) for turn in turns))


def random_messages(rng):
    """Return messages of few different texts and calls: much is alike by chance; each tool message has its call."""
    messages, calls = [], None
    for _ in range(rng.randint(1, 6)):
        kind = rng.choice(["human", "ai", "call", "tool" if calls else "ai"])
        if kind == "call":
            calls = [ToolCall(name="find", id=rng.choice(["1", "2", None])) for _ in range(rng.randint(1, 2))]
            messages.append(AIMessage(content=rng.choice(["", "a"]), tool_calls=calls))
        elif kind == "tool":
            messages.append(ToolMessage(content="t", tool_call_id=rng.choice(calls).id))
        else:
            calls = None
            messages.append((HumanMessage if kind == "human" else AIMessage)(content=rng.choice(["a", "b", " "])))
    return messages
