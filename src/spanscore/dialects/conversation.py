"""The conversation between user and application: who said what, with every tool call of the unit, in order.

The root's own messages are the conversation where it has any; calls that they do not show (a sub-agent's) are put where they
were made. Else it is made of the earlier turns, as the root's input or a store holds them, the question, the calls and the
answer. What only a prompt template brought, such as examples, or a node wrote as a human's, is no turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from spanscore.codec.messages import ASSISTANT, message_text, sample_messages
from spanscore.dialects.calls import call_of, calls_of, hidden_calls, in_order, result_of, with_hidden
from spanscore.dialects.history import history_of
from spanscore.dialects.view import (
    GenAIMessage,
    ModelRun,
    View,
    calls_tools,
    human_turns,
    is_human,
    is_resume,
    last_human_text,
    turn_of,
)
from spanscore.model.sample import AIMessage, HumanMessage, Message, MultiTurnSample

__all__ = ["conversation_of"]


def conversation_of(
    view: View, question: str | None, answer: str | None, answering: ModelRun | None
) -> tuple[MultiTurnSample | None, list[str]]:
    """Return the conversation when the unit has tool calls or several human turns; one that cannot be is noted."""
    refused: list[str] = []
    for messages in _conversations(view, question, answer, answering):
        try:
            return MultiTurnSample(user_input=messages), []
        except ValidationError as error:
            refused.append(f"conversation left out: {error.errors()[0]['msg']}")  # not str(error): it quotes
    return None, refused[:1]


def _conversations(
    view: View, question: str | None, answer: str | None, answering: ModelRun | None
) -> Iterator[list[Message]]:
    """Give the conversations that could be, the best first."""
    told = view.turn()
    opened, turn = _opened(view, question, told), _without_humans(told, answer)
    history = history_of(view, question, answering)
    calls = calls_of(view)
    if not any((opened, turn, history, calls, view.tools)):
        return  # a question and an answer
    before = [*history, *_asked(opened, question)]
    shown = [*turn_of(opened), *turn]  # a model alone is asked with the calls of its turn so far
    hidden = hidden_calls(calls, shown)
    if not opened and (calls or history):
        yield [*before, *in_order(calls), *_said(AIMessage, answer)]
    elif hidden:
        yield [*before, *with_hidden(turn, hidden, view.callers)]
    if calls_tools(shown) or (opened and (history or human_turns(opened) > 1)):
        yield [*before, *sample_messages(turn)]
    elif view.tools and not calls:
        called = AIMessage(tool_calls=list(map(call_of, view.tools)))
        yield [*before, called, *map(result_of, view.tools), *_said(AIMessage, answer)]


def _asked(opened: Sequence[GenAIMessage], question: str | None) -> list[Message]:
    return sample_messages(opened) if opened else _said(HumanMessage, question)


def _opened(view: View, question: str | None, told: Sequence[GenAIMessage]) -> Sequence[GenAIMessage]:
    """Return the root's messages before those of this turn; ``[]`` where they do not hold the user's question."""
    thread = view.thread()
    opened = thread[: len(thread) - len(told)]
    asked = last_human_text(opened)
    # A question beside messages: a human one among them is a prompt of the application.
    is_elsewhere = last_human_text(view.input.messages) is None and not is_resume(view.input.value)
    return [] if asked is None or (asked != question and is_elsewhere) else opened


def _without_humans(turn: Sequence[GenAIMessage], answer: str | None) -> list[GenAIMessage]:
    """Return a turn without what the unit itself wrote as a human's; the answer is the assistant's, whatever its role."""
    if turn and is_human(turn[-1]) and message_text(turn[-1]) == answer:
        turn = [*turn[:-1], {**turn[-1], "role": ASSISTANT}]
    return [message for message in turn if not is_human(message)]


def _said(by: type[HumanMessage | AIMessage], text: str | None) -> list[Message]:
    return [] if text is None else [by(content=text)]
