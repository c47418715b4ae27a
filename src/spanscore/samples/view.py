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
    calls_by_id,
    is_made,
    join_text_blocks,
    message_text,
    role_of,
    text_message,
)
from spanscore.core.span import SpanData, Unit
from spanscore.samples.texts import RetrievedDocument, are_messages, talk_of

# --- view -----------------------------------------------------------------------------------------------------------

GenAIMessage = Mapping[str, Any]
_LANGGRAPH = re.compile("lang(?:graph|chain)", re.IGNORECASE)
"""Matches the scopes of LangChain's instrumentations, and the default name of a graph."""


@dataclass(slots=True)
class RootValue:
    """The root's input or its output.

    Attributes:
        messages: messages, if the value is or contains a conversation.
        value: the value without the messages; None if it has only messages.
        key: key of the messages in the value.
        cut: whether an attribute limit cut content of the span with this value.
    """

    messages: Sequence[GenAIMessage] = ()
    value: Any = None
    key: str = "messages"
    cut: bool = False

    def whole(self) -> Any:
        """Return the value as the application had it: the state with its messages, the messages, or the value."""
        if not self.messages:
            return self.value
        return {**self.value, self.key: list(self.messages)} if isinstance(self.value, dict) else list(self.messages)


@dataclass(eq=False)
class ModelRun:
    """The input and the output of one call of a model.

    Attributes:
        ask: function that returns the input, called on first need because most runs' inputs are never read.
        said: messages of the output.
        agent: name of the agent that made the call; None for the unit's own agent, and if no span has a name.
        text: input as received JSON; None if it is known in another form only.
        read_variables: function that returns ``variables``; None = no template is known.
    """

    ask: Callable[[], Sequence[GenAIMessage]]
    said: Sequence[GenAIMessage]
    agent: str | None = None
    text: str | None = None
    read_variables: Callable[[], Mapping[str, Any]] | None = None

    @cached_property
    def asked(self) -> Sequence[GenAIMessage]:
        """Messages of the input, instructions first."""
        return self.ask()

    @property
    def variables(self) -> Mapping[str, Any]:
        """Variables of the prompt's template by name, JSON parsed; empty if no template is known."""
        return self.read_variables() if self.read_variables is not None else {}

    @cached_property
    def may_hold_calls(self) -> bool:
        """Whether the input may have tool calls or results, as far as its unparsed text shows."""
        return self.may_hold("tool_call", '"tool', '"function', "_tool_")

    def may_hold(self, *marks: str) -> bool:
        """Return whether the input may have any of these texts; JSON may escape any letter."""
        text = self.text
        return text is None or any(mark in text for mark in marks) or "\\u" in text


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a tool."""

    name: str
    id: str | None
    arguments: Any
    result: Any


@dataclass(slots=True)
class UnitView:
    """A unit in one form for every extractor. An extractor fills it from spans; ``extraction`` reads it.

    Attributes:
        models: model runs in the order of their ends, without models inside a tool.
        retrievals: documents of each retriever run in the order of their starts, without retrievers inside another.
        artifacts: documents in the artifacts of tool runs, in the order of their starts.
        tools: tool runs in the order of their starts, without the root and without tools inside another.
        searching: tool runs inside which a retriever ran whose documents have no text.
        callers: model runs, including models inside a tool, which may be an agent.
        every_tool: tool runs, including tools inside another.
        history: messages that a message store returned to the unit.
        expected: references by name.
        failed: whether the root ended with an error.
        score_failed: whether a model's answer inside a failed run counts as the answer.
        documents_cut: whether an attribute limit cut a retriever's documents, so that they are unknown.
    """

    unit: Unit
    input: RootValue = field(default_factory=RootValue)
    output: RootValue = field(default_factory=RootValue)
    models: Sequence[ModelRun] = ()
    retrievals: Sequence[Sequence[RetrievedDocument]] = ()
    artifacts: Sequence[Sequence[RetrievedDocument]] = ()
    tools: Sequence[ToolRun] = ()
    searching: Sequence[ToolRun] = ()
    callers: Sequence[ModelRun] = ()
    every_tool: Sequence[ToolRun] = ()
    history: Sequence[GenAIMessage] = ()
    expected: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    score_failed: bool = False
    documents_cut: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether a LangGraph was resumed, or continued from a checkpoint: the user's message came with an earlier request."""
        if self.input.value is not None or self.input.messages:
            return is_resume(self.input.value)
        speaker = self.unit.content_span
        # Unreadable: there may have been an input.
        is_silent = self.input.cut or (speaker is not None and speaker.no_content is not None)
        return not is_silent and is_langgraph(self.unit)

    def thread(self) -> list[GenAIMessage]:
        """Return the root's conversation; a LangGraph output has the whole thread, other outputs only the answer."""
        whole = human_turns(self.output.messages) > 0
        return [*(() if whole else self.input.messages), *self.output.messages]

    def turn(self) -> Sequence[GenAIMessage]:
        """Return the output after the user's message; human messages that the unit itself wrote are part of it."""
        question, messages = last_human_text(self.input.messages), self.output.messages
        at = [n for n, message in enumerate(messages) if is_human(message) and message_text(message) == question]
        return messages[at[-1] + 1 :] if at else turn_of(messages)


def human_turns(messages: Iterable[GenAIMessage]) -> int:
    """Return the number of human messages."""
    return sum(is_human(message) for message in messages)


def calls_tools(messages: Iterable[GenAIMessage]) -> bool:
    """Return whether any of the messages calls a tool."""
    return any(calls_by_id(message) for message in messages)


def in_final_form(input: RootValue, output: RootValue, unit: Unit, models: Sequence[ModelRun]) -> RootValue:
    """Return an input with human messages in the form that the final state keeps.

    An application replaces a message under its id to hide a text from models (LangChain's ``PIIMiddleware``), and the judge is
    a model, too. If the writer has no id of the input's last message, the final state's last human message replaces it in two
    cases: a step got the text under that id, or a model got the new text and no model got the old one.
    """
    humans = [message for message in output.messages if is_human(message)]
    if not (humans and input.messages):
        return input
    kept = {message["id"]: message for message in humans if message.get("id")}
    messages = [kept.get(message.get("id"), message) for message in input.messages]
    if is_human(messages[-1]) and not messages[-1].get("id"):
        messages[-1] = _kept_without_id(messages[-1], humans, unit, models)
    return replace(input, messages=messages)


def _kept_without_id(
    message: GenAIMessage, humans: Sequence[GenAIMessage], unit: Unit, models: Sequence[ModelRun]
) -> GenAIMessage:
    text = message_text(message)
    if not text or any(message_text(human) == text for human in humans):
        return message
    identity = _id_in_steps(text, unit)
    found = next((human for human in humans if identity and human.get("id") == identity), None)
    if found is None and _is_replaced(text, message_text(humans[-1]), models):
        found = humans[-1]
    return found or message


def _id_in_steps(text: str, unit: Unit) -> str | None:
    """Return the id under which a step of the unit got a human's text; None without such a step."""
    same = (one["id"] for messages in _humans_in_steps(unit) for one in messages if message_text(one) == text)
    return next(map(str, same), None)


def asked_before(unit: Unit) -> Sequence[GenAIMessage]:
    """Return the last human message of the first state that a step of the unit got; empty without such a state."""
    return next(_humans_in_steps(unit), [])[-1:]


def _humans_in_steps(unit: Unit) -> Iterator[Sequence[GenAIMessage]]:
    """Yield the human messages with ids, as a state has them, from the inputs of steps."""
    for span in unit.spans:
        prompts = span.attributes.get(semconv.INPUT_MESSAGES)
        listed = prompts if isinstance(prompts, list) and span is not unit.root else []
        if humans := [item for item in listed if isinstance(item, dict) and item.get("id") and is_human(item)]:
            yield humans


def _is_replaced(text: str, kept: str | None, models: Sequence[ModelRun]) -> bool:
    """Return whether a model got ``kept``, and no model got ``text``."""
    if not kept or not any(last_human_text(run.asked) == kept for run in models):
        return False
    return not any(text in (message_text(message) or "") for run in models for message in run.asked)


def turn_of(messages: Sequence[GenAIMessage]) -> Sequence[GenAIMessage]:
    """Return the messages after the last human message: those of this turn."""
    for at in reversed(range(len(messages))):
        if is_human(messages[at]):
            return messages[at + 1 :]
    return messages[:]


def last_human_text(messages: Sequence[GenAIMessage]) -> str | None:
    """Return the text of the last human message; None without such a message or text.

    Consecutive human messages are one turn: an image or a file after the text is added to the text.
    """
    last: str | None = None
    shown: list[str] = []
    has_human = False
    for message in reversed(messages):
        if is_human(message):
            text = message_text(message)
            if text and not is_marker(text):
                return "\n".join([text, *shown])
            shown[:0] = [text] if text else []
            last, has_human = (last if has_human else text), True
        elif has_human:
            break
    return "\n".join(shown) or last


def is_human(message: GenAIMessage) -> bool:
    """Return whether a human wrote the message; user messages with tool answers only, or from a middleware, do not count."""
    return role_of(message.get("role")) == USER and not is_made(message) and not _only_responses(message)


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


def topmost(spans: Sequence[SpanData], under: Sequence[SpanData], unit: Unit) -> list[SpanData]:
    """Return the spans that are not inside one of ``under``: the model saw the result of the outer retriever."""
    outer = {span.span_id for span in under}
    if not outer:
        return [*spans]
    within = by_id(unit)
    return [span for span in spans if outer.isdisjoint(above.span_id for above in ancestors(span, within))]


def by_id(unit: Unit) -> Mapping[int, SpanData]:
    """Return the spans of a unit by their ids."""
    return {span.span_id: span for span in unit.spans}


def ancestors(span: SpanData, within: Mapping[int, SpanData]) -> list[SpanData]:
    """Return the spans around a span, the nearest first; a loop of parents ends. ``within`` has the unit's spans by id."""
    above: dict[int, SpanData] = {}
    parent = span.parent_id
    while parent is not None and parent in within and parent not in above and parent != span.span_id:
        above[parent] = within[parent]
        parent = within[parent].parent_id
    return list(above.values())


# --- channel --------------------------------------------------------------------------------------------------------

# A root may have its conversation under another key than ``messages``, as in ``{"chat": [("user", "…")]}``. Under that key the
# input must end with a human message: a history next to a question ends with an answer.


def conversing(input: RootValue, output: RootValue, known: Sequence[str]) -> tuple[RootValue, RootValue]:
    """Return input and output with their messages, even if these are under another key; unchanged if it is not one key.

    If the input has a ``known`` key of a question, its messages are the earlier conversation.
    """
    after = output.value if isinstance(output.value, dict) else {}
    channel = None if input.messages or output.messages else _channel(input.value, after, known)
    if channel is None:
        return input, output
    key, talk = channel
    return _with(input, key, talk), _with(output, key, after[key]) if are_messages(after.get(key)) else output


def _channel(value: Any, after: Mapping[str, Any], known: Sequence[str]) -> tuple[str, Sequence[GenAIMessage]] | None:
    """Return the only key of an input with messages that end with a human message, and these messages; otherwise None."""
    if not isinstance(value, dict) or is_resume(value):
        return None
    talks = {key: _talk(inner, goes_on=are_messages(after.get(key))) for key, inner in value.items()}
    keys = [key for key, talk in talks.items() if talk and is_human(talk[-1])]
    if len(keys) != 1 or any(value.get(key) is not None for key in known if key not in keys):
        return None
    return keys[0], talks[keys[0]]


def _with(side: RootValue, key: str, messages: Sequence[GenAIMessage]) -> RootValue:
    rest = {name: inner for name, inner in side.value.items() if name != key}
    return RootValue(messages, rest or None, key)


def _talk(value: Any, *, goes_on: bool) -> Sequence[GenAIMessage]:
    """Return messages, or pairs of (role, text), as messages; ``goes_on`` allows a single message or a text, too."""
    if goes_on and not isinstance(value, list):
        value = [text_message(USER, value) if isinstance(value, str) else value]
    return talk_of(value)


# --- search results -------------------------------------------------------------------------------------------------

# Documents in a prompt as separate blocks: Anthropic's ``search_result``, from a user or in a tool's result.

_KIND = "search_result"


def search_results(view: UnitView) -> list[list[RetrievedDocument]]:
    """Return the documents in the last prompt's blocks, from its last human message on, as one retrieval; may be empty."""
    run = view.models[-1] if view.models else None
    documents: list[RetrievedDocument] = []
    for message in reversed(run.asked) if run is not None and run.may_hold(_KIND) else ():
        parts = message.get("parts", message.get("content"))
        if type(parts) is list and not (len(parts) == 1 and type(parts[0]) is dict and parts[0].get("type") == "text"):
            documents[:0] = _documents(parts)
        if role_of(message["role"]) == USER and is_human(message):
            break
    return [documents] if documents else []


def _documents(parts: list[Any]) -> Iterator[RetrievedDocument]:
    """Yield the documents in the blocks of parts, including parts that are results of tools."""
    for part in parts:
        kind = part.get("type") if type(part) is dict else None
        if kind == "tool_call_response" and type(part.get("response")) is list:
            yield from _documents(part["response"])
        elif kind == _KIND:
            text, source = join_text_blocks(part.get("content")), part.get("source")
            if isinstance(text, str) and text:
                yield RetrievedDocument(text, source if isinstance(source, str) and source else None)
