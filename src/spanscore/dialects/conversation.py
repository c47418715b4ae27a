"""The conversation between user and application: who said what, with every tool call of the unit, in order.

The root's own messages are the conversation where it has any; calls that they do not show (a sub-agent's) are put where they
were made. Else it is made of the earlier turns, as the root's input or a store holds them, the question, the calls and the
answer. What only a prompt template brought, such as examples, or a node wrote as a human's, is no turn. Either is completed:
each call has the answer that a tool's span or a later prompt holds, and the conversation ends with the answer of the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from spanscore.core.codecs.messages import ASSISTANT, TOOL, calls_by_id, message_text, role_of, sample_messages
from spanscore.core.sample import AIMessage, HumanMessage, Message, MultiTurnSample
from spanscore.dialects.calls import TurnCalls, messages_of
from spanscore.dialects.history import history_of
from spanscore.dialects.said import final_text
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

__all__ = ["conversation_of"]


def conversation_of(
    view: View, question: str | None, answer: str | None, answering: ModelRun | None
) -> tuple[MultiTurnSample | None, list[str]]:
    """Return the conversation if the unit has tool calls or several human turns, and notes on what was left out of it."""
    told = view.turn()
    opened, turn = _opened(view, question, told), _apart(_without_humans(told, answer), view.callers)
    history = history_of(view, question, answering)
    calls = TurnCalls(view, [*turn_of(opened), *turn])  # a model alone is asked with the calls of its turn so far
    if not any((opened, turn, history, calls.made, view.tools)):
        return None, []  # a question and an answer
    after = _after_question(view, opened, turn, calls, has_history=bool(history))
    if after is None:
        return None, []
    messages, left_out = calls.answered([*history, *_asked(opened, question), *after])
    notes = [f"left out of the conversation: {left_out} tool results that no message before them asked for"]
    return MultiTurnSample(user_input=_ended(messages, turn, answer)), notes if left_out else []


def _after_question(
    view: View, opened: Sequence[GenAIMessage], turn: Sequence[GenAIMessage], calls: TurnCalls, *, has_history: bool
) -> Sequence[Message] | None:
    """Return what was said after the question; None if question and answer are all of the conversation."""
    if not opened and (calls.made or has_history):
        return [called.message for called in calls.made]
    if calls.hidden:
        return [*calls.with_hidden(turn)]
    if calls_tools([*turn_of(opened), *turn]) or (opened and (has_history or human_turns(opened) > 1)):
        return sample_messages(turn)
    if view.tools and not calls.made:
        return messages_of(view.tools)
    return None


def _ended(messages: list[Message], turn: Sequence[GenAIMessage], answer: str | None) -> list[Message]:
    """Return a conversation with the answer at its end, if it ends with a question, a call, or an answer to it.

    A tool may have the last word in the root's own messages: an agent with a response format answers so.
    """
    last = messages[-1] if messages else None
    if answer is None or (isinstance(last, AIMessage) and not last.tool_calls) or _ends_with_tool(turn):
        return messages
    now = takewhile(lambda message: not isinstance(message, HumanMessage), reversed(messages))
    is_said = any(isinstance(message, AIMessage) and message.content == answer for message in now)
    return messages if is_said else [*messages, AIMessage(content=answer)]


def _ends_with_tool(turn: Sequence[GenAIMessage]) -> bool:
    return bool(turn) and role_of(turn[-1].get("role")) == TOOL


def _apart(turn: Sequence[GenAIMessage], runs: Sequence[ModelRun]) -> Sequence[GenAIMessage]:
    """Return a turn with its last words apart from the calls before them: the root of Vercel's SDK sums its steps up."""
    text = message_text(turn[-1]) if turn and calls_by_id(turn[-1]) else None
    if not text or not any(final_text(run.said) == text and not calls_tools(run.said) for run in runs):
        return turn
    parts = turn[-1].get("parts", turn[-1].get("content")) or ()
    calls, words = [part for part in parts if _is_call(part)], [part for part in parts if not _is_call(part)]
    return [*turn[:-1], {**turn[-1], "parts": calls}, {**turn[-1], "parts": words}]


def _is_call(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_call"


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
