"""Functions that several normalizers use: they read the forms of other instrumentations, and build spans in GenAI names.

*Raw* attributes are the attributes as another instrumentation wrote them. *Plain* attributes have no content.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
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

# --- flat attributes ------------------------------------------------------------------------------------------------

_MOST_DIGITS: Final = 18
"""Longest position in a name, in digits; a longer number is not a position."""


def positions(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return one mapping per position under a prefix (``llm.input_messages.0.message.role``), in order, without gaps.

    The keys are the rest of the names after the position. A high position (``…1000000000.…``) costs no more than ``…0.…``.
    """
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            number, _, rest = name[len(prefix) :].partition(".")
            if number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS:
                found.setdefault(int(number), {})[rest] = value
    return [found[position] for position in sorted(found)]


# --- printed Python values --------------------------------------------------------------------------------------------

# Some instrumentations write values as Python prints them. These functions parse such texts:
#
# {'a': 2}                             a dict, such as the arguments of LangChain's tools; a list of dicts
# messages=[HumanMessage(content='…    messages of LangChain

_LONGEST: Final = 20_000
"""Longest text that is parsed as Python, in characters: 2 ms."""
_OPENINGS: Final = ("{", "[{'")
"""Beginnings of texts that may be printed dicts or lists of dicts."""
_PRINTED_MESSAGES: Final = re.compile(r"(?:messages=)?\[?[A-Z][A-Za-z]*Message(?:Chunk)?\(content=")
_PRINTED_MESSAGE: Final = re.compile(
    r"""([A-Z][A-Za-z]*)Message(?:Chunk)?\(content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[)""", re.DOTALL
)
_PRINTED_MESSAGE_DICT: Final = re.compile(
    r"""\{'role': '(\w+)', '(?:text|content)': ('(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?)""", re.DOTALL
)
"""Matches the role and text of a printed message that is no literal, because it contains objects or was cut."""
_ONLY_REPR_ESCAPES: Final = re.compile(r"(?:[^\\]|\\[\\'nrtxuU])*")
"""Matches texts with the escapes of ``repr`` only; for other escapes Python prints a warning to stderr."""


_OF_SMOLAGENTS: Final = "sanitize_inputs_outputs"
"""Parameter of smolagents' own method, beside the arguments of a tool."""


def arguments_in(value: Any) -> Any:
    """Return the arguments in ``{"args": […], "kwargs": {…}}``: the only argument, otherwise all by position or name.

    Other values are returned unchanged.
    """
    if not isinstance(value, dict) or not value or value.keys() - {"args", "kwargs", _OF_SMOLAGENTS}:
        return value
    args, kwargs = value.get("args"), value.get("kwargs")
    if not args:
        return kwargs
    if not isinstance(args, list):
        return value
    positional = {str(position): argument for position, argument in enumerate(args)}
    return args[0] if len(args) == 1 and not kwargs else positional | (kwargs or {})


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
    message = _PRINTED_MESSAGE_DICT.match(text)
    return text if message is None else {"role": message[1], "content": printed_text(message[2])}


def printed_text(printed: str) -> str:
    """Return the text of a printed string; a cut string lacks its closing quote."""
    is_closed = len(printed) > 1 and printed.endswith(printed[0])
    text = _literal(printed if is_closed else printed + printed[0])
    return text if isinstance(text, str) else printed[1:]


def _literal(text: str) -> Any:
    if not _ONLY_REPR_ESCAPES.fullmatch(text):
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


# --- messages -------------------------------------------------------------------------------------------------------

_MESSAGES = "messages"
_PROMPT_KEYS = ("prompts", "prompt", "input", "contents")
_ANSWER_KEYS = ("choices", "generations", "message", "output", "content")
_BY_ROLE: Final = re.compile(r"(?:\A|\n)(system|developer|user|human|assistant|ai|tool|function): ?")
"""Separators of speakers in a text, as OpenLIT writes a prompt: ``system: …`` and ``user: …`` in lines."""
_TEXT_BLOCK: Final = "text: "
"""OpenLIT's prefix of each text in a message of blocks."""


def prompts_in(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a parsed prompt: messages, a request that has them, or texts, which become a user's messages."""
    if isinstance(value, dict) and _MESSAGES in value:
        return _messages(value)
    batch = _first_of_batch(_first_value(value, _PROMPT_KEYS))
    return _messages_in(batch) if isinstance(batch, str) else messages_from(unfold_dump(batch), loose=True)


def answers_in(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a parsed answer: messages, a response that has them, or texts, which become the assistant's."""
    if isinstance(value, dict) and _MESSAGES in value:
        return _messages(value)
    batch = _first_of_batch(_first_value(_only_response(value), _ANSWER_KEYS))
    if isinstance(batch, str) and is_cut(batch):
        return []
    answers = map(_answer, batch if isinstance(batch, list) else [batch])
    return [message for answer in answers for message in messages_from(unfold_dump(answer))]


def _only_response(value: Any) -> Any:
    """Return the response in a list of one response, which OpenAI's Agents SDK writes for a stream; other values unchanged."""
    only = value[0] if isinstance(value, list) and len(value) == 1 else None
    return only if isinstance(only, dict) and only.get("object") == "response" else value


def split_events(events: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the inputs and outputs in a list of events, as Logfire and Pydantic AI write them in an attribute.

    Each event is a message, ``{"event.name": "gen_ai.user.message", "role", "content"}``. A choice, the output, has its message
    under ``message``. Without a choice, the assistant's messages at the end are the output.
    """
    inputs: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, dict):
            continue
        inner = event.get("message")
        message: dict[str, Any] = inner if isinstance(inner, dict) else event
        if role_of(message.get("role")) is not None:
            answers = isinstance(inner, dict) or event.get("event.name") == semconv.CHOICE_EVENT
            form = {"content": None, "tool_call_id": event.get("id"), **message}
            (outputs if answers else inputs).append(dict_message(form))
    return (inputs, outputs) if outputs else split_answer(inputs)


def split_answer(messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages before the assistant's last messages, and the assistant's last messages."""
    end = len(messages)
    while end and messages[end - 1].get("role") == ASSISTANT:
        end -= 1
    return [*messages[:end]], [*messages[end:]]


def make_message(
    role: str, content: Any, calls: Sequence[Mapping[str, Any]] = (), answered: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a message of a role: text and calls, or for a tool the result of the call that ``answered`` names."""
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
    pieces = _BY_ROLE.split(prompt)
    if _PRINTED_MESSAGES.match(prompt):  # a message with an unreadable text is left out
        printed = [(role.lower(), _literal(text)) for role, text in _PRINTED_MESSAGE.findall(prompt)]
        texts = [(role, text) for role, text in printed if isinstance(text, str)]
    elif not pieces[0]:
        texts = list(zip(pieces[1::2], pieces[2::2], strict=True))
    else:
        return [] if is_cut(prompt) else messages_from(prompt, loose=True)
    return [make_message(role, text.removeprefix(_TEXT_BLOCK)) for role, text in texts]


def _messages(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a dict. Texts among them are printed objects of a client, mostly LlamaIndex's."""
    return messages_from(unfold_dump(_first_of_batch(value[_MESSAGES])))


def _first_value(value: Any, keys: Sequence[str]) -> Any:
    """Return the value under the first existing key; a message, or a value that is not a dict, is returned unchanged."""
    if not isinstance(value, dict) or isinstance(value.get("role"), str):
        return value
    return next((value[key] for key in keys if key in value), value)


def _first_of_batch(value: Any) -> Any:
    """Return the first of several lists of messages; other values unchanged. A list such as ``["user", "…"]`` is a message."""
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


# --- input and output by operation ----------------------------------------------------------------------------------

_NONE: Final = frozenset({"null", '"null"', "None", "'None'"})
"""Texts that instrumentations write for a missing input or output."""


def parse_structure(value: Any, kinds: type | tuple[type, ...] = (dict, list)) -> Any:
    """Return the structure in a text, as JSON or as Python prints it; a text of another kind (``5``, ``true``) stays a text."""
    structure = value_of(value)
    return structure if isinstance(structure, kinds) else value


def text_or_none(value: Any) -> Any:
    """Return None for an instrumentation's text for a missing input or output; other values unchanged."""
    return None if isinstance(value, str) and value in _NONE else value


def content_of(operation: str, inputs: Any, outputs: Any) -> dict[str, Any]:
    """Return the content attributes of a span for its operation, input and output; None = no such value."""
    return _READERS.get(operation, _run)(text_or_none(inputs), text_or_none(outputs))


def _run(inputs: Any, outputs: Any) -> dict[str, Any]:
    return {
        **content_of_side(parse_structure(inputs, dict), semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
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
    query, documents = unwrap(inputs, "query"), unwrap(outputs, "documents")
    return {
        semconv.RETRIEVAL_QUERY: query if isinstance(query, str) else None,
        semconv.RETRIEVAL_DOCUMENTS: as_documents(unfold_dump(documents)),
    }


def as_documents(result: Any) -> list[Any] | None:
    """Return a retriever's result, unfolded, as a list of documents in any form; None if it has no document.

    A document in an unknown form stays in the list, because it was retrieved, although its text is unknown.
    """
    single: list[Any] | None = [result] if result and isinstance(result, (str, dict)) else None
    items = result if isinstance(result, list) else single
    return items and [document for item in items for document in documents_of(item) or [item]]


_READERS: Final[Mapping[str, Callable[[Any, Any], dict[str, Any]]]] = {
    **dict.fromkeys(semconv.MODEL_OPERATIONS, _model),
    semconv.EXECUTE_TOOL: _tool,
    semconv.RETRIEVAL: _retrieval,
}
"""Operation → function that makes its content; other operations use ``_run``."""


# --- spans ----------------------------------------------------------------------------------------------------------

Render = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Function from raw attributes with content to content attributes of the GenAI conventions."""
_NAMES: Final[Mapping[str | None, str]] = {
    semconv.EXECUTE_TOOL: semconv.TOOL_NAME,
    semconv.INVOKE_AGENT: semconv.AGENT_NAME,
    semconv.INVOKE_WORKFLOW: semconv.WORKFLOW_NAME,
}
_INTERRUPTS: Final = ("GraphInterrupt", "NodeInterrupt")
"""Names of the exceptions with which LangGraph makes a run wait for a person."""
_FLAT: Final = re.compile(r"\.\d+\.")
"""Part of the name of a flat attribute whose value is one of many texts, not a structure."""
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_CONVERSATION_KEYS: Final = (
    *("thread_id", "session_id", "conversation_id"),
    *("sessionId", "threadId", "conversationId", "chatId"),  # the usual names in JavaScript
)


class AttributeLookup(Protocol):
    """Attributes of an undecoded span: a mapping, or the bytes that contain them."""

    def get(self, name: str, /) -> object:
        """Return the value of an attribute; None if it is missing, or is not a short text."""

    def __contains__(self, name: str, /) -> bool:
        """Return whether the attribute exists."""


def dicts_in(value: Any) -> list[dict[str, Any]]:
    """Return the dicts among the items of a list; ``[]`` for other values."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def fields_of(value: Any) -> Mapping[str, Any]:
    """Return a dict unchanged, and an empty mapping for other values."""
    return value if isinstance(value, dict) else {}


def unwrap(value: Any, key: str) -> Any:
    """Return the value under a key of a dict; a dict without the key, and other values, unchanged."""
    return fields_of(value).get(key, value)


def raw_attributes(span: SpanData) -> Mapping[str, Any]:
    """Return a span's attributes as received."""
    attributes = span.attributes
    return (attributes.wire or attributes) if isinstance(attributes, WireAttributes) else attributes


def plain_attributes(raw: Mapping[str, Any], operation: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain attributes that have a GenAI name, with this operation and the conversation's id."""
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
    metadata: Mapping[str, Any] = MappingProxyType({}),
    tools: Any = None,
) -> SpanData:
    """Return the span with these attributes and no others.

    Args:
        span: the span of another instrumentation.
        plain: plain attributes under GenAI names; None and structures are left out.
        raw_content: raw attributes with content. Cut JSON is left out, and the span is marked; a tool's is kept.
        render: makes content from ``raw_content``, once, on first need.
        no_content: reason for missing content if ``raw_content`` is empty; None for a span that never has content.
        metadata: the run's metadata, which are added to the span's. The feedback key is added, too.
        tools: definitions of tools in the form of their writer, parsed when a metric reads them; None without definitions. They
            are left out if there is no other content.
    """
    attributes = _keep_plain_values(plain)
    if span.events or span.status == "error":
        attributes |= _interruption(span)
    cut = _cut_names(raw_content)
    if cut and attributes.get(semconv.OPERATION_NAME) != semconv.EXECUTE_TOOL:
        raw_content = {name: value for name, value in raw_content.items() if name not in cut}
        attributes[semconv.CONTENT_CUT] = True
        no_content = CUT
    if tools is not None and raw_content:
        attributes[semconv.TOOL_DEFINITIONS] = tools
    content = partial(render_content, render, dict(raw_content)) if raw_content else None
    merged = {**span.metadata, **metadata}
    if (key := span.attributes.get(semconv.FEEDBACK_KEY)) is not None:
        merged[semconv.FEEDBACK_METADATA] = key
    return span.with_content(Attributes(attributes, content), merged, None if raw_content else no_content)


def _interruption(span: SpanData) -> Mapping[str, Any]:
    """Return the attribute of an interrupted run if LangGraph's exception ended the span; otherwise ``{}``."""
    types = [event.get(semconv.EXCEPTION_TYPE) for _, event in span.events]
    types.append(raw_attributes(span).get(semconv.ERROR_TYPE))
    messages = [event.get(semconv.EXCEPTION_MESSAGE) for _, event in span.events]
    is_interrupted = any(str(name).endswith(_INTERRUPTS) for name in types)
    is_interrupted = is_interrupted or any(str(text).startswith((*_INTERRUPTS, "(Interrupt(")) for text in messages)
    return {semconv.RUN_END: semconv.INTERRUPTED} if is_interrupted else {}


def rename_attributes(raw: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return GenAI names with the value of the first existing other name; None if no other name exists."""
    return {name: next((raw[other] for other in others if other in raw), None) for name, others in names.items()}


def name_attribute(operation: str | None, name: str) -> dict[str, Any]:
    """Return the attribute for the name of an operation's object; empty for operations without a name."""
    return {_NAMES[operation]: name} if operation in _NAMES else {}


def json_at(attributes: Mapping[str, Any], *names: str) -> Any:
    """Return the value under the first of the names that exists; JSON texts are parsed. None without such a name."""
    value = next((attributes[name] for name in names if name in attributes), None)
    return from_wire(value) if isinstance(value, str) else value


def tool_content(arguments: str, result: str) -> Render:
    """Return a function that renders a tool's content, which is JSON under these two names."""
    return lambda raw_content: {
        semconv.TOOL_CALL_ARGUMENTS: json_at(raw_content, arguments),
        semconv.TOOL_CALL_RESULT: json_at(raw_content, result),
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
    """Return the names of values with cut JSON. A value that ends with a closing bracket is checked only when it is read."""
    return [
        name
        for name, value in raw_content.items()
        if type(value) is str
        and value[:1] in _OPENING
        and value[-1:] not in _CLOSING
        and is_cut(value)
        and not _FLAT.search(name)
    ]


def _keep_plain_values(plain: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, value in plain.items():
        kind = type(value)
        if (kind is str and value.isascii()) or (kind is int and fits_wire(value)):  # the usual case
            attributes[name] = value
        elif value is not None and (plain_value := _plain_value(value)) is not None:
            attributes[name] = plain_value
    return attributes


def _plain_value(value: Any) -> Any:
    """Return a value that a plain attribute may have; None for a structure."""
    if isinstance(value, (str, int, float)):
        return wire_value(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return wire_value(value)
    return None


def render_content(render: Render, raw_content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a span's raw attributes; empty if they have an unforeseen form."""
    try:
        return {name: value for name, value in render(raw_content).items() if value is not None}
    except Exception as error:  # noqa: BLE001  (an unforeseen payload: the unit is read without it)
        log_internal_error("read a span's content", error)
        return {}
