"""Run → what its span says: attributes that quote nothing, content that is rendered on demand, and SpanData. Span thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from opentelemetry.trace import Span

from spanscore import semconv
from spanscore.core.codecs import langchain as codec
from spanscore.core.codecs.langchain import chat_attributes
from spanscore.core.codecs.text import jsonable, safe_text, wire_value
from spanscore.core.log import is_a, log_internal_error, plain_text, type_name
from spanscore.core.span import Attributes, SamplingContext, SpanData
from spanscore.core.timebox import Timebox
from spanscore.pipeline.decisions import feedback_key_of
from spanscore.protocols import Redactor
from spanscore.receivers.callback.runs import CLIENTS, Root, Run
from spanscore.samples.redaction import redacted

__all__ = [
    "MODELS",
    "PlainAttributes",
    "attributes_of",
    "content_of",
    "conversation_of",
    "facts_of",
    "rendered",
    "run_end_of",
    "span_data_of",
    "was_stopped",
]

MODELS: Final = frozenset({semconv.CHAT, semconv.TEXT_COMPLETION})
_CONVERSING: Final = MODELS | {semconv.RETRIEVAL, semconv.INVOKE_AGENT}
"""Operations whose spans tell the conversation, beside a root's; the conventions have none for a tool's."""
_MARKS: Final[Mapping[str | None, Mapping[str, str]]] = {
    None: {semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_CHAIN},
    **{
        operation: {semconv.OPERATION_NAME: operation, semconv.OPENINFERENCE_KIND: kind}
        for operation, kind in semconv.OPENINFERENCE_KINDS.items()
    },
}
"""Operation → what its spans are, in the words of both conventions; None is a step."""
_NAMES: Final[Mapping[str | None, str]] = {
    semconv.EXECUTE_TOOL: semconv.TOOL_NAME,
    semconv.INVOKE_AGENT: semconv.AGENT_NAME,
    semconv.INVOKE_WORKFLOW: semconv.WORKFLOW_NAME,
}
"""Operation → the attribute that holds its run's name."""
_RENDERERS: Final[Mapping[str | None, Callable[[Any, Any], dict[str, Any]]]] = {
    semconv.CHAT: codec.chat_content,
    semconv.TEXT_COMPLETION: codec.completion_content,
    semconv.RETRIEVAL: codec.retriever_content,
    semconv.EXECUTE_TOOL: codec.tool_content,
}
"""Operation → what renders the input and output of its runs, where it is one of the conventions' own."""
_CONVERSATION_KEYS: Final = ("thread_id", "session_id", "conversation_id")
_MAY_NAME_SOMEBODY: Final = frozenset({semconv.CONVERSATION_ID, semconv.FEEDBACK_KEY})
_IDS: Final = 1_000
"""Conversations and keys whose redacted id is remembered: a redactor may take as long as a small model does."""


def attributes_of(
    run: Run, output: Any, error: BaseException | None, *, metadata: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the attributes that quote nothing, as a span can hold them. Never raises.

    Args:
        metadata: keys of it that are told, of a root.
    """
    try:
        described = _describe(run, output, error)
        return described | _select_metadata(run, metadata) if metadata and run is run.root else described
    except Exception as fault:  # noqa: BLE001  (metadata is whatever the application put there)
        log_internal_error("describe a run", fault)
        return dict(_MARKS[run.operation])


def _describe(run: Run, output: Any, error: BaseException | None) -> dict[str, Any]:
    attributes: dict[str, Any] = dict(_MARKS[run.operation])
    if run.operation in MODELS:
        metadata, parameters = run.details if type(run.details) is tuple else (run.details, None)
        attributes.update(chat_attributes(run.name, metadata, parameters, output))
        if run.first_ns:
            attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = (run.first_ns - run.start_ns) / 1e9
    elif run.operation in _NAMES:
        attributes[_NAMES[run.operation]] = safe_text(run.name)
    if run.operation == semconv.EXECUTE_TOOL and is_a(run.details, str):
        attributes[semconv.TOOL_CALL_ID] = safe_text(run.details)
    attributes.update(_whose(run))
    if run is run.root and run.root.failed_inside:
        attributes[semconv.RUN_STEP_ERROR] = True
    if error is not None and not was_stopped(error):
        attributes[semconv.ERROR_TYPE] = safe_text(type_name(error))
    return attributes


def _whose(run: Run) -> dict[str, str]:
    """Return what an application calls a run's conversation, and its unit."""
    attributes = dict[str, str]()
    if (run is run.root or run.operation in _CONVERSING) and (conversation := conversation_of(run)):
        attributes[semconv.CONVERSATION_ID] = conversation
    if run is run.root and (key := feedback_key_of(_metadata(run))):
        attributes[semconv.FEEDBACK_KEY] = safe_text(key)
    return attributes


def _select_metadata(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    """Return the metadata under these keys; structures are none of it, as no rule needs them."""
    metadata = _metadata(run) or {}
    values = {semconv.METADATA + key: wire_value(jsonable(metadata[key])) for key in keys if key in metadata}
    return {safe_text(name): value for name, value in values.items() if isinstance(value, str | int | float)}


def conversation_of(run: Run) -> str | None:
    """Return the id of the conversation a run belongs to: of the ``spanscore.session`` block, else from its metadata.

    LangGraph copies the ``thread_id`` of ``configurable`` into it; of a chain's ``configurable`` nothing arrives (seen with
    langchain-core 1.7.2), so that there ``metadata={"session_id": …}`` says it.
    """
    if run.root.session is not None:
        return safe_text(run.root.session)
    metadata = _metadata(run)
    if not metadata or metadata.keys().isdisjoint(_CONVERSATION_KEYS):  # most have none
        return None
    for key in _CONVERSATION_KEYS:
        value = metadata.get(key)
        if value is not None:
            text = plain_text(value)
            return None if text is None else safe_text(text)
    return None


def was_stopped(error: BaseException | None) -> bool:
    """Whether a run did not fail but was left by its reader or cancelled."""
    return error is not None and type_name(error) in {"GeneratorExit", "CancelledError"}


def run_end_of(root: Root | None, error: BaseException | None) -> str:
    """Return how a root ended, or a run that was stopped (None)."""
    if root is not None and root.interrupted:
        return semconv.INTERRUPTED
    if is_a(error, GeneratorExit):
        return "abandoned"
    return "cancelled" if was_stopped(error) else "completed"


def rendered(render: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what ``content_of`` renders, nothing where that fails. Never raises."""
    try:
        return render()
    except Exception as error:  # noqa: BLE001  (a payload no codec foresaw: the span leaves without it)
        log_internal_error("render a run's content", error)
        return {}


def content_of(run: Run, output: Any) -> Callable[[], Mapping[str, Any]]:
    """Return what renders the run's content; nothing is rendered before it is called."""
    if run.operation in _RENDERERS:
        content = partial(_RENDERERS[run.operation], run.input, output)
        return partial(_with_expected, content, run.root.expected) if run is run.root else content
    if run is run.root:
        root = run.root
        return partial(codec.root_content, root.input, output, root.expected, root.history, root.asked or None)
    return dict  # a step's text stands on its neighbours already


def _with_expected(content: Callable[[], dict[str, Any]], expected: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {**content(), semconv.REFERENCES: jsonable(dict(expected))} if expected else content()


def span_data_of(run: Run, span: Span, end_ns: int, attributes: Attributes, error: BaseException | None) -> SpanData:
    """Return an ended span as dialects read it; metadata are a root's."""
    ids = span.get_span_context()
    parent = getattr(span, "parent", None)
    return SpanData(
        trace_id=ids.trace_id,
        span_id=ids.span_id,
        parent_id=parent.span_id if parent is not None else None,
        name=getattr(span, "name", run.name),
        start_ns=run.start_ns,
        end_ns=end_ns,
        kind="client" if run.operation in CLIENTS else "internal",
        status="error" if error is not None else "unset",
        attributes=attributes,
        trace_flags=int(ids.trace_flags),
        trace_state=ids.trace_state.to_header() if ids.trace_state else "",
        metadata=(_metadata(run) or {}) if run is run.root else {},
        failed_inside=run is run.root and run.root.failed_inside,
        conversation_id=conversation_of(run) if run is run.root else None,
    )


def facts_of(root: Root, end_ns: int, error: BaseException | None) -> SamplingContext:
    """Return what is known at its end of a root of which no SpanData was kept; its children are not, and match no rule."""
    assert root.key is not None
    return SamplingContext(
        key=root.key,
        is_trace_root=root.is_trace_root,
        trace_state=root.trace_state,
        name=root.name,
        operation=root.operation,
        status="error" if error is not None else "unset",
        duration_ns=end_ns - root.start_ns,
        metadata=_metadata(root) or {},
        any_error=error is not None or root.failed_inside,
        tool_calls=0,
        models=frozenset(),
        scores={},
        conversation_id=conversation_of(root) or "",
    )


def _metadata(run: Run) -> Mapping[str, Any] | None:
    details = run.details[0] if type(run.details) is tuple else run.details
    return details if type(details) is dict or is_a(details, dict) else None


@dataclass(eq=False, repr=False)
class PlainAttributes:
    """Describes runs, with what may name a person redacted.

    Attributes:
        redactor: applied to the conversation's id, the feedback key and the metadata; where it raises, gives no text or hangs,
            they are left out.
        box: where the redactor runs.
        metadata: keys of a root's metadata that are told.
    """

    redactor: Redactor | None
    box: Timebox
    metadata: Sequence[str]

    def __post_init__(self) -> None:
        self._redacted_id = lru_cache(_IDS)(self._redact_id)
        self._may_name_somebody = _MAY_NAME_SOMEBODY.union(semconv.METADATA + key for key in self.metadata)

    def of(self, run: Run, output: Any, error: BaseException | None) -> dict[str, Any]:
        """Return what is told of a run. Never raises."""
        attributes = attributes_of(run, output, error, metadata=self.metadata)
        for name in () if self.redactor is None else self._may_name_somebody & attributes.keys():
            if isinstance(attributes[name], str):
                attributes |= self._redacted(name, attributes.pop(name))
        return attributes

    def of_ended(
        self, run: Run, output: Any, error: BaseException | None
    ) -> tuple[dict[str, Any], BaseException | None]:
        """Return the same of a run below a root, and the error that its span shows: to be stopped is none."""
        attributes = self.of(run, output, error)
        if was_stopped(error):
            return attributes | {semconv.RUN_END: run_end_of(None, error)}, None
        return attributes, error

    def _redacted(self, name: str, given: str) -> dict[str, str]:
        """Return an attribute: applications name a conversation by its user's address. Fails closed, as with content."""
        try:
            return {name: safe_text(self._redacted_id(given))}
        except BaseException:  # noqa: BLE001
            return {}

    def _redact_id(self, given: str) -> str:
        redactor = self.redactor
        return given if redactor is None else self.box.run(lambda: redacted(given, redactor))
