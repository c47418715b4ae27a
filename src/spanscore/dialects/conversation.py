"""The conversation between user and application: who said what, with every tool call of the unit, in order.

The root's own messages are the conversation where it has any; calls that they do not show (a sub-agent's) are put where they
were made. Else it is made of the earlier turns, as the root's input or a store holds them, the question, the calls and the
answer. What only a prompt template brought, such as examples, or a node wrote as a human's, is nobody's turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from spanscore.codec.messages import (
    ASSISTANT,
    USER,
    is_made,
    is_message,
    message_text,
    role_of,
    sample_messages,
    text_message,
    tool_calls,
    tool_responses,
)
from spanscore.codec.text import as_text, jsonable
from spanscore.dialects.said import final_text
from spanscore.dialects.texts import are_messages
from spanscore.dialects.view import (
    GenAIMessage,
    ModelRun,
    ToolRun,
    View,
    calls_tools,
    human_turns,
    is_human,
    is_resume,
    last_human_text,
    turn_of,
)
from spanscore.model.sample import AIMessage, HumanMessage, Message, MultiTurnSample, ToolCall, ToolMessage

__all__ = ["conversation_of"]


def conversation_of(
    view: View, question: str | None, answer: str | None, answering: ModelRun | None
) -> tuple[MultiTurnSample | None, list[str]]:
    """Return the conversation when the unit has tool calls or several human turns; one that cannot be is noted.

    Args:
        answering: the run that gave the answer; None where that cannot be told.
    """
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
    thread, turn = view.thread(), _without_humans(view.turn(), answer)
    opened = thread[: len(thread) - len(view.turn())]
    told = last_human_text(opened) is not None and (last_human_text(opened) == question or not _is_elsewhere(view))
    opening: list[Message] = [] if question is None else [HumanMessage(content=question)]
    before = [*_history(view, question, answering), *(sample_messages(opened) if told else opening)]
    calls = _calls_of(view)
    hidden = _hidden(calls, turn if told else ())
    earlier = any(map(is_made, opened)) if told else False
    if not told and (calls or len(before) > len(opening)):
        yield [*before, *_in_order(calls), *_closing(answer)]
    elif hidden:
        yield [*before, *_with_hidden(turn, hidden, view.callers)]
    if calls_tools(turn) or (told and (human_turns(opened) > 1 or earlier)):
        yield [*before, *sample_messages(turn)]
    elif view.tools and not calls:
        yield [
            *before,
            AIMessage(tool_calls=[_call(t) for t in view.tools]),
            *map(_result, view.tools),
            *_closing(answer),
        ]


def _is_elsewhere(view: View) -> bool:
    """Whether the question stood beside messages, so that a human one among them is a prompt of the application."""
    return last_human_text(view.input.messages) is None and not is_resume(view.input.value)


def _without_humans(turn: Sequence[GenAIMessage], answer: str | None) -> list[GenAIMessage]:
    """Return a turn without what the unit itself wrote as a human's; the answer is the assistant's, whoever seems to say it."""
    if turn and is_human(turn[-1]) and message_text(turn[-1]) == answer:
        turn = [*turn[:-1], {**turn[-1], "role": ASSISTANT}]
    return [message for message in turn if not is_human(message)]


def _closing(answer: str | None) -> list[Message]:
    return [] if answer is None else [AIMessage(content=answer)]


# --- calls ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Called:
    """A message that called tools, with their answers.

    Attributes:
        at: position of its run among the unit's.
    """

    at: int
    message: AIMessage
    answers: Sequence[Message]


def _calls_of(view: View) -> list[_Called]:
    """Return every message of the turn that called a tool, in order; a call that no tool answers is a structured answer."""
    answers = _Answers(view)
    known: set[Any] = set()
    found: list[_Called] = []
    for at, run in enumerate(view.callers):
        for message in [*turn_of(run.asked), *run.said]:
            called = tool_calls(message)
            if not called or _identity(called) in known:
                continue
            known.add(_identity(called))
            given = answers.to(called)
            if given:
                agent = {"agent": run.agent} if run.agent and message in run.said else None
                text = message_text(message) or ""
                found.append(_Called(at, AIMessage(content=text, tool_calls=called, metadata=agent), given))
    return found


class _Answers:
    """What the tools gave back: by the id of the call, else by the tool's name, each once."""

    def __init__(self, view: View) -> None:
        responses = [r for run in view.callers for message in run.asked for r in tool_responses(message)]
        self._by_id = {response.tool_call_id: response for response in responses if response.tool_call_id}
        self._by_id |= {tool.id: _result(tool) for tool in view.every_tool if tool.id and tool.id not in self._by_id}
        self._names = {tool.id: tool.name for tool in view.every_tool if tool.id}
        self._unnamed = [tool for tool in view.every_tool if tool.id is None]

    def to(self, calls: Iterable[ToolCall]) -> list[Message]:
        return [answer for call in calls if (answer := self._one(call)) is not None]

    def _one(self, call: ToolCall) -> ToolMessage | None:
        if call.id is not None and call.id in self._by_id:
            return self._by_id[call.id] if self._names.get(call.id, call.name) == call.name else None
        tool = next((tool for tool in self._unnamed if tool.name == call.name), None)
        if tool is None:
            return None
        self._unnamed.remove(tool)
        return ToolMessage(content=_result(tool).content, tool_call_id=call.id)


def _identity(calls: Sequence[ToolCall]) -> tuple[str, ...]:
    return tuple(as_text([call.name, call.id or jsonable(call.args)]) for call in calls)


def _in_order(calls: Sequence[_Called]) -> list[Message]:
    return [message for called in calls for message in (called.message, *called.answers)]


def _hidden(calls: Sequence[_Called], turn: Sequence[GenAIMessage]) -> list[_Called]:
    shown = {name for message in turn for name in _identity(tool_calls(message))}
    return [called for called in calls if shown.isdisjoint(_identity(called.message.tool_calls or ()))]


def _with_hidden(
    turn: Sequence[GenAIMessage], hidden: Sequence[_Called], runs: Sequence[ModelRun]
) -> Iterator[Message]:
    """Give a turn's messages, each hidden call before the first that was said after it."""
    waiting, at = list(hidden), -1
    last = max((n for n, message in enumerate(turn) if role_of(message.get("role")) == ASSISTANT), default=len(turn))
    for n, message in enumerate(turn):
        at = _run_of(message, runs, at)
        due = [called for called in waiting if n == last or (called.at < at and role_of(message["role"]) == ASSISTANT)]
        waiting = [called for called in waiting if called not in due]
        yield from _in_order(due)
        yield from sample_messages([message])
    yield from _in_order(waiting)


def _run_of(message: GenAIMessage, runs: Sequence[ModelRun], after: int) -> int:
    """Return the position of the run that said a message, the last known one for any other."""
    called = _identity(tool_calls(message))
    text = None if called else final_text([message])
    for at in range(after + 1, len(runs)):
        said = runs[at].said
        if called and any(_identity(tool_calls(one)) == called for one in said):
            return at
        if text and final_text(said) == text:
            return at
    return after


# --- what was said earlier --------------------------------------------------------------------------------------


def _history(view: View, question: str | None, answering: ModelRun | None) -> list[Message]:
    """Return the turns before the root's own messages: of its input, a store, its final state, or a checkpoint."""
    if len(view.thread()) > 1 and human_turns(view.output.messages):
        return []  # it holds them itself
    pairs = [_exchanges(value) for key, value in _entries(view.input.value) if "history" in key]
    places = (pairs, _talks_in(view.input.value), [view.history], _talks_in(view.output.value), [_kept(answering)])
    talks = [talk for place in places for talk in place if human_turns(talk)]
    if not talks:
        return []
    at = [n for n, message in enumerate(talks[0]) if is_human(message) and message_text(message) == question]
    return sample_messages(talks[0][: at[-1]] if at else talks[0])


def _kept(answering: ModelRun | None) -> list[GenAIMessage]:
    """Return what a thread kept of the messages in the prompt of the answer: they have ids, a template's have none."""
    kept: list[GenAIMessage] = []
    keeps = False
    for message in () if answering is None else answering.asked:
        keeps = "id" in message if is_human(message) else keeps
        if keeps:
            kept.append(message)
    return kept


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _talks_in(value: Any, depth: int = 3) -> list[Sequence[GenAIMessage]]:
    """Return the lists of messages that a value holds."""
    if depth <= 0 or is_message(value):
        return []
    if are_messages(value):
        return [value]
    return [talk for _, inner in _entries(value) for talk in _talks_in(inner, depth - 1)]


def _exchanges(value: Any) -> list[GenAIMessage]:
    """Return a history of (question, answer), as some chains keep it, or of (role, text), as messages; ``[]`` for any other."""
    if not isinstance(value, list) or not all(map(_is_pair, value)):
        return []
    return [message for pair in value for message in _exchange(*pair)]


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value)  # noqa: PLR2004


def _exchange(first: str, second: str) -> list[GenAIMessage]:
    role = role_of(first)
    return [text_message(role, second)] if role else [text_message(USER, first), text_message(ASSISTANT, second)]


# --- tools that no model called -----------------------------------------------------------------------------------


def _call(tool: ToolRun) -> ToolCall:
    given = jsonable(tool.arguments)
    return ToolCall(name=tool.name, args=given if isinstance(given, dict) else {"input": given}, id=tool.id)


def _result(tool: ToolRun) -> ToolMessage:
    return ToolMessage(content="" if tool.result is None else as_text(tool.result), tool_call_id=tool.id)
