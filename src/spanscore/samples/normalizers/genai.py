"""Normalizes spans of the OpenTelemetry GenAI conventions, present and older, including spanscore's own.

The content, from the newest form to the oldest, is in

    gen_ai.input.messages, gen_ai.output.messages …      structured, or as JSON
    gen_ai.prompt.N.role, gen_ai.completion.N.content …  flat
    gen_ai.prompt, gen_ai.completion                     one JSON each
    span events                                          gen_ai.content.prompt, gen_ai.user.message, gen_ai.choice …

Writers are the contrib instrumentations, OpenLIT, LangSmith's OTel export, Semantic Kernel, Spring AI, Strands, older
OpenLLMetry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, SYSTEM, TOOL, USER, join_text_blocks
from spanscore.core.codecs.sdk import AttributeCache, attributes_under, names_under, parse_content
from spanscore.core.codecs.spring_ai import is_printed, printed_answer, printed_prompt, prompt_of
from spanscore.core.codecs.text import from_wire, is_cut
from spanscore.core.span import Attributes, NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    answers_in,
    content_of,
    conversation_of,
    dicts_in,
    in_genai_names,
    json_at,
    make_message,
    positions,
    prompts_in,
    raw_attributes,
    render_content,
    split_answer,
    value_of,
)
from spanscore.samples.normalizers.spring_ai import KIND, in_conventional_names

Events = Sequence[tuple[str, Mapping[str, Any]]]
"""Name and attributes of each event of a span."""
_WORDLESS_OPERATIONS: Final[Mapping[str, str]] = dict.fromkeys(semconv.WORDLESS_REQUESTS, semconv.EMBEDDINGS)
OPERATION_OF_TYPE: Final[Mapping[str, str]] = {**_WORDLESS_OPERATIONS, "completion": semconv.TEXT_COMPLETION}
"""``llm.request.type`` → operation; any other is a chat."""
_STANDARD_OPERATIONS: Final = frozenset(
    {*semconv.MODEL_OPERATIONS, *semconv.WHOLE_OPERATIONS, semconv.RETRIEVAL, semconv.EMBEDDINGS}
    | {semconv.EXECUTE_TOOL, semconv.EXECUTE_TASK, semconv.CREATE_AGENT, semconv.EVALUATION}
)
"""Operations of the conventions. A span with any other operation is a model's call if it has a model and messages."""
_CONTENT_ENDINGS: Final = re.compile(
    r"(?:^|[._])(?:(?:input|output|prompt|completion|message|request|response|content|event|question|answer)s?|\w+_data|value)$"
)
"""Matches endings of the names under which unknown writers may put content."""
_CONTENT: Final = (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.PROMPT, semconv.COMPLETION)
"""Attributes with content: the newest names, which are also the prefixes of older flat names."""
_CALL_EVIDENCE: Final = frozenset({*_CONTENT, f"{semconv.PROMPT}.0.content", f"{semconv.COMPLETION}.0.content"})
"""Attributes of which a model's call without ``gen_ai.system`` has at least one."""
_OUTPUT_TOKENS: Final = (semconv.USAGE_OUTPUT_TOKENS, semconv.USAGE_COMPLETION_TOKENS)
_LEFT_TO_OTHERS: Final = frozenset({"logfire.openai", "logfire.anthropic", "logfire.azure_ai_inference"})
"""Scopes that the ``Logfire`` normalizer reads: spans of streamed requests have GenAI names, but are not whole calls."""
OPERATION_OF_RUN: Final[Mapping[str, str]] = {
    "llm": semconv.CHAT,
    "tool": semconv.EXECUTE_TOOL,
    "retriever": semconv.RETRIEVAL,
    "embedding": semconv.EMBEDDINGS,
}
"""LangSmith's run type → operation; any other type is a chain."""
_OFF: Final = NoContent(
    "content is not on the spans (genai)",
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY for the traced application; instrumentations from before"
    " 2026 need OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental as well or accept only 'true', and some have a"
    " switch of their own. Content in log records is also read, if they are sent to the same place as the spans",
)
_IN_RECORDS: Final = NoContent(
    "content is in log records, not on the spans (genai)",
    "add ScoringLogRecordProcessor(scorer) to the LoggerProvider, next to ScoringSpanProcessor; or set"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
)
_OF_SPRING: Final = NoContent(
    _OFF.reason,
    "Spring AI writes it to log records: set log-prompt and log-completion of spring.ai.chat.observations and of"
    " spring.ai.chat.client.observations to true (Spring Boot 4: declare the handlers as beans), and send log records by OTLP"
    " to the same place as the spans; or put it on the spans of models as gen_ai.prompt and gen_ai.completion, by an"
    " ObservationFilter",
)
_SPRING: Final = "org.springframework."
"""Prefix of the scope of all spans of a Spring Boot application."""
_VALUES_FOR_RECORDS: Final = frozenset({"event_only", "true"})


class GenAINormalizer:
    """Reads spans of all writers of the OpenTelemetry GenAI conventions.

    Content is off by default: ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY`` turns it on.
    """

    name = "genai"
    scopes: Sequence[str] = (
        semconv.CAPTURE_SCOPE,
        "opentelemetry.instrumentation.genai",
        "opentelemetry.instrumentation.openai_v2",
        "opentelemetry.instrumentation.openai_agents",
        "opentelemetry.instrumentation.google_genai",
        "opentelemetry.instrumentation.vertexai",
        "opentelemetry.instrumentation.botocore",
        "opentelemetry.util.genai",
        "openlit",
        "langsmith",
        "strands",
        "semantic_kernel",
        "agent_framework",
        "Microsoft.SemanticKernel",
        "Experimental.Microsoft.Extensions.AI",
        "io.opentelemetry.openai-",
        "azure.ai.inference",
        "autogen",
        "gen_ai",  # Vercel's AI SDK, since version 7
    )
    signatures: Sequence[bytes] = tuple(name.encode() for name in (semconv.OPERATION_NAME, *_CONTENT, KIND))

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has an operation, is a model's call, or is spanscore's own.

        False for OpenLLMetry's spans, and for spans of the scopes in ``_LEFT_TO_OTHERS`` (Logfire's clients).
        """
        if span.scope == semconv.CAPTURE_SCOPE:
            return True
        if span.scope in _LEFT_TO_OTHERS:
            return False
        raw = raw_attributes(span)
        if semconv.TRACELOOP_KIND in raw or semconv.TRACELOOP_WORKFLOW in raw:
            return False
        if isinstance(raw.get(semconv.OPERATION_NAME), str) or KIND in raw:
            return True
        may_be_call = semconv.SYSTEM in raw or (
            semconv.OPENINFERENCE_KIND not in raw and not _CALL_EVIDENCE.isdisjoint(raw)
        )
        return may_be_call and _is_call(span, raw)

    def normalize(self, span: SpanData) -> SpanData:
        """Return spanscore's own span unchanged, and any other span with GenAI names only."""
        return span if span.scope == semconv.CAPTURE_SCOPE else conventional(span, no_content=_no_content)


def conventional(span: SpanData, *, no_content: Callable[[str], NoContent]) -> SpanData:
    """Return a span of the conventions with GenAI names only; ``no_content`` returns the reason for no content, by scope."""
    raw = in_conventional_names(raw_attributes(span))
    names = _NAMES[(*raw,)]
    metadata = {key: raw[name] for key, name in names.metadata} if names.metadata else {}
    operation = _operation(raw, names.newest)
    plain = {name: raw[other] for name, other in names.plain}
    plain |= _numbers_in_texts(plain, names.counts)
    plain[semconv.OPERATION_NAME] = operation
    if names.has_conversation:
        plain[semconv.CONVERSATION_ID] = conversation_of(raw, metadata)
    if operation == semconv.INVOKE_WORKFLOW:
        plain.setdefault(semconv.WORKFLOW_NAME, span.name)
    render = _RENDERERS.get(operation, _ROOT)
    raw_content = _content_attributes(raw, names.newest, span.events)
    reason = None if raw_content else _unknown_form(raw) or no_content(span.scope)
    tools = raw_content.pop(semconv.TOOL_DEFINITIONS, raw.get(semconv.MODEL_REQUEST_PARAMETERS))
    if tools is None and names.functions:
        tools = positions({name: raw[name] for name in names.functions}, semconv.REQUEST_FUNCTIONS)
    return in_genai_names(span, plain, raw_content, render, no_content=reason, metadata=metadata, tools=tools)


def _is_call(span: SpanData, raw: Mapping[str, Any]) -> bool:
    """Return whether a span without an operation is a model's call."""
    # A call has a request type, a model with token counts, or content. Spans of speech, images and files are no calls, and
    # neither are spans that only group other spans.
    if semconv.REQUEST_TYPE in raw or (semconv.REQUEST_MODEL in raw and any(name in raw for name in _OUTPUT_TOKENS)):
        return True
    return bool(_content_attributes(raw, _NAMES[(*raw,)].newest, span.events))


def _unknown_form(raw: Mapping[str, Any]) -> NoContent | None:
    """Return the reason why a span with texts under unknown names has no content; None if it has no such texts."""
    names = [
        name
        for name, value in raw.items()
        if isinstance(value, str) and (" " in value or value[:1] in _STRUCTURE) and _CONTENT_ENDINGS.search(name)
    ]
    if not names:
        return None
    return NoContent(
        "the writer of the span is unknown: its content has other names (genai)",
        f"give a translation of your own (units.translations), which reads {', '.join(sorted(names)[:_MOST_NAMES])}",
    )


_STRUCTURE: Final = ("{", "[")
_MOST_NAMES: Final = 5


class _Names(NamedTuple):
    """Names of a span's attributes, by their use.

    Attributes:
        plain: name in the conventions of each attribute without content, with its name on the span.
        newest: names of content in the newest form.
        metadata: key of the run's metadata, and the name of the attribute.
        has_conversation: whether an attribute may have the conversation's id.
        functions: names of the flat definitions of tools.
        counts: names in the conventions of numbers of tokens.
    """

    plain: tuple[tuple[str, str], ...]
    newest: tuple[str, ...]
    metadata: tuple[tuple[str, str], ...]
    has_conversation: bool
    functions: tuple[str, ...]
    counts: tuple[str, ...]


def _numbers_in_texts(plain: Mapping[str, Any], counts: Sequence[str]) -> dict[str, int]:
    """Return the numbers of tokens that are texts of digits: Micrometer (Spring AI, LangChain4j) writes values as texts."""
    texts = {name: plain[name] for name in counts if isinstance(plain[name], str)}
    return {name: int(text) for name, text in texts.items() if _NUMBER.fullmatch(text)}


def _is_count(name: str) -> bool:
    return name.startswith(semconv.USAGE)


_NUMBER: Final = re.compile("[0-9]{1,18}")


def _by_use(names: tuple[str, ...]) -> _Names:
    older = {name: other for name, other in _OLDER_PLAIN.items() if name in names or other in names}
    plain = older | {name: name for name in names if name in semconv.PLAIN_ATTRIBUTES}
    metadata = tuple([pair for prefix in _METADATA for pair in names_under(prefix, names)])
    has_conversation = bool(metadata) or not {semconv.CONVERSATION_ID, semconv.SESSION_ID}.isdisjoint(names)
    functions = tuple(name for name in names if name.startswith(semconv.REQUEST_FUNCTIONS))
    counts = tuple(filter(_is_count, plain))
    return _Names((*plain.items(),), _newest_names(names), metadata, has_conversation, functions, counts)


def _newest_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple([name for name in names if name in _NEWEST or name.startswith(semconv.PROMPT_VARIABLE)])


_METADATA: Final = (semconv.LANGSMITH_METADATA, semconv.TRACELOOP_PROPERTIES, semconv.VERCEL_CONTEXT)
"""Prefixes of a run's metadata."""
_NAMES: Final = AttributeCache(_by_use)
_OLDER_PLAIN: Final[Mapping[str, str]] = {
    semconv.PROVIDER_NAME: semconv.SYSTEM,
    semconv.USAGE_INPUT_TOKENS: semconv.USAGE_PROMPT_TOKENS,
    semconv.USAGE_OUTPUT_TOKENS: semconv.USAGE_COMPLETION_TOKENS,
    semconv.USAGE_CACHE_READ_INPUT_TOKENS: semconv.USAGE_CACHE_READ_TOKENS,
}
"""Names of the conventions → their older names."""


def _content_attributes(raw: Mapping[str, Any], newest: Iterable[str], events: Events) -> dict[str, Any]:
    """Return the attributes with content, in the newest form or else in older forms; empty without input and output."""
    raw_content = {_OF_MEMORY.get(name, name): raw[name] for name in newest}
    for event, attributes in events:
        if event == semconv.DETAILS_EVENT:
            raw_content |= {_OF_MEMORY.get(name, name): attributes[name] for name in _newest_names(attributes)}
    if raw_content.keys() <= _WITHOUT_MESSAGES:
        raw_content |= _older_content(raw, events)
        return {} if raw_content.keys() <= _WITHOUT_MESSAGES else raw_content
    return raw_content


_OF_MEMORY: Final[Mapping[str, str]] = {
    semconv.MEMORY_QUERY: semconv.RETRIEVAL_QUERY,
    semconv.MEMORY_RECORDS: semconv.RETRIEVAL_DOCUMENTS,
}
"""Content of a search in a memory → the name of a retriever's content."""
_NEWEST: Final = (
    frozenset(name for name in semconv.CONTENT_ATTRIBUTES if name.startswith("gen_ai.")) | _OF_MEMORY.keys()
)
_WITHOUT_MESSAGES: Final = frozenset({semconv.TOOL_DEFINITIONS, semconv.SYSTEM_INSTRUCTIONS})
"""Content that, by itself, is neither input nor output."""


def _operation(raw: Mapping[str, Any], newest: Sequence[str]) -> str:
    run_type = raw.get(semconv.LANGSMITH_KIND)
    if isinstance(run_type, str):
        return OPERATION_OF_RUN.get(run_type, semconv.INVOKE_WORKFLOW)
    operation = raw.get(semconv.OPERATION_NAME)
    if isinstance(operation, str):
        if operation == semconv.SEARCH_MEMORY:
            return semconv.RETRIEVAL
        return operation if operation in _STANDARD_OPERATIONS else _operation_of_library(operation, raw, newest)
    return OPERATION_OF_TYPE.get(str(raw.get(semconv.REQUEST_TYPE)), semconv.CHAT)


def _operation_of_library(operation: str, raw: Mapping[str, Any], newest: Sequence[str]) -> str:
    """Return the operation of a span with a library's operation name: LiteLLM's ``acompletion``, Bedrock's ``converse``."""
    if operation in _WORDLESS_OPERATIONS:
        return _WORDLESS_OPERATIONS[operation]
    has_messages = not {semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES}.isdisjoint(newest) or bool(
        _older_content(raw, ())
    )
    is_call = operation.startswith(semconv.CHAT) or (has_messages and semconv.REQUEST_MODEL in raw)
    return semconv.CHAT if is_call else operation  # Semantic Kernel: chat.completions


def _no_content(scope: str) -> NoContent:
    """Return the reason for missing content. This process may be the traced application, so its environment is read."""
    if scope.startswith(_SPRING):
        return _OF_SPRING
    switch = os.environ.get(semconv.CAPTURE_CONTENT_ENV, "").strip().lower()
    return _IN_RECORDS if switch in _VALUES_FOR_RECORDS else _OFF


def _tool(raw_content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool's arguments and result; Strands writes them as messages of one part."""
    content = _conventional(raw_content)
    messages = (message for name in _MESSAGE_SIDES for message in dicts_in(content.get(name)))
    parts = [part for message in messages for part in dicts_in(message.get("parts"))]
    attributes = {
        semconv.TOOL_CALL_ARGUMENTS: next((part["arguments"] for part in parts if "arguments" in part), None),
        semconv.TOOL_CALL_RESULT: next(
            (join_text_blocks(part["response"]) for part in parts if "response" in part), None
        ),
    }
    return {**attributes, **content} if content else _older_tool(raw_content)


_MESSAGE_SIDES: Final = (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES)


def _conventional_or(older: Render) -> Render:
    """Return a function that renders content in the newest form, or else calls the function for older forms."""
    return lambda raw_content: _conventional(raw_content, unread=_MESSAGE_SIDES) or older(raw_content)


def _conventional(raw_content: Mapping[str, Any], *, unread: Collection[str] = ()) -> dict[str, Any]:
    """Return content under the conventions' own names. Lists under ``unread`` names are parsed only when they are read."""
    content = parse_content(raw_content, unread=unread)
    if len(content) < len(raw_content) and (variables := attributes_under(semconv.PROMPT_VARIABLE, raw_content)):
        # ``parse_content`` leaves out prompt variables, which are flat attributes; together they become the input value.
        content[semconv.INPUT_VALUE] = variables
    for name in _MESSAGE_SIDES:
        listed = content.get(name)
        if isinstance(listed, dict):  # {"version", "messages": […]}
            content[name] = listed.get("messages", [listed])
    return {} if content.keys() <= _WITHOUT_MESSAGES else content


# --- older forms ----------------------------------------------------------------------------------------------------

_ON_EVENTS: Final = "events"
"""Key of the span events among the raw attributes with content."""
_EVENTS: Final = frozenset(
    {semconv.PROMPT_EVENT, semconv.COMPLETION_EVENT, semconv.CHOICE_EVENT, *semconv.MESSAGE_EVENTS}
)
"""Span events with content."""
_BODIES: Final = (semconv.EVENT_CONTENT, semconv.PROMPT, semconv.COMPLETION, "content", "message")
"""Attributes of a span event with its content; the first existing one is used."""
_CONTENT_NAMES: Final = re.compile(rf"(?:{semconv.PROMPT}|{semconv.COMPLETION})(?:$|\.\d)")
"""Matches names of content, not ``gen_ai.prompt.version``."""
_PromptsAndAnswers = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""The messages of a model's input, and of its output."""


def _older_content(raw: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """Return a span's attributes with content in older forms, and its events with content."""
    raw_content: dict[str, Any] = {name: value for name, value in raw.items() if _CONTENT_NAMES.match(name)}
    content_events = [(name, dict(attributes)) for name, attributes in events if name in _EVENTS and attributes]
    if not content_events:
        return raw_content
    # A cut body is added under its event's name, so that the span counts as cut.
    bodies = ((name, _body(attributes)) for name, attributes in content_events)
    cut = {name: body for name, body in bodies if isinstance(body, str) and is_cut(body)}
    return {**raw_content, **cut, _ON_EVENTS: content_events}


def _older_chat(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    for read in _OLDER_FORMS:
        prompts, answers = read(raw_content)
        if prompts or answers:
            return {semconv.INPUT_MESSAGES: prompts or None, semconv.OUTPUT_MESSAGES: answers or None}
    return {}


def _older_root(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's content; an answer at the end of the messages of events becomes the output (Azure's agents)."""
    if _ON_EVENTS not in raw_content:
        return content_of(semconv.INVOKE_WORKFLOW, *_prompt_and_completion(raw_content, "input", "output"))
    content = _older_chat(raw_content)
    prompts = content.get(semconv.INPUT_MESSAGES)
    if prompts is None or content.get(semconv.OUTPUT_MESSAGES) is not None:
        return content
    before, answer = split_answer(prompts)
    return {semconv.INPUT_MESSAGES: before or None, semconv.OUTPUT_MESSAGES: answer or None}


def _older_tool(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments and result of a tool. In events, a tool's message has the arguments, the choice the result (Strands)."""
    if _ON_EVENTS not in raw_content:
        inputs, outputs = _prompt_and_completion(raw_content, "input", "output")
        return content_of(semconv.EXECUTE_TOOL, value_of(inputs), outputs)
    bodies = {name: _parsed(_body(attributes)) for name, attributes in raw_content[_ON_EVENTS]}
    tool_events = (name for name, role in semconv.MESSAGE_EVENTS.items() if role == TOOL and name in bodies)
    return {
        semconv.TOOL_CALL_ARGUMENTS: bodies.get(next(tool_events, "")),
        semconv.TOOL_CALL_RESULT: join_text_blocks(bodies.get(semconv.CHOICE_EVENT)),
    }


def _older_retrieval(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    return content_of(semconv.RETRIEVAL, *_prompt_and_completion(raw_content, "query", "documents"))


def _flat_attributes(raw_content: Mapping[str, Any]) -> _PromptsAndAnswers:
    return _flat_messages(raw_content, semconv.PROMPT, USER), _flat_messages(raw_content, semconv.COMPLETION, ASSISTANT)


def _flat_messages(raw_content: Mapping[str, Any], name: str, role: str) -> list[dict[str, Any]]:
    messages = [fields for fields in positions(raw_content, f"{name}.") if fields.keys() & _MESSAGE_FIELDS]
    # If some messages have a role, a message without one was cut.
    with_role = [fields for fields in messages if "role" in fields]
    return [_flat_message(fields, role) for fields in with_role or messages]


_MESSAGE_FIELDS: Final = frozenset({"role", "content", "tool_calls.0.name", "tool_calls.0.id", "function_call.name"})


def _flat_message(fields: Mapping[str, Any], role: str) -> dict[str, Any]:
    content, written_role = fields.get("content"), fields.get("role", role)
    calls = [*positions(fields, "tool_calls.")]
    if "function_call.name" in fields:
        calls.append({"name": fields["function_call.name"], "arguments": fields.get("function_call.arguments")})
    blocks = from_wire(content) if isinstance(content, str) and content.startswith("[{") else content
    return make_message(written_role if isinstance(written_role, str) else role, blocks, calls, fields)


def _whole_conversation(raw_content: Mapping[str, Any]) -> _PromptsAndAnswers:
    prompt, completion = (_parsed(raw_content.get(name)) for name in (semconv.PROMPT, semconv.COMPLETION))
    if is_printed(prompt):
        prompt = printed_prompt(prompt)
    elif isinstance(prompt, list) and len(prompt) > 1 and all(isinstance(text, str) for text in prompt):
        prompt = prompt_of(prompt)
    return prompts_in(prompt), answers_in(printed_answer(completion) if is_printed(completion) else completion)


def _messages_of_events(raw_content: Mapping[str, Any]) -> _PromptsAndAnswers:
    prompts: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for name, attributes in raw_content.get(_ON_EVENTS, ()):
        body = _parsed(_body(attributes))
        if isinstance(body, str) and (is_cut(body) or name == semconv.PROMPT_EVENT):
            prompts += prompts_in(body)  # empty for a cut text
        elif name in {semconv.CHOICE_EVENT, semconv.COMPLETION_EVENT}:
            answers += answers_in(_message_of_event(body, ASSISTANT, attributes))
        elif body is not None or name in semconv.MESSAGE_EVENTS:
            prompts += prompts_in(_message_of_event(body, semconv.MESSAGE_EVENTS.get(name, USER), attributes))
    return prompts, answers


def _body(attributes: Mapping[str, Any]) -> Any:
    return next((attributes[name] for name in _BODIES if name in attributes), None)


def _message_of_event(body: Any, role: str, attributes: Mapping[str, Any]) -> Any:
    """Return the body of an event as a message. ``role`` is the role of the event's name, for a message without a role."""
    if isinstance(body, list) and body and all(isinstance(block, dict) and "role" not in block for block in body):
        return {"role": role, "content": body}  # Strands uses Bedrock's content blocks
    if isinstance(body, dict) and isinstance(body.get("message"), dict):
        body = body["message"]
    if isinstance(body, dict) and body.keys() & {"content", "tool_calls"}:
        return {"content": None, "role": role, "tool_call_id": body.get("id"), **body}
    if isinstance(body, str):
        return {"role": role, "content": body, "tool_call_id": attributes.get("id")}
    return body


def _parsed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [from_wire(item) if isinstance(item, str) else item for item in value]
    return from_wire(value) if isinstance(value, str) else value


def _prompt_and_completion(raw_content: Mapping[str, Any], *keys: str) -> list[Any]:
    """Return prompt and completion. ``keys`` has one key for each: a dict with that key alone is replaced by its value."""
    values = (_parsed(raw_content.get(name)) for name in (semconv.PROMPT, semconv.COMPLETION))
    return [
        value[key] if isinstance(value, dict) and value.keys() == {key} else value
        for key, value in zip(keys, values, strict=True)
    ]


_OLDER_FORMS: Final[Sequence[Callable[[Mapping[str, Any]], _PromptsAndAnswers]]] = (
    _flat_attributes,
    _whole_conversation,
    _messages_of_events,
)
_ROOT: Final = _conventional_or(_older_root)
_RENDERERS: Final[Mapping[str, Render]] = {
    **dict.fromkeys(semconv.MODEL_OPERATIONS, _conventional_or(_older_chat)),
    semconv.EXECUTE_TOOL: _tool,
    semconv.RETRIEVAL: _conventional_or(_older_retrieval),
}
"""Operation → function that renders its content; other operations use ``_ROOT``."""


# --- bodies of log records ------------------------------------------------------------------------------------------

# AWS's distribution moves the content of any writer's span to the body of a log record. These functions read it.


def with_body(translated: SpanData, events: Events) -> SpanData:
    """Return a translated span with the content of its log record's body; unchanged if no event has such a body."""
    for name, body in events:
        if name == semconv.DETAILS_EVENT and not body.keys().isdisjoint(semconv.BODY_SIDES):
            content = partial(render_content, partial(_content_of_body, str(translated.operation)), dict(body))
            return replace(translated, attributes=Attributes(dict(translated.attributes), content), no_content=None)
    return translated


def _content_of_body(operation: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    inputs, outputs = (_messages(json_at(body, side)) for side in semconv.BODY_SIDES)
    if operation in semconv.MODEL_OPERATIONS:
        return {
            semconv.INPUT_MESSAGES: prompts_in(_usable_messages(inputs)) or None,
            semconv.OUTPUT_MESSAGES: answers_in(_usable_messages(outputs)) or None,
        }
    prompts = [message for message in inputs if message.get("role") != SYSTEM]
    return content_of(operation, *(value_of(side[-1].get("content")) if side else None for side in (prompts, outputs)))


def _messages(side: Any) -> list[Mapping[str, Any]]:
    messages = side.get("messages") if isinstance(side, Mapping) else None
    return [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []


def _usable_messages(messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return messages, except any that is a whole request or answer as JSON; if all are, the content of the first."""
    plain = [message for message in messages if isinstance(value_of(message.get("content")), str)]
    return {"messages": plain} if plain or not messages else value_of(messages[0].get("content"))
