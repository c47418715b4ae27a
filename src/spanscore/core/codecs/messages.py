"""Converts messages of clients, content blocks and event streams to GenAI messages, and those to messages of a sample."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spanscore.core.codecs.media import MODALITY, has_words, is_plain_text, mark_media, media_part
from spanscore.core.codecs.text import as_text, from_wire, jsonable, safe_text
from spanscore.core.log import is_a
from spanscore.core.sample import AIMessage, HumanMessage, Message, ToolCall, ToolMessage

# --- messages -------------------------------------------------------------------------------------------------------

# A GenAI message is ``{"role", "parts": [{"type": "text", "content"}, {"type": "tool_call", "id", "name", "arguments"},
# {"type": "tool_call_response", "id", "response"}, …]}``. Some writers have ``content`` in place of ``parts``, or ``result`` in
# place of ``response``: both are read.

USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
SYSTEM = "system"
MADE_BY = "lc_source"
"""Key with the name of the LangChain middleware that made a message, such as a summary that replaces messages. In LangChain's
own messages the key is in ``additional_kwargs``.
"""

_DICTS = frozenset({dict})
_ROLES: Mapping[str, str] = {
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("assistant", "ai", "model"), ASSISTANT),
    **dict.fromkeys(("tool", "function"), TOOL),
    **dict.fromkeys(("system", "developer"), SYSTEM),
}


def role_of(name: Any) -> str | None:
    """Return the GenAI role for a role's name in any framework, None if the name is unknown."""
    if type(name) is str and name in _ROLES:  # as most write it
        return _ROLES[name]
    return _ROLES.get(str.lower(name)) if is_a(name, str) else None


def is_message(value: Any) -> bool:
    """Whether a value is a message: a role with parts, or with content."""
    if type(value) is not dict and not is_a(value, dict):
        return False
    role = value.get("role")
    return (type(role) is str or is_a(role, str)) and ("parts" in value or "content" in value)


def is_made_by_middleware(message: Mapping[str, Any]) -> bool:
    """Whether a middleware of LangChain made the message. A tool's answer never counts as made."""
    return MADE_BY in message and role_of(message.get("role")) != TOOL


def message_text(message: Mapping[str, Any]) -> str | None:
    """Return the text of a message, which may be empty; None if it has no text, but an image or a tool call."""
    parts = _parts_in(message)
    if len(parts) == 1:  # the most frequent form
        return _text_of(parts[0])
    texts = [text for part in parts if (text := _text_of(part)) is not None]
    if texts:
        return "".join(texts)
    return None if parts else ""


def text_message(role: str, text: str) -> dict[str, Any]:
    """Return a message of one text."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def tool_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    """Return the tool calls of a message, in order."""
    return [
        ToolCall(name=_name_in(part), args=_arguments(part.get("arguments", part.get("args"))), id=_id(part.get("id")))
        for part in _parts_in(message)
        if part.get("type") == "tool_call"
    ]


def call_names_and_ids(message: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    """Return name and id of each tool call in a message, in a twentieth of the time of ``tool_calls``."""
    parts = _parts_in(message)
    if len(parts) == 1 and parts[0].get("type") != "tool_call":  # the most frequent form
        return ()
    return tuple([_name_and_id(part) for part in parts if part.get("type") == "tool_call"])


def _name_and_id(part: Mapping[str, Any]) -> tuple[str, str | None]:
    name, identity = part.get("name"), part.get("id")
    if type(name) is not str or type(identity) is not str:  # no known instrumentation writes such a call
        return _name_in(part), as_text(identity) if identity else None
    return name, identity or None


def tool_responses(message: Mapping[str, Any]) -> list[ToolMessage]:
    """Return the tools' answers in a message, in order. The plain text of a tool message counts as an answer, too."""
    answers = [_response(part) for part in _parts_in(message) if part.get("type") == "tool_call_response"]
    if answers or role_of(message.get("role")) != TOOL:
        return answers
    return [ToolMessage(content=message_text(message) or "", tool_call_id=_id(message.get("tool_call_id")))]


def sample_messages(messages: Iterable[Any]) -> list[Message]:
    """Return GenAI messages as messages of a sample, without system messages and messages that a middleware made.

    The metadata of a message with tool calls names its agent, if known.
    """
    return [converted for message in messages if is_message(message) for converted in _to_sample_messages(message)]


def _to_sample_messages(message: Mapping[str, Any]) -> Sequence[Message]:
    role = role_of(message.get("role"))
    if role == SYSTEM or is_made_by_middleware(message):
        return []
    if role == ASSISTANT:
        return [converted for segment in _split_after_results(message) for converted in _assistant_messages(segment)]
    answers = tool_responses(message)
    if role == TOOL:
        return answers
    text = message_text(message)
    # Some providers send the tools' answers in a user message.
    return answers if answers and not text else [*answers, HumanMessage(content=text or "")]


def _split_after_results(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a message split after each group of tool results, because providers run their own tools within one answer."""
    segments: list[list[Mapping[str, Any]]] = [[]]
    for part in _parts_in(message):
        previous = segments[-1][-1].get("type") if segments[-1] else None
        if previous == "tool_call_response" and part.get("type") != previous:
            segments.append([])
        segments[-1].append(part)
    return [message] if len(segments) == 1 else [{**message, "parts": parts} for parts in segments]


def _assistant_messages(message: Mapping[str, Any]) -> Sequence[Message]:
    calls = tool_calls(message) or None
    agent = {"agent": as_text(message["name"])} if calls and message.get("name") else None
    answer = AIMessage(content=message_text(message) or "", tool_calls=calls, metadata=agent)
    return [answer, *tool_responses(message)]


def _parts_in(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a GenAI message; a text as a part."""
    parts = message["parts"] if "parts" in message else message.get("content")
    if type(parts) is list:
        if len(parts) == 1 and type(parts[0]) is dict:  # the most frequent form
            return parts
        if _DICTS.issuperset(map(type, parts)):  # the form that this package renders
            return parts
    return _normalize_parts(parts)


def _normalize_parts(parts: Any) -> list[Mapping[str, Any]]:
    if isinstance(parts, str):
        return [{"type": "text", "content": parts}]
    if not isinstance(parts, Sequence) or isinstance(parts, (bytes, bytearray)):
        return []
    shown = [{"type": "text", "content": part} if isinstance(part, str) else part for part in parts]
    return [part for part in shown if isinstance(part, Mapping)]


def _text_of(part: Mapping[str, Any]) -> str | None:
    if part.get("type", "text") != "text":
        return None
    text = part.get("content", part.get("text"))
    return safe_text(text) if isinstance(text, str) else None


def _name_in(part: Mapping[str, Any]) -> str:
    name = part.get("name")
    return as_text(name) if name else ""


def _arguments(value: Any) -> dict[str, Any]:
    arguments = jsonable(from_wire(value) if isinstance(value, str) else value)
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments in (None, "") else {"input": arguments}


def _response(part: Mapping[str, Any]) -> ToolMessage:
    response = part.get("response", part.get("result", part.get("content")))
    return ToolMessage(content="" if response is None else as_text(response), tool_call_id=_id(part.get("id")))


def _id(value: Any) -> str | None:
    return None if value is None else as_text(value)


# --- blocks ---------------------------------------------------------------------------------------------------------

# Content blocks of LangChain and each provider → parts of a GenAI message.
#
# Tool calls and their results are blocks of Anthropic (``tool_use``), LangChain (``server_tool_call``), OpenAI
# (``function_call``), Vercel (``tool-call``), Bedrock (``{"toolUse": …}``) and Gemini (``{"functionCall": …}``).

_REPEATED_CALLS = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta", "invalid_tool_call"}
)
"""Types of call blocks that repeat a call in the message's ``tool_calls``."""
_CALL_TYPES = _REPEATED_CALLS | {"server_tool_use", "mcp_tool_use", "server_tool_call", "custom_tool_call", "tool-call"}
_RESULT_SUFFIXES = ("tool_result", "tool-result", "call_output")
"""Suffixes of the types of result blocks: ``web_search_tool_result``, ``function_call_output``."""
_CALL_IDS = ("call_id", "id", "toolCallId", "toolUseId")
"""Keys of a call's id. ``call_id`` comes first: OpenAI's ``id`` identifies the output item, not the call."""
_RESULT_IDS = ("tool_use_id", "tool_call_id", "call_id", "toolCallId", "toolUseId", "id")
"""Keys of the id of the call that a result answers."""
_PART_TYPES = ("text", "tool_call", "tool_call_response", "reasoning")
"""Types of most parts in the conventions."""


def parts_of(content: Any, *, calls_apart: bool = False) -> list[dict[str, Any]]:
    """Return a text, a content block or a list of blocks as parts. An empty text has no part.

    If the message has its tool calls elsewhere (``calls_apart``), blocks that repeat them are left out.
    """
    if is_a(content, str):
        return [{"type": "text", "content": content}] if content else []
    if is_a(content, dict):  # one block alone: Azure's agents, Gemini's files
        content = [content]
    if not is_a(content, list):
        return []
    blocks = [block for block in content if not (calls_apart and _kind(block) in _REPEATED_CALLS)]
    return [part for block in blocks if (part := _part(block)) is not None]


def join_text_blocks(content: Any) -> Any:
    """Return blocks of text as one text, other blocks with images, audio and files as parts, and other values unchanged."""
    if not is_a(content, list):
        return content
    parts = parts_of(content)
    if parts and len(parts) == len(content) and all(part["type"] == "text" for part in parts):
        return "".join(part["content"] for part in parts)
    return [media_part(block) if _kind(block) in MODALITY and not has_words(block) else block for block in content]


def _convert_tool_blocks(blocks: list[Any]) -> list[Any]:
    """Return parts or a client's blocks with calls and results as parts; the same list if nothing needs a conversion."""
    for block in blocks:
        if type(block) is not dict or block.get("type") not in _PART_TYPES:
            return [(tool_part(block) or block) if type(block) is dict else block for block in blocks]
    return blocks  # most messages


def tool_part(block: dict[str, Any]) -> dict[str, Any] | None:
    """Return a block with a tool call or a tool's result as a part; None for every other block."""
    kind = block.get("type")
    if is_a(kind, str):
        if kind in _CALL_TYPES:
            return _tool_call_part(block)
        return _tool_response_part(block) if kind.endswith(_RESULT_SUFFIXES) else None
    key = next((key for key in _WRAPPERS if is_a(block.get(key), dict)), None)
    return None if key is None else _WRAPPERS[key](block[key])


def _part(block: Any) -> dict[str, Any] | None:
    if is_a(block, str):
        return {"type": "text", "content": block}
    if not is_a(block, dict):
        return None
    kind = _kind(block)
    text = block.get("text", block.get("content" if kind == "text" else "refusal"))
    if is_a(text, dict):  # Azure's agents: {"text": {"value": "…", "annotations": []}}
        text = text.get("value")
    if is_a(text, str) and kind not in MODALITY:
        return {"type": "reasoning" if block.get("thought") is True else "text", "content": text}
    if kind == "text":  # some tools answer with a text block without text
        return None
    convert = _BLOCKS.get(kind)
    return (media_part(block) or tool_part(block) or {"type": kind}) if convert is None else convert(block)


def _kind(block: Any) -> str:
    kind = block.get("type") if is_a(block, dict) else None
    return kind if is_a(kind, str) else "generic"


def _tool_call_part(block: dict[str, Any]) -> dict[str, Any]:
    named = {"id": _first(block, _CALL_IDS), "name": _first(block, ("name", "toolName"))}
    return {"type": "tool_call", **named, "arguments": _first(block, ("input", "args", "arguments"))}


def _tool_response_part(block: dict[str, Any]) -> dict[str, Any]:
    result = _first(block, ("content", "output", "result", "response"))
    is_wrapped = is_a(result, dict) and result.keys() == {"type", "value"}  # Vercel, since version 5 of its SDK
    response = result["value"] if is_wrapped else join_text_blocks(result)
    return {"type": "tool_call_response", "id": _first(block, _RESULT_IDS), "response": response}


def _first(block: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((block[key] for key in keys if key in block), None)


def _search_result(block: dict[str, Any]) -> dict[str, Any]:
    fields = {key: block[key] for key in ("source", "title") if is_a(block.get(key), str)}
    return {"type": "search_result", **fields, "content": join_text_blocks(block.get("content"))}


def _reasoning(block: dict[str, Any]) -> dict[str, Any]:
    reasoning = block.get("reasoning", block.get("thinking"))
    if reasoning is None and is_a(block.get("summary"), list):
        reasoning = "".join(part["text"] for part in block["summary"] if is_a(part, dict) and "text" in part)
    return {"type": "reasoning", "content": reasoning or ""}


_BLOCKS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "reasoning": _reasoning,
    "thinking": _reasoning,
    "search_result": _search_result,
    "tool_call_response": dict.copy,  # a part already
}
"""Type of a content block → its conversion to a part; without media, calls and results."""
_WRAPPERS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(("toolUse", "functionCall", "function_call"), _tool_call_part),
    **dict.fromkeys(("toolResult", "functionResponse", "function_response"), _tool_response_part),
}
"""Only key of a block without a type → conversion of its value to a part."""


# --- messages of clients --------------------------------------------------------------------------------------------

# A message of a client → a GenAI message.
#
#     form                                                          function           caller
#     unknown: of the conventions or of any client                  read_message       attributes of GenAI spans
#     dict of OpenAI's clients: {"role", "content", "tool_calls"}   dict_message       LangChain, stored samples, normalizers
#     message of LangChain, by the fields of its class              langchain_message  LangChain, stored samples
#     dict without a role (AutoGen) or without content (BeeAI)      bare_message       stored samples

_AUTOGEN_SUFFIXES = ("Message", "Event")
"""Suffixes of the types of AutoGen's messages: ``TextMessage``, ``ToolCallRequestEvent`` …"""


def read_message(value: Any) -> dict[str, Any] | None:
    """Return a message in the form of the conventions or of any client as a GenAI message, with markers for its media.

    None for every value that is not a message.
    """
    if type(value) is not dict:
        return None
    parts = value.get("parts")
    message: dict[str, Any] | None
    if type(parts) is list and type(value.get("role")) is str:  # most messages
        if not _BESIDE_PARTS.isdisjoint(value):
            return read_message({**{key: value[key] for key in value if key != "parts"}, "content": parts})
        if len(parts) == 1 and is_plain_text(parts[0]):  # the most frequent form
            return value
        converted = _convert_tool_blocks(parts)
        message = value if converted is parts else {**value, "parts": converted}
    else:
        message = _client_message(value)
    marked: dict[str, Any] | None = mark_media(message)
    return marked


INPUT_OF_STREAM = {"input": ""}
"""Input of a LangChain run that is streamed, at its start; not to be changed."""
_BESIDE_PARTS = frozenset({"tool_calls", "tool_call_id"})
"""Keys of OpenAI's messages that LiteLLM leaves beside the parts."""
_RESPONSES_ITEMS = ("function_call", "function_call_output")


def message_of_calls(value: Any) -> dict[str, Any] | None:
    """Return a message that has only calls, or a call or its result in OpenAI's Responses API; None for every other value."""
    if not is_a(value, dict):
        return None
    is_item = value.get("type") in _RESPONSES_ITEMS and "role" not in value
    return _message_without_content(value) if is_item or "tool_calls" in value else None


def _client_message(value: dict[str, Any]) -> dict[str, Any] | None:
    if not is_message(value):
        return _message_without_content(value)
    blocks = value.get("content")
    if "parts" not in value and type(blocks) is list and (converted := _convert_tool_blocks(blocks)) is not blocks:
        return {**value, "parts": converted}
    has_tool_fields = role_of(value["role"]) == TOOL or value.get("tool_calls")
    return dict_message(value) if has_tool_fields else value


def _message_without_content(value: dict[str, Any]) -> dict[str, Any] | None:
    """Read a message that has only calls, or an item of OpenAI's Responses API, which has no role."""
    if is_a(value.get("role"), str):
        return dict_message(value) if value.get("tool_calls") else None
    part = tool_part(value)
    role = ASSISTANT if part is None or part["type"] == "tool_call" else TOOL
    return None if part is None else {"role": role, "parts": [part]}


def dict_message(item: dict[str, Any]) -> dict[str, Any]:
    """Return a dict with a role, in the form of OpenAI's clients, as a GenAI message; a GenAI message is unchanged."""
    if "parts" in item:
        return item
    role = role_of(item["role"]) or item["role"]
    content = item.get("content")
    if role == TOOL:
        answers = parts_of(content) if is_a(content, list) else []
        results = [part for part in answers if part["type"] == "tool_call_response"]
        return {"role": TOOL, "parts": results or [response_part(item, content)]}
    listed = item.get("tool_calls")
    calls = [call_part(call) for call in listed if is_a(call, dict)] if is_a(listed, list) else []
    return {"role": role, "parts": [*parts_of(content, calls_apart=bool(calls)), *calls]}


def langchain_message(
    role: str, fields: Mapping[str, Any], content: Any, calls: Iterable[Mapping[str, Any]] | None, *, is_human: bool
) -> dict[str, Any] | None:
    """Return a message of LangChain as a GenAI message, with its origin; None for a ``RemoveMessage``.

    The origin is the author's name, the middleware that made the message, and the id of a human message.

    Args:
        role: the message's role, or its type without a known role.
        fields: fields of the message's class.
        content: text or content blocks.
        calls: tool calls of an assistant; None without any. A tool's message has another value here, which is not read.
        is_human: whether the message has the class or the role of a human message.
    """
    if role == "remove":
        return None
    more = fields.get("additional_kwargs")
    made_by = more.get(MADE_BY) if is_a(more, dict) else None
    named = {"name": fields.get("name"), MADE_BY: made_by, "id": fields.get("id") if is_human else None}
    origin = {key: value for key, value in named.items() if is_a(value, str) and value}
    if role == TOOL:
        return {"role": TOOL, "parts": [response_part(fields, content)], **origin}
    call_parts = [call_part(call) for call in calls or ()]
    content_parts = parts_of(content, calls_apart=bool(call_parts))
    return {"role": role_of(role) or role, "parts": [*content_parts, *call_parts], **origin}


def bare_message(item: dict[str, Any]) -> dict[str, Any] | None:
    """Read a message without a role, or without content; return None for every other dict.

    BeeAI writes ``{"role", "text"}``, AutoGen ``{"source", "type", "content"}``.
    """
    role, text = role_of(item.get("role")), item.get("text")
    if role is not None:
        is_bare = is_a(text, str) and item.keys().isdisjoint(("content", "parts", "type"))
        return {"role": role, "parts": parts_of(text)} if is_bare else None
    kind, source = item.get("type"), item.get("source")
    is_autogen = is_a(kind, str) and kind.endswith(_AUTOGEN_SUFFIXES) and is_a(source, str) and "content" in item
    return _autogen_message(kind, source, item["content"]) if is_autogen else None


def _autogen_message(kind: Any, source: Any, content: Any) -> dict[str, Any]:
    blocks = [block for block in content if is_a(block, dict)] if is_a(content, list) else []
    if kind == "ToolCallExecutionEvent":
        answers = [{**block, "tool_call_id": block.get("call_id")} for block in blocks]
        return {"role": TOOL, "parts": [response_part(block, block.get("content")) for block in answers]}
    if kind == "ToolCallRequestEvent":
        parts = list(map(call_part, blocks))
    else:
        parts = [{"type": "reasoning", "content": content}] if kind == "ThoughtEvent" else parts_of(content)
    return {"role": USER if role_of(source) == USER else ASSISTANT, "name": source, "parts": parts}


def call_part(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call as a part. The call has its name and arguments itself, or under ``function``."""
    function = call.get("function")
    fields = function if is_a(function, dict) else call
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": fields.get("name"),
        "arguments": fields["args"] if "args" in fields else fields.get("arguments"),
    }


def response_part(fields: Mapping[str, Any], content: Any) -> dict[str, Any]:
    """Return a tool's answer as a part, from the fields and the content of its message."""
    failed = {"status": "error"} if fields.get("status") == "error" else {}
    return {
        "type": "tool_call_response",
        "id": fields.get("tool_call_id"),
        "response": join_text_blocks(content),
        **failed,
    }


# --- event stream ---------------------------------------------------------------------------------------------------

# The output of a runnable for a web client may be one text of server-sent events, in the format of
# https://html.spec.whatwg.org/multipage/server-sent-events.html.

_FIELD: Final = re.compile(r"(data|event|id|retry|):(.*)", re.DOTALL)
_BETWEEN: Final = re.compile(r"\n\n+(?=data:|event:|id:|retry:|:)")
_BEGINS: Final = ("data:", "event:", "id:", "retry:", ":")
_NO_WORDS: Final = frozenset({"metadata", "end", "done", "ping", "error"})
"""Types of events without a part of the answer, in LangServe and other servers."""
_DONE: Final = "[DONE]"
_KEYS: Final = ("choices", "delta", "content", "text", "token", "answer", "chunk")
"""Keys of the words in an event that is a JSON object, in the forms of OpenAI, Anthropic, Vercel and LangServe."""


def text_of_events(text: str) -> str:
    """Return the answer in a text of server-sent events, joined from its tokens; every other text unchanged."""
    if not text.startswith(_BEGINS):
        return text
    text_of_lf = text.replace("\r\n", "\n")
    events = [*_events(text_of_lf)]
    if None in events or not (len(events) > 1 or text_of_lf.endswith("\n\n")):
        return text
    return _join_words([data for data in events if data and data[0].strip() != _DONE]) or text


def _join_words(datas: Sequence[Sequence[str]]) -> str:
    """Return the words of events. A space after every ``data:`` belongs to the format, not to the token."""
    start = 1 if all(line[:1] in ("", " ") for data in datas for line in data) else 0
    return "".join([_event_text("\n".join([line[start:] for line in data])) for data in datas])


def _events(text: str) -> Iterator[list[str] | None]:
    """Yield the data lines of each event, ``[]`` for an event without words; None for a block that is not an event."""
    for block in _BETWEEN.split(text.rstrip("\n")):
        data, kind, is_event = list[str](), "", False
        for line in block.split("\n"):
            field = _FIELD.fullmatch(line)
            is_event = is_event or field is not None
            if field is None:  # the writer did not escape the line break of a token
                data[-1:] = [f"{data[-1]}\n{line}"] if data else []
            elif field[1] == "data":
                data.append(field[2])
            elif field[1] == "event":
                kind = field[2].strip()
        yield ([] if kind in _NO_WORDS else data) if is_event else None


def _event_text(data: str) -> str:
    if not data.lstrip().startswith(("{", '"')):
        return data
    try:
        return _words(json.loads(data))
    except (ValueError, RecursionError):
        return data


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_words, value))
    if isinstance(value, dict):
        return next((words for key in _KEYS if key in value and (words := _words(value[key]))), "")
    return ""
