"""Collects the tool calls of a unit, each once, with its answer and the agent that made it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

from spanscore.core.codecs.messages import (
    ASSISTANT,
    calls_by_id,
    message_text,
    role_of,
    sample_messages,
    tool_calls,
    tool_responses,
)
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.core.sample import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from spanscore.samples.question_answer import final_text
from spanscore.samples.view import GenAIMessage, ModelRun, ToolRun, UnitView, turn_of

# --- answered -------------------------------------------------------------------------------------------------------

# Assigns to each message of a conversation the answers to its calls, by the calls' ids, else by their order.

ITEM = "fc_"
"""Prefix of the ids that OpenAI's Responses API gives to output items; the call in an item has an id of its own."""


@dataclass(slots=True)
class AnsweredMessage:
    """A message of a conversation with the answers to its calls.

    Attributes:
        message: the message.
        open: calls without an answer.
        answered: calls with their answers.
    """

    message: HumanMessage | AIMessage
    open: list[ToolCall]
    answered: list[tuple[ToolCall, ToolMessage]] = field(default_factory=list)


def settled(messages: Sequence[Message]) -> tuple[list[AnsweredMessage], int]:
    """Assign each answer of a conversation to its call, and count the answers without a call."""
    slots: list[AnsweredMessage] = []
    turn: list[AnsweredMessage] = []
    left_out = 0
    for message in messages:
        if isinstance(message, ToolMessage):
            left_out += not _settle(message, turn)
            continue
        slot = AnsweredMessage(message, [*calls_in(message)])
        slots.append(slot)
        if isinstance(message, HumanMessage):
            turn = []
        turn.append(slot)
    return slots, left_out


def calls_in(message: Message) -> Sequence[ToolCall]:
    """Return the tool calls in a message."""
    return message.tool_calls or () if isinstance(message, AIMessage) else ()


def _settle(answer: ToolMessage, turn: Sequence[AnsweredMessage]) -> bool:
    """Assign an answer to the latest call with its id, else to the first open call that fits. Return False without one."""
    identity = answer.tool_call_id
    if identity and turn and turn[-1].open and turn[-1].open[0].id == identity:  # the usual case
        turn[-1].answered.append((turn[-1].open.pop(0), answer))
        return True
    slot, call = next(chain(_of_id(identity, turn), _open_to(identity, turn)), (None, None))
    if slot is None or call is None:
        return False
    slot.answered.append((call, answer))
    slot.open = [other for other in slot.open if other is not call]
    return True


def _of_id(identity: str | None, turn: Sequence[AnsweredMessage]) -> Iterator[tuple[AnsweredMessage, ToolCall]]:
    for slot in reversed(turn) if identity else ():
        yield from ((slot, call) for call in calls_in(slot.message) if call.id == identity)


def _open_to(identity: str | None, turn: Sequence[AnsweredMessage]) -> Iterator[tuple[AnsweredMessage, ToolCall]]:
    for slot in turn:
        yield from ((slot, call) for call in slot.open if may_answer(identity, call.id))


def may_answer(answer_id: str | None, call_id: str | None) -> bool:
    """Return whether an answer may belong to a call with another id: one id is missing, or is that of an output item."""
    return not answer_id or not call_id or answer_id.startswith(ITEM) != call_id.startswith(ITEM)


# --- calls ----------------------------------------------------------------------------------------------------------

# The tool calls of a unit: each once, with its answer and the agent that made it, also if the root's messages hide it.
#
# A call is identified by its id, in any message: a prompt may list the calls of one answer one by one. Its answer is the result
# on its tool's span, else the answer in a later prompt. Results without an id belong to the calls in their order.

_Names = tuple[tuple[str, str | None], ...]
"""Name and id of each call of a message."""


@dataclass(slots=True, eq=False)
class _Call:
    """One tool call.

    Attributes:
        first: the call in the first message that has it.
        since: position of the first run whose prompt may have the answer.
        exchange: number of the last exchange that had the call.
        ids: ids of the call, by whether they are ids of an output item; empty = no message gives it an id.
    """

    first: ToolCall
    since: int
    exchange: int
    ids: dict[bool, str] = field(default_factory=dict)

    def may_be(self, call: ToolCall) -> bool:
        """Return whether this is a call with the same arguments, seen with an id of another kind or without one."""
        return (not call.id or call.id.startswith(ITEM) not in self.ids) and call.args == self.first.args


@dataclass(frozen=True, slots=True)
class ToolCallingMessage:
    """A message that called tools.

    Attributes:
        at: position of the message's run among the unit's runs.
        message: the message.
        calls: calls of the message, in its order.
    """

    at: int
    message: AIMessage
    calls: Sequence[_Call]

    def without(self, shown: set[_Call]) -> ToolCallingMessage | None:
        """Return the message without some of its calls; None if no call is left."""
        calls = [call for call in self.calls if call not in shown]
        if len(calls) in (0, len(self.calls)):
            return self if calls else None
        message = self.message.model_copy(update={"tool_calls": [call.first for call in calls]})
        return replace(self, message=message, calls=calls)


class TurnCalls:
    """The tool calls of a unit's turn.

    Args:
        view: the unit.
        shown: the root's messages of the turn.

    Attributes:
        made: messages of models that called tools, in order. A call without a tool run and without an answer is a structured
            answer and is left out.
        hidden: ``made`` without the calls in the root's messages.
    """

    def __init__(self, view: UnitView, shown: Sequence[GenAIMessage]) -> None:
        self._runs, self._seen = view.callers, _SeenCalls()
        called = [each for at, run in enumerate(view.callers) for each in self._made_by(run, at)]
        self._seen.begin()
        in_root = {call for message in shown for call in self._seen.all_in(message)}
        self._answers = _Answers(view, self._seen)
        self.made = [each for each in called if any(map(self._answers.may_have, each.calls))]
        self.hidden = [rest for each in self.made if (rest := each.without(in_root)) is not None]

    def _made_by(self, run: ModelRun, at: int) -> Iterator[ToolCallingMessage]:
        """Yield the messages of a run's turn with the calls that no earlier message has."""
        self._seen.begin()
        for message in turn_of(run.asked) if run.may_hold_calls else ():
            if (calls := calls_by_id(message)) and (new := self._seen.new_in(message, calls, at)):
                yield _called(at, message, new, None)
        for message in run.said:
            if calls := calls_by_id(message):
                is_answered = len(message.get("parts") or ()) > len(calls) and bool(tool_responses(message))
                since = at if is_answered else at + 1
                if new := self._seen.new_in(message, calls, since):
                    yield _called(at, message, new, run.agent)

    def with_hidden(self, turn: Sequence[GenAIMessage]) -> Iterator[Message]:
        """Yield a turn's messages, each hidden call before the first message that followed it."""
        waiting, at = list(self.hidden), -1
        last = max(
            (n for n, message in enumerate(turn) if role_of(message.get("role")) == ASSISTANT), default=len(turn)
        )
        for n, message in enumerate(turn):
            at = self._run_of(message, at)
            due = [
                called for called in waiting if n == last or (called.at < at and role_of(message["role"]) == ASSISTANT)
            ]
            waiting = [called for called in waiting if called not in due]
            yield from (called.message for called in due)
            yield from sample_messages([message])
        yield from (called.message for called in waiting)

    def _run_of(self, message: GenAIMessage, after: int) -> int:
        """Return the position of the run that wrote a message; ``after`` without such a run."""
        called = self._seen.alone_in(message)
        text = None if called else final_text([message])
        for at in range(after + 1, len(self._runs)):
            said = self._runs[at].said
            if called and any(self._seen.alone_in(one) == called for one in said):
                return at
            if text and final_text(said) == text:
                return at
        return after

    def answered(self, messages: Sequence[Message]) -> tuple[list[Message], int]:
        """Return a conversation with each answer after its call: the answers in the conversation, else the known result.

        Answers without a call are left out and counted: some writers list the definitions of tools among the messages.
        """
        self._seen.begin()
        slots, left_out = settled(messages)
        said: list[Message] = []
        for slot in slots:
            said.append(slot.message)
            if slot.open or slot.answered:
                said += self._answers_of(slot)
        return said, left_out

    def _answers_of(self, slot: AnsweredMessage) -> Iterator[ToolMessage]:
        for call, answer in slot.answered:
            yield answer if answer.tool_call_id == call.id else answer.model_copy(update={"tool_call_id": call.id})
        for call in calls_in(slot.message):
            known = self._seen.find(call) if slot.open or not call.id else None
            result = None if known is None else self._answers.to(known)
            if result is not None and any(call is other for other in slot.open):
                yield ToolMessage(content=result, tool_call_id=call.id)


def _called(at: int, message: GenAIMessage, calls: Sequence[_Call], agent: str | None) -> ToolCallingMessage:
    said = AIMessage(
        content=message_text(message) or "",
        tool_calls=[call.first for call in calls],
        metadata={"agent": agent} if agent else None,
    )
    return ToolCallingMessage(at, said, calls)


class _SeenCalls:
    """The calls seen so far. An exchange is the messages of a run's turn, of the root, or of a conversation."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str | None], _Call] = {}
        self._by_name: dict[str, list[_Call]] = {}
        self._messages: set[_Names] = set()
        self._exchange = 0

    def __iter__(self) -> Iterator[_Call]:
        return chain.from_iterable(self._by_name.values())

    def begin(self) -> None:
        """Begin an exchange. Equal calls without an id are one call in two exchanges, but two calls within one exchange."""
        self._exchange += 1

    def new_in(self, message: GenAIMessage, named: _Names, since: int) -> list[_Call]:
        """Return the calls of a message that were not seen before, and remember them."""
        if named in self._messages:  # the usual case: an agent's prompts repeat all earlier messages
            return []
        new = [self._add(call, since) for call in tool_calls(message) if self.find(call) is None]
        if all(identity for _, identity in named):
            self._messages.add(named)
        return new

    def all_in(self, message: GenAIMessage) -> list[_Call]:
        """Return the calls of a message, and remember them."""
        named = calls_by_id(message)
        found = [self._by_id[name] for name in named if name in self._by_id]
        if len(found) == len(named):
            return found
        return [self.find(call) or self._add(call, 0) for call in tool_calls(message)]

    def alone_in(self, message: GenAIMessage) -> list[_Call | None]:
        """Return the calls of a message that is an exchange of its own; None for an unknown call."""
        self.begin()
        return [self.find(call) for call in tool_calls(message)] if calls_by_id(message) else []

    def find(self, call: ToolCall) -> _Call | None:
        """Return a known call by its id, else the first matching call that this exchange has not shown."""
        named = self._by_id.get((call.name, call.id))
        if named is not None:
            named.exchange = self._exchange
            return named
        for known in self._by_name.get(call.name, ()):
            if known.exchange != self._exchange and known.may_be(call):
                return self._name(known, call)
        return None

    def _add(self, call: ToolCall, since: int) -> _Call:
        added = _Call(call, since, self._exchange)
        self._by_name.setdefault(call.name, []).append(added)
        return self._name(added, call)

    def _name(self, known: _Call, call: ToolCall) -> _Call:
        known.exchange = self._exchange
        if call.id:
            known.ids[call.id.startswith(ITEM)] = call.id
            self._by_id[call.name, call.id] = known
        return known


class _Answers:
    """The results of tools: from their spans, else from later prompts."""

    def __init__(self, view: UnitView, seen: _SeenCalls) -> None:
        self._view, self._seen = view, seen
        self._ran: dict[tuple[str, str | None], ToolRun] = {}
        for tool in view.every_tool:
            if tool.id and (tool.result is not None or (tool.name, tool.id) not in self._ran):
                self._ran[tool.name, tool.id] = tool

    def may_have(self, call: _Call) -> bool:
        """Return whether a tool ran for a call, or its result is known."""
        return self._by_id(call) is not None or self.to(call) is not None or call in self._by_order

    def to(self, call: _Call) -> str | None:
        """Return the result of a call; None if it is unknown: the conventions leave it off tool spans by default."""
        tool = self._by_id(call)
        if tool is None or tool.result is None:
            if call in self._prompted:
                return self._prompted[call]
            tool = self._by_order.get(call)
        return None if tool is None or tool.result is None else as_text(tool.result)

    def _by_id(self, call: _Call) -> ToolRun | None:
        for identity in call.ids.values():
            if (tool := self._ran.get((call.first.name, identity))) is not None:
                return tool
        return None

    @cached_property
    def _prompted(self) -> dict[_Call, str]:
        """The results in prompts. The last prompts are read first, because an agent's prompts repeat all earlier messages."""
        found: dict[_Call, str] = {}
        sought = [call for call in self._seen if (tool := self._by_id(call)) is None or tool.result is None]
        for at, run in reversed([*enumerate(self._view.callers)]):
            for answers_in in (self._by_ids, self._by_places):
                if not any(call.since <= at and call not in found for call in sought):
                    return found
                for call, answer in answers_in(run):
                    found.setdefault(call, answer.content)
        return found

    def _by_ids(self, run: ModelRun) -> Iterator[tuple[_Call, ToolMessage]]:
        """Yield the answers in a run's messages by their ids: a prompt may have only the messages since the previous one."""
        for message in (*(run.asked if run.may_hold_calls else ()), *run.said):
            for answer in tool_responses(message):
                if (known := self._by_lone_id.get(answer.tool_call_id)) is not None:
                    yield known, answer

    def _by_places(self, run: ModelRun) -> Iterator[tuple[_Call, ToolMessage]]:
        """Yield the answers in a run's turn by the calls before them."""
        self._seen.begin()
        slots, _ = settled(sample_messages([*(turn_of(run.asked) if run.may_hold_calls else ()), *run.said]))
        for call, answer in (pair for slot in slots for pair in slot.answered):
            if (known := self._seen.find(call)) is not None:
                yield known, answer

    @cached_property
    def _by_lone_id(self) -> dict[str | None, _Call]:
        named = [(identity, call) for call in self._seen for identity in call.ids.values()]
        times = Counter(identity for identity, _ in named)
        return {identity: call for identity, call in named if times[identity] == 1}

    @cached_property
    def _by_order(self) -> dict[_Call, ToolRun]:
        """The runs of tools whose id belongs to no call: matched by name and arguments, else by name, each to one call."""
        named = {(call.first.name, identity) for call in self._seen for identity in call.ids.values()}
        loose = [tool for tool in self._view.every_tool if (tool.name, tool.id) not in named]
        found: dict[_Call, ToolRun] = {}
        for is_run in (_has_arguments, _may_be_run) if loose else ():
            for call in self._seen:
                if call in found or self._by_id(call) is not None:
                    continue
                if (tool := next(filter(partial(is_run, call), loose), None)) is not None:
                    found[call] = tool
                    loose.remove(tool)
        return found


def _has_arguments(call: _Call, tool: ToolRun) -> bool:
    return tool.name == call.first.name and _call_of(tool).args == call.first.args


def _may_be_run(call: _Call, tool: ToolRun) -> bool:
    return tool.name == call.first.name and all(may_answer(tool.id, identity) for identity in call.ids.values())


def messages_of(tools: Sequence[ToolRun]) -> list[Message]:
    """Return tool runs that no model called, as one message that calls them, followed by the known results."""
    known = [tool for tool in tools if tool.result is not None]
    calls = [_call_of(tool) for tool in (*known, *(tool for tool in tools if tool.result is None))]
    results = [ToolMessage(content=as_text(tool.result), tool_call_id=tool.id) for tool in known]
    return [AIMessage(tool_calls=calls), *results]


def _call_of(tool: ToolRun) -> ToolCall:
    arguments = jsonable(tool.arguments)
    return ToolCall(name=tool.name, args=arguments if isinstance(arguments, dict) else {"input": arguments}, id=tool.id)
