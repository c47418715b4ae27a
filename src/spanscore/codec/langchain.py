"""Snapshots of LangChain values → GenAI content attributes. Span thread; never raises for what a payload holds.

The application's half, ``snapshot`` and its kin, is in ``codec.snapshot``; what a model reports besides its words is in
``codec.usage``.

    list of messages, prompt, {"messages": …}    gen_ai.input.messages / gen_ai.output.messages
    any other value, and a state's other keys    input.value / output.value
    a document                                   {"page_content", "id", "metadata"}
    Command(resume=…)                            {"type": "Command", "resume": …}
    an unknown object                            {"type": its type's name}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from spanscore import semconv
from spanscore.codec import snapshot_types as types
from spanscore.codec.blocks import joined
from spanscore.codec.messages import ASSISTANT, MADE, USER, sample_messages, text_message
from spanscore.codec.render import is_spoken, render_messages, render_value, spoken
from spanscore.codec.snapshot import snapshot_tool_output
from spanscore.codec.text import as_text, jsonable, plain_number
from spanscore.codec.usage import finish_reason
from spanscore.errors import SampleError
from spanscore.model.foreign import is_a
from spanscore.model.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample

__all__ = [
    "chat_content",
    "completion_content",
    "retriever_content",
    "root_content",
    "sample_from_messages",
    "tool_content",
]

_MESSAGES_KEY = "messages"
_SCORE_KEYS = ("score", "relevance_score", "similarity_score", "_score")


def sample_from_messages(messages: Sequence[Any]) -> SingleTurnSample | MultiTurnSample:
    """Return the sample of a LangChain conversation: multi turn when it has tool calls or several human turns.

    Messages may also be ``("user", text)`` or ``{"role", "content"}``; system messages are left out.

    Raises:
        SampleError: the conversation cannot be; the message says which part of it, and why.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> sample_from_messages([HumanMessage("Capital of France?"), AIMessage("Paris.")]).response
        'Paris.'
    """
    said = sample_messages(render_messages(snapshot_tool_output(list(messages))))
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


def chat_content(messages: Any, generation: Any) -> dict[str, Any]:
    """Return the content of a chat model's span.

    Args:
        messages: of ``snapshot_messages``; None = content is not recorded.
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
    asked = prompts if is_a(prompts, list) else [prompts]
    messages = None if prompts is None else [[text_message(USER, text) for text in asked if is_a(text, str)]]
    return chat_content(messages, generation)


def retriever_content(query: Any, documents: Any) -> dict[str, Any]:
    """Return the content of a retriever's span.

    Args:
        query: snapshot of what was looked for.
        documents: snapshot of what it found; None = it failed, and so found neither something nor nothing.
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
        arguments: snapshot of the tool's input; None = content is not recorded.
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


def root_content(
    inputs: Any,
    outputs: Any,
    expected: Mapping[str, Any] | None = None,
    history: Any = None,
    asked: Any = None,
) -> dict[str, Any]:
    """Return the content of a root: a conversation as messages, anything else as a value; a state may carry both.

    Args:
        inputs: snapshot of the input; None = there was none.
        outputs: snapshot of the output; None = there was none.
        expected: what ``spanscore.references`` gave.
        history: snapshot of what a store of messages gave; None = none was asked.
        asked: snapshot of the last human message in the first state of a LangGraph. It has an id, which the same message of the
            input lacks if it came as a tuple or a dict; and it is known also of a graph that is resumed.
    """
    content = {
        **_side(inputs, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
        **_side(outputs, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE),
    }
    if asked is not None:
        resumes = inputs is None or is_a(inputs, types.CommandSnapshot)
        _add_asked(content, render_messages(asked), resumes=resumes)
    if expected:
        content[semconv.REFERENCES] = jsonable(dict(expected))
    if history:
        content[semconv.HISTORY] = render_messages(history)
    return content


def _add_asked(content: dict[str, Any], asked: Sequence[dict[str, Any]], *, resumes: bool) -> None:
    given, gave = content.get(semconv.INPUT_MESSAGES), content.get(semconv.OUTPUT_MESSAGES)
    if given:
        if given[-1:] == [{key: inner for key, inner in message.items() if key != "id"} for message in asked]:
            given[-1:] = asked
    elif resumes and gave and not any(message.get("role") == USER and MADE not in message for message in gave):
        content[semconv.HISTORY] = asked  # a summary took its place


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
    if is_a(value, types.ThreadSnapshot, types.MessageSnapshot, types.PromptSnapshot, BaseMessage) or is_spoken(value):
        return True
    if loose and is_a(value, str):
        return True
    if not is_a(value, list, tuple) or is_a(value, types.DocumentSnapshot, types.CommandSnapshot, types.Opaque):
        return False
    return len(value) > 0 and all(is_spoken(item) or (loose and is_a(item, str)) for item in value)


def _answers(generation: Any) -> list[dict[str, Any]]:
    if is_a(generation, str):
        return render_messages([text_message(ASSISTANT, generation)])
    return (
        [a for choice in generation[0] for a in _answer(choice)] if is_a(generation, types.GenerationSnapshot) else []
    )


def _answer(choice: types.ChoiceSnapshot) -> list[dict[str, Any]]:
    said = choice[0]
    reason = finish_reason(choice)
    finished = {} if reason is None else {"finish_reason": reason}
    answer = text_message(ASSISTANT, said) if is_a(said, str) else said
    return [{**message, **finished} for message in render_messages([answer])]


def _tool_result(output: Any) -> Any:
    if is_a(output, types.MessageSnapshot):
        return render_value(joined(output[1]))
    if is_a(output, types.CommandSnapshot):
        results = [_tool_result(message) for message in _messages_of(output) if is_a(message, types.MessageSnapshot)]
        if results:
            return results[0] if len(results) == 1 else results
    return render_value(output)


def _messages_of(command: types.CommandSnapshot) -> Sequence[Any]:
    update = command[1]
    return spoken(update[_MESSAGES_KEY]) if is_a(update, dict) and _MESSAGES_KEY in update else ()


def _documents_in(value: Any, depth: int = 3) -> list[dict[str, Any]]:
    """Return the documents of an artifact or result: itself, in a list, or in a dict's lists."""
    document = _document(value)
    if document is not None:
        return [_retrieved(document)]
    if is_a(value, types.MessageSnapshot):
        return _documents_in(value[2], depth)
    if is_a(value, types.CommandSnapshot):
        return [found for message in _messages_of(value) for found in _documents_in(message, depth)]
    if depth <= 0 or is_a(value, types.Snapshot):
        return []
    inner = value.values() if is_a(value, dict) else value if is_a(value, list, tuple) else ()
    return [found for item in inner for found in _documents_in(item, depth - 1)]


def _document(value: Any) -> types.DocumentSnapshot | None:
    """Return a value that is a document, also one that went through JSON; None for any other."""
    if is_a(value, types.DocumentSnapshot):
        return value
    fields = value.__dict__ if is_a(value, Document) else value
    if not is_a(fields, dict) or not is_a(fields.get("page_content"), str):
        return None
    metadata = fields.get("metadata")
    return types.DocumentSnapshot((fields["page_content"], fields.get("id"), metadata if is_a(metadata, dict) else {}))


def _retrieved(document: types.DocumentSnapshot) -> dict[str, Any]:
    text, identity, metadata = document
    scores = (metadata[key] for key in _SCORE_KEYS if key in metadata)  # most have none
    score = next((float(number) for s in scores if (number := plain_number(s)) is not None), None)
    known = {"id": identity, "content": text, "score": score}
    shown = jsonable({name: value for name, value in known.items() if value is not None})
    return shown if is_a(shown, dict) else {}
