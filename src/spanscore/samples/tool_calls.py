"""Collects the tool calls of a unit, each once, with its result and the agent that made it.

A *result* is the output of a tool; a *turn* is the messages between two messages of the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

from spanscore.core.codecs.messages import (
    ASSISTANT,
    call_names_and_ids,
    message_text,
    role_of,
    sample_messages,
    tool_calls,
    tool_responses,
)
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.core.sample import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from spanscore.samples.question_answer import final_text
from spanscore.samples.view import GenAIMessage, ModelRun, ToolRun, UnitView, messages_of_turn

# --- results --------------------------------------------------------------------------------------------------------

ITEM = "fc_"
"""Prefix of the ids that OpenAI's Responses API gives to function-call items. The call itself has another id (``call_…``)."""


@dataclass(slots=True)
class AnsweredMessage:
    """A message of a conversation with the results of its calls.

    Attributes:
        open: calls without a result.
        answered: calls with their results.
    """

    message: HumanMessage | AIMessage
    open: list[ToolCall]
    answered: list[tuple[ToolCall, ToolMessage]] = field(default_factory=list)


def match_results(messages: Sequence[Message]) -> tuple[list[AnsweredMessage], int]:
    """Assign each result of a conversation to its call; return the messages, and the number of results without a call."""
    slots: list[AnsweredMessage] = []
    turn: list[AnsweredMessage] = []
    left_out = 0
    for message in messages:
        if isinstance(message, ToolMessage):
            left_out += not _match_result(message, turn)
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


def _match_result(result: ToolMessage, turn: Sequence[AnsweredMessage]) -> bool:
    """Assign a result to the latest call with its id, otherwise to the first open call that fits; return whether one did."""
    identity = result.tool_call_id
    if identity and turn and turn[-1].open and turn[-1].open[0].id == identity:  # the usual case
        turn[-1].answered.append((turn[-1].open.pop(0), result))
        return True
    slot, call = next(_calls_for(identity, turn), (None, None))
    if slot is None or call is None:
        return False
    slot.answered.append((call, result))
    slot.open = [other for other in slot.open if other is not call]
    return True


def _calls_for(identity: str | None, turn: Sequence[AnsweredMessage]) -> Iterator[tuple[AnsweredMessage, ToolCall]]:
    for slot in reversed(turn) if identity else ():
        yield from ((slot, call) for call in calls_in(slot.message) if call.id == identity)
    for slot in turn:
        yield from ((slot, call) for call in slot.open if may_answer(identity, call.id))


def may_answer(result_id: str | None, call_id: str | None) -> bool:
    """Return whether a result may belong to a call although the ids differ.

    It may if an id is missing, or if exactly one of them is a function-call item's.
    """
    return not result_id or not call_id or result_id.startswith(ITEM) != call_id.startswith(ITEM)


# --- calls ----------------------------------------------------------------------------------------------------------

# The same call is in many messages, because each prompt of an agent repeats the earlier messages. Its id identifies it; without
# an id, its name and arguments do. The result of a call comes from its tool's span, otherwise from a later prompt. Results
# without an id belong to the calls in their order.

_CallNames = tuple[tuple[str, str | None], ...]
"""Name and id of each call of a message."""


@dataclass(slots=True, eq=False)
class _Call:
    """One tool call.

    Attributes:
        first: the call in the first message that has it.
        first_run_index: position of the first run whose prompt may have the result.
        exchange: number of the last exchange (see ``_SeenCalls``) that had the call.
        ids: whether an id is a function-call item's → the id; empty = no message gives the call an id.
    """

    first: ToolCall
    first_run_index: int
    exchange: int
    ids: dict[bool, str] = field(default_factory=dict)

    def may_be(self, call: ToolCall) -> bool:
        """Return whether a call may be this one: it has equal arguments, and no id or an id of a kind that is missing here."""
        return (not call.id or call.id.startswith(ITEM) not in self.ids) and call.args == self.first.args


@dataclass(frozen=True, slots=True)
class ToolCallingMessage:
    """A message that called tools.

    Attributes:
        run_index: position of the message's run among the unit's runs.
    """

    run_index: int
    message: AIMessage
    calls: Sequence[_Call]

    def without(self, excluded: set[_Call]) -> ToolCallingMessage | None:
        """Return the message without some of its calls; None if no call is left."""
        calls = [call for call in self.calls if call not in excluded]
        if len(calls) in (0, len(self.calls)):
            return self if calls else None
        message = self.message.model_copy(update={"tool_calls": [call.first for call in calls]})
        return replace(self, message=message, calls=calls)


class TurnCalls:
    """The tool calls of a unit's turn.

    Args:
        root_messages: the root's messages of the turn.

    Attributes:
        made: messages of models that called tools, in order. A message is structured output, and is left out, if none
            of its calls was run or has a result.
        hidden: ``made`` without the calls in the root's messages.
    """

    def __init__(self, view: UnitView, root_messages: Sequence[GenAIMessage]) -> None:
        self._runs, self._seen = view.every_model, _SeenCalls()
        called = [message for index, run in enumerate(view.every_model) for message in self._made_by(run, index)]
        self._seen.begin()
        in_root = {call for message in root_messages for call in self._seen.identify_all(message)}
        self._results = _Results(view, self._seen)
        self.made = [message for message in called if any(map(self._results.may_have, message.calls))]
        self.hidden = [rest for message in self.made if (rest := message.without(in_root)) is not None]

    def _made_by(self, run: ModelRun, index: int) -> Iterator[ToolCallingMessage]:
        """Yield the messages of a run's turn with the calls that no earlier message has."""
        self._seen.begin()
        for message in messages_of_turn(run.input) if run.may_have_tool_calls else ():
            if (calls := call_names_and_ids(message)) and (new := self._seen.add_new(message, calls, index)):
                yield _message_with_calls(index, message, new, None)
        for message in run.output:
            if calls := call_names_and_ids(message):
                has_results = len(message.get("parts") or ()) > len(calls) and bool(tool_responses(message))
                if new := self._seen.add_new(message, calls, index if has_results else index + 1):
                    yield _message_with_calls(index, message, new, run.agent)

    def with_hidden(self, turn: Sequence[GenAIMessage]) -> Iterator[Message]:
        """Yield a turn's messages and the hidden calls.

        A hidden call is before the first assistant message of a later run, otherwise before the last assistant message. If the
        turn has no assistant message, it is at the end.
        """
        waiting, index = list(self.hidden), -1
        last = max(
            (n for n, message in enumerate(turn) if role_of(message.get("role")) == ASSISTANT), default=len(turn)
        )
        for n, message in enumerate(turn):
            index = self._run_of(message, index)
            is_reply = role_of(message.get("role")) == ASSISTANT
            due = [called for called in waiting if n == last or (called.run_index < index and is_reply)]
            waiting = [called for called in waiting if called not in due]
            yield from (called.message for called in due)
            yield from sample_messages([message])
        yield from (called.message for called in waiting)

    def _run_of(self, message: GenAIMessage, after: int) -> int:
        """Return the position of the run that wrote a message; ``after`` if no later run did."""
        calls = self._seen.identify_in_own_exchange(message)
        text = None if calls else final_text([message])
        for index in range(after + 1, len(self._runs)):
            messages = self._runs[index].output
            if calls and any(self._seen.identify_in_own_exchange(reply) == calls for reply in messages):
                return index
            if text and final_text(messages) == text:
                return index
        return after

    def add_results(self, messages: Sequence[Message]) -> tuple[list[Message], int]:
        """Return a conversation with each result after its call, and the number of results that were left out.

        A result comes from the conversation, otherwise from the unit. Results without a call are left out, because some
        writers list the definitions of tools among the messages.
        """
        self._seen.begin()
        slots, left_out = match_results(messages)
        conversation: list[Message] = []
        for slot in slots:
            conversation.append(slot.message)
            if slot.open or slot.answered:
                conversation += self._results_of(slot)
        return conversation, left_out

    def _results_of(self, slot: AnsweredMessage) -> Iterator[ToolMessage]:
        for call, result in slot.answered:
            yield result if result.tool_call_id == call.id else result.model_copy(update={"tool_call_id": call.id})
        for call in calls_in(slot.message):
            seen_call = self._seen.identify(call) if slot.open or not call.id else None
            content = None if seen_call is None else self._results.result_of(seen_call)
            if content is not None and any(call is other for other in slot.open):
                yield ToolMessage(content=content, tool_call_id=call.id)


def _message_with_calls(
    run_index: int, message: GenAIMessage, calls: Sequence[_Call], agent: str | None
) -> ToolCallingMessage:
    ai_message = AIMessage(
        content=message_text(message) or "",
        tool_calls=[call.first for call in calls],
        metadata={"agent": agent} if agent else None,
    )
    return ToolCallingMessage(run_index, ai_message, calls)


class _SeenCalls:
    """The calls in the messages that were read so far.

    Messages are read in exchanges: the messages of one model run's turn, of the root, or of a conversation. Equal calls without
    ids are one repeated call if they are in two exchanges, and two calls if they are in one exchange.
    """

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str | None], _Call] = {}
        self._by_name: dict[str, list[_Call]] = {}
        self._messages: set[_CallNames] = set()
        self._exchange = 0

    def __iter__(self) -> Iterator[_Call]:
        return chain.from_iterable(self._by_name.values())

    def begin(self) -> None:
        """Begin the next exchange."""
        self._exchange += 1

    def add_new(self, message: GenAIMessage, names: _CallNames, first_run_index: int) -> list[_Call]:
        """Return the calls of a message that were not seen before, and remember them."""
        if names in self._messages:  # the usual case: an agent's prompts repeat all earlier messages
            return []
        new = [self._add(call, first_run_index) for call in tool_calls(message) if self.identify(call) is None]
        if all(identity for _, identity in names):
            self._messages.add(names)
        return new

    def identify_all(self, message: GenAIMessage) -> list[_Call]:
        """Return the calls of a message, and remember them."""
        names = call_names_and_ids(message)
        calls = [self._by_id[name] for name in names if name in self._by_id]
        if len(calls) == len(names):
            return calls
        return [self.identify(call) or self._add(call, 0) for call in tool_calls(message)]

    def identify_in_own_exchange(self, message: GenAIMessage) -> list[_Call | None]:
        """Begin an exchange that consists of this message, and return its calls; None for an unknown call."""
        self.begin()
        return [self.identify(call) for call in tool_calls(message)] if call_names_and_ids(message) else []

    def identify(self, call: ToolCall) -> _Call | None:
        """Return the seen call with the id, otherwise the first equal call that this exchange did not have; None without one.

        This exchange and the id are recorded on the call.
        """
        seen_call = self._by_id.get((call.name, call.id))
        if seen_call is not None:
            seen_call.exchange = self._exchange
            return seen_call
        for candidate in self._by_name.get(call.name, ()):
            if candidate.exchange != self._exchange and candidate.may_be(call):
                return self._record(candidate, call)
        return None

    def _add(self, call: ToolCall, first_run_index: int) -> _Call:
        added = _Call(call, first_run_index, self._exchange)
        self._by_name.setdefault(call.name, []).append(added)
        return self._record(added, call)

    def _record(self, seen_call: _Call, call: ToolCall) -> _Call:
        seen_call.exchange = self._exchange
        if call.id:
            seen_call.ids[call.id.startswith(ITEM)] = call.id
            self._by_id[call.name, call.id] = seen_call
        return seen_call


class _Results:
    """The results of tools: from their spans, otherwise from later prompts."""

    def __init__(self, view: UnitView, seen: _SeenCalls) -> None:
        self._view, self._seen = view, seen
        self._runs_by_id: dict[tuple[str, str | None], ToolRun] = {}
        for tool in view.every_tool:
            if tool.id and (tool.result is not None or (tool.name, tool.id) not in self._runs_by_id):
                self._runs_by_id[tool.name, tool.id] = tool

    def may_have(self, call: _Call) -> bool:
        """Return whether a tool ran for a call, or its result is known."""
        return self._run_by_id(call) is not None or self.result_of(call) is not None or call in self._runs_by_order

    def result_of(self, call: _Call) -> str | None:
        """Return the result of a call. None if it is unknown: by OpenTelemetry's conventions it is opt-in."""
        tool = self._run_by_id(call)
        if tool is None or tool.result is None:
            if call in self._results_in_prompts:
                return self._results_in_prompts[call]
            tool = self._runs_by_order.get(call)
        return None if tool is None or tool.result is None else as_text(tool.result)

    def _run_by_id(self, call: _Call) -> ToolRun | None:
        for identity in call.ids.values():
            if (tool := self._runs_by_id.get((call.first.name, identity))) is not None:
                return tool
        return None

    @cached_property
    def _results_in_prompts(self) -> dict[_Call, str]:
        """The results in prompts. The last prompts are read first, because an agent's prompts repeat all earlier messages."""
        results: dict[_Call, str] = {}
        sought = [call for call in self._seen if (tool := self._run_by_id(call)) is None or tool.result is None]
        for index, run in reversed([*enumerate(self._view.every_model)]):
            for results_in in (self._results_by_id, self._results_by_position):
                if not any(call.first_run_index <= index and call not in results for call in sought):
                    return results
                for call, result in results_in(run):
                    results.setdefault(call, result.content)
        return results

    def _results_by_id(self, run: ModelRun) -> Iterator[tuple[_Call, ToolMessage]]:
        """Yield the results in all messages of a run, matched by id: some prompts contain only the messages that are new."""
        for message in (*(run.input if run.may_have_tool_calls else ()), *run.output):
            for result in tool_responses(message):
                if (call := self._calls_by_unique_id.get(result.tool_call_id)) is not None:
                    yield call, result

    def _results_by_position(self, run: ModelRun) -> Iterator[tuple[_Call, ToolMessage]]:
        """Yield the results in a run's turn, matched by the calls before them."""
        self._seen.begin()
        slots, _ = match_results(
            sample_messages([*(messages_of_turn(run.input) if run.may_have_tool_calls else ()), *run.output])
        )
        for call, result in (pair for slot in slots for pair in slot.answered):
            if (seen_call := self._seen.identify(call)) is not None:
                yield seen_call, result

    @cached_property
    def _calls_by_unique_id(self) -> dict[str | None, _Call]:
        calls = [(identity, call) for call in self._seen for identity in call.ids.values()]
        times = Counter(identity for identity, _ in calls)
        return {identity: call for identity, call in calls if times[identity] == 1}

    @cached_property
    def _runs_by_order(self) -> dict[_Call, ToolRun]:
        """The runs of tools whose id belongs to no call: matched by name and arguments, or by name, each to one call."""
        names = {(call.first.name, identity) for call in self._seen for identity in call.ids.values()}
        unmatched = [tool for tool in self._view.every_tool if (tool.name, tool.id) not in names]
        matched: dict[_Call, ToolRun] = {}
        for is_run in (_has_arguments, _may_be_run) if unmatched else ():
            for call in self._seen:
                if call in matched or self._run_by_id(call) is not None:
                    continue
                if (tool := next(filter(partial(is_run, call), unmatched), None)) is not None:
                    matched[call] = tool
                    unmatched.remove(tool)
        return matched


def _has_arguments(call: _Call, tool: ToolRun) -> bool:
    return tool.name == call.first.name and _call_of(tool).args == call.first.args


def _may_be_run(call: _Call, tool: ToolRun) -> bool:
    return tool.name == call.first.name and all(may_answer(tool.id, identity) for identity in call.ids.values())


def messages_of(tools: Sequence[ToolRun]) -> list[Message]:
    """Return tool runs that no model called as one message with calls, first the calls with a result, and the results."""
    answered = [tool for tool in tools if tool.result is not None]
    calls = [_call_of(tool) for tool in (*answered, *(tool for tool in tools if tool.result is None))]
    results = [ToolMessage(content=as_text(tool.result), tool_call_id=tool.id) for tool in answered]
    return [AIMessage(tool_calls=calls), *results]


def _call_of(tool: ToolRun) -> ToolCall:
    arguments = jsonable(tool.arguments)
    return ToolCall(name=tool.name, args=arguments if isinstance(arguments, dict) else {"input": arguments}, id=tool.id)
