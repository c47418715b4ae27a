"""``SpanData``, one span; ``Unit``, the spans that get a score; ``SamplingContext``, the facts for a sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from spanscore import semconv

SpanStatus = Literal["unset", "ok", "error"]
SessionEnd = Literal["explicit", "idle", "max_turns", "evicted", "shutdown", "open"]
"""How a conversation ended. ``open``: the conversation continues, so the scores are provisional and in no sum."""
UnitKind = Literal["workflow", "agent", "chat"]
UNIT_KINDS: Final[Sequence[UnitKind]] = ("workflow", "agent", "chat")
InnerKind = Literal["retriever", "tool", "agent", "chat"]
_EMPTY: Mapping[Any, Any] = MappingProxyType({})
_CONTENT, _CONTENT_PREFIXES, _PLAIN = semconv.CONTENT_ATTRIBUTES, semconv.CONTENT_PREFIXES, semconv.PLAIN_ATTRIBUTES
"""The sets of ``semconv.is_content``. A scored unit makes some hundred look-ups: a call of that function would double their
cost, and so would a check of the prefixes, which names in ``_PLAIN`` do not need.
"""


class UnitKey(NamedTuple):
    """Key of a unit: the ids of its root. Requests under one ambient span share a trace id, and are units of their own."""

    trace_id: int
    span_id: int


class UnreadContent(NamedTuple):
    """A content value that is not parsed yet, because most prompts are never read.

    Attributes:
        text: the value as JSON text.
        read: parses the text; never returns None and never raises.
    """

    text: str
    read: Callable[[str], Any]


class Attributes(Mapping[str, Any]):
    """Span attributes with content that is rendered once, when it is first needed.

    Args:
        plain: attributes without content; also the definitions of tools, in the form that the instrumentation wrote.
        render: returns the content attributes (``semconv.is_content``) as structured values, or ``UnreadContent``. Called at
            most once, when a content key is first read or the attributes are iterated, and then released. None = no content.
    """

    __slots__ = ("_plain", "_render")

    def __init__(self, plain: Mapping[str, Any], render: Callable[[], Mapping[str, Any]] | None = None) -> None:
        self._plain = plain
        self._render = render

    @property
    def content_owner(self) -> Any:
        """The objects that a unit's size counts: the renderer and definitions of tools; after rendering, the attributes."""
        tools = self._plain.get(semconv.TOOL_DEFINITIONS)
        if self._render is None:
            return self._plain
        return self._render if tools is None else (self._render, tools)

    def without_tools(self) -> Attributes:
        """Return these attributes without the plain definitions of tools; renders no content."""
        if semconv.TOOL_DEFINITIONS not in self._plain:
            return self
        return self.with_plain({semconv.TOOL_DEFINITIONS: None})

    def with_plain(self, values: Mapping[str, Any]) -> Attributes:
        """Return a copy with other values for attributes without content; None removes an attribute. Renders no content."""
        plain = {name: value for name, value in {**self._plain, **values}.items() if value is not None}
        return Attributes(plain, self._render)

    def _render_all(self) -> Mapping[str, Any]:
        if self._render is not None:
            self._plain = {**self._plain, **self._render()}
            self._render = None
        return self._plain

    def __getitem__(self, key: str) -> Any:
        if self._render is not None and key not in _PLAIN and (key in _CONTENT or key.startswith(_CONTENT_PREFIXES)):
            self._render_all()
        value = self._plain[key]
        return self._parse(key, value) if type(value) is UnreadContent else value

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value. Overridden for speed: most look-ups miss, and the inherited method raises an exception for each."""
        if self._render is not None and key not in _PLAIN and (key in _CONTENT or key.startswith(_CONTENT_PREFIXES)):
            self._render_all()
        value = self._plain.get(key, default)
        return self._parse(key, value) if type(value) is UnreadContent else value

    def unparsed_text(self, key: str) -> str | None:
        """Return the text of a content value that is not parsed yet; None for every other value."""
        value = self._render_all().get(key)
        return value.text if type(value) is UnreadContent else None

    def _parse(self, key: str, unread: UnreadContent) -> Any:
        value = unread.read(unread.text)
        self._plain[key] = value  # type: ignore[index]  # our own dict, because content was rendered
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._render_all())

    def __len__(self) -> int:
        return len(self._render_all())


class NoContent(NamedTuple):
    """The cause why a span has no content although its instrumentation could have recorded it.

    Attributes:
        reason: reason of the unit's outcome, equal for all spans of one instrumentation (``content is not on the spans
            (openllmetry)``).
        hint: remedy for the operator, such as a switch of the instrumentation.
    """

    reason: str
    hint: str


CUT: Final = NoContent(
    "cut at the attribute limit",
    "raise OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT (or OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT) of the traced application, or the"
    " limit of its instrumentation",
)
"""The content of a span was JSON, and a limit on the length of attributes cut it."""


class UpstreamDecision(NamedTuple):
    """Another process's final sampling decision on a metric of a unit. The unit is not sampled again here.

    Attributes:
        take: whether the metric scores the unit.
        threshold: T, [0, 2**56]: the probability of sampling was 1 − T / 2**56.
    """

    take: bool
    threshold: int
    rule: str


@dataclass(slots=True)
class SpanData:
    """One span as spanscore reads it, from any receiver. A SpanData is not changed after its creation.

    It is not frozen, because a frozen dataclass with so many fields takes ten times as long to create (2.6 instead of 0.26 µs).

    Attributes:
        trace_id: 128 bit.
        span_id: 64 bit.
        parent_id: the parent span's id; None for the root of a trace.
        kind: OpenTelemetry span kind in lower case (``internal``, ``client`` …).
        start_ns: nanoseconds since the epoch.
        end_ns: nanoseconds since the epoch.
        scope: name of the instrumentation scope.
        attributes: ``gen_ai.*`` content as structured values (lists and dicts), never as JSON text.
        trace_flags: W3C flags; bit 0 means sampled.
        trace_state: the W3C ``tracestate`` header, empty without one.
        metadata: metadata of the run; rules read all keys, and only the listed keys are exported.
        resource: resource of the scored application; None if it is that of the scorer's provider.
        failed_inside: whether a step below it without a span of its own ended in an error, handled or not.
        parent_is_remote: whether the parent is in another process; None if unknown.
        events: name and attributes of each event, unchanged, for instrumentations that record content there; normalizers drop
            them.
        no_content: set by a normalizer that found no content; None if it found content, or no normalizer read the span.
        conversation_id: on a unit's root, the application's own id; used for sampling, never exported.
        decided: on a unit's root, metric → decision of another process; None without such decisions.
        unread: on a topmost span, id of each unclaimed span below it → its parent's id, to find the parents of claimed spans
            below unclaimed ones. Unclaimed spans are not converted.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    _: KW_ONLY
    start_ns: int
    end_ns: int
    scope: str = semconv.CAPTURE_SCOPE
    kind: str = "internal"
    status: SpanStatus = "unset"
    attributes: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    trace_flags: int = 1
    trace_state: str = ""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    resource: Mapping[str, Any] | None = None
    failed_inside: bool = False
    parent_is_remote: bool | None = None
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    no_content: NoContent | None = None
    conversation_id: str | None = None
    decided: Mapping[str, UpstreamDecision] | None = None
    unread: Mapping[int, int] = field(default_factory=lambda: _EMPTY)

    @property
    def operation(self) -> str | None:
        """``gen_ai.operation.name``; None if the span has no operation."""
        return self.attributes.get(semconv.OPERATION_NAME)

    @property
    def sampled(self) -> bool:
        """Whether the head sampler sampled the trace, so that it is exported."""
        return bool(self.trace_flags & 1)

    def with_content(
        self, attributes: Mapping[str, Any], metadata: Mapping[str, Any], no_content: NoContent | None
    ) -> SpanData:
        """Return the same span with these attributes, without events.

        Every span of a scored unit is translated: `dataclasses.replace` takes 3 µs longer, a twentieth of the unit's CPU time.
        """
        return SpanData(
            self.trace_id,
            self.span_id,
            self.parent_id,
            self.name,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            scope=self.scope,
            kind=self.kind,
            status=self.status,
            attributes=attributes,
            trace_flags=self.trace_flags,
            trace_state=self.trace_state,
            metadata=metadata,
            resource=self.resource,
            failed_inside=self.failed_inside,
            parent_is_remote=self.parent_is_remote,
            no_content=no_content,
            conversation_id=self.conversation_id,
            decided=self.decided,
            unread=self.unread,
        )

    def without_content(self) -> SpanData:
        """Return the same span without prompts, answers and documents."""
        if isinstance(self.attributes, Attributes):
            plain: Mapping[str, Any] = self.attributes._plain  # without a read of content, which would render it
        else:
            plain = self.attributes
        attributes = {name: value for name, value in plain.items() if not semconv.is_content(name)}
        return replace(self, attributes=attributes, events=())


@dataclass(frozen=True, slots=True)
class Session:
    """The conversation that a unit represents.

    Attributes:
        key: key of the conversation in the counts of outcomes: a hash of the conversation's id.
        turns: number of units in the conversation.
        end: how the conversation ended.
        links: keys of the last turns, 100 at most.
    """

    key: UnitKey
    turns: int
    end: SessionEnd
    links: tuple[UnitKey, ...] = ()


@dataclass(frozen=True, slots=True)
class InnerGroup:
    """The inner units of one entry of ``units.also``.

    Attributes:
        kind: kind of their spans.
        name: name of their tool, agent, retriever or model; None = any name.
    """

    kind: InnerKind
    name: str | None = None

    def __str__(self) -> str:
        return self.kind if self.name is None else f"{self.kind} {self.name}"

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes of spans, scores and sums of these units."""
        kind = {semconv.UNIT_KIND: str(self.kind)}
        return kind if self.name is None else {**kind, semconv.UNIT_NAME: self.name}


@dataclass(slots=True)
class Unit:
    """The spans that get a score: the top-most GenAI span with its descendants, or the last turn of a conversation.

    Attributes:
        key: trace id and span id of the root.
        spans: spans in start order, root included if it is known.
        complete: False if the unit was closed by age or size before its root ended.
        revision: number of earlier closes, with fewer spans; 0 the first time.
        session: the conversation, if the unit is one; ``key`` and ``spans`` are those of the last turn. None for other units.
        eligible_metrics: metrics this process counts the unit for, if another process made the sampling decision. None = all
            metrics.
        shared: metrics, also of conversations, that another scorer of this process scores on the unit instead of this one.
        top: the topmost span of an instrumentation above the root, for example a tool call around an agent. Its ids and trace
            state decide on sampling, because the decision is needed at the start of this span. None = the root's ids decide.
        inner: the entry of ``units.also`` that the unit matches, if it is an inner unit: a span below the root of another unit
            and the spans below that span. None for other units.
    """

    key: UnitKey
    spans: tuple[SpanData, ...]
    complete: bool = True
    revision: int = 0
    session: Session | None = None
    eligible_metrics: frozenset[str] | None = None
    shared: frozenset[str] = frozenset()
    top: SpanData | None = None
    inner: InnerGroup | None = None

    @property
    def ledger_key(self) -> UnitKey:
        """The key under which outcomes of this unit are counted: of a conversation its own, otherwise the root's ids."""
        return self.key if self.session is None else self.session.key

    @property
    def is_provisional(self) -> bool:
        """Whether the unit is a conversation that continues, so that its scores are in no sum."""
        return self.session is not None and self.session.end == "open"

    @property
    def root(self) -> SpanData | None:
        """The unit's top-most span; None if ``complete`` is False and the root never arrived."""
        root_id, spans = self.key.span_id, self.spans
        if spans and spans[0].span_id == root_id:  # in start order the root comes first, unless clocks differ
            return spans[0]
        return next((span for span in spans if span.span_id == root_id), None)

    @property
    def content_span(self) -> SpanData | None:
        """The span with the unit's input and output; None if the root never arrived.

        It is the root, or the root's only child with the same operation, if the root has no content and this child has it, as
        OpenLLMetry records LangGraph.
        """
        root = self.root
        if root is None or root.no_content is None:
            return root
        alike = semconv.WHOLE_OPERATIONS if root.operation in semconv.WHOLE_OPERATIONS else {root.operation}
        below = [span for span in self.spans if span.parent_id == root.span_id and span.operation in alike]
        return below[0] if len(below) == 1 and below[0] is not root and below[0].no_content is None else root

    @property
    def kind(self) -> UnitKind:
        """``agent``; ``chat`` for a single model call; or ``workflow`` for every other unit."""
        operation = None if self.content_span is None else self.content_span.operation
        if operation in semconv.MODEL_OPERATIONS:
            return "chat"
        return "agent" if operation == semconv.INVOKE_AGENT else "workflow"

    @property
    def request_model(self) -> str | None:
        """The requested model of the scored application; None if no span names a model."""
        span = self.model_span
        return None if span is None else str(span.attributes[semconv.REQUEST_MODEL])

    def without_content(self) -> Unit:
        """Return the same unit without content, with only the spans that a sink needs: a fraction of the memory.

        These are the root and, if the root names no model, the span that names the model.
        """
        kept = {id(self.root), id(self.model_span)}  # by identity, because a comparison of attributes would render them
        spans = tuple(span.without_content() for span in self.spans if id(span) in kept)
        return replace(self, spans=spans)

    def in_conversation(self, shown: str | None) -> Unit:
        """Return the same unit with another conversation id on its root, or without one. For units without content only.

        Args:
            shown: the exported conversation id; None removes the id.
        """
        root = self.root
        if root is None:
            return self
        attributes = {name: value for name, value in root.attributes.items() if name != semconv.CONVERSATION_ID}
        named = replace(
            root, attributes=attributes if shown is None else {**attributes, semconv.CONVERSATION_ID: shown}
        )
        return replace(self, spans=tuple(named if span is root else span for span in self.spans))

    @property
    def model_span(self) -> SpanData | None:
        """The root if it has a model, otherwise the last model span without an error, otherwise the last model span."""
        root = self.root
        if root is not None and root.attributes.get(semconv.REQUEST_MODEL):
            return root
        others = [span for span in self.spans if span is not root and str(span.operation) in semconv.MODEL_OPERATIONS]
        named = [span for span in others if span.attributes.get(semconv.REQUEST_MODEL)]
        return max(named, key=lambda span: (span.status != "error", span.end_ns), default=None)

    def facts(self) -> SamplingContext:
        """Return the facts for a sampler when the unit has closed."""
        root, content_span, top = self.root, self.content_span, self.top
        if root is None or content_span is None:
            return SamplingContext(key=self.key)
        facts = SamplingContext(
            key=self.key,
            is_trace_root=root.parent_id is None,
            trace_state=root.trace_state,
            name=_name_of(root),
            operation=content_span.operation,
            status=root.status,
            duration_ns=root.end_ns - root.start_ns,
            metadata=root.metadata if content_span is root else {**root.metadata, **content_span.metadata},
            any_error=root.failed_inside or any(span.status == "error" for span in self.spans),
            tool_calls=[span.attributes.get(semconv.OPERATION_NAME) for span in self.spans].count(semconv.EXECUTE_TOOL),
            models={model for span in self.spans if (model := span.attributes.get(semconv.REQUEST_MODEL)) is not None},
            conversation_id=root.conversation_id
            or root.attributes.get(semconv.CONVERSATION_ID)
            or _only_id(self.spans),
            decided=root.decided,
            service_name=_service_of(root.resource),
        )
        if top is None:
            return facts
        key = UnitKey(top.trace_id, top.span_id)
        return facts._replace(is_trace_root=top.parent_id is None, trace_state=top.trace_state, sampled_by=key)


def _only_id(spans: Sequence[SpanData]) -> str:
    """Return the conversation id that all spans with an id have; empty without an id, or if the ids differ."""
    ids = {value for span in spans if (value := span.attributes.get(semconv.CONVERSATION_ID))}
    return str(ids.pop()) if len(ids) == 1 else ""


def _service_of(resource: Mapping[str, Any] | None) -> str | None:
    """Return ``service.name``, empty if the resource has none; None without a resource, that is for a unit of this process."""
    name = None if resource is None else resource.get(semconv.SERVICE_NAME, "")
    return name if resource is None or isinstance(name, str) else ""


def _name_of(root: SpanData) -> str:
    """Return the name of the run: from an attribute, otherwise the span's name without its operation."""
    named = (root.attributes.get(name) for name in (semconv.WORKFLOW_NAME, semconv.AGENT_NAME, semconv.TOOL_NAME))
    return next((name for name in named if isinstance(name, str) and name), None) or (
        root.name.removeprefix(f"{root.operation} ")
    )


class SamplingContext(NamedTuple):
    """The facts of a unit that a sampling rule may read, each None until it is known.

    A named tuple, which is created quickly, because the application's thread creates one for each root.

    Attributes:
        is_trace_root: whether the span that decides on sampling (the unit's root, or ``Unit.top``) has no parent; if so, the
            trace's own random number decides.
        trace_state: the W3C ``tracestate`` header of that span; empty without one.
        name: name of the run.
        metadata: metadata of the root run.
        any_error: whether a span, or a step without a span, ended in an error.
        tool_calls: number of tool spans.
        models: models that the spans requested.
        scores: metric without a judge → quality; None if it gave no quality.
        conversation_id: the application's own id; None if it is not known (yet), empty without a conversation.
        decided: metric → decision of another process; this process decides on the other metrics.
        sampled_by: ids of the span above the unit's root that decides on sampling (``Unit.top``); None = the unit's own ids.
        service_name: ``service.name`` of the unit's resource, empty if it has none; None if the unit is from this process.
        inner: the entry of ``units.also`` that an inner unit matches; all facts but ``key`` and ``decided`` are then those of
            the unit around it. None for other units.
    """

    key: UnitKey
    is_trace_root: bool = False
    trace_state: str = ""
    name: str | None = None
    operation: str | None = None
    status: SpanStatus | None = None
    duration_ns: int | None = None
    metadata: Mapping[str, Any] | None = None
    any_error: bool | None = None
    tool_calls: int | None = None
    models: Set[str] | None = None
    scores: Mapping[str, float | None] | None = None
    conversation_id: str | None = None
    decided: Mapping[str, UpstreamDecision] | None = None
    sampled_by: UnitKey | None = None
    service_name: str | None = None
    inner: InnerGroup | None = None
