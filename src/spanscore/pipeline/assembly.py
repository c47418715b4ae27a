"""``Assembler`` gathers single spans, in any order, into units; ``topmost_roots`` and ``split`` find the roots of units."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, auto
from typing import Final, TypeVar

from spanscore import semconv
from spanscore.core.span import Attributes, SpanData, Unit, UnitKey
from spanscore.pipeline.decisions import keep_latest

Id = TypeVar("Id")
_STEPS: Final = frozenset({semconv.EXECUTE_TOOL, semconv.RETRIEVAL, semconv.VECTOR_DB_RETRIEVE, semconv.SEARCH_MEMORY})
_NEVER: Final = semconv.NOT_READ_OPERATIONS | semconv.WORDLESS_REQUESTS | {semconv.VECTOR_DB}
GRACE_NS: Final = 5_000_000_000
"""Maximum nanoseconds for which an ended root of another instrumentation waits for open spans of its unit.

It waits because a stream may be read after its chain has returned. The time is limited because some instrumentations never end
the span of a cancelled run.
"""
ROOT_RUN: Final = ".workflow"
"""Suffix of the name of OpenLLMetry's span for a run without a parent run."""
_LANGCHAIN: Final = "opentelemetry.instrumentation.langchain"


def is_further_run(scope: str, name: str, above_scope: str, above_name: str) -> bool:
    """Return whether a span is a run of its own below another span, which OpenLLMetry left current after an earlier run.

    In a batch of LangChain, both spans are runs of one name. In LlamaIndex, a run below a run would be a step: a streamed query
    leaves a step current.
    """
    if scope != above_scope or not name.endswith(ROOT_RUN):
        return False
    return scope == semconv.LLAMA_INDEX_SCOPE or (scope == _LANGCHAIN and name == above_name)


def is_step(scope: str, name: str) -> bool:
    """Return whether a span is a step of LlamaIndex in OpenLLMetry's spans: work of its run, whenever it begins.

    The span of such a run ends with the first streamed step, before the next steps begin.
    """
    return scope == semconv.LLAMA_INDEX_SCOPE and not name.endswith(ROOT_RUN)


class RootRole(Enum):
    """The role that a span has in the choice of a unit's root."""

    ROOT = auto()
    """The root of a unit: a workflow, an agent, a chain, a task or a model call."""
    STEP = auto()
    """A retrieval or a tool call: the root of a unit only if no ROOT is below it."""
    NEVER = auto()
    """A span without a question and an answer, which makes no unit: an embedding, a reranking, a guardrail, an evaluation, …"""
    UNNAMED = auto()
    """A span of a known instrumentation without an operation: a workflow if a ROOT or a STEP is below it, otherwise no unit."""


def role_of_operation(operation: object) -> RootRole:
    """Return the role of a span by its ``gen_ai.operation.name``; a span without an operation (None) is UNNAMED."""
    if operation is None:
        return RootRole.UNNAMED
    if operation in _STEPS:
        return RootRole.STEP
    return RootRole.NEVER if operation in _NEVER else RootRole.ROOT


def topmost_roots(
    top: Id, spans: Iterable[tuple[Id, Id | None]], role: Callable[[Id], RootRole], unread: Mapping[Id, Id]
) -> list[Id]:
    """Return the roots of the units in a tree of spans, in the order of the tree; empty if it has no unit.

    The rule is the same for spans in process, over OTLP and in a store. A root is the topmost span that can have a question and
    an answer. A retrieval or a tool call at the top is a root only if no such span is below it.

    Args:
        top: id of the topmost span.
        spans: id and parent id of each claimed span; the top may be among them.
        role: returns the role of a claimed span.
        unread: ids of the unclaimed spans between the claimed spans → their parents' ids. A span counts as a child of the top
            if its parent is in neither ``spans`` nor ``unread``.
    """
    return _roots(top, _tree_of(top, spans, unread), role)


def _tree_of(top: Id, spans: Iterable[tuple[Id, Id | None]], unread: Mapping[Id, Id]) -> dict[Id, list[Id]]:
    """Return span id → ids of the next claimed spans below it. The arguments are those of `topmost_roots`."""
    listed = [*spans]
    ids = {span_id for span_id, _ in listed} | {top}
    below: dict[Id, list[Id]] = {}
    for span_id, parent_id in listed:
        above = _next_above(parent_id, ids, unread)
        if span_id != top:
            below.setdefault(top if above is None else above, []).append(span_id)
    return below


def _next_above(parent_id: Id | None, ids: Set[Id], unread: Mapping[Id, Id]) -> Id | None:
    """Return the first of ``ids`` among a span's ancestors; None if none of them is in ``ids``, or if they form a cycle."""
    for _ in range(len(unread) + 1):
        if parent_id is None or parent_id in ids:
            return parent_id
        parent_id = unread.get(parent_id)
    return None


def _roots(top: Id, below: Mapping[Id, Sequence[Id]], role: Callable[[Id], RootRole]) -> list[Id]:
    """Return the roots in a tree of claimed spans, in the order of the tree.

    - A top with the role ROOT is the root. So is an UNNAMED top if a ROOT or a STEP is below it; otherwise there is no unit.
    - Below any other top, each topmost ROOT is a root, and each topmost UNNAMED span with a ROOT below it.
    - If there is no ROOT at all, a STEP at the top is the root, otherwise each topmost STEP.
    """
    if role(top) is RootRole.ROOT:
        return [top]
    roles = {span_id: role(span_id) for span_id in _walk([top], below)}
    with_root = {span_id for span_id, own in roles.items() if own is RootRole.ROOT}
    if roles[top] is RootRole.UNNAMED:
        return [top] if with_root or RootRole.STEP in roles.values() else []
    if not with_root:
        is_step = roles[top] is RootRole.STEP
        return [top] if is_step else [*_nearest(top, below, lambda span_id: roles[span_id] is RootRole.STEP)]

    def is_root(span_id: Id) -> bool:
        return span_id in with_root or (
            roles[span_id] is RootRole.UNNAMED and not with_root.isdisjoint([*_walk([span_id], below)])
        )

    return [*_nearest(top, below, is_root)]


def _nearest(top: Id, below: Mapping[Id, Sequence[Id]], wanted: Callable[[Id], bool]) -> Iterable[Id]:
    """Yield the wanted spans below the top that have no other wanted span between them and the top."""
    waiting = [*below.get(top, ())][::-1]
    while waiting:
        span_id = waiting.pop()
        if wanted(span_id):
            yield span_id
        else:
            waiting += [*below.get(span_id, ())][::-1]


def _walk(tops: Iterable[Id], below: Mapping[Id, Sequence[Id]]) -> Iterable[Id]:
    """Yield the tops and all spans below them, in the order of the tree."""
    waiting = [*tops][::-1]
    while waiting:
        span_id = waiting.pop()
        yield span_id
        waiting += [*below.get(span_id, ())][::-1]


def split(unit: Unit) -> list[Unit]:
    """Return the units below one topmost span; empty if it has no root. Most often the result is the given unit, unchanged.

    The given unit is the topmost span of an instrumentation with all spans below it, in GenAI names. Work that began after its
    parent and the root had ended is a separate unit. A span of spanscore's own capture stays the root of its unit, as in the
    process that captured it.
    """
    top = unit.root
    if top is None or top.scope == semconv.CAPTURE_SCOPE or not unit.complete:
        return [unit]
    candidates = [
        span for span in unit.spans if span.start_ns > top.end_ns or (span.name.endswith(ROOT_RUN) and span is not top)
    ]
    if not candidates and role_of_operation(top.operation) is RootRole.ROOT:
        return [unit]
    return _split(unit, top, {span.span_id for span in candidates})


def _split(unit: Unit, top: SpanData, candidates: Set[int]) -> list[Unit]:
    spans = {span.span_id: span for span in unit.spans}
    below = _tree_of(top.span_id, [(span.span_id, span.parent_id) for span in unit.spans], top.unread)
    separate = _detach(below, spans, candidates) if candidates else []
    return [
        _build_unit(unit, spans[root_id], below, None if root_id == top_id else spans[top_id])
        for top_id in (top.span_id, *separate)
        for root_id in _roots(top_id, below, lambda each: role_of_operation(spans[each].operation))
    ]


def _detach(below: Mapping[int, list[int]], spans: Mapping[int, SpanData], candidates: Set[int]) -> list[int]:
    """Remove from a tree the candidates that are separate from their parent, and return their ids in the order of start."""
    separate: list[int] = []
    for parent_id, children in below.items():
        parent = spans[parent_id]
        moved = [span_id for span_id in children if span_id in candidates and _is_separate(spans[span_id], parent)]
        children[:] = [span_id for span_id in children if span_id not in moved]
        separate += moved
    return sorted(separate, key=lambda span_id: spans[span_id].start_ns)


def _is_separate(span: SpanData, parent: SpanData) -> bool:
    """Whether a span is no work of its parent: it began after the parent's end in the same process, or is a further run."""
    if is_step(span.scope, span.name):
        return False
    began_later = span.start_ns > parent.end_ns and span.resource == parent.resource
    return began_later or is_further_run(span.scope, span.name, parent.scope, parent.name)


def _build_unit(unit: Unit, root: SpanData, below: Mapping[int, Sequence[int]], top: SpanData | None) -> Unit:
    """Return the unit of a root: ``unit`` itself, if the root needs no change and all other spans are below it."""
    within = set(_walk([root.span_id], below))
    named = root
    if root.operation is None:  # question and answer are then read from the model calls of the workflow
        attributes = {semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW, semconv.WORKFLOW_NAME: root.name}
        named = replace(root, attributes=Attributes(attributes))
    if top is not None and root.conversation_id is None:  # only the topmost span has the session's id
        named = replace(named, conversation_id=top.conversation_id)
    if named is root and len(within) == len(unit.spans):
        return unit
    members = tuple(named if span is root else span for span in unit.spans if span.span_id in within)
    top_without_content = None if top is None else top.without_content()
    return replace(unit, key=UnitKey(root.trace_id, root.span_id), spans=members, top=top_without_content)


@dataclass(slots=True)
class _OpenUnit:
    """A unit that has not been closed.

    Attributes:
        since_ns: time of its first span, or of the first loss.
        spans: its ended spans, in the order of arrival.
        broken: whether spans of it were lost.
    """

    since_ns: int
    spans: list[SpanData] = field(default_factory=list)
    size_bytes: int = 0
    root_ended: bool = False
    broken: bool = False


@dataclass(eq=False, repr=False)
class Assembler:
    """Gathers single spans in any order into units. Owned by one thread; the clock is an argument.

    Receivers add a root only when no span of its unit is open, or after a grace time. The unit is then *due*. A unit that is
    too old or too large closes incomplete. Closed units are remembered for a while, so that a late span opens no second unit.

    Attributes:
        max_age_ns: age in nanoseconds at which a unit closes incomplete.
        max_spans: number of spans at which a unit closes. The unit is incomplete if its root has not ended.
        max_units: maximum number of open units; beyond it the oldest unit closes incomplete.
        max_bytes: maximum bytes of the spans of open units; beyond it the oldest unit closes incomplete.
        remembered: number of remembered closed units; more than close while a late span is under way.
        late: number of spans that arrived after their unit had closed.
    """

    _: KW_ONLY
    max_age_ns: int = 3_600_000_000_000
    max_spans: int = 2_000
    max_units: int = 10_000
    max_bytes: int = 256_000_000
    remembered: int = 10_000

    def __post_init__(self) -> None:
        self._units: OrderedDict[UnitKey, _OpenUnit] = OrderedDict()
        self._due: dict[UnitKey, None] = {}
        self._bytes = 0
        self._closed: OrderedDict[UnitKey, None] = OrderedDict()
        self.late = 0

    def __len__(self) -> int:
        return len(self._units)

    def add(self, key: UnitKey, span: SpanData, now_ns: int, *, size_bytes: int = 0) -> bool:
        """Add an ended span. Returns False, and counts the span as late, if its unit has closed already.

        ``size_bytes`` is the approximate size of the span's content, if its receiver does not bound it.
        """
        unit = self._unit(key, now_ns)
        if unit is None:
            self.late += 1
            return False
        unit.spans.append(span)
        unit.size_bytes += size_bytes
        self._bytes += size_bytes
        unit.root_ended = unit.root_ended or span.span_id == key.span_id
        if unit.root_ended or len(unit.spans) >= self.max_spans:
            self._due[key] = None
        return True

    def mark_broken(self, key: UnitKey, now_ns: int) -> None:
        """Record that spans of a unit were lost, so that the unit closes incomplete."""
        unit = self._unit(key, now_ns)
        if unit is not None:
            unit.broken = True

    def close_early(self, key: UnitKey) -> Unit | None:
        """Close an open unit in its present state and return it; None if the unit is not open."""
        return self._close(key) if key in self._units else None

    def due(self, now_ns: int) -> list[Unit]:
        """Close and return the due units, in the order in which they became due."""
        closed = [self._close(key) for key in [*self._due]]
        while self._units:
            key, oldest = next(iter(self._units.items()))
            is_old = now_ns - oldest.since_ns >= self.max_age_ns
            if not is_old and len(self._units) <= self.max_units and self._bytes <= self.max_bytes:
                break
            closed.append(self._close(key))
        return closed

    def waiting(self) -> list[UnitKey]:
        """Return the units that are due."""
        return list(self._due)

    def next_due_ns(self) -> int | None:
        """Return the time from which ``due`` closes a unit without further spans; None if no unit is open."""
        oldest = next(iter(self._units.values()), None)
        if oldest is None:
            return None
        return oldest.since_ns if self._due else oldest.since_ns + self.max_age_ns

    def _unit(self, key: UnitKey, now_ns: int) -> _OpenUnit | None:
        unit = self._units.get(key)
        if unit is None and key not in self._closed:
            unit = self._units[key] = _OpenUnit(since_ns=now_ns)
        return unit

    def _close(self, key: UnitKey) -> Unit:
        unit = self._units.pop(key)
        self._due.pop(key, None)
        self._bytes -= unit.size_bytes
        keep_latest(self._closed, key, None, self.remembered)
        complete = unit.root_ended and not unit.broken
        return Unit(key=key, spans=tuple(sorted(unit.spans, key=lambda span: span.start_ns)), complete=complete)
