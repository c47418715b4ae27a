"""A view of a unit in one form for every extractor: root input and output, model runs, tools, retrievals, conversation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.media import is_marker
from spanscore.core.codecs.messages import (
    USER,
    call_names_and_ids,
    is_made_by_middleware,
    join_text_blocks,
    message_text,
    role_of,
    text_message,
)
from spanscore.core.span import SpanData, Unit
from spanscore.samples.texts import RetrievedDocument, are_messages, as_messages

GenAIMessage = Mapping[str, Any]
"""A message of the GenAI conventions: ``role`` and ``parts``, or ``content``."""
_LANGGRAPH = re.compile("lang(?:graph|chain)", re.IGNORECASE)
"""Matches the scopes of LangChain's instrumentations, and the default name of a graph."""


@dataclass(slots=True)
class RootValue:
    """The root's input or its output.

    Attributes:
        messages: messages, if the value is or contains a conversation.
        value: the value without the messages; None if it has only messages.
        key: key of the messages in the value.
        cut: whether an attribute limit cut this value, which is then missing.
    """

    messages: Sequence[GenAIMessage] = ()
    value: Any = None
    key: str = "messages"
    cut: bool = False

    def whole(self) -> Any:
        """Return the value with its messages, as the application had it."""
        if not self.messages:
            return self.value
        return {**self.value, self.key: list(self.messages)} if isinstance(self.value, dict) else list(self.messages)


@dataclass(eq=False)
class ModelRun:
    """The input and the output of one call of a model.

    Attributes:
        read_input: function that returns the input; called on first need, because most inputs are never read.
        output: messages of the output.
        agent: name of the agent that made the call; None for the unit's own agent, and if no span has a name.
        input_json: whole input as unparsed JSON; None if it exists only in another form.
        read_variables: function that returns ``variables``; None = the prompt had no known template.
    """

    read_input: Callable[[], Sequence[GenAIMessage]]
    output: Sequence[GenAIMessage]
    agent: str | None = None
    input_json: str | None = None
    read_variables: Callable[[], Mapping[str, Any]] | None = None

    @cached_property
    def input(self) -> Sequence[GenAIMessage]:
        """Messages of the input, instructions first."""
        return self.read_input()

    @property
    def variables(self) -> Mapping[str, Any]:
        """Variable of the prompt's template → its value, with JSON parsed; empty without a known template."""
        return self.read_variables() if self.read_variables is not None else {}

    @cached_property
    def may_have_tool_calls(self) -> bool:
        """Whether the input may contain tool calls or results. The unparsed JSON is searched, which is fast."""
        return self.input_may_contain("tool_call", '"tool', '"function', "_tool_")

    def input_may_contain(self, *marks: str) -> bool:
        """Return whether the input may contain any of these texts; true if it has escapes, which may spell any letter."""
        text = self.input_json
        return text is None or any(mark in text for mark in marks) or "\\u" in text


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a tool. ``id`` is the id of the call that it answers; None = unknown."""

    name: str
    id: str | None
    arguments: Any
    result: Any


@dataclass(slots=True)
class UnitView:
    """A unit in one form for every extractor. An extractor fills it from spans; ``extraction`` reads it.

    Attributes:
        models: model runs in the order of their ends, without models inside a tool.
        every_model: model runs in the order of their ends; models inside a tool are included, because the tool may be an agent.
        tools: tool runs in the order of their starts, without the root and without tools inside another tool.
        every_tool: tool runs in the order of their starts, without the root.
        retrievals: documents of each retriever run in the order of the runs' starts, without retrievers inside another.
        artifacts: documents in the artifacts of tool runs, in the order of the runs' starts.
        retrieving_tools: tools inside which the retrievers ran; empty if every document has its text.
        history: messages that a message store returned to the unit.
        expected: references by name.
        failed: whether the root ended with an error.
        score_failed: whether a model's answer inside a failed run counts as the answer.
        documents_cut: whether an attribute limit cut a retriever's documents, which are then missing.
    """

    unit: Unit
    input: RootValue = field(default_factory=RootValue)
    output: RootValue = field(default_factory=RootValue)
    models: Sequence[ModelRun] = ()
    retrievals: Sequence[Sequence[RetrievedDocument]] = ()
    artifacts: Sequence[Sequence[RetrievedDocument]] = ()
    tools: Sequence[ToolRun] = ()
    retrieving_tools: Sequence[ToolRun] = ()
    every_model: Sequence[ModelRun] = ()
    every_tool: Sequence[ToolRun] = ()
    history: Sequence[GenAIMessage] = ()
    expected: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    score_failed: bool = False
    documents_cut: bool = False

    @property
    def continues_thread(self) -> bool:
        """Whether a LangGraph was resumed, or continued from a checkpoint: an earlier request had the user's message."""
        if self.input.value is not None or self.input.messages:
            return is_resume(self.input.value)
        span = self.unit.content_span
        may_have_input = self.input.cut or (span is not None and span.no_content is not None)
        return not may_have_input and is_langgraph(self.unit)

    def all_messages(self) -> list[GenAIMessage]:
        """Return the root's conversation. A LangGraph's output contains the input's messages; other outputs do not."""
        contains_input = count_human_messages(self.output.messages) > 0
        return [*(() if contains_input else self.input.messages), *self.output.messages]

    def output_of_turn(self) -> Sequence[GenAIMessage]:
        """Return the output's messages after the user's question. The unit itself may have written further human messages."""
        question, messages = last_human_text(self.input.messages), self.output.messages
        at = [n for n, message in enumerate(messages) if is_human(message) and message_text(message) == question]
        return messages[at[-1] + 1 :] if at else messages_of_turn(messages)


def count_human_messages(messages: Iterable[GenAIMessage]) -> int:
    """Return the number of human messages."""
    return sum(is_human(message) for message in messages)


def calls_tools(messages: Iterable[GenAIMessage]) -> bool:
    """Return whether any of the messages calls a tool."""
    return any(call_names_and_ids(message) for message in messages)


def replace_edited_messages(input: RootValue, output: RootValue, unit: Unit, models: Sequence[ModelRun]) -> RootValue:
    """Return an input in which the human messages have the text of the output's message with the same id.

    An application edits a message to hide a text from models (LangChain's ``PIIMiddleware``), and the judge is a model, too.
    If the input's last message has no id, one of the output's human messages replaces it in two cases:

    1. a step got the same text, under the id of that message;
    2. a model got the text of the last human message, and no model got the input's text.
    """
    humans = [message for message in output.messages if is_human(message)]
    if not (humans and input.messages):
        return input
    edited = {message["id"]: message for message in humans if message.get("id")}
    messages = [edited.get(message.get("id"), message) for message in input.messages]
    if is_human(messages[-1]) and not messages[-1].get("id"):
        messages[-1] = _edited_message(messages[-1], humans, unit, models)
    return replace(input, messages=messages)


def _edited_message(
    message: GenAIMessage, humans: Sequence[GenAIMessage], unit: Unit, models: Sequence[ModelRun]
) -> GenAIMessage:
    text = message_text(message)
    if not text or any(message_text(human) == text for human in humans):
        return message
    in_steps = (human for messages in _humans_in_steps(unit) for human in messages)
    message_id = next((str(human["id"]) for human in in_steps if message_text(human) == text), None)
    for human in humans if message_id else ():
        if human.get("id") == message_id:
            return human
    return humans[-1] if _is_replaced(text, message_text(humans[-1]), models) else message


def last_human_in_steps(unit: Unit) -> Sequence[GenAIMessage]:
    """Return the last human message of the first state that a step of the unit got; empty without such a state."""
    return next(_humans_in_steps(unit), [])[-1:]


def _humans_in_steps(unit: Unit) -> Iterator[Sequence[GenAIMessage]]:
    """Yield the human messages in the input of each step that got a state: a state's messages have ids."""
    for span in unit.spans:
        prompts = span.attributes.get(semconv.INPUT_MESSAGES)
        listed = prompts if isinstance(prompts, list) and span is not unit.root else []
        if humans := [item for item in listed if isinstance(item, dict) and item.get("id") and is_human(item)]:
            yield humans


def _is_replaced(text: str, new_text: str | None, models: Sequence[ModelRun]) -> bool:
    if not new_text or not any(last_human_text(run.input) == new_text for run in models):
        return False
    return not any(text in (message_text(message) or "") for run in models for message in run.input)


def messages_of_turn(messages: Sequence[GenAIMessage]) -> Sequence[GenAIMessage]:
    """Return the messages after the last human message; all messages without a human message."""
    for at in reversed(range(len(messages))):
        if is_human(messages[at]):
            return messages[at + 1 :]
    return messages[:]


def last_human_text(messages: Sequence[GenAIMessage]) -> str | None:
    """Return the text of the last human message; None without such a message or text.

    Consecutive human messages are one turn: the markers of images and files after the text are added to the text.
    """
    last_text: str | None = None
    markers: list[str] = []
    has_human = False
    for message in reversed(messages):
        if is_human(message):
            text = message_text(message)
            if text and not is_marker(text):
                return "\n".join([text, *markers])
            markers[:0] = [text] if text else []
            last_text, has_human = (last_text if has_human else text), True
        elif has_human:
            break
    return "\n".join(markers) or last_text


def is_human(message: GenAIMessage) -> bool:
    """Return whether a human wrote the message. Some user messages contain only tool results, or come from a middleware."""
    return role_of(message.get("role")) == USER and not is_made_by_middleware(message) and not _only_responses(message)


def _only_responses(message: GenAIMessage) -> bool:
    parts = message.get("parts")
    if not isinstance(parts, list):
        return False
    if parts and type(parts[0]) is dict and parts[0].get("type") == "text":  # the usual case
        return False
    kinds = {part.get("type") for part in parts if type(part) is dict or isinstance(part, Mapping)}
    return kinds == {"tool_call_response"}


def is_resume(value: Any) -> bool:
    """Return whether an input is LangGraph's ``Command(resume=…)``, as the codec renders it."""
    return isinstance(value, dict) and value.get("type") == "Command"


def is_langgraph(unit: Unit) -> bool:
    """Return whether a unit may be a LangGraph run: by its root's scope or name, or by LangGraph's metadata on nodes."""
    root = unit.root
    if root is not None and (root.scope == semconv.CAPTURE_SCOPE or _LANGGRAPH.search(f"{root.scope} {root.name}")):
        return True
    return any(key.startswith("langgraph_") for span in unit.spans for key in span.metadata)


def spans_outside(spans: Sequence[SpanData], outer: Sequence[SpanData], unit: Unit) -> list[SpanData]:
    """Return the spans that are not inside one of the ``outer`` spans."""
    outer_ids = {span.span_id for span in outer}
    if not outer_ids:
        return [*spans]
    by_id = spans_by_id(unit)
    return [span for span in spans if outer_ids.isdisjoint(above.span_id for above in ancestors(span, by_id))]


def spans_by_id(unit: Unit) -> Mapping[int, SpanData]:
    """Return span id → span for the spans of a unit."""
    return {span.span_id: span for span in unit.spans}


def ancestors(span: SpanData, by_id: Mapping[int, SpanData]) -> list[SpanData]:
    """Return the spans around a span, the nearest first. ``by_id`` is ``spans_by_id``. A loop of parents ends."""
    above: dict[int, SpanData] = {}
    parent = span.parent_id
    while parent is not None and parent in by_id and parent not in above and parent != span.span_id:
        above[parent] = by_id[parent]
        parent = by_id[parent].parent_id
    return list(above.values())


# --- a conversation under another key than ``messages`` --------------------------------------------------------------


def find_conversation(input: RootValue, output: RootValue, question_keys: Sequence[str]) -> tuple[RootValue, RootValue]:
    """Return input and output with their messages if these are under another key, as in ``{"chat": [("user", "…")]}``.

    Both are returned unchanged unless exactly one key of the input has messages that end with a human message. If the input
    has a question under one of ``question_keys``, messages under other keys are the earlier conversation.
    """
    if input.messages or output.messages or not isinstance(input.value, dict) or is_resume(input.value):
        return input, output
    state = output.value if isinstance(output.value, dict) else {}
    lists = {key: _messages_in(inner, is_key=are_messages(state.get(key))) for key, inner in input.value.items()}
    key = _conversation_key(input.value, lists, question_keys)
    if key is None:
        return input, output
    with_messages = _with_messages(output, key, state[key]) if are_messages(state.get(key)) else output
    return _with_messages(input, key, lists[key]), with_messages


def _conversation_key(
    value: Mapping[str, Any], lists: Mapping[str, Sequence[GenAIMessage]], question_keys: Sequence[str]
) -> str | None:
    keys = [key for key, messages in lists.items() if messages and is_human(messages[-1])]
    has_question = any(value.get(key) is not None for key in question_keys if key not in keys)
    return keys[0] if len(keys) == 1 and not has_question else None


def _messages_in(value: Any, *, is_key: bool) -> Sequence[GenAIMessage]:
    """Return a list of messages or of (role, text) as messages; if ``is_key``, also a single message or a text."""
    if is_key and not isinstance(value, list):
        value = [text_message(USER, value) if isinstance(value, str) else value]
    return as_messages(value)


def _with_messages(side: RootValue, key: str, messages: Sequence[GenAIMessage]) -> RootValue:
    rest = {name: inner for name, inner in side.value.items() if name != key}
    return RootValue(messages, rest or None, key)


# --- search results -------------------------------------------------------------------------------------------------

_KIND = "search_result"
"""Type of Anthropic's blocks with a document, in a user's message or in a tool's result."""


def search_results(view: UnitView) -> list[list[RetrievedDocument]]:
    """Return the documents in blocks of the last prompt, from its last human message on, as one retrieval, or ``[]``."""
    run = view.models[-1] if view.models else None
    documents: list[RetrievedDocument] = []
    for message in reversed(run.input) if run is not None and run.input_may_contain(_KIND) else ():
        parts = message.get("parts", message.get("content"))
        if type(parts) is list and not (len(parts) == 1 and type(parts[0]) is dict and parts[0].get("type") == "text"):
            documents[:0] = _documents(parts)
        if role_of(message["role"]) == USER and is_human(message):
            break
    return [documents] if documents else []


def _documents(parts: list[Any]) -> Iterator[RetrievedDocument]:
    """Yield the documents in parts of a message, and in the tool results among the parts."""
    for part in parts:
        kind = part.get("type") if type(part) is dict else None
        if kind == "tool_call_response" and type(part.get("response")) is list:
            yield from _documents(part["response"])
        elif kind == _KIND:
            text, source = join_text_blocks(part.get("content")), part.get("source")
            if isinstance(text, str) and text:
                yield RetrievedDocument(text, source if isinstance(source, str) and source else None)
