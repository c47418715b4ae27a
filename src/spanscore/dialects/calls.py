"""Every tool call of a unit, in order, with its answer and the agent that made it; also where the root's messages hide it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spanscore.codec.messages import (
    ASSISTANT,
    calls_by_id,
    message_text,
    role_of,
    sample_messages,
    tool_calls,
    tool_responses,
)
from spanscore.codec.text import as_text, jsonable
from spanscore.dialects.said import final_text
from spanscore.dialects.view import GenAIMessage, ModelRun, ToolRun, View, turn_of
from spanscore.model.sample import AIMessage, Message, ToolCall, ToolMessage

__all__ = ["Called", "call_of", "calls_of", "hidden_calls", "in_order", "result_of", "with_hidden"]


@dataclass(frozen=True, slots=True)
class Called:
    """A message that called tools, with their answers.

    Attributes:
        at: position of its run among the unit's.
    """

    at: int
    message: AIMessage
    answers: Sequence[Message]


def calls_of(view: View) -> list[Called]:
    """Return every message of the turn that called a tool, in order; a call that no tool answers is a structured answer."""
    answers = _Answers(view)
    known: set[Any] = set()
    found: list[Called] = []
    for at, run in enumerate(view.callers):
        for message in _exchanged(run):
            named = calls_by_id(message)
            if not named or (named in known and all(identity for _, identity in named)):
                continue
            called = tool_calls(message)
            told = _identity(called)
            if told in known:
                continue
            known |= {named, told}
            answered = answers.to(called)
            if answered:
                agent = {"agent": run.agent} if run.agent and message in run.said else None
                text = message_text(message) or ""
                found.append(Called(at, AIMessage(content=text, tool_calls=called, metadata=agent), answered))
    return found


def _exchanged(run: ModelRun) -> list[GenAIMessage]:
    """Return the messages of a run's turn that may call tools."""
    return [*(turn_of(run.asked) if run.may_hold_calls else ()), *run.said]


class _Answers:
    """What the tools gave back: by name and id of the call, as ids alone repeat; without an id by the name, each once."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._ran: dict[tuple[str | None, str], ToolMessage] = {
            (tool.id, tool.name): result_of(tool) for tool in view.every_tool if tool.id
        }
        self._ids = {tool.id for tool in view.every_tool}
        self._unnamed = [tool for tool in view.every_tool if tool.id is None]

    @cached_property
    def _in_messages(self) -> dict[str, ToolMessage]:
        """What messages hold, for calls that no tool's run answers: an agent's prompts hold all before them."""
        responses = [r for run in self._view.callers for message in run.asked for r in tool_responses(message)]
        return {response.tool_call_id: response for response in responses if response.tool_call_id}

    def to(self, calls: Iterable[ToolCall]) -> list[Message]:
        return [answer for call in calls if (answer := self._one(call)) is not None]

    def _one(self, call: ToolCall) -> ToolMessage | None:
        if (call.id, call.name) in self._ran:
            return self._ran[call.id, call.name]
        if call.id and call.id not in self._ids and call.id in self._in_messages:
            return self._in_messages[call.id]
        tool = next((tool for tool in self._unnamed if tool.name == call.name), None)
        if tool is None:
            return None
        self._unnamed.remove(tool)
        return ToolMessage(content=result_of(tool).content, tool_call_id=call.id)


def _identity(calls: Sequence[ToolCall]) -> tuple[str, ...]:
    return tuple(as_text([call.name, call.id or jsonable(call.args)]) for call in calls)


def _identity_in(message: GenAIMessage) -> tuple[str, ...]:
    """Return that of the calls a message makes, which are read only where not all have an id."""
    named = calls_by_id(message)
    if all(identity for _, identity in named):
        return tuple(as_text([*call]) for call in named)
    return _identity(tool_calls(message))


def in_order(calls: Sequence[Called]) -> list[Message]:
    """Return calls as messages, each with the answers of its tools."""
    return [message for called in calls for message in (called.message, *called.answers)]


def hidden_calls(calls: Sequence[Called], turn: Sequence[GenAIMessage]) -> list[Called]:
    """Return the calls that a turn's messages do not show."""
    shown = {name for message in turn for name in _identity_in(message)}
    return [called for called in calls if shown.isdisjoint(_identity(called.message.tool_calls or ()))]


def with_hidden(turn: Sequence[GenAIMessage], hidden: Sequence[Called], runs: Sequence[ModelRun]) -> Iterator[Message]:
    """Give a turn's messages, each hidden call before the first that was said after it."""
    waiting, at = list(hidden), -1
    last = max((n for n, message in enumerate(turn) if role_of(message.get("role")) == ASSISTANT), default=len(turn))
    for n, message in enumerate(turn):
        at = _run_of(message, runs, at)
        due = [called for called in waiting if n == last or (called.at < at and role_of(message["role"]) == ASSISTANT)]
        waiting = [called for called in waiting if called not in due]
        yield from in_order(due)
        yield from sample_messages([message])
    yield from in_order(waiting)


def _run_of(message: GenAIMessage, runs: Sequence[ModelRun], after: int) -> int:
    """Return the position of the run that said a message, the last known one for any other."""
    called = _identity_in(message)
    text = None if called else final_text([message])
    for at in range(after + 1, len(runs)):
        said = runs[at].said
        if called and any(_identity_in(one) == called for one in said):
            return at
        if text and final_text(said) == text:
            return at
    return after


def call_of(tool: ToolRun) -> ToolCall:
    """Return a tool's run as a call of it, where no model called it."""
    arguments = jsonable(tool.arguments)
    return ToolCall(name=tool.name, args=arguments if isinstance(arguments, dict) else {"input": arguments}, id=tool.id)


def result_of(tool: ToolRun) -> ToolMessage:
    """Return what a tool's run gave back."""
    return ToolMessage(content="" if tool.result is None else as_text(tool.result), tool_call_id=tool.id)
