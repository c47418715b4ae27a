"""Samples of turns, one after another → the messages of a conversation, each once.

    what was gathered   H1 A1 H2 A2
    the turn            H1 A1 H2 A2 H3 A3      brings the history: it replaces what was gathered
                              H2 A2 H3 A3      brings a part of it: its last exchange is appended
                                    H3 A3      brings none: appended

What is history is told by comparing what was said, never by lengths. The last exchange of a turn, from its human message on, is
its own, however often the same was said before; only a run that was interrupted goes on with an exchange that was there.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from spanscore.core.codecs.text import jsonable
from spanscore.core.sample import AIMessage, HumanMessage, Message, Samples, ToolMessage

__all__ = ["Segment", "join_turn", "messages_in", "segment_of"]

Marks: TypeAlias = "array[int]"
_MESSAGES: Final = TypeAdapter(list[Message])


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages that follow one another: what a turn added to a conversation, or all that it brought.

    Attributes:
        end_ns: when the turn ended.
        content: the messages, as JSON: so what is kept is known to the byte.
        count: messages.
        marks: a hash of each text that was spoken, by humans and the assistant. What was asked of tools is none: an
            application's history may be without it.
        own: where in ``marks`` the turn's own exchange begins; before it stands the history that it brought.
        own_message: the same, among the messages.
        exchanges: human messages, with such that follow one another as one.
        is_open: nobody has answered: the run was interrupted.
        brought: the turn held all that had been gathered before it.
    """

    end_ns: int
    content: bytes
    count: int
    marks: Marks
    own: int
    own_message: int
    exchanges: int
    is_open: bool
    brought: bool = False

    def messages(self) -> list[Message]:
        """Return the messages."""
        return _MESSAGES.validate_json(self.content)

    def cut(self, start: int, end: int | None = None) -> Segment:
        """Return it with some of its messages only."""
        return _segment(self.messages()[start:end], self.end_ns)


def segment_of(samples: Samples, end_ns: int) -> Segment | None:
    """Return what a turn's samples hold, its conversation before its question and answer; None where there are none."""
    messages = _messages_of(samples)
    return _segment(messages, end_ns) if messages else None


def join_turn(gathered: Sequence[Segment], turn: Segment) -> list[Segment]:
    """Return what was gathered, in order, with one more turn after it."""
    if gathered and _resumes(gathered[-1], turn):
        before = gathered[-1]
        return join_turn([*gathered[:-1], *([before.cut(0, before.own_message)] if before.own_message else [])], turn)
    covered = _count_covered([mark for segment in gathered for mark in segment.marks], turn.marks[: turn.own])
    if covered is None:
        return [*gathered, turn.cut(turn.own_message) if turn.own_message else turn]
    shown = sum(segment.count for segment in gathered)
    if shown > covered and shown > (
        after := _after(turn, covered)
    ):  # it has calls of tools that the history is without
        return [*gathered, replace(turn.cut(after), brought=True)]
    return [replace(turn, brought=turn.exchanges > 1)]


def messages_in(gathered: Iterable[Segment]) -> list[Message]:
    """Return the conversation, without results of tools that nobody in it has called: it is always one that can be."""
    kept: list[Message] = []
    caller: AIMessage | None = None
    for message in chain.from_iterable(segment.messages() for segment in gathered):
        if not isinstance(message, ToolMessage):
            caller = message if isinstance(message, AIMessage) and message.tool_calls else None
        elif caller is None or not _answers(message, caller):
            continue
        kept.append(message)
    return kept


def _messages_of(samples: Samples) -> list[Message]:
    if samples.multi_turn is not None:
        return samples.multi_turn.user_input
    if samples.single_turn is None:
        return []
    question, answer = samples.single_turn.user_input, samples.single_turn.response
    messages: list[Message] = [] if question is None else [HumanMessage(content=question)]
    return messages if answer is None else [*messages, AIMessage(content=answer)]


def _segment(messages: Sequence[Message], end_ns: int) -> Segment:
    marks = [_mark(message) for message in messages]
    exchanges = _exchanges(messages)
    own_message, last = exchanges[-1] if exchanges else 0, messages[-1]
    return Segment(
        end_ns=end_ns,
        content=json.dumps([_plain(message) for message in messages], ensure_ascii=False, separators=(",", ":")).encode(
            errors="replace"
        ),
        count=len(messages),
        marks=array("q", (mark for mark in marks if mark is not None)),
        own=sum(mark is not None for mark in marks[:own_message]),
        own_message=own_message,
        exchanges=len(exchanges),
        is_open=not (isinstance(last, AIMessage) and last.content.strip() and not last.tool_calls),
    )


def _plain(message: Message) -> dict[str, Any]:
    """Return a message for JSON; arguments and metadata of a sample that was made by hand may hold anything."""
    plain = dict(message)
    if message.metadata is not None:
        plain["metadata"] = jsonable(message.metadata)
    if isinstance(message, AIMessage) and message.tool_calls:
        plain["tool_calls"] = [{**dict(call), "args": jsonable(call.args)} for call in message.tool_calls]
    return plain


def _exchanges(messages: Sequence[Message]) -> list[int]:
    """Return where exchanges begin: with a human message, or several."""
    human = [isinstance(message, HumanMessage) for message in messages]
    return [at for at, is_human in enumerate(human) if is_human and not (at and human[at - 1])]


def _mark(message: Message) -> int | None:
    """Return a hash of what was spoken, whatever white space is around it; None where nothing was."""
    text = message.content.strip()
    if isinstance(message, ToolMessage) or not (text or isinstance(message, HumanMessage)):
        return None
    return hash((message.type, text))


def _count_covered(gathered: Sequence[int], history: Marks) -> int | None:
    """Return after how many texts of a history all that was gathered has been said; None: it is another, or a part.

    It begins with the same, and holds the rest in order. Between them may be texts that a turn's sample was without: of
    several that an assistant wrote, it holds the last.
    """
    if gathered and (not history or history[0] != gathered[0]):
        return None
    at = 0
    for mark in gathered:
        try:
            at = history.index(mark, at) + 1
        except ValueError:
            return None
    return at


def _after(turn: Segment, spoken: int) -> int:
    """Return where the text stands that follows so many: calls of tools in between belong to what is before it."""
    starts = [at for at, message in enumerate(turn.messages()) if _mark(message) is not None]
    return [*starts, turn.count][spoken]


def _resumes(before: Segment, turn: Segment) -> bool:
    """Whether a turn goes on with an exchange that nobody had answered: it begins with the same, calls of tools too."""
    unanswered = before.marks[before.own :]
    if not (before.is_open and unanswered) or turn.marks[turn.own : turn.own + len(unanswered)] != unanswered:
        return False
    was, goes_on = before.messages()[before.own_message :], turn.messages()[turn.own_message :]
    return len(was) <= len(goes_on) and all(_same(*pair) for pair in zip(was, goes_on, strict=False))


def _same(message: Message, other: Message) -> bool:
    calls = [
        [(call.name, call.id, call.args) for call in getattr(m, "tool_calls", None) or ()] for m in (message, other)
    ]
    return message.type == other.type and message.content.strip() == other.content.strip() and calls[0] == calls[1]


def _answers(message: ToolMessage, caller: AIMessage) -> bool:
    calls = {call.id for call in caller.tool_calls or () if call.id}
    return not message.tool_call_id or not calls or message.tool_call_id in calls
