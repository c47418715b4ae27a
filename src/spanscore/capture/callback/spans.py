"""Describes runs as attributes, content and SpanData, and creates their OpenTelemetry spans (``RunSpans``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from spanscore import semconv
from spanscore.capture.callback.runs import CLIENTS, Root, Run
from spanscore.core.codecs import langchain as codec
from spanscore.core.codecs.langchain import chat_attributes
from spanscore.core.codecs.text import jsonable, safe_text, wire_value
from spanscore.core.log import is_a, log_internal_error, plain_text, type_name
from spanscore.core.span import Attributes, SamplingContext, SpanData, UnitKey
from spanscore.outputs.spans import OwnIdGenerator, PresetSpanFactory
from spanscore.pipeline.decisions import feedback_key_of
from spanscore.samples.normalizers.building import name_attribute

# --- the description of a run, for the span thread -------------------------------------------------------------------

MODELS: Final = frozenset({semconv.CHAT, semconv.TEXT_COMPLETION})
_WITH_CONVERSATION: Final = MODELS | {semconv.RETRIEVAL, semconv.INVOKE_AGENT}
"""Operations with the conversation's id on their spans, as on roots. The conventions define no such attribute for tools."""
_KIND_ATTRIBUTES: Final[Mapping[str | None, Mapping[str, str]]] = {
    None: {semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_CHAIN},
    **{
        operation: {semconv.OPERATION_NAME: operation, semconv.OPENINFERENCE_KIND: kind}
        for operation, kind in semconv.OPENINFERENCE_KINDS.items()
    },
}
"""Operation → attributes for its kind, of the GenAI conventions and OpenInference; None is a step."""

_RENDERERS: Final[Mapping[str | None, Callable[[Any, Any], dict[str, Any]]]] = {
    semconv.CHAT: codec.chat_content,
    semconv.TEXT_COMPLETION: codec.completion_content,
    semconv.RETRIEVAL: codec.retriever_content,
    semconv.EXECUTE_TOOL: codec.tool_content,
}
"""Operation of the conventions → function that renders the input and output of its runs."""
_CONVERSATION_KEYS: Final = ("thread_id", "session_id", "conversation_id")


def attributes_of(run: Run, output: Any, error: BaseException | None, metadata: Sequence[str]) -> dict[str, Any]:
    """Return a run's attributes without content, as a span accepts them; for a root with its metadata. Never raises."""
    try:
        attributes = _describe(run, output, error)
        return attributes | _select_metadata(run, metadata) if metadata and run is run.root else attributes
    except Exception as fault:  # noqa: BLE001  (metadata may be any object of the application)
        log_internal_error("describe a run", fault)
        return dict(_KIND_ATTRIBUTES[run.operation])


def _describe(run: Run, output: Any, error: BaseException | None) -> dict[str, Any]:
    operation = run.operation
    attributes: dict[str, Any] = dict(_KIND_ATTRIBUTES[operation])
    if operation in MODELS:
        metadata, parameters = run.details if type(run.details) is tuple else (run.details, None)
        attributes.update(chat_attributes(run.name, metadata, parameters, output))
        if run.first_ns:
            attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = (run.first_ns - run.start_ns) / 1e9
    else:
        attributes |= name_attribute(operation, safe_text(run.name))
        if operation == semconv.EXECUTE_TOOL and is_a(run.details, str):
            attributes[semconv.TOOL_CALL_ID] = safe_text(run.details)
    if run is run.root:
        _describe_root(run.root, attributes)
    elif operation in _WITH_CONVERSATION and (conversation := conversation_of(run)):
        attributes[semconv.CONVERSATION_ID] = conversation
    if error is not None and not is_stop(error):
        attributes[semconv.ERROR_TYPE] = safe_text(type_name(error))
    return attributes


def _describe_root(root: Root, attributes: dict[str, Any]) -> None:
    if conversation := conversation_of(root):
        attributes[semconv.CONVERSATION_ID] = conversation
    if key := feedback_key_of(_metadata(root)):
        attributes[semconv.FEEDBACK_KEY] = safe_text(key)
    if root.failed_inside:
        attributes[semconv.RUN_STEP_ERROR] = True


def _select_metadata(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    """Return the attributes with the metadata under these keys. Structures are left out, because no rule reads them."""
    metadata = _metadata(run) or {}
    values = {semconv.METADATA + key: wire_value(jsonable(metadata[key])) for key in keys if key in metadata}
    return {safe_text(name): value for name, value in values.items() if isinstance(value, str | int | float)}


def conversation_of(run: Run) -> str | None:
    """Return the id of a run's conversation: from the ``spanscore.session`` block, otherwise from the run's metadata.

    LangGraph copies the ``thread_id`` of ``configurable`` into the metadata. A chain's ``configurable`` is not copied (seen
    with langchain-core 1.7.2), so a chain needs ``metadata={"session_id": …}``.
    """
    if run.root.session is not None:
        return safe_text(run.root.session)
    metadata = _metadata(run)
    if not metadata or metadata.keys().isdisjoint(_CONVERSATION_KEYS):  # most runs have no conversation id
        return None
    for key in _CONVERSATION_KEYS:
        value = metadata.get(key)
        if value is not None:
            text = plain_text(value)
            return None if text is None else safe_text(text)
    return None


def is_stop(error: BaseException | None) -> bool:
    """Return whether a run was left by its reader or cancelled: then it has no error."""
    return error is not None and type_name(error) in {"GeneratorExit", "CancelledError"}


def run_end_of(root: Root | None, error: BaseException | None) -> str:
    """Return how a root ended; for ``root=None``, how a run below a root was stopped."""
    if root is not None and root.interrupted:
        return semconv.INTERRUPTED
    if is_a(error, GeneratorExit):
        return "abandoned"
    return "cancelled" if is_stop(error) else "completed"


def render_content(render: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the rendered content; empty if rendering fails. Never raises."""
    try:
        return render()
    except Exception as error:  # noqa: BLE001  (an unforeseen payload: the span is exported without it)
        log_internal_error("render a run's content", error)
        return {}


def content_renderer(run: Run, output: Any, *, tools: bool) -> Callable[[], Mapping[str, Any]]:
    """Return a function that renders the run's content on demand; with ``tools``, also the tools of a model's run."""
    if run.operation in _RENDERERS:
        content = partial(_RENDERERS[run.operation], run.input, output)
        if tools and run.operation in MODELS and type(run.details) is tuple and run.input is not None:
            content = partial(_with_tools, content, run.details[1])
        return partial(_with_expected, content, run.root.expected) if run is run.root else content
    if run is run.root:
        root = run.root
        return partial(codec.root_content, root.input, output, root.expected, root.history, root.human_message or None)
    return dict  # the spans around a step have the same text


def _with_tools(content: Callable[[], dict[str, Any]], parameters: Any) -> dict[str, Any]:
    tools = codec.bound_tools(parameters)
    return {**content(), semconv.TOOL_DEFINITIONS: tools} if tools else content()


def _with_expected(content: Callable[[], dict[str, Any]], expected: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {**content(), semconv.REFERENCES: jsonable(dict(expected))} if expected else content()


def span_data_of(run: Run, span: Span, end_ns: int, attributes: Attributes, error: BaseException | None) -> SpanData:
    """Return an ended span as SpanData; only a root has metadata."""
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
    """Return the sampling facts of an ended root that has no SpanData. Its children are unknown, and match no rule."""
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


# --- the spans of runs --------------------------------------------------------------------------------------------------

# The application's thread decides on a root, because only it has the parent and the context for the head sampler. The ids of a
# trace's first span are drawn ahead, with spanscore's sampling decision on them.
#
# The span thread creates all spans: an SDK span costs 15 µs, with cold caches 60 to 80 µs, which is a third of the whole cost
# for a small chain. It does so in a copy of the caller's context, in which the application's span processors find their
# variables. A tracer that is not the SDK's starts the root's span immediately.

_CLIENT, _INTERNAL = SpanKind.CLIENT, SpanKind.INTERNAL
_DRAWN_AHEAD: Final = 8_192
"""Maximum number of roots whose ids are drawn ahead, 0.2 kB each; one batch of the event queue may have as many ends."""
_MOST_ATTRIBUTES: Final = 128
"""The SDK's default number of attributes, assumed for a tracer that is not the SDK's."""


def _kind_of(run: Run) -> SpanKind:
    return _CLIENT if run.operation in CLIENTS else _INTERNAL


def _span_name(run: Run, name: str) -> str:
    return safe_text(f"{run.operation} {name}" if run.operation else name)


@dataclass(eq=False, repr=False)
class RunSpans:
    """Creates the spans of runs.

    Attributes:
        tracer: tracer of the capture scope.
        could_sample_trace: method of the sampler: whether a trace id may be sampled; None = the id does not decide it.
    """

    tracer: Tracer
    could_sample_trace: Callable[[bytes], bool | None] = lambda _: None

    def __post_init__(self) -> None:
        self._factory = PresetSpanFactory.of(self.tracer)
        self._drawn_ids: deque[tuple[UnitKey, bool | None]] = deque()
        # Ids are drawn ahead only from a random generator, because other generators may encode the time.
        self._is_random = self._factory is not None and isinstance(self._factory.id_generator, OwnIdGenerator)

    def make_current(self, run: Run) -> None:
        """Make a tool's span the current one until ``tool_context`` ends. Does nothing unless the tracer is the SDK's."""
        if self._factory is not None and run.root.shared is None and run.root.key is not None:
            run.tool_context = ToolContext(run, self._factory)

    @property
    def most_attributes(self) -> int | None:
        """Number of attributes that a span keeps; None = unlimited."""
        return _MOST_ATTRIBUTES if self._factory is None else self._factory.most_attributes

    def decide(self, root: Root, ambient: Context) -> bool:
        """Set a root's ids, and ``may_be_scored`` if these decide it. Return False if the head sampler drops it. Thread-safe.

        ``ambient`` is the caller's context: the root's span becomes a child of the span in it.
        """
        factory = self._factory
        if factory is None:
            return self._start_immediately(root, ambient)
        parent = get_current_span(ambient).get_span_context()
        root.is_trace_root = not parent.is_valid
        if root.is_trace_root:
            state = None
            try:
                key, may_be_scored = self._drawn_ids.popleft()
            except IndexError:
                key, may_be_scored = _new_key(factory), None
        else:
            key, may_be_scored = UnitKey(parent.trace_id, factory.id_generator.generate_span_id()), None
            state = parent.trace_state
        if not factory.keeps(None if root.is_trace_root else parent):
            sampling = factory.sampler.should_sample(
                ambient, key.trace_id, _span_name(root, root.name), _kind_of(root), _start_attributes(root), ()
            )
            if not sampling.decision.is_sampled():
                return False
            root.sampling, state = sampling, sampling.trace_state
        root.key, root.may_be_scored = key, None if state else may_be_scored
        root.trace_state = state.to_header() if state else ""
        root.carrier, root.context = copy_context(), ambient
        return True

    def draw_ahead(self) -> None:
        """Draw the ids of a future root, and whether it may be sampled, so that no request waits these 15 µs. Thread-safe."""
        drawn = self._drawn_ids
        if self._factory is not None and self._is_random and len(drawn) < _DRAWN_AHEAD:
            key = _new_key(self._factory)
            drawn.append((key, self.could_sample_trace(key.trace_id.to_bytes(16))))

    def use_sampler(self, could_sample_trace: Callable[[bytes], bool | None]) -> None:
        """Use another function of a sampler, and drop the ids that were drawn ahead. Thread-safe."""
        self.could_sample_trace = could_sample_trace
        self._drawn_ids = deque()  # another thread may still append to the old one

    def create_root(self, root: Root) -> bool:
        """Create the span of a root that ``decide`` accepted. Return False if the tracer is switched off. One thread.

        Exceptions of the application's processors are raised.
        """
        carrier, sampling, root.carrier, root.sampling = root.carrier, root.sampling, None, None
        factory, ambient = self._factory, root.context
        if carrier is None or ambient is None or factory is None or root.key is None:
            return root.span is not None
        trace_id, span_id = root.key
        start: Callable[..., Span] = factory.start_span
        if factory.watched:
            start = partial(carrier.run, start)
        span = start(
            _span_name(root, root.name),
            span_id=span_id,
            context=ambient,
            trace_id=trace_id,
            sampling=sampling,
            kind=_kind_of(root),
            attributes=_start_attributes(root),
            start_time=root.start_ns,
        )
        if span.get_span_context().span_id != span_id or not span.is_recording():
            return False
        root.span = span
        return True

    @property
    def starts_are_unobserved(self) -> bool:
        """Whether no span processor observes the starts of spans: then all spans of a unit may be created together."""
        return self._factory is not None and not self._factory.watched

    def start_child(self, run: Run, parent: Span, attributes: Mapping[str, Any]) -> Span:
        """Start the span of a run below a root, with its true time. One thread."""
        name = _span_name(run, attributes.get(semconv.REQUEST_MODEL) or run.name)
        kind, ambient = _kind_of(run), run.root.context or Context()
        if self._factory is not None:
            return self._factory.start_span(
                name,
                context=ambient,
                parent=parent,
                kind=kind,
                attributes=attributes,
                start_time=run.start_ns,
                span_id=run.span_id or None,
            )
        ambient = set_span_in_context(parent, ambient)
        return self.tracer.start_span(name, context=ambient, kind=kind, attributes=attributes, start_time=run.start_ns)

    def _start_immediately(self, root: Root, ambient: Context) -> bool:
        span = self.tracer.start_span(
            _span_name(root, root.name),
            context=ambient,
            kind=_kind_of(root),
            attributes=_start_attributes(root),
            start_time=root.start_ns,
        )
        ids = span.get_span_context()
        if not ids.trace_flags & 1 or not span.is_recording():
            return False
        root.span, root.key, root.context = span, UnitKey(ids.trace_id, ids.span_id), ambient
        root.is_trace_root = getattr(span, "parent", None) is None
        root.trace_state = ids.trace_state.to_header() if ids.trace_state else ""
        return True


def _new_key(factory: PresetSpanFactory) -> UnitKey:
    return UnitKey(factory.id_generator.generate_trace_id(), factory.id_generator.generate_span_id())


def _start_attributes(root: Root) -> dict[str, str]:
    return {semconv.OPERATION_NAME: root.operation or ""}


class ToolContext:
    """Makes a tool's span the current one while the tool runs (``capture.context``): spans of the tool become its children.

    The span thread creates the span later, with the id that is drawn here.

    LangChain may end an asynchronous tool in another task, which cannot detach the context of the tool's task. The span in that
    context therefore returns the ids of the previous span from then on.
    """

    def __init__(self, run: Run, factory: PresetSpanFactory) -> None:
        assert run.root.key is not None
        run.span_id = factory.id_generator.generate_span_id()
        span_context = SpanContext(
            run.root.key.trace_id, run.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )
        self._before = otel_context.get_current()
        self._span = _RunningToolSpan(span_context)
        self._attached = set_span_in_context(self._span, self._before)
        otel_context.attach(self._attached)

    def end(self) -> None:
        """Make the previous span the current one again."""
        self._span.previous = get_current_span(self._before)
        if otel_context.get_current() is self._attached:
            otel_context.attach(self._before)


class _RunningToolSpan(NonRecordingSpan):
    """A span with ids only. After the tool has ended, it returns the ids of ``previous``."""

    previous: trace.Span | None = None

    def get_span_context(self) -> SpanContext:
        return super().get_span_context() if self.previous is None else self.previous.get_span_context()
