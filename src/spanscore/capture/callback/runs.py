"""The runs between their start and their end, with the table in which the handler and the span thread find them."""

from __future__ import annotations

import contextvars
from asyncio import AbstractEventLoop, Task, _get_running_loop, current_task
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from threading import get_ident
from time import time_ns
from typing import TYPE_CHECKING, Any, Final
from weakref import ReferenceType

from opentelemetry.context import Context
from opentelemetry.trace import Span

from spanscore import semconv
from spanscore.core.span import UnitKey

if TYPE_CHECKING:
    from spanscore.capture.callback.spans import RunSpans

# A *step* (a prompt, a parser, a lambda) has no span and no Run. Its id maps to the Run of the nearest recorded ancestor, so
# that a child finds its parent in one look-up.

CLIENTS: Final = frozenset({semconv.CHAT, semconv.TEXT_COMPLETION, semconv.RETRIEVAL})
"""Operations that call another process. The spans of these operations have the kind client."""


@dataclass(slots=True, eq=False)
class Run:
    """One recorded run.

    Attributes:
        id: id of the LangChain run; for a root whose run id another running root has, an internal id.
        operation: ``gen_ai.operation.name``; None for a step with a span (``steps`` of the handler).
        parent: the nearest recorded run above it; None for a root.
        root: the root above it, or itself.
        input: snapshot of the input; None if content is not needed.
        details: metadata of the start event; for a model (metadata, parameters), for a tool the call's id. Stored by reference,
            because LangChain creates them anew per run.
        first_ns: time of a stream's first chunk; 0 = no chunk so far.
        span_id: id that was drawn for its span; 0 = none was drawn.
        tool_context: ``ToolContext`` in which a tool's span is the current one; None = none.
        span: span of the run, created by the span thread on first need (``RunSpans``).
        ended: whether the handler got its end; a second end is ignored. The run is kept as a parent until its unit closes.
        closed: whether the span thread has handed on its span; a later end changes nothing.
    """

    id: int
    operation: str | None
    name: str
    start_ns: int
    parent: Run | None = None
    root: Root = field(init=False)
    input: Any = None
    details: Any = None
    first_ns: int = 0
    span_id: int = 0
    tool_context: Any = None
    span: Span | None = None
    ended: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.root = self.parent.root


@dataclass(slots=True, eq=False)
class Root(Run):
    """The topmost run.

    Attributes:
        key: trace id and span id of the root; None while ``ignored``.
        context: the caller's OpenTelemetry context, in which children start.
        carrier: copy of all the caller's context variables, until the span is created in it.
        sampling: the head sampler's decision, until the span is created with it.
        may_be_scored: whether any metric may sample the unit; None = not decided so far.
        opened_ns: time at which the span thread read the root, by its own clock.
        record_content: whether snapshots of content are made: the unit may be scored, or content is exported.
        start_event: metadata and input of the start event, by reference, and its thread or task; None after the run's end. They
            distinguish another start event with the same id.
        expected: references from ``spanscore.references``.
        human_message: last human message of the first state that a step got; None before the first state; () = not searched.
        history: messages that a message store returned to the run; None = no store was read.
        history_step: id of the step that reads the store.
        open: id of every descendant whose end the span thread has not read → its run; None for a step.
        ids: ids of all descendants, by which they are removed from the table.
        kept_events: end events of descendants, which are sent with the root's end if no span processor observes spans earlier;
            None = each event is sent by itself.
        kept_bytes: approximate size of the content of ``kept_events``.
        is_read: whether the span thread has read the root.
        ignored: whether the root is not recorded, because it is a judge's run, was rejected, or is not head-sampled. It stays
            in the table, so that its children do not become roots.
        shared: metrics that this scorer and the scorer that creates the root's spans both have; None = this scorer creates the
            spans.
        interrupted: whether a ``GraphInterrupt`` ended one of its runs.
        incomplete: whether one of its events was dropped, or the root was abandoned.
        failed_inside: whether a step without a span ended in an error, handled or not.
        counted_texts: ids of its long texts that the event queue has counted; None = no long text.
        session: id of the conversation from ``spanscore.session``; None = metadata may have one.
        detached: whether the scorer was shut down and the span exported; later events are not recorded.
        task: asyncio task whose end ends the root if LangChain reports no end (``langchain_frames.own_task``); None = no task.
        is_trace_root: whether the root is the first span of its trace.
        trace_state: the trace's state as a header.
    """

    key: UnitKey | None = None
    context: Context | None = None
    carrier: contextvars.Context | None = None
    sampling: Any = None
    may_be_scored: bool | None = None
    opened_ns: int = 0
    record_content: bool = False
    session: str | None = None
    expected: Mapping[str, Any] | None = None
    human_message: Any = ()
    history: Any = None
    history_step: int = 0
    open: dict[int, Run | None] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    kept_events: list[Event] | None = None
    kept_bytes: int = 0
    is_read: bool = False
    ignored: bool = False
    interrupted: bool = False
    incomplete: bool = False
    failed_inside: bool = False
    detached: bool = False
    task: ReferenceType[Task[Any]] | None = None
    is_trace_root: bool = False
    trace_state: str = ""
    start_event: tuple[Any, Any, int] | None = None
    shared: Set[str] | None = None
    counted_texts: set[int] | None = None

    def __post_init__(self) -> None:
        self.root = self


Event = tuple[Run, int, Any, BaseException | None]
"""Run, end in nanoseconds (0 = the start of a root), snapshot of the output, error."""


def take_each(events: list[Event]) -> Iterator[Event]:
    """Take events from a list, oldest first. Each event is taken once, even by concurrent threads."""
    try:
        while True:
            yield events.pop(0)
    except IndexError:
        return


_REMEMBERED_NS: Final = 5_000_000_000
"""Time for which the runs of an ended root are remembered. A late child (a task left behind) must not become a root."""
_SWEEP_NS: Final = 100_000_000
"""Further time after which closed roots are removed together, which costs a third of removing each by itself."""
_MAX_KEYS: Final = 1_000
"""Number of recent roots with a trace id that can be looked up: 0.4 kB each."""


@dataclass(eq=False, repr=False)
class RunTable:
    """The open and recently closed runs. Thread-safe.

    The span thread refers to this table, not to the handler, so that the handler lives only as long as the application refers
    to it or its scorer. The two dictionaries are never replaced, because the handler has them as attributes, too.

    Attributes:
        runs: run id → run; for a step, the nearest recorded run above it.
        roots: run id → root that has not ended, oldest first.
        spans: creates the spans of the application's threads; None before the first root.
        units: number of accepted roots.
        closed: whether no further root is accepted.
        why_closed: warning that is logged when a further root comes; empty = no warning.
    """

    closed: bool = False
    why_closed: str = ""

    def __post_init__(self) -> None:
        self.runs: dict[int, Run] = {}
        self.roots: OrderedDict[int, Root] = OrderedDict()
        self.units = 0
        self.spans: RunSpans | None = None
        self._recently_closed: deque[tuple[int, Root]] = deque()
        self._keys: OrderedDict[int, UnitKey] = OrderedDict()

    def unit_of_run(self, run_id: int) -> UnitKey | None:
        """Return the unit of a remembered run or of a recent root run; None if it is unknown or forgotten."""
        run = self.runs.get(run_id)
        return self._keys.get(run_id) if run is None else run.root.key

    def unit_of_root(self, run_id: int) -> UnitKey | None:
        """Return the unit of a recent root run; None if it is unknown or forgotten."""
        run = self.runs.get(run_id)
        if run is not None and run is run.root and run.id == run_id and run.root.key is not None:
            return run.root.key
        return self._keys.get(run_id)

    def units_of(self, trace_id: int) -> list[UnitKey]:
        """Return the units of a trace that have remembered runs. O(runs)."""
        keys = dict.fromkeys(run.root.key for run in list(self.runs.values()) if not run.root.ignored)
        return [key for key in keys if key is not None and key.trace_id == trace_id]

    def unread_roots(self) -> list[Root]:
        """Return the roots that have not ended, and that the span thread has not read."""
        return [root for root in list(self.roots.values()) if root.kept_events is not None]

    def forget(self, root: Root) -> None:
        """Remove a root and its content after its unit was closed. Its ids are kept for 5 s: late runs become its children."""
        if self.roots.get(root.id) is root:  # false if another root has the same run id
            self.roots.pop(root.id, None)
        if self.spans is not None and not root.ignored and root.shared is None:
            self.spans.draw_ahead()  # for the next root; mostly on the span thread
        root.input = root.history = root.start_event = None
        root.human_message = ()
        for run_id in root.ids:
            if (run := self.runs.get(run_id)) is None or run.root is root:
                self.runs[run_id] = root
        if root.key is not None:
            self._keys[root.id] = root.key
            if len(self._keys) > _MAX_KEYS:
                self._keys.popitem(last=False)
        now_ns = time_ns()
        self._recently_closed.append((now_ns, root))
        if now_ns - self._recently_closed[0][0] >= _REMEMBERED_NS + _SWEEP_NS:
            self._sweep(now_ns)

    def remembered(self) -> int:
        """Return the number of runs in the table that have not ended. Removes all other runs; for tests of leaks."""
        self._sweep(time_ns() + _REMEMBERED_NS)
        return len(self.runs)

    def _sweep(self, now_ns: int) -> None:
        """Remove the runs of roots that were closed at least 5 s before ``now_ns``."""
        while self._recently_closed and now_ns - self._recently_closed[0][0] >= _REMEMBERED_NS:
            try:
                _, root = self._recently_closed.popleft()
            except IndexError:  # another thread was faster
                return
            for run_id in (root.id, *root.ids):  # an application may give one run id to a run and to its repetition
                run = self.runs.get(run_id)
                if run is not None and run.root is root:
                    self.runs.pop(run_id, None)
            root.open.clear()


def thread_or_task() -> int:
    """Return an id that is unique among running tasks and threads: of the caller's task, or of the thread outside a loop."""
    loop: AbstractEventLoop | None = _get_running_loop()
    return get_ident() if loop is None else id(current_task(loop))


def has_ended(task: ReferenceType[Task[Any]]) -> bool:
    """Return whether a task can never run again. Thread-safe."""
    found = task()
    return found is None or found.done() or found.get_loop().is_closed()
