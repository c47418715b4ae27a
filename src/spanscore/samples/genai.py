"""The extractor of the OpenTelemetry GenAI conventions, and the registry of all extractors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from spanscore import semconv
from spanscore.config.capture import Extract
from spanscore.core.codecs.media import add_unit_images, join_marked_blocks, mark_media
from spanscore.core.codecs.messages import ASSISTANT, INPUT_OF_STREAM, SYSTEM, call_names_and_ids, read_message, role_of
from spanscore.core.codecs.sdk import WireAttributes
from spanscore.core.codecs.text import as_text, from_wire, is_cut
from spanscore.core.log import log_once
from spanscore.core.plugins import Registry
from spanscore.core.sample import Samples
from spanscore.core.span import Attributes, NoContent, SpanData, Unit
from spanscore.protocols import SampleExtractor
from spanscore.samples.extraction import no_sample, samples_of
from spanscore.samples.question_answer import QUESTION_KEYS, final_text
from spanscore.samples.texts import RetrievedDocument, retrieved_in
from spanscore.samples.view import (
    GenAIMessage,
    ModelRun,
    RootValue,
    ToolRun,
    UnitView,
    ancestors,
    find_conversation,
    last_human_text,
    replace_edited_messages,
    spans_by_id,
    spans_outside,
)

# --- genai ----------------------------------------------------------------------------------------------------------

_NOT_SCORED = frozenset({semconv.EVALUATION, semconv.CREATE_AGENT})
"""Operations without an answer. Some instrumentations create a separate trace for the construction of an agent."""
_UNFINISHED = {
    "abandoned": "the stream was abandoned before its end",
    "cancelled": "the run was cancelled",
    semconv.INTERRUPTED: "the turn was interrupted and waits to be resumed",
}


@dataclass(frozen=True, slots=True)
class GenAIExtractor:
    """Makes samples from spans of the GenAI conventions.

    Attributes:
        places: the places of question, answer and contexts.
        score_abandoned: whether the partial answer of a stream is scored if its reader stopped early.
        score_failed: whether a model's answer inside a failed run is scored.
    """

    places: Extract = field(default_factory=Extract)
    score_abandoned: bool = False
    score_failed: bool = False

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span follows the GenAI conventions and can be scored."""
        if span.scope in semconv.EVALUATOR_SCOPES:
            return False
        operation = span.operation
        if not isinstance(operation, str):  # missing, or any value of another writer
            return span.scope == semconv.CAPTURE_SCOPE
        return operation not in _NOT_SCORED

    def extract(self, unit: Unit) -> Samples:
        """Make the samples of a unit, or return the reason for their absence. Never raises because of a payload."""
        root = unit.root
        if root is None:
            return no_sample("the unit's root never arrived")
        interrupted = [span for span in unit.spans if span.attributes.get(semconv.RUN_END) == semconv.INTERRUPTED]
        run_end = _run_end(unit, root, interrupted)
        if run_end in _UNFINISHED and not (run_end == "abandoned" and self.score_abandoned):
            return _unfinished(run_end)
        # Instrumentations often record no content of a failed call.
        no_content = None if root.status == "error" else _no_content(unit)
        if no_content is not None:
            log_once(no_content.reason, f"{no_content.reason}. {no_content.hint}")
            return no_sample(no_content.reason)
        view = _view_of(unit, root, score_failed=self.score_failed)
        is_waiting = isinstance(view.output.value, dict) and "__interrupt__" in view.output.value
        if is_waiting or _waits_inside(unit, view, interrupted):
            return _unfinished(semconv.INTERRUPTED)
        return add_unit_images(samples_of(view, self.places), unit)


def _unfinished(run_end: str) -> Samples:
    return replace(no_sample(_UNFINISHED[run_end]), interrupted=run_end == semconv.INTERRUPTED)


def _no_content(unit: Unit) -> NoContent | None:
    """Return the first reason for missing content that a normalizer gave; None if it gave none, or if a span has content.

    Tools and retrievers below the root do not count: they often have content without a switch, but neither question nor answer.
    """
    reason = next((span.no_content for span in unit.spans if span.no_content), None)
    if reason is None:
        return None
    answering = (span for span in unit.spans if span is unit.root or span.operation not in _STEPS)
    return None if any(map(_has_content, answering)) else reason


def _has_content(span: SpanData) -> bool:
    names = () if span.no_content else span.attributes
    return any(semconv.is_content(name) and name != semconv.REFERENCES for name in names)


def _run_end(unit: Unit, root: SpanData, interrupted: Sequence[SpanData]) -> str:
    """Return how the run ended. A graph is interrupted if a node of it is, because other writers mark only the node."""
    graphs = {root.span_id, (unit.content_span or root).span_id} if interrupted else ()
    is_waiting = any(span.parent_id in graphs for span in interrupted)
    return semconv.INTERRUPTED if is_waiting else str(root.attributes.get(semconv.RUN_END))


def _waits_inside(unit: Unit, view: UnitView, interrupted: Sequence[SpanData]) -> bool:
    """Return whether a deeper step waits for a person, no model was called after it, and the root has no answer."""
    if not interrupted or view.output.value is not None or final_text(view.output_of_turn()) is not None:
        return False
    end_ns = max(span.end_ns for span in interrupted)
    return not any(span.operation in semconv.MODEL_OPERATIONS and span.start_ns >= end_ns for span in unit.spans)


def _view_of(unit: Unit, root: SpanData, *, score_failed: bool) -> UnitView:
    operations = [(str(span.operation), span) for span in unit.spans]
    tools, retrievers, models = _by_operation(operations)
    models = _without_wrappers(sorted(models, key=lambda span: span.end_ns))
    by_id = spans_by_id(unit) if _has_agents(operations, root) else {}  # empty if the root is the only agent
    runs = {span.span_id: _model_run(span, root, by_id) for span in models}
    expected = root.attributes.get(semconv.REFERENCES)
    retrievals = _documents(retrievers, unit)
    top = unit.content_span or root
    operation = str(top.operation)
    input, output = find_conversation(*_read_input_and_output(unit, top, operation, models), QUESTION_KEYS)
    input = replace_edited_messages(input, output, unit, list(runs.values()))
    return UnitView(
        unit=unit,
        input=input,
        output=output,
        models=[runs[span.span_id] for span in spans_outside(models, tools, unit)],
        retrievals=retrievals,
        artifacts=_documents(tools, unit),
        tools=[_tool_run(span) for span in spans_outside(tools, tools, unit) if span is not root],
        retrieving_tools=_retrieving_tools(retrievals, retrievers, unit),
        every_model=list(runs.values()),
        every_tool=[_tool_run(span) for span in tools if span is not root],
        history=_messages(root, semconv.HISTORY),
        expected=expected if isinstance(expected, dict) else {},
        failed=root.status == "error",
        score_failed=score_failed,
        documents_cut=any(map(_documents_are_cut, retrievers)),
    )


def _read_input_and_output(
    unit: Unit, top: SpanData, operation: str, models: Sequence[SpanData]
) -> tuple[RootValue, RootValue]:
    """Return the input and the output; an inner tool has all of its arguments as one text, its question."""
    value = top.attributes.get(_OUTPUT_OF.get(operation, semconv.OUTPUT_VALUE))
    input = _read_root_input(top, operation, models)
    output = _root_value(top, _output_messages(top), value)
    if unit.inner is not None and unit.inner.kind == "tool":
        for side in (input, output):
            side.value = None if side.value is None else as_text(side.value)
    return input, output


def _read_root_input(top: SpanData, operation: str, models: Sequence[SpanData]) -> RootValue:
    """Return the input, or else the variables of the first prompt with variables (``gen_ai.prompt.variable.…``)."""
    value = top.attributes.get(_INPUT_OF.get(operation, semconv.INPUT_VALUE))
    prompts = _messages(top, semconv.INPUT_MESSAGES)
    if len(prompts) == 1 and value is None and top.scope != semconv.CAPTURE_SCOPE:
        value = None if operation in semconv.MODEL_OPERATIONS else _object_in(prompts)
        prompts = prompts if value is None else ()
    input = _root_value(top, prompts, value)
    if input.value in (None, INPUT_OF_STREAM) and not input.messages:
        variables = (span.attributes.get(semconv.INPUT_VALUE) for span in models)
        return replace(input, value=mark_media(next((values for values in variables if values is not None), None)))
    return input


def _object_in(messages: Sequence[GenAIMessage]) -> Any:
    """Return the JSON object that is the text of a run's only message (OpenTelemetry's LangChain); None otherwise."""
    text = last_human_text(messages)
    parsed_value = from_wire(text) if text is not None and text.startswith("{") else None
    return parsed_value if isinstance(parsed_value, dict) else None


def _root_value(top: SpanData, messages: Sequence[GenAIMessage], value: Any) -> RootValue:
    """Return an input or output; cut JSON is left out, and the value is marked as cut."""
    # A limit never cuts spanscore's own spans of this process.
    may_be_cut = top.scope != semconv.CAPTURE_SCOPE or isinstance(top.attributes, WireAttributes)
    if isinstance(value, str) and value.startswith(("{", "[")) and may_be_cut and is_cut(value):
        return RootValue(messages, cut=True)
    is_cut_away = value is None and not messages and bool(top.attributes.get(semconv.CONTENT_CUT))
    return RootValue(messages, mark_media(value), cut=is_cut_away)


def _by_operation(
    operations: Sequence[tuple[str, SpanData]],
) -> tuple[list[SpanData], list[SpanData], list[SpanData]]:
    tools = [span for operation, span in operations if operation == semconv.EXECUTE_TOOL]
    retrievers = [span for operation, span in operations if operation in _RETRIEVALS]
    models = [span for operation, span in operations if operation in semconv.MODEL_OPERATIONS]
    return tools, retrievers, [span for span in models if span.no_content is None]


def _without_wrappers(models: Sequence[SpanData]) -> list[SpanData]:
    """Return the spans of models, except a span without output around another model's span (LlamaIndex's ``OpenAI.stream``)."""
    parents = {span.parent_id for span in models}
    return [span for span in models if span.span_id not in parents or span.attributes.get(semconv.OUTPUT_MESSAGES)]


def _has_agents(operations: Sequence[tuple[str, SpanData]], root: SpanData) -> bool:
    return any(operation == semconv.INVOKE_AGENT and span is not root for operation, span in operations)


_RETRIEVALS = frozenset({semconv.RETRIEVAL, semconv.RERANK, semconv.VECTOR_DB})
_STEPS = _RETRIEVALS | {semconv.EXECUTE_TOOL}
_INPUT_OF = {semconv.RETRIEVAL: semconv.RETRIEVAL_QUERY, semconv.EXECUTE_TOOL: semconv.TOOL_CALL_ARGUMENTS}
_OUTPUT_OF = {semconv.EXECUTE_TOOL: semconv.TOOL_CALL_RESULT}
"""Output attribute by operation: a retriever or tool that is called alone is its own root."""


def _messages(span: SpanData, name: str) -> Sequence[GenAIMessage]:
    """Return a span's messages; empty for an attribute that was cut, which is a text."""
    messages = span.attributes.get(name)
    listed = messages if isinstance(messages, (list, tuple)) else ()
    read = [message for item in listed if (message := read_message(item)) is not None]
    return [*map(_without_positions, read)] if span.scope in _WITH_POSITIONS else read


_WITH_POSITIONS: Final = frozenset({"gcp.vertex.agent", "opentelemetry.instrumentation.google_genai"})
"""Scopes that write a call's name and position in its message, ``weather_0``, if Gemini's call has no id."""


def _without_positions(message: GenAIMessage) -> GenAIMessage:
    """Return a message without the ids of calls that are positions: another message of the turn repeats them."""
    parts = message.get("parts")
    if not isinstance(parts, list) or not call_names_and_ids(message):
        return message
    return {**message, "parts": [{**part, "id": None} if _has_position(part) else part for part in parts]}


def _has_position(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type") != "tool_call":
        return False
    name, _, position = str(part.get("id")).rpartition("_")
    return name == part.get("name") and position.isdecimal()


def _output_messages(span: SpanData) -> Sequence[GenAIMessage]:
    """Return the messages of a span's output. Parts of one streamed message are joined: each but the last has an empty finish
    reason (Google's Agent Development Kit)."""
    joined = list[GenAIMessage]()
    for message in _messages(span, semconv.OUTPUT_MESSAGES):
        is_rest = (
            bool(joined) and joined[-1].get("finish_reason") == "" and "parts" in joined[-1] and "parts" in message
        )
        joined.append({**message, "parts": [*joined.pop()["parts"], *message["parts"]]} if is_rest else message)
    return joined


def _model_run(span: SpanData, root: SpanData, by_id: Mapping[int, SpanData]) -> ModelRun:
    """Return a model's run. Output with an unknown role is the assistant's (OpenLLMetry: ``unknown``, for a stream)."""
    attributes, messages = span.attributes, _output_messages(span)
    output = [message if role_of(message["role"]) else {**message, "role": ASSISTANT} for message in messages]
    agent = _agent_of(span, root, by_id)
    unparsed_input = attributes.unparsed_text(semconv.INPUT_MESSAGES) if isinstance(attributes, Attributes) else None
    if unparsed_input is not None and attributes.get(semconv.SYSTEM_INSTRUCTIONS) is not None:
        unparsed_input = None  # it is not the whole input
    read_input, read_variables = partial(_read_model_input, span), partial(_template_variables, span)
    return ModelRun(read_input, output, agent, unparsed_input, read_variables)


def _template_variables(span: SpanData) -> Mapping[str, Any]:
    """Return the variables of a prompt's template by name; JSON texts are parsed."""
    variables = span.attributes.get(semconv.INPUT_VALUE)
    items = variables.items() if isinstance(variables, dict) else ()
    return {name: from_wire(value) if isinstance(value, str) else value for name, value in items}


def _read_model_input(span: SpanData) -> Sequence[GenAIMessage]:
    """Return the input, first the separate instructions as a message; these may have the content of a message."""
    parts = span.attributes.get(semconv.SYSTEM_INSTRUCTIONS)
    parts = [{"type": "text", "content": parts}] if isinstance(parts, str) else parts
    instructions = [{"role": SYSTEM, "parts": parts}] if parts and isinstance(parts, (list, tuple)) else []
    return [*instructions, *_messages(span, semconv.INPUT_MESSAGES)]


def _agent_of(span: SpanData, root: SpanData, by_id: Mapping[int, SpanData]) -> str | None:
    """Return the agent of a model call: the nearest agent around it, or the agent on its span; None for the root's agent."""
    agent = next((above for above in ancestors(span, by_id) if above.operation == semconv.INVOKE_AGENT), None)
    name = None if agent is None or agent is root else agent.attributes.get(semconv.AGENT_NAME)
    name = span.attributes.get(semconv.AGENT_NAME) if name is None else name
    return as_text(name) if name is not None and name != root.attributes.get(semconv.AGENT_NAME) else None


def _tool_run(span: SpanData) -> ToolRun:
    identity, result = span.attributes.get(semconv.TOOL_CALL_ID), span.attributes.get(semconv.TOOL_CALL_RESULT)
    return ToolRun(
        name=as_text(span.attributes.get(semconv.TOOL_NAME) or span.name),
        id=None if identity is None else as_text(identity),
        arguments=span.attributes.get(semconv.TOOL_CALL_ARGUMENTS),
        result=join_marked_blocks(mark_media(result, blocks=True), result),
    )


def _documents_are_cut(span: SpanData) -> bool:
    """Return whether an attribute limit cut a retriever's documents, and its span has no other copy."""
    attributes = span.attributes
    documents = attributes.get(semconv.RETRIEVAL_DOCUMENTS)
    return attributes.get(semconv.CONTENT_CUT) is True and not isinstance(documents, (list, tuple))


def _documents(spans: Sequence[SpanData], unit: Unit) -> list[list[RetrievedDocument]]:
    """Return the documents of retrievers, possibly none, or of tools' artifacts. Failed runs have no documents."""
    listed = ((span, span.attributes.get(semconv.RETRIEVAL_DOCUMENTS)) for span in spans)
    with_documents = [span for span, documents in listed if isinstance(documents, (list, tuple))]
    return [_read_documents(span) for span in spans_outside(with_documents, with_documents, unit)]


def _read_documents(span: SpanData) -> list[RetrievedDocument]:
    documents = retrieved_in(mark_media([*span.attributes[semconv.RETRIEVAL_DOCUMENTS]]))
    if span.scope != semconv.CAPTURE_SCOPE:
        return documents
    # spanscore's capture records every text, so a document without a text was empty.
    return [RetrievedDocument(document.content or "", document.id) for document in documents]


def _retrieving_tools(
    retrievals: Sequence[Sequence[RetrievedDocument]], retrievers: Sequence[SpanData], unit: Unit
) -> list[ToolRun]:
    """Return the tools inside which all retrievers ran, if a document's text is unknown. The tools' results have the texts."""
    if all(document.content is not None for documents in retrievals for document in documents):
        return []
    by_id = spans_by_id(unit)
    around = [
        next((above for above in ancestors(span, by_id) if above.operation == semconv.EXECUTE_TOOL), None)
        for span in retrievers
    ]
    tools = {span.span_id: span for span in around if span is not None}
    return [] if None in around else [_tool_run(span) for span in tools.values()]


# --- registry -------------------------------------------------------------------------------------------------------

DIALECTS = Registry(
    kind="dialect",
    protocol=SampleExtractor,
    example="my_pkg.dialects:MyDialect",
    built_in={"genai": "spanscore.samples.genai:GenAIExtractor"},
    offers=("extract", "score_abandoned", "score_failed"),
)
"""Extractors in order: the first that accepts a unit's root extracts its samples."""
