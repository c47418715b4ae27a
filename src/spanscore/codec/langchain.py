"""Snapshots of LangChain values → GenAI content attributes. Span thread; never raises for what a payload holds.

The application's half, ``snapshot`` and its kin, is in ``codec.snapshot``; what a model reports besides its words is in
``codec.usage``. Both are offered here, so that a caller needs this one module.

    list of messages, prompt, {"messages": …}    gen_ai.input.messages / gen_ai.output.messages
    any other value, and a state's other keys    input.value / output.value
    a document                                   {"page_content", "id", "metadata"}
    Command(resume=…)                            {"type": "Command", "resume": …}
    an unknown object                            {"type": its type's name}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from spanscore import semconv
from spanscore.codec.messages import ASSISTANT, TOOL, USER, is_message, role_of, sample_messages
from spanscore.codec.snapshot import (
    Opaque,
    Taken,
    TakenChoice,
    TakenCommand,
    TakenDocument,
    TakenGeneration,
    TakenMessage,
    TakenPrompt,
    TakenThread,
    snapshot,
    snapshot_documents,
    snapshot_generation,
    snapshot_messages,
    snapshot_tool_output,
)
from spanscore.codec.text import Special, as_text, jsonable, nearest
from spanscore.codec.usage import chat_attributes, finish_reason
from spanscore.errors import SampleError
from spanscore.model.sample import AIMessage, HumanMessage, Message, MultiTurnSample, SingleTurnSample

__all__ = [
    "chat_attributes",
    "chat_content",
    "completion_content",
    "render_messages",
    "render_value",
    "retriever_content",
    "root_content",
    "sample_from_messages",
    "snapshot",
    "snapshot_documents",
    "snapshot_generation",
    "snapshot_messages",
    "snapshot_tool_output",
    "to_messages",
    "tool_content",
]

MAX_MESSAGES = 2_000
"""Of a longer conversation the last ones are rendered."""
_MESSAGES_KEY = "messages"
_SCORE_KEYS = ("score", "relevance_score", "similarity_score", "_score")
_MODALITY = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "media": "file",
}
"""Type of a content block that holds no words → its modality."""
_CALLS = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta", "invalid_tool_call"}
)
"""Types of content blocks that repeat what stands in ``tool_calls``."""


# --- samples from messages --------------------------------------------------------------------------------------


def to_messages(messages: Sequence[Any]) -> list[Message]:
    """Return LangChain messages (also ``("user", text)`` and ``{"role", "content"}``) as a sample's messages.

    System messages are no part of a conversation and are left out.
    """
    return sample_messages(render_messages(snapshot_tool_output(list(messages))))


def sample_from_messages(messages: Sequence[Any]) -> SingleTurnSample | MultiTurnSample:
    """Return the sample of a LangChain conversation: multi turn when it has tool calls or several human turns.

    Raises:
        SampleError: the conversation cannot be; the message says which part of it, and why.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> sample_from_messages([HumanMessage("Capital of France?"), AIMessage("Paris.")]).response
        'Paris.'
    """
    said = to_messages(messages)
    humans = [message for message in said if isinstance(message, HumanMessage)]
    answers = [message for message in said if isinstance(message, AIMessage)]
    if len(humans) <= 1 and len(answers) == len(said) - len(humans) and not any(a.tool_calls for a in answers):
        return SingleTurnSample(
            user_input=humans[-1].content if humans else None, response=answers[-1].content if answers else None
        )
    try:
        return MultiTurnSample(user_input=said)
    except ValueError as error:
        raise SampleError(str(error)) from error


# --- content of each kind of span -------------------------------------------------------------------------------


def chat_content(messages: Any, generation: Any) -> dict[str, Any]:
    """Return the content of a chat model's span.

    Args:
        messages: of ``snapshot_messages``; None = content was not wanted.
        generation: of ``snapshot_generation``, or the text that came before a stream was left; None = no answer.
    """
    content: dict[str, Any] = {}
    if messages is not None:
        asked = messages[0] if type(messages) is list and len(messages) == 1 else messages
        content[semconv.INPUT_MESSAGES] = render_messages(asked)
    said = _answers(generation)
    if said:
        content[semconv.OUTPUT_MESSAGES] = said
    return content


def completion_content(prompts: Any, generation: Any) -> dict[str, Any]:
    """Return the content of a text model's span; its prompt is one user message."""
    asked = prompts if isinstance(prompts, list) else [prompts]
    messages = None if prompts is None else [[_text_message(USER, text) for text in asked if isinstance(text, str)]]
    return chat_content(messages, generation)


def retriever_content(query: Any, documents: Any) -> dict[str, Any]:
    """Return the content of a retriever's span.

    Args:
        query: snapshot of what was looked for.
        documents: of ``snapshot_documents``; None = it failed, and so found neither something nor nothing.
    """
    content: dict[str, Any] = {}
    if query is not None:
        content[semconv.RETRIEVAL_QUERY] = as_text(render_value(query))
    if documents is not None:
        content[semconv.RETRIEVAL_DOCUMENTS] = _documents_in(documents, depth=1)
    return content


def tool_content(arguments: Any, output: Any) -> dict[str, Any]:
    """Return the content of a tool's span; documents in its artifact (or result) are retrieved documents.

    Args:
        arguments: snapshot of the tool's input; None = not wanted.
        output: of ``snapshot_tool_output``; None = it failed.
    """
    content: dict[str, Any] = {}
    if arguments is not None:
        content[semconv.TOOL_CALL_ARGUMENTS] = render_value(arguments)
    if output is not None:
        content[semconv.TOOL_CALL_RESULT] = _tool_result(output)
        documents = _documents_in(output)
        if documents:
            content[semconv.RETRIEVAL_DOCUMENTS] = documents
    return content


def root_content(inputs: Any, outputs: Any, expected: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of a root: a conversation as messages, anything else as a value; a state may carry both.

    Args:
        inputs: snapshot of the input; None = there was none.
        outputs: snapshot of the output; None = there was none.
        expected: what ``spanscore.expected`` gave.
    """
    content = {
        **_side(inputs, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
        **_side(outputs, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE),
    }
    if expected:
        content[semconv.EXPECTED] = jsonable(dict(expected))
    return content


def _side(value: Any, messages_key: str, value_key: str) -> dict[str, Any]:
    if value is None:
        return {}
    if _is_conversation(value):
        return {messages_key: render_messages(value)}
    if type(value) is not dict or not _is_conversation(value.get(_MESSAGES_KEY), loose=True):
        return {value_key: render_value(value)}
    rest = {key: inner for key, inner in value.items() if key != _MESSAGES_KEY}
    content: dict[str, Any] = {messages_key: render_messages(value[_MESSAGES_KEY])}
    return {**content, value_key: render_value(rest)} if rest else content


def _is_conversation(value: Any, *, loose: bool = False) -> bool:
    """Whether a value is messages; loosely, under a key that says so, plain texts are messages too."""
    if isinstance(value, (TakenThread, TakenMessage, TakenPrompt, BaseMessage)) or _is_spoken(value):
        return True
    if loose and isinstance(value, str):
        return True
    if not isinstance(value, (list, tuple)) or isinstance(value, (TakenDocument, TakenCommand, Opaque)):
        return False
    return len(value) > 0 and all(_is_spoken(item) or (loose and isinstance(item, str)) for item in value)


def _is_spoken(value: Any) -> bool:
    """Whether a value is one message: a taken one, ``("user", text)`` or ``{"role", "content"}``."""
    if isinstance(value, (TakenMessage, BaseMessage)):
        return True
    if type(value) is tuple or type(value) is list:
        return len(value) == 2 and role_of(value[0]) is not None and isinstance(value[1], (str, list))  # noqa: PLR2004
    return is_message(value) and role_of(value["role"]) is not None


# --- messages ---------------------------------------------------------------------------------------------------


def render_messages(taken: Any) -> list[dict[str, Any]]:
    """Return a snapshot of messages, of one message or of a prompt as GenAI messages; ``[]`` where it is none.

    What is no message (``RemoveMessage``, an unknown object) is left out; of very many, the last ones are kept.
    """
    rendered = (jsonable(_Spoken((item,)), _UNFOLD) for item in _spoken(taken)[-MAX_MESSAGES:])
    return [message for message in rendered if is_message(message)]


class _Spoken(Taken):
    """(what shall be read as a message,): asks ``jsonable`` to."""

    __slots__ = ()


def _spoken(taken: Any) -> Sequence[Any]:
    if isinstance(taken, TakenThread):
        return [TakenMessage(row) for row in zip(*taken, strict=True)]
    if isinstance(taken, TakenPrompt):
        return _spoken(taken[0])
    if isinstance(taken, (list, tuple)) and not _is_spoken(taken):
        return taken
    return [taken]


def _message(item: Any) -> dict[str, Any] | None:
    """Return one message in GenAI form; None for what is no message (``RemoveMessage``, an unknown object)."""
    if isinstance(item, TakenMessage):
        return _taken_message(*item)
    if isinstance(item, BaseMessage):
        return _message(snapshot(item))
    if isinstance(item, str):
        return _text_message(USER, item)
    if not _is_spoken(item):
        return None
    if isinstance(item, dict):
        return _dict_message(item)
    return {"role": role_of(item[0]), "parts": _parts(item[1])}


def _taken_message(message: Any, content: Any, rest: Any) -> dict[str, Any] | None:
    kind = message.type.removesuffix("MessageChunk")
    if kind == "remove":
        return None
    role = role_of(kind) or getattr(message, "role", kind)
    if role == TOOL:
        return {"role": TOOL, "parts": [_response(message, content)], **_named(message)}
    calls = [_call(call) for call in rest or ()]
    parts = _parts(content, without=_CALLS if calls else frozenset())
    return {"role": role_of(role) or role, "parts": [*parts, *calls], **_named(message)}


def _named(message: Any) -> dict[str, Any]:
    name = getattr(message, "name", None)
    return {"name": name} if name else {}


def _response(message: Any, content: Any) -> dict[str, Any]:
    failed = {"status": "error"} if getattr(message, "status", None) == "error" else {}
    return {
        "type": "tool_call_response",
        "id": getattr(message, "tool_call_id", None),
        "response": _joined(content),
        **failed,
    }


def _dict_message(item: dict[str, Any]) -> dict[str, Any]:
    """Read ``{"role", "content"}`` as OpenAI's clients write it, and GenAI's own form as it is."""
    if "parts" in item:
        return item
    role = role_of(item["role"]) or item["role"]
    content = item.get("content")
    if role == TOOL:
        response = {"type": "tool_call_response", "id": item.get("tool_call_id"), "response": _joined(content)}
        return {"role": TOOL, "parts": [response]}
    called = item.get("tool_calls")
    calls = [_call(call) for call in called if isinstance(call, dict)] if isinstance(called, list) else []
    return {"role": role, "parts": [*_parts(content, without=_CALLS if calls else frozenset()), *calls]}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": named.get("name"),
        "arguments": named["args"] if "args" in named else named.get("arguments"),
    }


def _text_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


# --- parts ------------------------------------------------------------------------------------------------------


def _parts(content: Any, *, without: frozenset[str] = frozenset()) -> list[Any]:
    """Return content blocks as parts; an empty text is no part, so that a message with none says the empty text."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    if not isinstance(content, list):
        return []
    blocks = [block for block in content if not (isinstance(block, dict) and block.get("type") in without)]
    return [part for block in blocks if (part := _part(block)) is not None]


def _part(block: Any) -> dict[str, Any] | None:
    if isinstance(block, str):
        return {"type": "text", "content": block}
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    words = block.get("text", block.get("refusal"))
    if isinstance(words, str) and kind not in _MODALITY:
        return {"type": "text", "content": words}
    read = _BLOCKS.get(kind) if isinstance(kind, str) else None
    return {"type": kind if isinstance(kind, str) else "generic"} if read is None else read(block)


def _marker(block: dict[str, Any]) -> dict[str, Any]:
    """Say what is shown; never the bytes, or where they lie."""
    return {"type": "blob", "modality": _MODALITY[block["type"]]}


def _block_call(block: dict[str, Any]) -> dict[str, Any]:
    arguments = block.get("input", block.get("args", block.get("arguments")))
    return {"type": "tool_call", "id": block.get("id"), "name": block.get("name"), "arguments": arguments}


def _block_response(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": block.get("tool_use_id"), "response": _joined(block.get("content"))}


def _reasoning(block: dict[str, Any]) -> dict[str, Any]:
    said = block.get("reasoning", block.get("thinking"))
    if said is None and isinstance(block.get("summary"), list):
        said = "".join(part["text"] for part in block["summary"] if isinstance(part, dict) and "text" in part)
    return {"type": "reasoning", "content": said or ""}


_BLOCKS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(_MODALITY, _marker),
    **dict.fromkeys(_CALLS, _block_call),
    "reasoning": _reasoning,
    "thinking": _reasoning,
    "tool_result": _block_response,
}
"""Type of a content block → how it is read."""


def _joined(content: Any) -> Any:
    """Return blocks that are all words as one text; other content as it is."""
    parts = _parts(content) if isinstance(content, list) else []
    if parts and all(part["type"] == "text" for part in parts):
        return "".join(part["content"] for part in parts)
    return content


# --- answers of a model -----------------------------------------------------------------------------------------


def _answers(generation: Any) -> list[dict[str, Any]]:
    if isinstance(generation, str):
        return render_messages([_text_message(ASSISTANT, generation)])
    if not isinstance(generation, TakenGeneration):
        return []
    said = [answer for choice in generation[0] if (answer := _answer(choice)) is not None]
    return render_messages(said)


def _answer(choice: TakenChoice) -> dict[str, Any] | None:
    said = choice[0]
    if said is None:
        return None
    answer = {"role": ASSISTANT, "parts": _parts(said)} if isinstance(said, str) else _message(said)
    reason = finish_reason(choice)
    return answer if answer is None or reason is None else {**answer, "finish_reason": reason}


# --- values, documents, tools -----------------------------------------------------------------------------------


def render_value(taken: Any) -> Any:
    """Return a snapshot as a JSON-able value: documents, messages and commands in their forms. Never raises."""
    return jsonable(taken, _UNFOLD)


def _unfold_messages(taken: TakenThread | TakenPrompt) -> list[Any]:
    return [_Spoken((item,)) for item in _spoken(taken)]


def _unfold_document(document: TakenDocument) -> dict[str, Any]:
    text, identity, metadata = document
    plain = {key: value for key, value in metadata.items() if value is None or type(value) in (str, int, float, bool)}
    return {"page_content": text, "id": identity, "metadata": plain}


def _unfold_command(command: TakenCommand) -> dict[str, Any]:
    named = zip(("resume", "update", "goto"), command, strict=True)
    return {"type": "Command", **{name: value for name, value in named if value is not None and value != ()}}


def _unfold_opaque(opaque: Opaque) -> dict[str, Any]:
    return {"type": opaque[0]}


def _unfold_live(value: Any) -> Any:
    """Take an object that was deeper in its snapshot than copies go."""
    return snapshot(value)


_UNFOLD: Mapping[type, Special] = {
    _Spoken: lambda spoken: _message(spoken[0]),
    TakenThread: _unfold_messages,
    TakenMessage: _message,
    TakenPrompt: _unfold_messages,
    TakenDocument: _unfold_document,
    TakenCommand: _unfold_command,
    Opaque: _unfold_opaque,
    BaseMessage: _unfold_live,
    Document: _unfold_live,
}


def _tool_result(output: Any) -> Any:
    if isinstance(output, TakenMessage):
        return render_value(_joined(output[1]))
    if isinstance(output, TakenCommand):
        told = _messages_of(output)
        results = [_tool_result(message) for message in told if isinstance(message, TakenMessage)]
        if results:
            return results[0] if len(results) == 1 else results
    return render_value(output)


def _messages_of(command: TakenCommand) -> Sequence[Any]:
    update = command[1]
    return _spoken(update[_MESSAGES_KEY]) if isinstance(update, dict) and _MESSAGES_KEY in update else ()


def _documents_in(taken: Any, depth: int = 3) -> list[dict[str, Any]]:
    """Return the documents of an artifact or result: itself, in a list, or in a dict's lists."""
    if isinstance(taken, TakenDocument):
        return [_retrieved(taken)]
    if isinstance(taken, Document):
        return [_retrieved(snapshot(taken))]
    if isinstance(taken, TakenMessage):
        return _documents_in(taken[2], depth)
    if isinstance(taken, TakenCommand):
        return [found for message in _messages_of(taken) for found in _documents_in(message, depth)]
    if depth <= 0 or nearest(_UNFOLD, type(taken)) is not None:
        return []
    inner = taken.values() if isinstance(taken, dict) else taken if isinstance(taken, (list, tuple)) else ()
    return [found for item in inner for found in _documents_in(item, depth - 1)]


def _retrieved(document: TakenDocument) -> dict[str, Any]:
    text, identity, metadata = document
    scores = (metadata.get(key) for key in _SCORE_KEYS)
    score = next((float(s) for s in scores if isinstance(s, (int, float)) and not isinstance(s, bool)), None)
    known = {"id": identity, "content": text, "score": score}
    shown = jsonable({name: value for name, value in known.items() if value is not None})
    return shown if isinstance(shown, dict) else {}
