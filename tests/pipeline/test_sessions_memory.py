"""For any content of conversations, open ones use no more memory than allowed."""

import gc
import tracemalloc
from itertools import count

import pytest
from tests.pipeline.conversations import S, alone, history, table, thread

from spanscore.core.sample import AIMessage, HumanMessage, Samples, SingleTurnSample, ToolCall, ToolMessage
from spanscore.core.span import UnitKey
from spanscore.pipeline.session_turns import PastSession, PastSessions, Turn
from spanscore.testing import make_span

MOST = 400_000  # bytes


def short_talks():
    for n in count(1):
        yield f"talk-{n}", alone(f"question {n}?", f"answer {n}")


def talks_that_go_on_and_bring_nothing():
    for n in count(1):
        yield f"talk-{n % 50}", alone(f"question {n}?", f"answer {n}")


def talks_that_bring_their_history():
    for n in count(1):
        yield f"talk-{n // 8}", history(n % 8 + 1)


def talks_in_another_alphabet():
    for n in count(1):
        yield f"беседа-{n % 80}", alone(f"вопрос {n}? " * 30, f"ответ {n} " * 30)


def talks_with_tools():
    for n in count(1):
        call = ToolCall(name="find", args={"where": [{"city": f"{n}"}] * 20, "days": n}, id=f"call-{n}")
        called = [AIMessage(tool_calls=[call]), ToolMessage(content=f"found {n}", tool_call_id=call.id)]
        yield f"talk-{n % 70}", thread(HumanMessage(content=f"{n}"), *called, AIMessage(content=f"there {n}"))


def talks_with_references():
    for n in count(1):
        rubrics = {f"{grade}": f"as {n} has it, in grade {grade}" for grade in range(5)}
        sample = SingleTurnSample(user_input=f"{n}", response="yes", reference=f"should {n}", rubrics=rubrics)
        yield f"talk-{n}", Samples(single_turn=sample)


def turn_of(n, id, samples):
    """Return a turn with a span that has attributes of its own, and further values that must not be kept."""
    attributes = {f"gen_ai.of.{at}": f"value {at} of {n}" for at in range(12)} | {
        "gen_ai.usage.input_tokens": 10_000 + n
    }
    metadata, events = {"state": f"{n} " * 1_000}, [("said", {"body": f"{n} " * 1_000})]
    root = make_span(
        trace_id=(n << 64) + 7,
        span_id=(n << 32) + 7,
        name="chat",
        start_ns=n * S,
        end_ns=n * S + 7,
        attributes=attributes,
        metadata=metadata,
        events=events,
        conversation_id=id,
    )
    return Turn(id, UnitKey(root.trace_id, root.span_id), root, root.end_ns, samples)


@pytest.mark.parametrize(
    "talks",
    [
        short_talks,
        talks_that_go_on_and_bring_nothing,
        talks_that_bring_their_history,
        talks_in_another_alphabet,
        talks_with_tools,
        talks_with_references,
    ],
)
def test_open_conversations_take_at_most_half_as_much_again_as_they_may(talks):
    subject = table(max_bytes=MOST, max_turns=10_000, score_every=0)
    turns = (turn_of(n, id, samples) for n, (id, samples) in enumerate(talks()))
    tracemalloc.start()

    while not subject.take(next(turns), 0):
        pass
    counted, full = subject.bytes, traced()
    subject.close_all()
    taken = full - traced()
    tracemalloc.stop()

    assert 0.7 * MOST < counted <= MOST
    assert 0.5 * counted < taken <= 1.5 * MOST


def test_what_is_remembered_of_conversations_that_ended_is_bounded():
    tracemalloc.start()
    subject = PastSessions(10_000)

    for n in range(30_000):
        subject.add(UnitKey(n, n), PastSession(n % 3, S * S + n, n % 50, n))
    taken = traced()
    tracemalloc.stop()

    assert 10_000 <= len(subject) <= 11_250
    assert taken < 170 * 11_250
    assert (subject.get(UnitKey(29_999, 29_999)), subject.get(UnitKey(1, 1))) == (
        PastSession(2, S * S + 29_999, 49, 29_999),
        None,
    )


def traced():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
