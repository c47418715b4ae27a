"""Said: the samples of turns, one after another → the messages of a conversation, each once.

    what was gathered   H1 A1 H2 A2
    the turn            H1 A1 H2 A2 H3 A3      brings the history: it replaces what was gathered
                              H2 A2 H3 A3      brings a part of it: its last exchange is appended
                                    H3 A3      brings none: appended

What is history is told by comparing what was said, never by lengths: the last exchange of a turn, from its human message on, is
its own, however often the same has been said before.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeAlias

from pydantic import TypeAdapter

from spanscore.codec.text import jsonable
from spanscore.model.sample import AIMessage, HumanMessage, Message, Samples, ToolMessage

__all__ = ["TurnMessages", "joined", "messages_in", "turn_messages"]

Marks: TypeAlias = "array[int]"
_MESSAGES: Final = TypeAdapter(list[Message])


@dataclass(frozen=True, slots=True)
class TurnMessages:
    """A stretch of a conversation: what a turn added to it, or all that it brought.

    Attributes:
        end_ns: when the turn ended: turns are in that order, whenever they come.
        content: the messages as JSON: what is kept is then known to the byte.
        count: messages.
        marks: a hash of each that was spoken: the human ones, and the assistant's that hold text. Calls of tools are left out:
            a history may be without them.
        own: where in ``marks`` its own exchange begins; before it stands the history that it brought.
        own_message: the same, among the messages.
        exchanges: human messages, such that follow one another as one.
        is_open: nobody has answered yet: a run was interrupted, and will be resumed.
        brought: it held all that had been gathered before.
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

    def cut(self, start: int, end: int | None = None) -> TurnMessages:
        """Return it with some of its messages only."""
        return _stretch(self.end_ns, self.messages()[start:end], max(self.own_message - start, 0))


def turn_messages(samples: Samples, end_ns: int) -> TurnMessages | None:
    """Return what a turn's samples hold; None where there are none."""
    messages = _messages_of(samples)
    return _stretch(end_ns, messages, _own_at(messages)) if messages else None


def joined(gathered: Sequence[TurnMessages], turn: TurnMessages) -> list[TurnMessages]:
    """Return what was gathered, in order, with one more turn after it."""
    if gathered and _resumes(gathered[-1], turn):
        last = gathered[-1]
        return joined([*gathered[:-1], *([last.cut(0, last.own_message)] if last.own_message else [])], turn)
    before = array("q", chain.from_iterable(one.marks for one in gathered))
    if turn.marks[: len(before)] != before or len(before) > turn.own:
        own = turn.cut(turn.own_message) if turn.own_message else turn
        return [*gathered, replace(own, brought=False)]
    if not gathered and turn.exchanges <= 1:
        return [turn]
    rest = _after(turn, len(before))
    if sum(one.count for one in gathered) > rest:  # it has calls of tools that this history is without
        return [*gathered, replace(turn.cut(rest), brought=True)]
    return [replace(turn, brought=True)]


def messages_in(gathered: Iterable[TurnMessages]) -> list[Message]:
    """Return the conversation, without results of tools that nobody in it has called: it is always one that can be."""
    kept: list[Message] = []
    calls: set[str] | None = None  # of the assistant before, by id; None where it called nothing
    for message in chain.from_iterable(one.messages() for one in gathered):
        if isinstance(message, ToolMessage):
            if calls is None or (message.tool_call_id and calls and message.tool_call_id not in calls):
                continue
        elif isinstance(message, AIMessage) and message.tool_calls:
            calls = {call.id for call in message.tool_calls if call.id}
        else:
            calls = None
        kept.append(message)
    return kept


def _messages_of(samples: Samples) -> list[Message]:
    if samples.multi is not None:
        return samples.multi.user_input
    if samples.single is None:
        return []
    asked, said = samples.single.user_input, samples.single.response
    messages = None if asked is None else HumanMessage(content=asked), None if said is None else AIMessage(content=said)
    return [message for message in messages if message is not None]


def _stretch(end_ns: int, messages: list[Message], own_message: int) -> TurnMessages:
    marks = [_mark(message) for message in messages]
    return TurnMessages(
        end_ns=end_ns,
        content=_json(messages),
        count=len(messages),
        marks=array("q", (mark for mark in marks if mark is not None)),
        own=sum(mark is not None for mark in marks[:own_message]),
        own_message=own_message,
        exchanges=sum(map(_begins_exchange, messages, [None, *messages])),
        is_open=not (isinstance(last := messages[-1], AIMessage) and last.content.strip() and not last.tool_calls),
    )


def _own_at(messages: Sequence[Message]) -> int:
    """Return where the last exchange begins; 0 where no human has spoken."""
    begins = [at for at, one in enumerate(messages) if _begins_exchange(one, messages[at - 1] if at else None)]
    return begins[-1] if begins else 0


def _begins_exchange(message: Message, before: Message | None) -> bool:
    return isinstance(message, HumanMessage) and not isinstance(before, HumanMessage)


def _mark(message: Message) -> int | None:
    """Return a hash of what was spoken; whatever white space is between the words."""
    words = message.content.split()
    if isinstance(message, ToolMessage) or not (words or isinstance(message, HumanMessage)):
        return None
    return hash((message.type, " ".join(words)))


def _resumes(last: TurnMessages, turn: TurnMessages) -> bool:
    """Whether a turn goes on with an exchange that nobody had answered."""
    open_ = last.marks[last.own :]
    return last.is_open and len(open_) > 0 and turn.marks[turn.own : turn.own + len(open_)] == open_


def _after(turn: TurnMessages, spoken: int) -> int:
    """Return which message comes after so many that were spoken."""
    if not spoken:
        return 0
    ends = [at + 1 for at, message in enumerate(turn.messages()) if _mark(message) is not None]
    return ends[spoken - 1]


def _json(messages: list[Message]) -> bytes:
    try:
        return _MESSAGES.dump_json(messages)
    except ValueError:  # a sample made by hand may hold anything in arguments and metadata
        return json.dumps([jsonable(message.model_dump()) for message in messages]).encode()
