"""Renders LangChain's values as attributes of spans, by the conventions for GenAI and by OpenInference's.

The values are snapshots, which ``snapshot.py`` takes on the application's thread. This module runs on the span thread:

- attributes of a model's span without content: model, parameters, token usage;
- messages, documents and other values in JSON;
- content attributes of each kind of span;
- OpenInference's attributes for retrieved documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from spanscore import semconv
from spanscore.core.codecs.media import add_images, images_in, mark_media
from spanscore.core.codecs.messages import (
    ASSISTANT,
    MADE_BY,
    SYSTEM,
    TOOL,
    USER,
    call_part,
    dict_message,
    is_made_by_middleware,
    is_message,
    join_text_blocks,
    langchain_message,
    parts_of,
    response_part,
    role_of,
    sample_messages,
    text_message,
)
from spanscore.core.codecs.snapshot import (
    ChoiceSnapshot,
    CommandSnapshot,
    DocumentSnapshot,
    GenerationSnapshot,
    MessageSnapshot,
    Opaque,
    PromptSnapshot,
    Snapshot,
    ThreadSnapshot,
    snapshot,
    snapshot_tool_output,
)
from spanscore.core.codecs.text import (
    MAX_CHARS,
    Unfold,
    as_text,
    fits_wire,
    jsonable,
    plain_dict,
    plain_number,
    safe_text,
)
from spanscore.core.codecs.tool_definitions import tool_definitions
from spanscore.core.log import is_a
from spanscore.core.sample import AIMessage as SampleAIMessage
from spanscore.core.sample import HumanMessage as SampleHumanMessage
from spanscore.core.sample import Message, MultiTurnSample, SingleTurnSample
from spanscore.errors import SampleError

# --- models ---------------------------------------------------------------------------------------------------------

# Providers report tokens in four places, under different names: ``usage_metadata`` on the message (LangChain's own
# form, preferred), ``llm_output``, ``response_metadata`` and ``generation_info``.

_LANGCHAIN_IDS = ("lc_run-", "run-")
"""Prefixes of message ids that LangChain itself makes, not the provider."""
_Place: TypeAlias = str | tuple[str, str]
"""Place of a count in a usage report: its key; or the key of an inner dict, and its key there."""
_TOKENS: Mapping[str, tuple[_Place, ...]] = {
    semconv.USAGE_INPUT_TOKENS: (
        "input_tokens",
        "prompt_tokens",
        "prompt_token_count",
        "prompt_eval_count",
        "inputTokens",
        "input_token_count",
    ),
    semconv.USAGE_OUTPUT_TOKENS: (
        "output_tokens",
        "completion_tokens",
        "candidates_token_count",
        "eval_count",
        "outputTokens",
        "generated_token_count",
    ),
    semconv.USAGE_CACHE_READ_INPUT_TOKENS: (
        ("input_token_details", "cache_read"),
        ("prompt_tokens_details", "cached_tokens"),
        "cache_read_input_tokens",
        "cached_content_token_count",
    ),
    semconv.USAGE_CACHE_WRITE_INPUT_TOKENS: (("input_token_details", "cache_creation"), "cache_creation_input_tokens"),
    semconv.USAGE_REASONING_OUTPUT_TOKENS: (
        ("output_token_details", "reasoning"),
        ("completion_tokens_details", "reasoning_tokens"),
        "thoughts_token_count",
    ),
}
"""Attribute → the places of its count, by rank: LangChain's form first, then OpenAI, Anthropic, Google, Ollama, Bedrock."""
_RANKS: Mapping[_Place, tuple[str, int]] = {
    place: (name, rank) for name, places in _TOKENS.items() for rank, place in enumerate(places)
}
"""Place of a count → its attribute, and the rank of the place."""
_INNER_KEYS: Mapping[str, tuple[str, ...]] = {
    outer: tuple(place[1] for place in _RANKS if isinstance(place, tuple) and place[0] == outer)
    for outer in [place[0] for place in _RANKS if isinstance(place, tuple)]
}
"""Key of an inner dict of a report → the keys that are read in it."""
_REPORT_KEYS = ("token_usage", "usage", "usage_metadata", "amazon-bedrock-invocationMetrics")
"""Keys of a usage report inside another value."""
_FINISH_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")


def chat_attributes(
    serialized_name: str | None, metadata: Any, invocation_params: Any, generation: Any
) -> dict[str, Any]:
    """Return the attributes of a model's span without content. Never raises.

    Called for every recorded model run, sampled or not. It is therefore fast: the usual place of a value is read first.

    Args:
        serialized_name: name of the run, by default the model's class; gives the provider if ``metadata`` does not
            (``ChatOpenAI`` → ``openai``).
        metadata: metadata of the run's start; ``ls_*`` keys are LangChain's own.
        invocation_params: parameters of the run's start, under the names of the provider's class.
        generation: result of ``snapshot_generation``; None if there was no answer.
    """
    run, parameters = _dict(metadata), _dict(invocation_params)
    temperature, tokens = _first_number(run, ("ls_temperature",)), _first_number(run, ("ls_max_tokens",))
    values: dict[str, Any] = {
        semconv.REQUEST_MODEL: _first_text(run, ("ls_model_name",)) or _first_text(parameters, _REQUEST_MODELS),
        semconv.PROVIDER_NAME: _first_text(run, ("ls_provider",)) or _provider(serialized_name),
        semconv.REQUEST_TEMPERATURE: _first_number(parameters, ("temperature",))
        if temperature is None
        else temperature,
        semconv.REQUEST_MAX_TOKENS: _whole(_first_number(parameters, _MAX_TOKENS) if tokens is None else tokens),
        semconv.AGENT_NAME: _first_text(run, ("lc_agent_name",)) or _subgraph(run.get("langgraph_checkpoint_ns")),
    }
    if is_a(generation, GenerationSnapshot):
        _add_response(values, generation)
        # two names of one count: Phoenix and Langfuse read the older one
        values[semconv.USAGE_CACHE_CREATION_INPUT_TOKENS] = values.get(semconv.USAGE_CACHE_WRITE_INPUT_TOKENS)
    return {name: value for name, value in values.items() if value is not None}


def _subgraph(namespace: Any) -> str | None:
    """Return the node of the subgraph that contains a run (``math_expert:…|agent:…`` → ``math_expert``): often an agent."""
    outer_nodes = namespace.split("|")[:-1] if isinstance(namespace, str) else ()
    return safe_text(outer_nodes[-1].partition(":")[0]) if outer_nodes else None


_MAX_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
_REQUEST_MODELS = ("model", "model_name", "model_id")
_RESPONSE_MODELS = ("model_name", "model", "model_id", "modelId")
_RESPONSE_IDS = ("id", "request_id")


def finish_reason(choice: ChoiceSnapshot) -> str | None:
    """Return the provider's word for the reason why a model stopped; None if unknown."""
    _, _, _, reported, info = choice
    return _first_text(_dict(reported), _FINISH_KEYS) or _first_text(_dict(info), _FINISH_KEYS)


def _add_response(values: dict[str, Any], generation: GenerationSnapshot) -> None:
    choices, llm_output = generation
    if not choices:
        _add_tokens(values, [llm_output])
        return
    _, identity, usage, reported, info = choices[0]
    metadata, output = _dict(reported), _dict(llm_output)
    reasons = [reason for choice in choices if (reason := finish_reason(choice)) is not None]
    values[semconv.RESPONSE_FINISH_REASONS] = reasons or None
    values[semconv.RESPONSE_MODEL] = _first_text(metadata, _RESPONSE_MODELS) or _first_text(output, _RESPONSE_MODELS)
    own_id = safe_text(identity) if is_a(identity, str) and not identity.startswith(_LANGCHAIN_IDS) else None
    values[semconv.RESPONSE_ID] = _first_text(metadata, _RESPONSE_IDS) or own_id or _first_text(output, _RESPONSE_IDS)
    cost = _dict(usage).get("total_cost")
    if type(cost) is int and cost == 0:  # set by LangChain's cache, if it answered (langchain-core 1.8.3)
        values[semconv.RUN_CACHED] = True
    else:
        _add_tokens(values, [usage, llm_output, reported, info])


def _add_tokens(values: dict[str, Any], sources: Iterable[Any]) -> None:
    """Add the counts of the first report with input or output tokens: two reports may count differently."""
    for report in filter(None, _reports(sources)):
        counts = _counts(report)
        if semconv.USAGE_INPUT_TOKENS in counts or semconv.USAGE_OUTPUT_TOKENS in counts:
            values |= {name: _whole(counts[name][1]) for name in _TOKENS if name in counts}
            return


def _counts(report: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Return attribute → rank and count, from the place with the lowest rank."""
    counts: dict[str, tuple[int, float]] = {}
    for key, value in report.copy().items():  # a copy, because the application may own and edit the report
        if type(key) is not str or value is None:
            continue
        if key in _RANKS:
            _add_count(counts, key, value)
        elif key in _INNER_KEYS:
            details = _dict(value)
            for inner in _INNER_KEYS[key]:
                _add_count(counts, (key, inner), details.get(inner))
    return counts


def _add_count(counts: dict[str, tuple[int, float]], place: _Place, value: Any) -> None:
    name, rank = _RANKS[place]
    if (
        value is not None
        and (name not in counts or rank < counts[name][0])
        and (count := plain_number(value)) is not None
    ):
        counts[name] = rank, count


def _reports(sources: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for source in map(_dict, sources):
        yield source
        yield from (_dict(source.get(key)) for key in _REPORT_KEYS)


def _first_number(fields: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    for key in keys if fields else ():
        value = fields.get(key)
        if value is not None and (number := plain_number(value)) is not None:  # most keys are missing
            return number
    return None


def _dict(value: Any) -> dict[str, Any]:
    if type(value) is dict:
        return value
    if value is None:  # a check against an abstract class takes a microsecond
        return {}
    return plain_dict(value) if is_a(value, dict) else {}


def _first_text(fields: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys if fields else ():  # many reports are empty
        value = fields.get(key)
        if value is None:  # most keys are missing
            continue
        if type(value) is str and value.isascii():  # most texts are; they need no ``safe_text``
            if value:
                return value
        elif is_a(value, str) and (text := safe_text(value)):
            return text
    return None


def _whole(number: float | None) -> int | None:
    if number is None or type(number) is int:
        return number
    try:
        return whole if fits_wire(whole := int(number)) else None
    except (ValueError, OverflowError):  # NaN, infinity
        return None


def _provider(name: str | None) -> str | None:
    """``ChatOpenAI`` → ``openai``: LangChain's own rule for ``ls_provider``."""
    return safe_text(name.removeprefix("Chat").lower()) or None if name and name.startswith("Chat") else None


# --- values ---------------------------------------------------------------------------------------------------------

MAX_MESSAGES = 2_000
"""Maximum number of rendered messages; of a longer conversation only the last messages are rendered."""
ROLES: Mapping[type, str] = {HumanMessage: USER, AIMessage: ASSISTANT, SystemMessage: SYSTEM, ToolMessage: TOOL}
_PARTS_DEPTH: Final = 2
"""Number of levels above a message's parts: the message and its list of parts. ``jsonable`` limits the depth."""


def render_messages(value: Any) -> list[dict[str, Any]]:
    """Return a snapshot of messages, of one message or of a prompt as GenAI messages; ``[]`` for every other value.

    Values that are not messages (``RemoveMessage``, an unknown object) are left out; the last ``MAX_MESSAGES`` are kept.
    """
    items = messages_of(value)[-MAX_MESSAGES:]
    rendered = (_render_text_message(item) or jsonable(_MessageItem((item,)), _UNFOLD) for item in items)
    return [message for message in rendered if is_message(message)]


def render_value(value: Any) -> Any:
    """Return a snapshot as a JSON-able value, with its documents, messages and commands as dicts. Never raises."""
    return jsonable(value, _UNFOLD)


def is_chat_message(value: Any) -> bool:
    """Whether a value is one message: a snapshot of a message, ``("user", text)`` or ``{"role", "content"}``."""
    if is_a(value, MessageSnapshot, BaseMessage):
        return True
    if type(value) is tuple or type(value) is list:
        return len(value) == 2 and role_of(value[0]) is not None and is_a(value[1], str, list)  # noqa: PLR2004
    return is_message(value) and role_of(value["role"]) is not None


def messages_of(value: Any) -> Sequence[Any]:
    """Return the messages of a snapshot, one by one, before they are rendered."""
    if is_a(value, ThreadSnapshot):
        return [MessageSnapshot(row) for row in zip(*value, strict=True)]
    if is_a(value, PromptSnapshot):
        return messages_of(value[0])
    return value if is_a(value, list, tuple) and not is_chat_message(value) else [value]


def _render_text_message(item: Any) -> dict[str, Any] | None:
    """Render a message with only a text and tool calls, in a fraction of the time of ``_message``; None for other messages."""
    if type(item) is not MessageSnapshot:
        return None
    message, content, rest = item
    role = ROLES.get(type(message))
    if role is None or type(content) is not str or len(content) > MAX_CHARS or MADE_BY in message.additional_kwargs:
        return None
    return _render_tool_text(message, content) if role is TOOL else _render_text(role, message, content, rest)


def _render_text(role: str, message: Any, content: str, calls: Any) -> dict[str, Any] | None:
    if message.name or not (content or calls):
        return None
    rendered = text_message(role, safe_text(content)) if content else {"role": role, "parts": []}
    if calls:
        rendered["parts"] += jsonable([call_part(call) for call in calls], _UNFOLD, within=_PARTS_DEPTH)
    return rendered if role is not USER or not message.id else {**rendered, "id": message.id}


def _render_tool_text(message: ToolMessage, content: str) -> dict[str, Any] | None:
    name, identity = message.name, message.tool_call_id
    if type(identity) is not str or not (name is None or type(name) is str):
        return None
    part = response_part({"tool_call_id": safe_text(identity), "status": message.status}, safe_text(content))
    return {"role": TOOL, "parts": [part], **({"name": safe_text(name)} if name else {})}


def _message(item: Any) -> dict[str, Any] | None:
    """Return one message in GenAI form; None for every other value (``RemoveMessage``, an unknown object)."""
    if is_a(item, MessageSnapshot):
        message, content, rest = item
        fields = _fields_of(message)
        kind = fields["type"].removesuffix("MessageChunk")
        role = role_of(kind) or fields.get("role", kind)
        return langchain_message(role, fields, content, rest, is_human=is_a(message, HumanMessage))
    if is_a(item, BaseMessage):
        return _message(snapshot(item))
    if is_a(item, str):
        return text_message(USER, item)
    if not is_chat_message(item):
        return None
    if is_a(item, dict):
        return dict_message(item)
    return {"role": role_of(item[0]), "parts": parts_of(item[1])}


_fields_of: Callable[[BaseModel], dict[str, Any]] = BaseModel.__dict__["__dict__"].__get__
"""Reads the fields of a message by the descriptor of ``BaseModel``: ``message.__dict__`` could run code of an application's own
class, such as a property.
"""


class _MessageItem(Snapshot):
    """(value,): a value that ``jsonable`` renders as a message."""

    __slots__ = ()


def _unfold_messages(value: ThreadSnapshot | PromptSnapshot) -> list[Any]:
    return [_MessageItem((item,)) for item in messages_of(value)]


def _unfold_document(document: DocumentSnapshot) -> dict[str, Any]:
    text, identity, metadata = document
    plain = {key: value for key, value in metadata.items() if value is None or type(value) in (str, int, float, bool)}
    return {"page_content": text, "id": identity, "metadata": plain}


def _unfold_command(command: CommandSnapshot) -> dict[str, Any]:
    fields = zip(("resume", "update", "goto"), command, strict=True)
    return {"type": "Command", **{name: value for name, value in fields if value is not None and value != ()}}


_UNFOLD: Mapping[type, Unfold] = {
    _MessageItem: lambda item: _message(item[0]),
    ThreadSnapshot: _unfold_messages,
    MessageSnapshot: _message,
    PromptSnapshot: _unfold_messages,
    DocumentSnapshot: _unfold_document,
    CommandSnapshot: _unfold_command,
    Opaque: lambda opaque: {"type": opaque[0]},
    **dict.fromkeys((BaseMessage, Document), snapshot),  # a snapshot shares the objects below its copied levels
}


# --- content of spans -----------------------------------------------------------------------------------------------

# A LangChain value → its attribute, or its form in one:
#
#     list of messages, prompt, {"messages": …}    gen_ai.input.messages / gen_ai.output.messages
#     any other value, and a state's other keys    input.value / output.value
#     a document                                   {"page_content", "id", "metadata"}
#     Command(resume=…)                            {"type": "Command", "resume": …}
#     an unknown object                            {"type": its type's name}

_MESSAGES_KEY = "messages"
_SCORE_KEYS = ("score", "relevance_score", "similarity_score", "_score")


def sample_from_messages(messages: Sequence[Any]) -> SingleTurnSample | MultiTurnSample:
    """Return the sample of a LangChain conversation: multi-turn if it has tool calls or several human turns.

    Messages may also be ``("user", text)`` or ``{"role", "content"}``; system messages are left out.

    Raises:
        SampleError: the conversation is impossible; the error names the message and the cause.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> sample_from_messages([HumanMessage("Capital of France?"), AIMessage("Paris.")]).response
        'Paris.'
    """
    rendered = render_messages(snapshot_tool_output(list(messages)))
    sample = _sample_of(sample_messages(map(mark_media, rendered)))
    return add_images(sample, lambda: dict(images_in(rendered)))


def _sample_of(messages: list[Message]) -> SingleTurnSample | MultiTurnSample:
    humans = [message for message in messages if isinstance(message, SampleHumanMessage)]
    answers = [message for message in messages if isinstance(message, SampleAIMessage)]
    if len(humans) <= 1 and len(answers) == len(messages) - len(humans) and not any(a.tool_calls for a in answers):
        return SingleTurnSample(
            user_input=humans[-1].content if humans else None, response=answers[-1].content if answers else None
        )
    try:
        return MultiTurnSample(user_input=messages)
    except ValueError as error:
        raise SampleError(str(error)) from error


def bound_tools(invocation_params: Any) -> list[dict[str, Any]]:
    """Return the tools that are bound to a model, in the form of the GenAI conventions; empty without any.

    Args:
        invocation_params: parameters of the run's start, with the tools in the form of the provider's API. Tools that are
            Python objects are left out.
    """
    parameters = _dict(invocation_params)
    listed = parameters.get("tools") or parameters.get("functions")
    definitions = [tool for tool in listed if is_a(tool, dict)] if isinstance(listed, list | tuple) else []
    return [
        {"type": "function", **tool.model_dump(exclude_none=True)} for tool in tool_definitions(jsonable(definitions))
    ]


def chat_content(messages: Any, generation: Any) -> dict[str, Any]:
    """Return the content of a chat model's span.

    Args:
        messages: result of ``snapshot_messages``; None if content is not recorded.
        generation: result of ``snapshot_generation``, or the text before a stream was abandoned; None = no answer.
    """
    content: dict[str, Any] = {}
    if messages is not None:
        conversation = messages[0] if type(messages) is list and len(messages) == 1 else messages
        content[semconv.INPUT_MESSAGES] = render_messages(conversation)
    if is_a(generation, str):
        answers = render_messages([text_message(ASSISTANT, generation)])
    else:
        choices, _ = generation if is_a(generation, GenerationSnapshot) else ((), None)
        answers = [answer for choice in choices for answer in _answer(choice)]
    if answers:
        content[semconv.OUTPUT_MESSAGES] = answers
    return content


def completion_content(prompts: Any, generation: Any) -> dict[str, Any]:
    """Return the content of a text model's span; the prompt is one user message."""
    texts = prompts if is_a(prompts, list) else [prompts]
    messages = None if prompts is None else [[text_message(USER, text) for text in texts if is_a(text, str)]]
    return chat_content(messages, generation)


def retriever_content(query: Any, documents: Any) -> dict[str, Any]:
    """Return the content of a retriever's span from snapshots; no documents (None) if the retriever failed."""
    content: dict[str, Any] = {}
    if query is not None:
        content[semconv.RETRIEVAL_QUERY] = as_text(render_value(query))
    if documents is not None:
        content[semconv.RETRIEVAL_DOCUMENTS] = _documents_in(documents, depth=1)
    return content


def tool_content(arguments: Any, output: Any) -> dict[str, Any]:
    """Return the content of a tool's span; documents in its artifact (or result) are retrieved documents.

    Args:
        arguments: snapshot of the tool's input; None if content is not recorded.
        output: result of ``snapshot_tool_output``; None if the tool failed.
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
    state_messages: Any = None,
) -> dict[str, Any]:
    """Return the content of a root: a conversation as messages, every other value as ``input.value`` or ``output.value``.

    A state of a graph may have both, messages and values.

    Args:
        inputs: snapshot of the input; None = no input.
        outputs: snapshot of the output; None = no output.
        expected: arguments of ``spanscore.references``.
        history: snapshot of the messages from a message store; None = no store was read.
        state_messages: snapshot of the last human message in the first state of a LangGraph; None without a graph. It gives
            the input's last message an id, which a tuple or a dict in the input lacks. For a resumed graph, whose input has no
            messages, it may be the history.
    """
    content = {
        **_messages_or_value(inputs, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
        **_messages_or_value(outputs, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE),
    }
    if state_messages is not None:
        resumes = inputs is None or is_a(inputs, CommandSnapshot)
        _add_state_message(content, render_messages(state_messages), resumes=resumes)
    if expected:
        content[semconv.REFERENCES] = jsonable(dict(expected))
    if history:
        content[semconv.HISTORY] = render_messages(history)
    return content


def _add_state_message(content: dict[str, Any], last_human: Sequence[dict[str, Any]], *, resumes: bool) -> None:
    """Replace the input's last message by the same message with its id; for a resumed graph, add the message as history."""
    prompts, answers = content.get(semconv.INPUT_MESSAGES), content.get(semconv.OUTPUT_MESSAGES)
    if prompts:
        without_id = [{key: value for key, value in message.items() if key != "id"} for message in last_human]
        if prompts[-1:] == without_id:
            prompts[-1:] = last_human
    elif (
        resumes
        and answers
        and not any(message.get("role") == USER and not is_made_by_middleware(message) for message in answers)
    ):
        # The output of a resumed graph has the human message, unless a summary by a middleware has replaced it.
        content[semconv.HISTORY] = last_human


def _messages_or_value(value: Any, messages_key: str, value_key: str) -> dict[str, Any]:
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
    """Whether a value consists of messages. ``loose`` also accepts plain texts, for values under a key of messages."""
    if is_a(value, ThreadSnapshot, MessageSnapshot, PromptSnapshot, BaseMessage):
        return True
    if is_chat_message(value) or (loose and is_a(value, str)):
        return True
    if not is_a(value, list, tuple) or is_a(value, DocumentSnapshot, CommandSnapshot, Opaque):
        return False
    return len(value) > 0 and all(is_chat_message(item) or (loose and is_a(item, str)) for item in value)


def _answer(choice: ChoiceSnapshot) -> list[dict[str, Any]]:
    answer, *_ = choice
    reason = finish_reason(choice)
    finish = {} if reason is None else {"finish_reason": reason}
    message = text_message(ASSISTANT, answer) if is_a(answer, str) else answer
    return [{**rendered, **finish} for rendered in render_messages([message])]


def _tool_result(output: Any) -> Any:
    if is_a(output, MessageSnapshot):
        _, content, _ = output
        return render_value(join_text_blocks(content))
    if is_a(output, CommandSnapshot):
        results = [_tool_result(each) for each in _messages_of_command(output) if is_a(each, MessageSnapshot)]
        if results:
            return results[0] if len(results) == 1 else results
    return render_value(output)


def _messages_of_command(command: CommandSnapshot) -> Sequence[Any]:
    _, update, _ = command
    return messages_of(update[_MESSAGES_KEY]) if is_a(update, dict) and _MESSAGES_KEY in update else ()


def _documents_in(value: Any, depth: int = 3) -> list[dict[str, Any]]:
    """Return the documents of an artifact or result: the value itself, or documents in a list or in the lists of a dict."""
    document = _document(value)
    if document is not None:
        return [_retrieval_document(document)]
    if is_a(value, MessageSnapshot):
        _, _, artifact = value
        return _documents_in(artifact, depth)
    if is_a(value, CommandSnapshot):
        return [document for message in _messages_of_command(value) for document in _documents_in(message, depth)]
    if depth <= 0 or is_a(value, Snapshot):
        return []
    inner = value.values() if is_a(value, dict) else value if is_a(value, list, tuple) else ()
    return [document for item in inner for document in _documents_in(item, depth - 1)]


def _document(value: Any) -> DocumentSnapshot | None:
    """Return a value that is a document, or a document converted to JSON; None for every other value."""
    if is_a(value, DocumentSnapshot):
        return value
    fields = value.__dict__ if is_a(value, Document) else value
    if not is_a(fields, dict) or not is_a(fields.get("page_content"), str):
        return None
    metadata = fields.get("metadata")
    return DocumentSnapshot((fields["page_content"], fields.get("id"), metadata if is_a(metadata, dict) else {}))


def _retrieval_document(document: DocumentSnapshot) -> dict[str, Any]:
    text, identity, metadata = document
    scores = (metadata[key] for key in _SCORE_KEYS if key in metadata)  # most documents have no score
    score = next((float(number) for s in scores if (number := plain_number(s)) is not None), None)
    fields = {"id": identity, "content": text, "score": score}
    rendered: dict[str, Any] = jsonable({name: value for name, value in fields.items() if value is not None})
    return rendered


# --- openinference --------------------------------------------------------------------------------------------------

MOST_DOCUMENTS: Final = 20
"""Maximum number of documents, with three attributes each. The SDK keeps 128 attributes per span; for each further attribute
it drops the oldest, with a warning on stderr.
"""
_FIELD_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {"id": str, "content": str, "score": (float, int)}


def flat_documents(documents: Any, room: int | None) -> dict[str, Any]:
    """Return the first 20 documents as OpenInference's flat attributes, each with its id, text and score, if present.

    Phoenix drops documents in the GenAI form without a score.

    Args:
        documents: the value of ``gen_ai.retrieval.documents``; every other value has no documents.
        room: number of attributes for which the span has room; a document is added whole or not at all. None = no limit.
    """
    flat: dict[str, Any] = {}
    for position, document in enumerate(islice(documents, MOST_DOCUMENTS) if isinstance(documents, list) else ()):
        prefix = f"{semconv.OPENINFERENCE_DOCUMENTS}{position}.document."
        fields = {name: document.get(name) for name in _FIELD_TYPES}
        attributes = {prefix + name: value for name, value in fields.items() if isinstance(value, _FIELD_TYPES[name])}
        if room is not None and len(flat) + len(attributes) > room:
            break
        flat |= attributes
    return flat
