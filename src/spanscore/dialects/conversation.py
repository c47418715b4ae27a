"""The conversation between user and application: who said what, with every tool call of the unit, in order.

The root's own messages are the conversation where it has any; calls that they do not show (a sub-agent's) are put where they
were made. Else it is rebuilt: question, calls, answer; and before them what the user and the application had said earlier,
as far as the run that answered was told it. What only a prompt template brought, such as examples, is nobody's turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from spanscore.codec.messages import (
    ASSISTANT,
    is_made,
    message_text,
    role_of,
    sample_messages,
    tool_calls,
    tool_responses,
)
from spanscore.codec.text import as_text, jsonable
from spanscore.dialects.said import final_text
from spanscore.dialects.view import (
    GenAIMessage,
    ModelRun,
    ToolRun,
    View,
    calls_tools,
    human_turns,
    is_human,
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
    thread = view.thread()
    calls = _calls_of(view)
    told = human_turns(thread) > 0
    if told:
        turn = turn_of(thread)
        before = sample_messages(thread[: len(thread) - len(turn)])
        hidden = _hidden(calls, turn)
        if hidden:
            yield [*before, *_with_hidden(turn, hidden, view.callers)]
    else:
        opening: list[Message] = [] if question is None else [HumanMessage(content=question)]
        before = [*_history(view, question, answering), *opening]
        if calls or len(before) > len(opening):
            yield [*before, *_in_order(calls), *_closing(answer)]
    if calls_tools(turn_of(thread)) or human_turns(thread) > 1:
        yield [*([] if told else before), *sample_messages(thread)]
    elif view.tools and not calls:
        yield [
            *before,
            AIMessage(tool_calls=[_call(t) for t in view.tools]),
            *map(_result, view.tools),
            *_closing(answer),
        ]


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
        self._unnamed = [tool for tool in view.every_tool if tool.id is None]

    def to(self, calls: Iterable[ToolCall]) -> list[Message]:
        return [answer for call in calls if (answer := self._one(call)) is not None]

    def _one(self, call: ToolCall) -> ToolMessage | None:
        if call.id is not None and call.id in self._by_id:
            return self._by_id[call.id]
        tool = next((tool for tool in self._unnamed if tool.name == call.name), None)
        if tool is None:
            return None
        self._unnamed.remove(tool)
        return ToolMessage(content=_result(tool).content, tool_call_id=call.id)


def _identity(calls: Sequence[ToolCall]) -> tuple[str, ...]:
    return tuple(call.id or as_text([call.name, jsonable(call.args)]) for call in calls)


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
    """Return the earlier turns that the run which answered was told, where its last human message is this turn's question."""
    if answering is None or question is None or question not in (last_human_text(answering.asked) or ""):
        return []
    known = _said_by_user(view)
    earlier = answering.asked[: _last_human(answering.asked)]
    kept: list[GenAIMessage] = []
    keeps = False
    for message in earlier:
        keeps = message_text(message) in known if is_human(message) else keeps
        if keeps and not is_made(message):
            kept.append(message)
    return sample_messages(kept)


def _last_human(messages: Sequence[GenAIMessage]) -> int:
    return max(at for at, message in enumerate(messages) if is_human(message))


def _said_by_user(view: View) -> set[str | None]:
    """Return the texts that came from outside of the prompt template: in the root's input, its thread, or a history store."""
    sides = (view.input, view.output)
    spoken = [message for side in sides for message in side.messages]
    return {
        *(message_text(message) for message in [*spoken, *view.history] if is_human(message)),
        *(text for side in sides for text in _texts(side.value)),
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


# --- tools that no model called -----------------------------------------------------------------------------------


def _call(tool: ToolRun) -> ToolCall:
    given = jsonable(tool.arguments)
    return ToolCall(name=tool.name, args=given if isinstance(given, dict) else {"input": given}, id=tool.id)


def _result(tool: ToolRun) -> ToolMessage:
    return ToolMessage(content="" if tool.result is None else as_text(tool.result), tool_call_id=tool.id)
