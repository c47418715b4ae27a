"""SpanData, Unit and SamplingContext: one span as we see it, the unit of work that gets a score, and what a sampler may look
at.

A unit is the top-most GenAI span with its descendants, keyed by (trace id, unit span id) and not by the trace id alone:
a thousand requests under one ambient span are a thousand units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from spanscore import semconv

SpanStatus = Literal["unset", "ok", "error"]
SessionEnd = Literal["explicit", "idle", "max_turns", "evicted", "shutdown", "open"]
"""How a conversation ended; ``open`` = it goes on, and what is scored of it is provisional and in no sum."""
UnitKind = Literal["workflow", "agent", "chat"]
UNIT_KINDS: Final[Sequence[UnitKind]] = ("workflow", "agent", "chat")
_EMPTY: Mapping[Any, Any] = MappingProxyType({})
_CONTENT, _CONTENT_PREFIXES, _PLAIN = semconv.CONTENT_ATTRIBUTES, semconv.CONTENT_PREFIXES, semconv.PLAIN_ATTRIBUTES
"""As ``semconv.is_content`` asks, for what is read one by one, a hundred times a scored unit: a call takes as long as that, and
so does the look at how a name begins, which those that are read most need not have.
"""


class UnitKey(NamedTuple):
    """Names one unit of work: a thousand units may share a trace id."""

    trace_id: int
    span_id: int


class UnreadContent(NamedTuple):
    """A content value that is still the text that came: most of what models were asked is looked at by nobody.

    Attributes:
        read: gives the value; never None, and it does not raise.
    """

    text: str
    read: Callable[[str], Any]


class Attributes(Mapping[str, Any]):
    """Attributes whose content part is rendered on first need, once.

    Args:
        plain: what is known already; never content.
        render: gives the content attributes (``semconv.is_content``) as structured values, or ``UnreadContent``. Called at most
            once, when a content key is first read or the attributes are iterated, and forgotten then.
    """

    __slots__ = ("_plain", "_render")

    def __init__(self, plain: Mapping[str, Any], render: Callable[[], Mapping[str, Any]] | None = None) -> None:
        self._plain = plain
        self._render = render

    @property
    def held(self) -> Any:
        """What keeps the content alive: what will render it, and once it is rendered the attributes."""
        return self._plain if self._render is None else self._render

    def with_plain(self, known: Mapping[str, Any]) -> Attributes:
        """Return these with other values of some that quote nothing, None for those to be left out; nothing is rendered."""
        plain = {name: value for name, value in {**self._plain, **known}.items() if value is not None}
        return Attributes(plain, self._render)

    def _all(self) -> Mapping[str, Any]:
        if self._render is not None:
            self._plain = {**self._plain, **self._render()}
            self._render = None
        return self._plain

    def __getitem__(self, key: str) -> Any:
        if self._render is not None and key not in _PLAIN and (key in _CONTENT or key.startswith(_CONTENT_PREFIXES)):
            self._all()
        value = self._plain[key]
        return self._read(key, value) if type(value) is UnreadContent else value

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value: most look-ups find nothing, and the inherited method learns that by an exception."""
        if self._render is not None and key not in _PLAIN and (key in _CONTENT or key.startswith(_CONTENT_PREFIXES)):
            self._all()
        value = self._plain.get(key, default)
        return self._read(key, value) if type(value) is UnreadContent else value

    def unread(self, key: str) -> str | None:
        """Return the text that content still is; None of what was read, or came as a value."""
        value = self._all().get(key)
        return value.text if type(value) is UnreadContent else None

    def _read(self, key: str, unread: UnreadContent) -> Any:
        value = unread.read(unread.text)
        self._plain[key] = value  # type: ignore[index]  # a dict of ours, as its content was rendered
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class NoContent(NamedTuple):
    """Why nothing can be read on a span that its writer could have put there.

    Attributes:
        reason: of the unit's outcome, the same for every span of one writer (``content is not on the spans (openllmetry)``).
        hint: what the operator does about it: which switch of which instrumentation.
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
    """What another process decided on a metric of a unit: it stands, and no dice are thrown here.

    Attributes:
        take: whether the metric scores it.
        threshold: T, 56 bit, from which its probability derives.
        rule: that took it.
    """

    take: bool
    threshold: int
    rule: str


@dataclass(slots=True)
class SpanData:
    """One span as spanscore reads it, wherever it came from. No part changes it once it is made.

    Attributes:
        trace_id: 128 bit.
        span_id: 64 bit.
        parent_id: the parent span's id; None for the root of a trace.
        kind: OpenTelemetry span kind in lower case (``internal``, ``client`` …).
        start_ns: nanoseconds since the epoch.
        end_ns: nanoseconds since the epoch.
        scope: name of the instrumentation scope.
        attributes: ``gen_ai.*`` content as structured values (lists and dicts), never as JSON text.
        trace_flags: W3C flags; bit 0 says sampled.
        trace_state: the W3C ``tracestate`` header, empty without one.
        metadata: what the run was called with; rules read it, and of it only the listed keys are exported.
        resource: of the scored application; None when it is that of our own provider.
        failed_inside: a step below it that has no span of its own ended in error, handled or not.
        parent_is_remote: the parent is in another process; None where nobody says.
        events: name and attributes of each, as they came, for writers who keep content there; a translation drops them.
        no_content: set by a translation that found none; None where there is some, and where nobody looked.
        conversation_id: of a unit's root, as the application gave it; sampling looks at it, nothing exports it.
        decided: of a unit's root, metric → what another process decided; None where nothing says so.
        unread: of a topmost span, ids of spans below it that are not read → their parents' ids.
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
        """``gen_ai.operation.name``, None without one."""
        return self.attributes.get(semconv.OPERATION_NAME)

    @property
    def sampled(self) -> bool:
        """Whether the trace is exported at all, by its head sampler's decision."""
        return bool(self.trace_flags & 1)

    def without_content(self) -> SpanData:
        """Return the same span with no prompt, answer or document in it."""
        if isinstance(self.attributes, Attributes):
            known: Mapping[str, Any] = self.attributes._plain  # reads no content, so nothing is rendered
        else:
            known = self.attributes
        told = {name: value for name, value in known.items() if not semconv.is_content(name)}
        return replace(self, attributes=told, events=())


@dataclass(frozen=True, slots=True)
class Session:
    """What a unit stands for that is a whole conversation.

    Attributes:
        key: of the ledger of sessions: a hash of the conversation's id.
        turns: units that it consists of.
        links: the last of them, 100 at most.
    """

    key: UnitKey
    turns: int
    end: SessionEnd
    links: tuple[UnitKey, ...] = ()


@dataclass(slots=True)
class Unit:
    """What gets a score: the top-most GenAI span with its descendants; or a conversation of such, by the last of them.

    Attributes:
        key: trace id and span id of the root.
        spans: in start order, root included where it is known.
        complete: False when the unit was closed by age or size before its root ended.
        revision: 0, or how often it was closed before, with fewer spans.
        session: of a conversation, whose last turn ``key`` and ``spans`` are; None of any other.
        eligible_metrics: metrics for which another process has chosen the unit; it is eligible for no other here. None = all.
        shared: metrics, also of conversations, that another scorer of this process gives it.
        top: the topmost span of an instrumentation above the root, if there is one (a tool call around an agent, for example).
            Its ids and trace state decide on sampling, as the decision must be known when it starts. None: the root's do.
    """

    key: UnitKey
    spans: tuple[SpanData, ...]
    complete: bool = True
    revision: int = 0
    session: Session | None = None
    eligible_metrics: frozenset[str] | None = None
    shared: frozenset[str] = frozenset()
    top: SpanData | None = None

    @property
    def ledger_key(self) -> UnitKey:
        """By what it is counted."""
        return self.key if self.session is None else self.session.key

    @property
    def is_provisional(self) -> bool:
        """Whether it stands for a conversation that goes on: what is scored of it is in no sum."""
        return self.session is not None and self.session.end == "open"

    @property
    def root(self) -> SpanData | None:
        """The unit's top-most span; None while ``complete`` is False and it never arrived."""
        root_id, spans = self.key.span_id, self.spans
        if spans and spans[0].span_id == root_id:  # in start order it comes first, unless clocks differ
            return spans[0]
        return next((span for span in spans if span.span_id == root_id), None)

    @property
    def content_span(self) -> SpanData | None:
        """The span that holds what the unit was given and gave: its root, and None where that never arrived.

        Of a root on which its translation found nothing it is its only child of the same kind (OpenLLMetry on LangGraph).
        """
        root = self.root
        if root is None or root.no_content is None:
            return root
        alike = semconv.WHOLE_OPERATIONS if root.operation in semconv.WHOLE_OPERATIONS else {root.operation}
        below = [span for span in self.spans if span.parent_id == root.span_id and span.operation in alike]
        return below[0] if len(below) == 1 and below[0] is not root and below[0].no_content is None else root

    @property
    def kind(self) -> UnitKind:
        """``agent``; ``chat``, a model that is called alone; or ``workflow``, anything else."""
        operation = None if self.content_span is None else self.content_span.operation
        if operation in semconv.MODEL_OPERATIONS:
            return "chat"
        return "agent" if operation == semconv.INVOKE_AGENT else "workflow"

    @property
    def request_model(self) -> str | None:
        """The scored application's model, as it was asked for; None where no span tells."""
        span = self.model_span
        return None if span is None else str(span.attributes[semconv.REQUEST_MODEL])

    def without_content(self) -> Unit:
        """Return the same unit with no content and only the spans a sink needs, a fraction of the memory.

        These are its root and, where the root itself names no model, the span that does.
        """
        kept = {id(self.root), id(self.model_span)}  # by identity: to compare attributes would render them
        told = tuple(span.without_content() for span in self.spans if id(span) in kept)
        return replace(self, spans=told)

    def in_conversation(self, shown: str | None) -> Unit:
        """Return the same unit, its root with another id of its conversation to be shown, or none; without content only."""
        root = self.root
        if root is None:
            return self
        told = {name: value for name, value in root.attributes.items() if name != semconv.CONVERSATION_ID}
        named = replace(root, attributes=told if shown is None else {**told, semconv.CONVERSATION_ID: shown})
        return replace(self, spans=tuple(named if span is root else span for span in self.spans))

    @property
    def model_span(self) -> SpanData | None:
        """The root where it has a model, else the last model span that answered, else the last that was asked."""
        root = self.root
        if root is not None and root.attributes.get(semconv.REQUEST_MODEL):
            return root
        models = [span for span in self.spans if span is not root and str(span.operation) in semconv.MODEL_OPERATIONS]
        asked = [span for span in models if span.attributes.get(semconv.REQUEST_MODEL)]
        if len(asked) <= 1:
            return asked[0] if asked else None
        return max(asked, key=lambda span: (span.status != "error", span.end_ns))

    def facts(self) -> SamplingContext:
        """Return what a sampler may look at now that the unit has closed."""
        root, speaker, top = self.root, self.content_span, self.top
        if root is None or speaker is None:
            return SamplingContext(key=self.key)
        facts = SamplingContext(
            key=self.key,
            is_trace_root=root.parent_id is None,
            trace_state=root.trace_state,
            name=_name_of(root),
            operation=speaker.operation,
            status=root.status,
            duration_ns=root.end_ns - root.start_ns,
            metadata=root.metadata if speaker is root else {**root.metadata, **speaker.metadata},
            any_error=root.failed_inside or any(span.status == "error" for span in self.spans),
            tool_calls=[span.attributes.get(semconv.OPERATION_NAME) for span in self.spans].count(semconv.EXECUTE_TOOL),
            models={model for span in self.spans if (model := span.attributes.get(semconv.REQUEST_MODEL)) is not None},
            conversation_id=root.conversation_id or root.attributes.get(semconv.CONVERSATION_ID) or "",
            decided=root.decided,
            service_name=_service_of(root.resource),
        )
        return facts if top is None else facts.drawn_by(top)


def _service_of(resource: Mapping[str, Any] | None) -> str | None:
    name = None if resource is None else resource.get(semconv.SERVICE_NAME, "")
    return name if resource is None or isinstance(name, str) else ""


def _name_of(root: SpanData) -> str:
    """Return what was run: as an attribute says, else the name of the span without its operation."""
    named = (root.attributes.get(name) for name in (semconv.WORKFLOW_NAME, semconv.AGENT_NAME, semconv.TOOL_NAME))
    return next((name for name in named if isinstance(name, str) and name), None) or (
        root.name.removeprefix(f"{root.operation} ")
    )


class SamplingContext(NamedTuple):
    """What a sampling rule may look at, None while it is not known. Never the random number.

    A named tuple: one is made per root, on the application's thread.

    Attributes:
        is_trace_root: the span that sampling decides by (the unit's root, or `Unit.top`) has no parent, so the trace's own
            randomness decides.
        name: of what was run.
        metadata: of the root run.
        any_error: whether a span, or a step without one, ended in error.
        tool_calls: spans of tools.
        models: that some span asked for.
        scores: metric that asks no judge → quality; None = it gave none.
        conversation_id: as the application gave it; None where that is not known (yet), empty where it gave none.
        decided: metric → what another process decided on it; the others are decided on here.
        sampled_by: ids of the span above the unit's root that sampling decides by (`Unit.top`); None: the unit's own.
        service_name: ``service.name`` of the unit's resource, empty without one; None: the unit is of this process.
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

    def drawn_by(self, top: SpanData) -> SamplingContext:
        """Return the same facts with the ids and trace state of the span that sampling decides by."""
        key = UnitKey(top.trace_id, top.span_id)
        return self._replace(is_trace_root=top.parent_id is None, trace_state=top.trace_state, sampled_by=key)
