"""Parts of normalizers that read flat attributes, Python literals, chats and whole values, and that build GenAI spans."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from spanscore import semconv
from spanscore.core.codecs.messages import (
    ASSISTANT,
    TOOL,
    call_part,
    dict_message,
    parts_of,
    response_part,
    role_of,
    text_message,
)
from spanscore.core.codecs.sdk import WireAttributes
from spanscore.core.codecs.stored_sample import content_of_side, documents_of, messages_from, tool_answer, unfold_dump
from spanscore.core.codecs.text import fits_wire, from_wire, is_cut, jsonable, safe_text, wire_value
from spanscore.core.log import log_internal_error, plain_text
from spanscore.core.span import CUT, Attributes, NoContent, SpanData

# --- flat -----------------------------------------------------------------------------------------------------------

_MOST_DIGITS: Final = 18
"""Longest position in a name, in digits; a longer number is not a position."""


def positions(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return one mapping per position under a prefix (``llm.input_messages.0.message.role``), in order, without gaps.

    The keys are the rest of the names after the position. A position is a key, not an index: ``…1000000000.…`` costs as much
    as ``…0.…``.
    """
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            number, _, rest = name[len(prefix) :].partition(".")
            if number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS:
                found.setdefault(int(number), {})[rest] = value
    return [found[position] for position in sorted(found)]


# --- python text ----------------------------------------------------------------------------------------------------

# Some instrumentations write values as Python prints them. These functions parse such texts:
#
# {'a': 2}                             a dict, such as the arguments of LangChain's tools; a list of dicts
# messages=[HumanMessage(content='…    messages of LangChain

_LONGEST: Final = 20_000
"""Longest text that is parsed as Python, in characters: 2 ms."""
_OPENINGS: Final = ("{", "[{'")
_SHOWN: Final = re.compile(r"(?:messages=)?\[?[A-Z][A-Za-z]*Message(?:Chunk)?\(content=")
_SHOWN_MESSAGE: Final = re.compile(
    r"""([A-Z][A-Za-z]*)Message(?:Chunk)?\(content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[)""", re.DOTALL
)
_MESSAGE: Final = re.compile(
    r"""\{'role': '(\w+)', '(?:text|content)': ('(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?)""", re.DOTALL
)
"""A printed message. Messages that contain objects or were cut are not literals, but their text can still be read."""
_AS_PRINTED: Final = re.compile(r"(?:[^\\]|\\[\\'nrtxuU])*")
"""Texts with the escapes of ``repr`` only; for other escapes Python prints a warning to stderr."""


def arguments_in(value: Any) -> Any:
    """Return the arguments in ``{"args", "kwargs"}``: named arguments, or the only argument; other values unchanged."""
    if not isinstance(value, dict) or not value or value.keys() - {"args", "kwargs"}:
        return value
    args, named = value.get("args"), value.get("kwargs")
    if not args:
        return named
    return args[0] if not named and isinstance(args, list) and len(args) == 1 else value


def value_of(text: Any) -> Any:
    """Return the value in a text: JSON, a Python dict or a list of dicts; other values unchanged."""
    if not isinstance(text, str):
        return text
    parsed_value = from_wire(text)
    if parsed_value is not text or not text.startswith(_OPENINGS):
        return parsed_value
    value = _literal(text) if text.endswith(("}", "]")) and len(text) <= _LONGEST else None
    if isinstance(value, (dict, list)):
        return jsonable(value)
    begun = _MESSAGE.match(text)
    return text if begun is None else {"role": begun[1], "content": _words(begun[2])}


def shown_messages(text: str) -> list[tuple[str, str]] | None:
    """Return role and text of the LangChain messages that a text prints; None for other texts.

    A message with an unreadable text is left out.
    """
    if not _SHOWN.match(text):
        return None
    matches = [(named.lower(), _literal(shown)) for named, shown in _SHOWN_MESSAGE.findall(text)]
    return [(role, words) for role, words in matches if isinstance(words, str)]


def _words(shown: str) -> str:
    """Return the text of a printed string; a cut string lacks its closing quote."""
    words = _literal(shown + shown[0] if len(shown) == 1 or not shown.endswith(shown[0]) else shown)
    return words if isinstance(words, str) else shown[1:]


def _literal(text: str) -> Any:
    if not _AS_PRINTED.fullmatch(text):
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


# --- chats ----------------------------------------------------------------------------------------------------------

_MESSAGES = "messages"
_ASKED = ("prompts", "prompt", "input", "contents")
_SAID = ("choices", "generations", "message", "output", "content")
_BY_ROLE: Final = re.compile(r"(?:\A|\n)(system|developer|user|human|assistant|ai|tool|function): ?")
"""Separators of speakers in a text, as OpenLIT writes a prompt: ``system: …`` and ``user: …`` in lines."""
_TEXT_BLOCK: Final = "text: "
"""OpenLIT's prefix of each text in a message of blocks."""


def prompts_in(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a parsed prompt: messages, a request that has them, or texts, which are a user's."""
    if isinstance(value, dict) and _MESSAGES in value:
        return _messages(value)
    batch = _first_of_batch(_under(value, _ASKED))
    return _messages_in(batch) if isinstance(batch, str) else messages_from(unfold_dump(batch), loose=True)


def answers_in(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a parsed answer: messages, a response with choices or generations, or texts of the assistant."""
    if isinstance(value, dict) and _MESSAGES in value:
        return _messages(value)
    batch = _first_of_batch(_under(value, _SAID))
    if isinstance(batch, str) and is_cut(batch):
        return []
    read = (_answer(one) for one in (batch if isinstance(batch, list) else [batch]))
    return [message for answer in read for message in messages_from(unfold_dump(answer))]


def exchanged_in(events: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the inputs and outputs in a list of events, as Logfire and Pydantic AI write them in an attribute.

    Each event is a message, ``{"event.name": "gen_ai.user.message", "role", "content"}``, or has one under ``message``: the
    choice. Without a choice, the assistant's messages at the end are the output.
    """
    asked: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, dict):
            continue
        inner = event.get("message")
        message: dict[str, Any] = inner if isinstance(inner, dict) else event
        if role_of(message.get("role")) is not None:
            answers = isinstance(inner, dict) or event.get("event.name") == semconv.CHOICE_EVENT
            form = {"content": None, "tool_call_id": event.get("id"), **message}
            (said if answers else asked).append(dict_message(form))
    return (asked, said) if said else split_answer(asked)


def split_answer(messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages before the assistant's last messages, and the assistant's last messages."""
    end = len(messages)
    while end and messages[end - 1].get("role") == ASSISTANT:
        end -= 1
    return [*messages[:end]], [*messages[end:]]


def spoken_by(
    role: str, content: Any, calls: Sequence[Mapping[str, Any]] = (), answered: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a message of a role: a tool's answer to a call, or another role's text and calls."""
    name = role_of(role) or role
    if name == TOOL:
        return {"role": TOOL, "parts": [response_part(answered or {}, content)]}
    return {"role": name, "parts": [*parts_of(content, calls_apart=bool(calls)), *map(call_part, calls)]}


def agent_of_model(metadata: Mapping[str, Any]) -> str | None:
    """Return the agent of a LangChain model call, by the rule of spanscore's own capture; None if no agent made it."""
    name, namespace = metadata.get("lc_agent_name"), metadata.get("langgraph_checkpoint_ns")
    if isinstance(name, str) and name:
        return name
    above = namespace.split("|")[:-1] if isinstance(namespace, str) else ()
    return above[-1].partition(":")[0] if above else None


def _messages_in(prompt: str) -> list[dict[str, Any]]:
    """Return the messages of a prompt in one text: printed messages, messages separated by role, or one user message."""
    shown = shown_messages(prompt)
    if shown is None:
        pieces = _BY_ROLE.split(prompt)
        shown = list(zip(pieces[1::2], pieces[2::2], strict=True)) if not pieces[0] else None
    if shown is not None:
        return [spoken_by(role, words.removeprefix(_TEXT_BLOCK)) for role, words in shown]
    return [] if is_cut(prompt) else messages_from(prompt, loose=True)


def _messages(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a dict. Texts among them are printed objects of a client, mostly LlamaIndex's."""
    return messages_from(unfold_dump(_first_of_batch(value[_MESSAGES])))


def _under(value: Any, keys: Sequence[str]) -> Any:
    """Return the value under the first existing key; a message, or a value that is not a dict, is returned unchanged."""
    if not isinstance(value, dict) or isinstance(value.get("role"), str):
        return value
    return next((value[key] for key in keys if key in value), value)


def _first_of_batch(value: Any) -> Any:
    """Return the first of several lists of messages; other values unchanged: ``["user", "…"]`` is a message."""
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, list) and not (first and isinstance(first[0], str)) else value


def _answer(value: Any) -> Any:
    if isinstance(value, str):
        return text_message(ASSISTANT, value)
    if not isinstance(value, dict) or "role" in value:
        return value
    if "message" in value:
        return value["message"] if not isinstance(value["message"], str) else text_message(ASSISTANT, value["message"])
    return text_message(ASSISTANT, value["text"]) if isinstance(value.get("text"), str) else value


# --- whole ----------------------------------------------------------------------------------------------------------

_NONE: Final = frozenset({"null", '"null"', "None", "'None'"})
"""Texts that instrumentations write for a missing input or output."""


def parsed(value: Any, kinds: type | tuple[type, ...] = (dict, list)) -> Any:
    """Return the structure in a text, as JSON or as Python prints it; a text of another kind (``5``, ``true``) stays a text."""
    parsed_value = value_of(value)
    return parsed_value if isinstance(parsed_value, kinds) else value


def text_or_none(value: Any) -> Any:
    """Return None for an instrumentation's text for a missing input or output; other values unchanged."""
    return None if isinstance(value, str) and value in _NONE else value


def content_of(operation: str, inputs: Any, outputs: Any) -> dict[str, Any]:
    """Return the content attributes of a span for its operation, input and output; None = no such value."""
    return _READERS.get(operation, _run)(text_or_none(inputs), text_or_none(outputs))


def _run(inputs: Any, outputs: Any) -> dict[str, Any]:
    return {
        **content_of_side(parsed(inputs, dict), semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
        **content_of_side(outputs, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE),
    }


def _model(inputs: Any, outputs: Any) -> dict[str, Any]:
    return {semconv.INPUT_MESSAGES: prompts_in(inputs) or None, semconv.OUTPUT_MESSAGES: answers_in(outputs) or None}


def _tool(inputs: Any, outputs: Any) -> dict[str, Any]:
    result, documents, _ = tool_answer(outputs)
    return {
        semconv.TOOL_CALL_ARGUMENTS: unfold_dump(inputs),
        semconv.TOOL_CALL_RESULT: result,
        semconv.RETRIEVAL_DOCUMENTS: documents or None,
    }


def _retrieval(inputs: Any, outputs: Any) -> dict[str, Any]:
    query = inputs["query"] if isinstance(inputs, dict) and "query" in inputs else inputs
    documents = outputs["documents"] if isinstance(outputs, dict) and "documents" in outputs else outputs
    return {
        semconv.RETRIEVAL_QUERY: query if isinstance(query, str) else None,
        semconv.RETRIEVAL_DOCUMENTS: retrieved_by(unfold_dump(documents)),
    }


def retrieved_by(shown: Any) -> list[Any] | None:
    """Return a retriever's result, unfold_dump, as a list of documents in any form; None if it has no document.

    A document in an unknown form stays in the list, because it was retrieved, although its text is unknown.
    """
    single: list[Any] | None = [shown] if shown and isinstance(shown, (str, dict)) else None
    items = shown if isinstance(shown, list) else single
    return items and [document for item in items for document in documents_of(item) or [item]]


_READERS: Final[Mapping[str, Callable[[Any, Any], dict[str, Any]]]] = {
    **dict.fromkeys(semconv.MODEL_OPERATIONS, _model),
    semconv.EXECUTE_TOOL: _tool,
    semconv.RETRIEVAL: _retrieval,
}
"""Operation → function that makes its content; other operations use ``_run``."""


# --- building -------------------------------------------------------------------------------------------------------

Render = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Function from raw attributes that quote to content attributes of the GenAI conventions."""
_NAMES: Final[Mapping[str, str]] = {
    semconv.EXECUTE_TOOL: semconv.TOOL_NAME,
    semconv.INVOKE_AGENT: semconv.AGENT_NAME,
    semconv.INVOKE_WORKFLOW: semconv.WORKFLOW_NAME,
}
_INTERRUPTS: Final = ("GraphInterrupt", "NodeInterrupt")
"""Names of the exceptions with which LangGraph makes a run wait for a person."""
_FLAT: Final = re.compile(r"\.\d+\.")
"""Part of the name of a flat attribute whose value is one of many texts, not a structure."""
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_CONVERSATION_KEYS: Final = ("thread_id", "session_id", "conversation_id")


class AttributeLookup(Protocol):
    """Attributes of an undecoded span: a mapping, or the bytes that contain them."""

    def get(self, name: str, /) -> object:
        """Return the value of an attribute; None if it is missing, or is not a short text."""

    def __contains__(self, name: str, /) -> bool:
        """Return whether the attribute exists."""


def wire_of(span: SpanData) -> Mapping[str, Any]:
    """Return a span's attributes as received."""
    attributes = span.attributes
    return (attributes.wire or attributes) if isinstance(attributes, WireAttributes) else attributes


def plain_of(raw: Mapping[str, Any], operation: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with a GenAI name and without content, the operation, and the conversation's id."""
    plain = {name: value for name, value in raw.items() if name in semconv.PLAIN_ATTRIBUTES}
    plain[semconv.OPERATION_NAME] = operation
    plain[semconv.CONVERSATION_ID] = conversation_of(raw, metadata)
    return plain


def in_genai_names(
    span: SpanData,
    plain: Mapping[str, Any],
    raw_content: Mapping[str, Any],
    render: Render,
    *,
    no_content: NoContent | None,
    metadata: Mapping[str, Any] | None = None,
    tools: Any = None,
) -> SpanData:
    """Return the span with these attributes and no others.

    Args:
        span: the span of another instrumentation.
        plain: attributes without content, under GenAI names; None and structures are left out.
        raw_content: raw attributes with content; no other content is kept.
        render: makes content from ``raw_content``, once, on first need.
        no_content: reason for missing content if ``raw_content`` is empty; None for a span that never has content. Cut content
            is left out and the span is marked; a tool's texts are kept even if cut.
        metadata: the run's metadata, in addition to metadata under spanscore's own names. The application's key of the unit,
            if the span has it, is added.
        tools: definitions of tools in the form of their writer, parsed when a metric reads them. Definitions are no content by
            themselves: a span with definitions alone has none. None without definitions.
    """
    attributes = _plain_values(plain)
    if span.events or span.status == "error":
        attributes |= _interruption(span)
    cut = _cut_names(raw_content)
    if cut and attributes.get(semconv.OPERATION_NAME) != semconv.EXECUTE_TOOL:
        raw_content = {name: value for name, value in raw_content.items() if name not in cut}
        attributes[semconv.CONTENT_CUT] = True
        no_content = CUT
    attributes |= _definitions(tools, raw_content)
    content = partial(rendered, render, dict(raw_content)) if raw_content else None
    merged = {**span.metadata, **(metadata or {})}
    if (key := span.attributes.get(semconv.FEEDBACK_KEY)) is not None:
        merged = {**merged, semconv.FEEDBACK_METADATA: key}
    return replace(
        span,
        attributes=Attributes(attributes, content),
        events=(),
        metadata=merged,
        no_content=None if raw_content else no_content,
    )


def _definitions(tools: Any, raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attribute with the definitions of tools; empty without definitions, or if the span has no content."""
    return {semconv.TOOL_DEFINITIONS: tools} if tools is not None and raw_content else {}


def _interruption(span: SpanData) -> Mapping[str, Any]:
    """Return the attribute of an interrupted run, if LangGraph's exception ended the span; the graph's span has none."""
    types = [held.get(semconv.EXCEPTION_TYPE) for _, held in span.events] + [wire_of(span).get(semconv.ERROR_TYPE)]
    messages = [held.get(semconv.EXCEPTION_MESSAGE) for _, held in span.events]
    waits = any(str(name).endswith(_INTERRUPTS) for name in types)
    waits = waits or any(str(text).startswith((*_INTERRUPTS, "(Interrupt(")) for text in messages)
    return {semconv.RUN_END: semconv.INTERRUPTED} if waits else {}


def renamed(raw: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return GenAI names with the value of the first existing other name; None if no other name exists."""
    found: dict[str, Any] = dict.fromkeys(names)
    for name, others in names.items():
        for other in others:
            if other in raw:
                found[name] = raw[other]
                break
    return found


def named(operation: str, name: str) -> dict[str, Any]:
    """Return the attribute for the name of an operation's object; empty for operations without a name."""
    return {_NAMES[operation]: name} if operation in _NAMES else {}


def json_at(held: Mapping[str, Any], *names: str) -> Any:
    """Return the value under the first of the names that exists; JSON texts are parsed. None without a name."""
    for name in names:
        if name in held:
            value = held[name]
            return from_wire(value) if isinstance(value, str) else value
    return None


def tool_content(arguments: str, result: str) -> Render:
    """Return a renderer of a tool's content, which is JSON under these two names."""
    return lambda held: {
        semconv.TOOL_CALL_ARGUMENTS: json_at(held, arguments),
        semconv.TOOL_CALL_RESULT: json_at(held, result),
    }


def conversation_of(raw: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """Return the id of a span's conversation, from its attributes or its run's metadata; None if neither has an id."""
    ids = [raw.get(semconv.CONVERSATION_ID), raw.get(semconv.SESSION_ID), *map(metadata.get, _CONVERSATION_KEYS)]
    for value in ids:
        if value is not None and (text := plain_text(value)):
            return safe_text(text)
    return None


def is_langchain_agent(name: str, metadata: Mapping[str, Any], *, is_root: bool) -> bool:
    """Return whether a LangChain run is an agent: by the agent's name in its metadata, or at the root if it has no name."""
    if metadata.get("lc_agent_name") == name:
        return True
    return is_root and metadata.get("ls_integration") == "langchain_create_agent"


def _cut_names(raw_content: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of values with cut JSON; a value that was cut right after a bracket is only detected when it is read."""
    return [
        name
        for name, value in raw_content.items()
        if type(value) is str
        and value[:1] in _OPENING
        and value[-1:] not in _CLOSING
        and is_cut(value)
        and not _FLAT.search(name)
    ]


def _plain_values(plain: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, given in plain.items():
        kind = type(given)
        if (kind is str and given.isascii()) or (kind is int and fits_wire(given)):  # the usual case
            attributes[name] = given
        elif given is not None and (value := _plain(given)) is not None:
            attributes[name] = value
    return attributes


def _plain(value: Any) -> Any:
    """Return a value that a plain attribute may have; None for a structure."""
    if isinstance(value, (str, int, float)):
        return wire_value(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return wire_value(value)
    return None


def rendered(render: Render, raw_content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a span's raw attributes; empty if they have an unforeseen form."""
    try:
        return {name: value for name, value in render(raw_content).items() if value is not None}
    except Exception as error:  # noqa: BLE001  (an unforeseen payload: the unit is read without it)
        log_internal_error("read a span's content", error)
        return {}
