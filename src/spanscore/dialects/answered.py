"""Messages of a conversation → each message with the answers to its calls, by the calls' ids, else by their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from spanscore.core.sample import AIMessage, HumanMessage, Message, ToolCall, ToolMessage

__all__ = ["ITEM", "Slot", "calls_in", "may_answer", "settled"]

ITEM = "fc_"
"""Beginning of the id that OpenAI's Responses API gives to an output item; the call that it holds has an id of its own."""


@dataclass(slots=True)
class Slot:
    """A message of a conversation with the answers to its calls.

    Attributes:
        open: the calls without an answer.
    """

    message: HumanMessage | AIMessage
    open: list[ToolCall]
    answered: list[tuple[ToolCall, ToolMessage]] = field(default_factory=list)


def settled(messages: Sequence[Message]) -> tuple[list[Slot], int]:
    """Put each answer of a conversation to its call, and count the answers to no call."""
    slots: list[Slot] = []
    turn: list[Slot] = []
    left_out = 0
    for message in messages:
        if isinstance(message, ToolMessage):
            left_out += not _settle(message, turn)
            continue
        slot = Slot(message, [*calls_in(message)])
        slots.append(slot)
        if isinstance(message, HumanMessage):
            turn = []
        turn.append(slot)
    return slots, left_out


def calls_in(message: Message) -> Sequence[ToolCall]:
    """Return the calls that a message makes."""
    return message.tool_calls or () if isinstance(message, AIMessage) else ()


def _settle(answer: ToolMessage, turn: Sequence[Slot]) -> bool:
    """Put an answer to the latest call of its id, else to the first open one that it may be to; False if there is none."""
    identity = answer.tool_call_id
    if identity and turn and turn[-1].open and turn[-1].open[0].id == identity:  # as most
        turn[-1].answered.append((turn[-1].open.pop(0), answer))
        return True
    slot, call = next(chain(_of_id(identity, turn), _open_to(identity, turn)), (None, None))
    if slot is None or call is None:
        return False
    slot.answered.append((call, answer))
    slot.open = [other for other in slot.open if other is not call]
    return True


def _of_id(identity: str | None, turn: Sequence[Slot]) -> Iterator[tuple[Slot, ToolCall]]:
    for slot in reversed(turn) if identity else ():
        yield from ((slot, call) for call in calls_in(slot.message) if call.id == identity)


def _open_to(identity: str | None, turn: Sequence[Slot]) -> Iterator[tuple[Slot, ToolCall]]:
    for slot in turn:
        yield from ((slot, call) for call in slot.open if may_answer(identity, call.id))


def may_answer(answer_id: str | None, call_id: str | None) -> bool:
    """Whether an answer may be to a call that has another id: one of both has none, or the id of the output item."""
    return not answer_id or not call_id or answer_id.startswith(ITEM) != call_id.startswith(ITEM)
