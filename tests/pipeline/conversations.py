"""Turns of conversations, as an application would have them."""

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, Samples, SingleTurnSample
from spanscore.core.span import UnitKey
from spanscore.pipeline.session_turns import Turn
from spanscore.pipeline.sessions import SessionBounds, SessionTable
from spanscore.testing import make_span

S = 1_000_000_000


def table(**bounds):
    return SessionTable(SessionBounds(**bounds))


def talk(*texts):
    """Return messages, a human's and the assistant's by turns."""
    return [(AIMessage if n % 2 else HumanMessage)(content=text) for n, text in enumerate(texts)]


def alone(asked, said):
    return Samples(single_turn=SingleTurnSample(user_input=asked, response=said))


def thread(*messages):
    return Samples(multi_turn=MultiTurnSample(user_input=list(messages)))


def history(n):
    """Return the history in the turn of that number if the whole conversation comes with it."""
    return thread(*talk(*(f"{who}{at}" for at in range(1, n + 1) for who in "qa")))


def turn(n, samples, *, id="talk", name="chat"):
    """Return the turn of that number, which ended so many seconds after the epoch."""
    unit = UnitKey(n, n)
    root = make_span(trace_id=n, span_id=n, name=name, start_ns=n * S - 1, end_ns=n * S)
    return Turn(id, unit, root, n * S, samples)


def taken(subject, *turns, now_ns=0):
    return [ended for one in turns for ended in subject.take(one, now_ns)]


def said_in(ended):
    return [message.content for message in ended.samples.multi_turn.user_input]
