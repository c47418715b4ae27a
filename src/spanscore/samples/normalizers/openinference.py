"""Normalizes OpenInference spans (Phoenix, Arize): flat messages and documents, inputs and outputs as text or JSON.

Sources: LangChain, LlamaIndex, CrewAI, smolagents, Haystack, DSPy, OpenAI's client and agents, and other writers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, join_text_blocks
from spanscore.core.codecs.stored_sample import call_id_in, documents_of, unfold_dump
from spanscore.core.codecs.text import as_text, from_wire
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    agent_of_model,
    answers_in,
    arguments_in,
    as_documents,
    content_of,
    fields_of,
    in_genai_names,
    is_langchain_agent,
    json_at,
    make_message,
    parse_structure,
    plain_attributes,
    positions,
    printed_text,
    prompts_in,
    raw_attributes,
    rename_attributes,
    text_or_none,
    unwrap,
    value_of,
)

OPERATIONS: Final[Mapping[str, str]] = {
    "LLM": semconv.CHAT,
    "RETRIEVER": semconv.RETRIEVAL,
    "RERANKER": semconv.RERANK,
    "TOOL": semconv.EXECUTE_TOOL,
    "AGENT": semconv.INVOKE_AGENT,
    "EMBEDDING": semconv.EMBEDDINGS,
    "GUARDRAIL": semconv.EVALUATION,
    semconv.OPENINFERENCE_EVALUATOR: semconv.EVALUATION,
}
"""Kind → operation; any other kind, or none, becomes ``invoke_workflow``. Spans of guardrails and evaluators are not read."""
_FLAT: Final = (semconv.LLM_INPUT_MESSAGES, semconv.LLM_OUTPUT_MESSAGES)
_LLAMA_INDEX: Final = "openinference.instrumentation.llama_index"
_OBJECT: Final = re.compile(r"[A-Z]\w*\(\w+=")
"""Matches printed objects of LlamaIndex's workflows: ``StopEvent(result=AgentOutput(…``."""
_STREAM: Final = re.compile(r'(?:\{"response_gen": ")?<(?:(?:async_)?generator object|[\w.]+ object at 0x)')
"""Matches the output of a stream that was not read yet, as Python prints it: LlamaIndex's query engine, Groq's client."""
_SMOLAGENTS: Final = "openinference.instrumentation.smolagents"
_FINAL_STEP: Final = "FinalAnswerStep(output="
"""Beginning of the last of the printed steps that are the output of smolagents' stream."""
_HAYSTACK: Final = "openinference.instrumentation.haystack"
_HAYSTACK_MESSAGE: Final = re.compile(r'"ChatMessage\(_role=<ChatRole\.\w+: \'(\w+)\'>((?:[^"\\]|\\.)*)"')
"""Matches a printed message of Haystack as JSON text: its role, and the rest with its content."""
_TEXT_CONTENT: Final = re.compile(r"""TextContent\(text=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)""", re.DOTALL)
_AUTOGEN: Final = "openinference.instrumentation.autogen_agentchat"
_AUTOGEN_MESSAGE: Final = re.compile(r'"id=\'(?:[^"\\]|\\.)*"')
"""Matches a printed message of AutoGen as JSON text: ``"id='…' source='user' … content='…' type='TextMessage'"``."""
_DSPY_CALL: Final = ".__call__"
_LANGCHAIN: Final = "openinference.instrumentation.langchain"
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (openinference)",
    "OpenInference hides it: unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and the other OPENINFERENCE_HIDE_…"
    " of the traced application, or its TraceConfig(hide_inputs=…, hide_outputs=…)",
)
_MIME_TYPES: Final = frozenset({semconv.INPUT_MIME_TYPE, semconv.OUTPUT_MIME_TYPE})
_CONTENT_NAMES: Final = _MIME_TYPES | {semconv.INPUT_VALUE, semconv.OUTPUT_VALUE}
_RETRIEVAL_PREFIXES: Final = (semconv.OPENINFERENCE_DOCUMENTS, semconv.RERANKER_DOCUMENTS, semconv.RERANKER_QUERY)
_CONTENT_PREFIXES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    semconv.CHAT: (semconv.LLM_INPUT_MESSAGES, semconv.LLM_OUTPUT_MESSAGES, semconv.LLM_PROMPTS, semconv.LLM_TOOLS),
    semconv.RETRIEVAL: _RETRIEVAL_PREFIXES,
    semconv.RERANK: _RETRIEVAL_PREFIXES,
}
"""Operation → prefixes of attributes with content, in addition to input and output. Spans of other operations have content only
in input and output; their other attributes repeat it.
"""
_RENAMED: Final[Mapping[str, tuple[str, ...]]] = {
    semconv.REQUEST_MODEL: (semconv.LLM_REQUEST_MODEL_NAME, semconv.LLM_MODEL_NAME),
    semconv.RESPONSE_MODEL: (semconv.LLM_RESPONSE_MODEL_NAME,),
    semconv.PROVIDER_NAME: (semconv.LLM_PROVIDER, semconv.LLM_SYSTEM),
    semconv.USAGE_INPUT_TOKENS: (f"{semconv.LLM_TOKEN_COUNT}prompt",),
    semconv.USAGE_OUTPUT_TOKENS: (f"{semconv.LLM_TOKEN_COUNT}completion",),
    semconv.USAGE_CACHE_READ_INPUT_TOKENS: (f"{semconv.LLM_TOKEN_COUNT}prompt_details.cache_read",),
    semconv.USAGE_CACHE_WRITE_INPUT_TOKENS: (f"{semconv.LLM_TOKEN_COUNT}prompt_details.cache_write",),
    semconv.USAGE_REASONING_OUTPUT_TOKENS: (f"{semconv.LLM_TOKEN_COUNT}completion_details.reasoning",),
}
_VALUES: Final = frozenset({semconv.INPUT_VALUE, semconv.OUTPUT_VALUE})
_SIGNATURES: Final = (semconv.OPENINFERENCE_KIND, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE)
_DUMPS: Final = ('{"messages": [[', '{"messages":[[')
"""Beginnings of the input of LangChain's models, in Python and JavaScript."""
_JAVA_MESSAGE: Final = re.compile(r"(?:User|System|Ai|ToolExecutionResult)Message \{ ")
_JAVA: Final = "com.arize."
"""Prefix of the scopes of OpenInference for Java."""
_NOT_VALUES: Final = frozenset({"Execution Started", "Execution Completed"})
"""Input and output that some releases write for every run of a LangChain4j service; spans below have the texts."""
_PYTHON: Final = ("{'", "[{'")
"""Prefixes of printed Python dicts and lists of dicts: BeeAI's answers."""


class OpenInference:
    """Reads OpenInference. Spans have content by default; ``OPENINFERENCE_HIDE_INPUTS`` and similar settings remove it."""

    name = "openinference"
    scopes: Sequence[str] = ("openinference.instrumentation.", "@arizeai/openinference-instrumentation-", _JAVA)
    signatures: Sequence[bytes] = tuple(name.encode() for name in _SIGNATURES)

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has OpenInference's kind, an input or an output."""
        raw = raw_attributes(span)
        return isinstance(raw.get(semconv.OPENINFERENCE_KIND), str) or not _VALUES.isdisjoint(raw)

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        metadata = fields_of(json_at(raw, semconv.OPENINFERENCE_METADATA))
        operation = _operation(span, raw, metadata)
        prefixes = _CONTENT_PREFIXES_OF.get(operation, ())
        raw_content = {
            name: value
            for name, written in raw.items()
            if (name in _CONTENT_NAMES or name.startswith(prefixes))
            and (value := _readable(written, name, span.scope)) not in (None, semconv.OPENINFERENCE_REDACTED)
        }
        tools = _take_tools(raw_content) if operation == semconv.CHAT else None
        return in_genai_names(
            span,
            _describe(span, raw, operation, metadata),
            raw_content if _can_be_read(raw_content, operation, span.scope) else {},
            _RENDERERS.get(operation, _root),
            no_content=_NO_CONTENT,
            metadata=metadata,
            tools=tools,
        )


def _readable(value: Any, name: str, scope: str) -> Any:
    """Return a value without the printed objects of some libraries; None for a stream that was not read yet."""
    if name not in _VALUES or not isinstance(value, str):
        return value
    if value in _NOT_VALUES and scope.startswith(_JAVA):
        return None
    if scope in _PRINTED_MESSAGES:
        message, read = _PRINTED_MESSAGES[scope]
        return message.sub(read, value)
    if name == semconv.INPUT_VALUE:
        return value
    if scope == _SMOLAGENTS and _OBJECT.match(value):
        printed = value.rpartition(_FINAL_STEP)[2].removesuffix(")")
        return None if _FINAL_STEP not in value else printed_text(printed) if printed[:1] in _QUOTES else printed
    return None if _STREAM.match(value) else value


_QUOTES: Final = ("'", '"')


def _haystack_message(printed: re.Match[str]) -> str:
    """Return a printed message as JSON; ``null`` for a message without text, whose calls are on the spans of models."""
    texts = _TEXT_CONTENT.findall(str(from_wire(f'"{printed[2]}"')))
    return json.dumps({"role": printed[1], "content": "".join(map(printed_text, texts))}) if texts else "null"


def _autogen_text(printed: re.Match[str]) -> str:
    """Return the text of a printed message as JSON; the message unchanged if its content is no text, as with an image."""
    content = str(from_wire(printed[0])).partition(" content=")[2].rpartition(" type='")[0]
    return json.dumps(printed_text(content)) if content.startswith(_QUOTES) else printed[0]


_PRINTED_MESSAGES: Final = {
    _HAYSTACK: (_HAYSTACK_MESSAGE, _haystack_message),
    _AUTOGEN: (_AUTOGEN_MESSAGE, _autogen_text),
}
"""Scope → pattern of a printed message, and function that returns it as JSON."""


def _can_be_read(raw_content: Mapping[str, Any], operation: str, scope: str) -> bool:
    """Return whether there is content; printed Python objects do not count, because spans below them have the text."""
    if not raw_content.keys() - _MIME_TYPES:
        return False
    if operation == semconv.CHAT and not any(name.startswith(_FLAT) for name in raw_content):
        return any(_chat(raw_content).values())
    output = raw_content.get(semconv.OUTPUT_VALUE)
    return not (scope == _LLAMA_INDEX and isinstance(output, str) and _OBJECT.match(output))


def _operation(span: SpanData, raw: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    kind = str(raw.get(semconv.OPENINFERENCE_KIND)).upper()
    operation = OPERATIONS.get(kind, semconv.INVOKE_WORKFLOW)
    if span.scope != _LANGCHAIN or operation not in {semconv.INVOKE_AGENT, semconv.INVOKE_WORKFLOW}:
        return operation
    # OpenInference makes an AGENT of everything with "agent" in its name: a node, a router, a prompt.
    is_agent = is_langchain_agent(span.name, metadata, is_root=span.parent_id is None)
    return semconv.INVOKE_AGENT if is_agent else semconv.INVOKE_WORKFLOW


def _describe(span: SpanData, raw: Mapping[str, Any], operation: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    plain = plain_attributes(raw, operation, metadata) | rename_attributes(raw, _RENAMED)
    if operation == semconv.EXECUTE_TOOL:
        plain[semconv.TOOL_NAME] = raw.get(semconv.OPENINFERENCE_TOOL) or span.name.removesuffix(_DSPY_CALL)
        call_id = next((raw[name] for name in semconv.OPENINFERENCE_TOOL_CALL_IDS if name in raw), None)
        # LangChain has the id of the call in the answer only.
        plain[semconv.TOOL_CALL_ID] = call_id_in(raw.get(semconv.OUTPUT_VALUE)) if call_id is None else call_id
    elif operation == semconv.INVOKE_AGENT:
        plain[semconv.AGENT_NAME] = raw.get(semconv.OPENINFERENCE_AGENT) or span.name
    elif operation == semconv.INVOKE_WORKFLOW:
        plain[semconv.WORKFLOW_NAME] = span.name
    elif operation == semconv.CHAT:
        plain[semconv.AGENT_NAME] = agent_of_model(metadata)
        finished = raw.get(semconv.LLM_FINISH_REASON)
        plain[semconv.RESPONSE_FINISH_REASONS] = None if finished is None else [str(finished)]
    return plain


def _value(raw_content: Mapping[str, Any], name: str, mime_type: str) -> Any:
    """Return an input or output: parsed if it is JSON by its mime type, or a printed Python dict; else a text, even ``5``."""
    value = raw_content.get(name)
    if isinstance(value, str) and "json" in str(raw_content.get(mime_type)):
        value = from_wire(value)
    is_printed = isinstance(value, str) and value.startswith(_PYTHON)
    return text_or_none(value_of(value) if is_printed else value)


def _input(raw_content: Mapping[str, Any]) -> Any:
    """Return the input; an object is parsed even without a mime type, because many writers omit it."""
    return parse_structure(_value(raw_content, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE), dict)


def _output(raw_content: Mapping[str, Any]) -> Any:
    return _value(raw_content, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE)


def _root(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    output = _output(raw_content)
    if isinstance(output, dict) and output.keys() >= _CREWAI_KEYS:
        output = output["raw"]
    return content_of(semconv.INVOKE_WORKFLOW, _input(raw_content), output)


_CREWAI_KEYS: Final = frozenset({"raw", "pydantic", "agent_role"})
"""Keys of the output of CrewAI's ``Agent.kickoff``; ``raw`` is the answer, the other keys describe the run."""


def _take_tools(raw_content: dict[str, Any]) -> list[Any] | None:
    """Remove the definitions of tools from a model's attributes and return them; None without any."""
    names = [name for name in raw_content if name.startswith(semconv.LLM_TOOLS)]
    flat = {name: raw_content.pop(name) for name in names}
    definitions = []
    for fields in positions(flat, semconv.LLM_TOOLS):
        description = {"name": fields.get("tool.name"), "description": fields.get("tool.description")}
        definitions.append(fields.get("tool.json_schema", description))
    return definitions or None


def _chat(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    # A dump by LangChain has message ids, by which earlier messages of the conversation are recognised.
    is_dump = str(raw_content.get(semconv.INPUT_VALUE)).startswith(_DUMPS) or _has_printed_message(raw_content)
    prompts = prompts_in(_input(raw_content)) if is_dump or _lacks_image(raw_content) else []
    prompts = prompts or _flat_messages(raw_content, semconv.LLM_INPUT_MESSAGES, None)
    if not prompts:
        texts = raw_content.get(semconv.LLM_PROMPTS)
        prompts = prompts_in(list(texts) if isinstance(texts, (list, tuple)) else _input(raw_content))
    answers = _flat_messages(raw_content, semconv.LLM_OUTPUT_MESSAGES, ASSISTANT)
    if not any(message["parts"] for message in answers):  # LangChain.js: the flat answer lacks the blocks of the dump
        answers = answers_in(_output(raw_content)) or answers
    return {semconv.INPUT_MESSAGES: prompts or None, semconv.OUTPUT_MESSAGES: answers or None}


def _has_printed_message(raw_content: Mapping[str, Any]) -> bool:
    """Return whether flat messages are printed Java objects (LangChain4j, 0.1), which the input has as JSON."""
    first = raw_content.get(f"{semconv.LLM_INPUT_MESSAGES}0.message.content")
    return isinstance(first, str) and _JAVA_MESSAGE.match(first) is not None


def _lacks_image(raw_content: Mapping[str, Any]) -> bool:
    """Return whether only the input has an image (chat completions of OpenAI's agents). A hidden image has a flat type."""
    if '"image_url"' not in str(raw_content.get(semconv.INPUT_VALUE)):
        return False
    return not any(value == "image" and name.endswith(".message_content.type") for name, value in raw_content.items())


def _flat_messages(raw_content: Mapping[str, Any], prefix: str, role: str | None) -> list[dict[str, Any]]:
    """Return the messages. Parallel calls of the Responses API, each in a message of its own, become one message."""
    messages = list[dict[str, Any]]()
    for message in (_flat_message(fields, role) for fields in positions(raw_content, prefix)):
        if message is not None and messages and _has_only_calls(message) and _has_only_calls(messages[-1]):
            messages[-1] = {**message, "parts": [*messages[-1]["parts"], *message["parts"]]}
        elif message is not None:
            messages.append(message)
    return messages


def _has_only_calls(message: Mapping[str, Any]) -> bool:
    return {part["type"] for part in message["parts"]} == {"tool_call"}


def _flat_message(fields: Mapping[str, Any], role: str | None) -> dict[str, Any] | None:
    """Return one message. ``role`` is the default role; None = a message without a role is left out."""
    written_role = fields.get("message.role", role)
    if not isinstance(written_role, str):
        return None
    content = fields.get("message.content")
    blocks = [_block(block) for block in positions(fields, "message.contents.")]
    calls = [
        {
            "id": call.get("tool_call.id"),
            **{key: call.get(f"tool_call.function.{key}") for key in ("name", "arguments")},
        }
        for call in positions(fields, "message.tool_calls.")
    ]
    if "message.function_call_name" in fields:
        arguments = fields.get("message.function_call_arguments_json")
        calls.append({"name": fields["message.function_call_name"], "arguments": arguments})
    answered = {"tool_call_id": fields.get("message.tool_call_id"), "name": fields.get("message.name")}
    return make_message(written_role, content if content is not None else blocks, calls, answered)


def _block(fields: Mapping[str, Any]) -> dict[str, Any]:
    kind = fields.get("message_content.type", "text")
    if "message_content.text" in fields:
        return {"type": kind if kind == "reasoning" else "text", "text": fields["message_content.text"]}
    return {"type": kind, "url": fields.get("message_content.image.image.url")}


def _tool(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    output = _output(raw_content)
    if isinstance(output, dict) and "tool_name" in output and "blocks" in output:  # LlamaIndex's ToolOutput
        output = join_text_blocks(output["blocks"])
    elif isinstance(output, dict) and output.keys() == {"output"}:  # LangChain.js
        output = output["output"]
    return content_of(semconv.EXECUTE_TOOL, arguments_in(value_of(_input(raw_content))), output)


def _retrieval(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    query = raw_content.get(semconv.RERANKER_QUERY, raw_content.get(semconv.INPUT_VALUE))
    output = unfold_dump(_output(raw_content))
    documents = unwrap(output, "documents")
    # LangChain's documents in the output are preferred to flat documents, because only they have ids.
    if not documents_of(documents[:1] if isinstance(documents, list) else documents):
        names = (semconv.OPENINFERENCE_DOCUMENTS, semconv.RERANKER_DOCUMENTS)
        flat = (fields for name in names for fields in positions(raw_content, name))
        documents = [_flat_document(fields) for fields in flat] or documents
    return {
        semconv.RETRIEVAL_QUERY: None if query is None else as_text(query),
        semconv.RETRIEVAL_DOCUMENTS: as_documents(documents),
    }


def _flat_document(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: fields.get(f"document.{name}") for name in ("id", "content", "score")}
    return {name: value for name, value in values.items() if value is not None}


_RENDERERS: Final[Mapping[str, Render]] = {
    semconv.CHAT: _chat,
    semconv.EXECUTE_TOOL: _tool,
    semconv.RETRIEVAL: _retrieval,
    semconv.RERANK: _retrieval,
}
"""Operation → function that makes its content; other operations use ``_root``."""
