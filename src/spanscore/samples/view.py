"""View: what a unit did, in one form for every extractor; conversations under other keys, and search results in prompts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.messages import USER, calls_by_id, is_made, joined, message_text, role_of, text_message
from spanscore.core.span import SpanData, Unit
from spanscore.samples.texts import RetrievedDocument, are_messages, talk_of

# --- view -----------------------------------------------------------------------------------------------------------

GenAIMessage = Mapping[str, Any]
_LANGGRAPH = re.compile("lang(?:graph|chain)", re.IGNORECASE)
"""What the scopes of instrumentations of LangChain hold, or the name of a graph that was given none."""


@dataclass(slots=True)
class RootValue:
    """The root's input or its output.

    Attributes:
        messages: where it is a conversation, or holds one.
        value: what it holds besides; None = nothing.
        key: under which it holds its messages.
        cut: an attribute limit cut content of the span that the side stands on.
    """

    messages: Sequence[GenAIMessage] = ()
    value: Any = None
    key: str = "messages"
    cut: bool = False

    def whole(self) -> Any:
        """Return it as the application had it: the state with its messages, the messages, or the value."""
        if not self.messages:
            return self.value
        return {**self.value, self.key: list(self.messages)} if isinstance(self.value, dict) else list(self.messages)


class ModelRun:
    """One call of a model: what it was asked, what it said.

    Args:
        ask: gives what it was asked, which is read on first need: of most runs nobody asks.
        text: JSON of what it was asked, as it came; None if that is known in another form only.
        variables: returns the variables of the prompt's template by name; None = no template is known.

    Attributes:
        said: what it said.
        agent: for whom it spoke; None for the unit's own agent, and where no span says.
    """

    def __init__(
        self,
        ask: Callable[[], Sequence[GenAIMessage]],
        said: Sequence[GenAIMessage],
        agent: str | None = None,
        *,
        text: str | None = None,
        variables: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._ask = ask
        self._text = text
        self._variables = variables
        self.said = said
        self.agent = agent

    @cached_property
    def asked(self) -> Sequence[GenAIMessage]:
        """What it was asked, instructions first."""
        return self._ask()

    @property
    def variables(self) -> Mapping[str, Any]:
        """Variables of the prompt's template by name, JSON parsed; empty if no template is known."""
        return self._variables() if self._variables is not None else {}

    @cached_property
    def may_hold_calls(self) -> bool:
        """Whether calls of tools, or results, may stand in what it was asked, as far as that is known without reading it."""
        return self.may_hold("tool_call", '"tool', '"function', "_tool_")

    def may_hold(self, *marks: str) -> bool:
        """Whether any of these texts may stand in what it was asked; JSON may write any letter by its number."""
        text = self._text
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
    """What a unit did, in one form for every extractor. An extractor fills it from spans; `extraction` searches in it.

    Attributes:
        models: in the order of their ends; a model inside a tool is part of it.
        retrievals: what each retriever run found, in the order of their starts; a retriever inside another is part of it.
        documents_cut: an attribute limit cut what a retriever found: it is not known.
        artifacts: documents in the artifact of each tool run that has any, likewise.
        tools: in the order of their starts, the root aside; a tool inside another is part of it.
        searching: the tool runs inside which a retriever ran whose documents have no text.
        callers: as ``models``, with those inside a tool: an agent may be one.
        every_tool: as ``tools``, with those inside another.
        history: what a store of messages gave to the unit.
        failed: the root ended with an error.
        score_failed: what a model said inside of a run that failed is its answer.
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
        """Whether a LangGraph was resumed, or run on from a checkpoint: what the user gave came with an earlier request."""
        if self.input.value is not None or self.input.messages:
            return is_resume(self.input.value)
        speaker = self.unit.content_span
        # Nothing of it can be read: it may have been given any.
        is_silent = self.input.cut or (speaker is not None and speaker.no_content is not None)
        return not is_silent and is_langgraph(self.unit)

    def thread(self) -> list[GenAIMessage]:
        """Return the root's conversation; a LangGraph output holds the whole thread, other outputs only the answer."""
        whole = human_turns(self.output.messages) > 0
        return [*(() if whole else self.input.messages), *self.output.messages]

    def turn(self) -> Sequence[GenAIMessage]:
        """Return what the output says after the user's words; a human message that the unit itself wrote is part of it."""
        asked, messages = last_human_text(self.input.messages), self.output.messages
        at = [n for n, message in enumerate(messages) if is_human(message) and message_text(message) == asked]
        return messages[at[-1] + 1 :] if at else turn_of(messages)


def human_turns(messages: Iterable[GenAIMessage]) -> int:
    """Return how many messages are a human's."""
    return sum(is_human(message) for message in messages)


def calls_tools(messages: Iterable[GenAIMessage]) -> bool:
    """Whether any of the messages calls a tool."""
    return any(calls_by_id(message) for message in messages)


def in_final_form(input: RootValue, output: RootValue, unit: Unit, models: Sequence[ModelRun]) -> RootValue:
    """Return an input whose human messages have the text that the final state keeps of them.

    An application replaces a message under its id to keep a text from models (LangChain's ``PIIMiddleware``), and the judge
    is a model too. If the writer has no id of the input's last message, the final state's last human message is the same one
    if a step was given the text under that id, or if a model was asked the one and none was shown the other.
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
    """Return the id under which a step of the unit was given a human's text; None if no step was."""
    same = (one["id"] for given in _humans_in_steps(unit) for one in given if message_text(one) == text)
    return next(map(str, same), None)


def asked_before(unit: Unit) -> Sequence[GenAIMessage]:
    """Return the last human message of the first state that a step of the unit was given; empty if no step was given one."""
    return next(_humans_in_steps(unit), [])[-1:]


def _humans_in_steps(unit: Unit) -> Iterator[Sequence[GenAIMessage]]:
    """Yield the human messages that have ids, as those of a state do, of each step that was given any."""
    for span in unit.spans:
        given = span.attributes.get(semconv.INPUT_MESSAGES)
        listed = given if isinstance(given, list) and span is not unit.root else []
        humans = [one for one in listed if isinstance(one, dict) and one.get("id") and is_human(one)]
        if humans:
            yield humans


def _is_replaced(text: str, kept: str | None, models: Sequence[ModelRun]) -> bool:
    """Whether a model was asked ``kept``, and none was shown ``text``."""
    if not kept or not any(last_human_text(run.asked) == kept for run in models):
        return False
    return not any(text in (message_text(message) or "") for run in models for message in run.asked)


def turn_of(messages: Sequence[GenAIMessage]) -> Sequence[GenAIMessage]:
    """Return the messages after the last human one: this turn's."""
    for at in reversed(range(len(messages))):
        if is_human(messages[at]):
            return messages[at + 1 :]
    return messages[:]


def last_human_text(messages: Sequence[GenAIMessage]) -> str | None:
    """Return what the last human message says, None without one or it holds no words.

    Human messages in a row are one turn: an image, or a file, behind the words does not take their place.
    """
    last: str | None = None
    heard = False
    for message in reversed(messages):
        if is_human(message):
            text = message_text(message)
            if text:
                return text
            last, heard = (last if heard else text), True
        elif heard:
            break
    return last


def is_human(message: GenAIMessage) -> bool:
    """Whether a human speaks; a user message that only brings tools' answers, or that a middleware made, is none."""
    return role_of(message.get("role")) == USER and not is_made(message) and not _only_responses(message)


def _only_responses(message: GenAIMessage) -> bool:
    parts = message.get("parts")
    if not isinstance(parts, list):
        return False
    if parts and type(parts[0]) is dict and parts[0].get("type") == "text":  # as most do
        return False
    kinds = {part.get("type") for part in parts if type(part) is dict or isinstance(part, Mapping)}
    return kinds == {"tool_call_response"}


def is_resume(value: Any) -> bool:
    """Whether an input is LangGraph's ``Command(resume=…)``, as the codec renders it."""
    return isinstance(value, dict) and value.get("type") == "Command"


def is_langgraph(unit: Unit) -> bool:
    """Whether a unit may be a run of LangGraph: by its root's scope or name, or by the metadata that LangGraph gives nodes."""
    root = unit.root
    if root is not None and (root.scope == semconv.CAPTURE_SCOPE or _LANGGRAPH.search(f"{root.scope} {root.name}")):
        return True
    return any(key.startswith("langgraph_") for span in unit.spans for key in span.metadata)


def topmost(spans: Sequence[SpanData], under: Sequence[SpanData], unit: Unit) -> list[SpanData]:
    """Return the spans that are not inside one of ``under``: what an outer retriever gives is what the model saw."""
    outer = {span.span_id for span in under}
    if not outer:
        return [*spans]
    within = by_id(unit)
    return [span for span in spans if outer.isdisjoint(above.span_id for above in ancestors(span, within))]


def by_id(unit: Unit) -> Mapping[int, SpanData]:
    """Return the spans of a unit by their ids."""
    return {span.span_id: span for span in unit.spans}


def ancestors(span: SpanData, within: Mapping[int, SpanData]) -> list[SpanData]:
    """Return the spans around a span, the nearest first; a loop of parents ends.

    Args:
        span: of a unit.
        within: the unit's, by their ids.
    """
    above: dict[int, SpanData] = {}
    parent = span.parent_id
    while parent is not None and parent in within and parent not in above and parent != span.span_id:
        above[parent] = within[parent]
        parent = within[parent].parent_id
    return list(above.values())


# --- channel --------------------------------------------------------------------------------------------------------

# A root may hold its conversation under another key than ``messages``, as in ``{"chat": [("user", "…")]}``. The key is one
# under which the input's last words are a human's: a history that comes beside a question ends with an answer.


def conversing(input: RootValue, output: RootValue, known: Sequence[str]) -> tuple[RootValue, RootValue]:
    """Return input and output with their messages, also those under another key; unchanged where no one key holds them.

    Where the input has a ``known`` key of a question, its messages are what was said before.
    """
    after = output.value if isinstance(output.value, dict) else {}
    channel = None if input.messages or output.messages else _channel(input.value, after, known)
    if channel is None:
        return input, output
    key, talk = channel
    return _with(input, key, talk), _with(output, key, after[key]) if are_messages(after.get(key)) else output


def _channel(value: Any, after: Mapping[str, Any], known: Sequence[str]) -> tuple[str, Sequence[GenAIMessage]] | None:
    """Return the one key of an input under which there are messages, the last a human's, with these messages."""
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
    """Return a value as messages: some, or (role, text); where the output goes on with it also one message, or a text."""
    if goes_on and not isinstance(value, list):
        value = [text_message(USER, value) if isinstance(value, str) else value]
    return talk_of(value)


# --- search results -------------------------------------------------------------------------------------------------

# Documents that stand in a prompt as blocks of their own: Anthropic's ``search_result``, of a user or in a tool's result.

_KIND = "search_result"


def search_results(view: UnitView) -> list[list[RetrievedDocument]]:
    """Return the documents in the last prompt's blocks, from its last human message on, as of one retrieval, if it has any."""
    run = view.models[-1] if view.models else None
    found: list[RetrievedDocument] = []
    for message in reversed(run.asked) if run is not None and run.may_hold(_KIND) else ():
        parts = message.get("parts", message.get("content"))
        if type(parts) is list and not (len(parts) == 1 and type(parts[0]) is dict and parts[0].get("type") == "text"):
            found[:0] = _documents(parts)
        if role_of(message["role"]) == USER and is_human(message):
            break
    return [found] if found else []


def _documents(parts: list[Any]) -> Iterator[RetrievedDocument]:
    """Give the documents in the blocks of parts, also of parts that are results of tools."""
    for part in parts:
        kind = part.get("type") if type(part) is dict else None
        if kind == "tool_call_response" and type(part.get("response")) is list:
            yield from _documents(part["response"])
        elif kind == _KIND:
            text, source = joined(part.get("content")), part.get("source")
            if isinstance(text, str) and text:
                yield RetrievedDocument(text, source if isinstance(source, str) and source else None)
