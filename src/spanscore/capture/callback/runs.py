"""Runs and roots between their start and their end, shared by the handler and the span thread."""

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

# --- runs -----------------------------------------------------------------------------------------------------------

# A run that gets no span (a prompt, a parser, a lambda) has no Run of its own: its id maps to the nearest recorded
# ancestor, so that a child finds its span's parent in one look-up and the span thread never hears of the step.

CLIENTS: Final = frozenset({semconv.CHAT, semconv.TEXT_COMPLETION, semconv.RETRIEVAL})
"""Operations that ask another process: their spans are of kind client."""


@dataclass(slots=True, eq=False)
class Run:
    """One recorded run.

    Attributes:
        id: of the LangChain run.
        operation: ``gen_ai.operation.name``; None for a step.
        parent: the nearest recorded run above it; None for a root.
        input: snapshot of the input, None when content is not wanted.
        details: metadata and parameters of the start event, by reference: the library builds them anew per run.
        first_ns: when the first chunk of a stream came.
        ended: its end has been told, and is not heard twice. The run is remembered as a parent until its unit closes.
        closed: its span has been closed; an end that comes after that changes nothing.
        span: made on first need, by the span thread (``RunSpans``).
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
        """Take the root of the parent."""
        if self.parent is not None:
            self.root = self.parent.root


@dataclass(slots=True, eq=False)
class Root(Run):
    """The top-most run.

    Attributes:
        key: None while ``ignored``.
        context: the caller's OpenTelemetry context: children start in it.
        carrier: a copy of all the caller's context variables, until the span is made in it.
        sampling: the head sampler's decision, until the span is made by it.
        may: whether any metric could still take the unit; None where the sampler has not said.
        opened_ns: when the span thread heard of it, by its own clock.
        record_content: whether content is snapshotted: it may be scored, or content is exported.
        given: metadata and input of the start event, by reference, with its thread or task, until the end of the run. Another
            start under the same id has others.
        expected: references given by ``spanscore.references``.
        asked: the last human message of the first state that a step was given; None while none was; () if nobody looks for it.
        history: what a store of messages gave to the run; None where none was asked.
        history_step: id of the step that asks it.
        open: id → run of every descendant whose end the span thread has not read; None for a step that has not ended.
        ids: of every descendant, to forget them by.
        told: events of ended descendants that leave with it, as nobody looks at them before; None where each goes its own way.
        told_bytes: of their content, roughly.
        heard: the span thread knows of it.
        ignored: judged, refused or head-sampled away: it and its children are remembered so that no child becomes a root.
        shared: of a root whose spans another scorer makes: the metrics that both have; None = its spans are made here.
        interrupted: a ``GraphInterrupt`` passed through.
        broken: an event of it was dropped.
        failed_inside: a step that gets no span ended in error, handled or not.
        counted_texts: ids of its long texts that the event queue has counted; None without one.
        session: id of the conversation, where ``spanscore.session`` gives one; else metadata may.
        detached: the scorer was shut down meanwhile, and the span has left: what comes of it later is not recorded.
        task: asyncio task whose end ends the root if LangChain reports no end (``langchain_frames.own_task``); None = no task.
    """

    key: UnitKey | None = None
    context: Context | None = None
    carrier: contextvars.Context | None = None
    sampling: Any = None
    may: bool | None = None
    opened_ns: int = 0
    record_content: bool = False
    session: str | None = None
    expected: Mapping[str, Any] | None = None
    asked: Any = ()
    history: Any = None
    history_step: int = 0
    open: dict[int, Run | None] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    told: list[Event] | None = None
    told_bytes: int = 0
    heard: bool = False
    ignored: bool = False
    interrupted: bool = False
    broken: bool = False
    failed_inside: bool = False
    detached: bool = False
    task: ReferenceType[Task[Any]] | None = None
    is_trace_root: bool = False
    trace_state: str = ""
    given: tuple[Any, Any, int] | None = None
    shared: Set[str] | None = None
    counted_texts: set[int] | None = None

    def __post_init__(self) -> None:
        """Be the root of itself."""
        self.root = self


Event = tuple[Run, int, Any, BaseException | None]
"""(run, end in ns or 0 for a root's start, snapshot of the output, error)."""


def each_once(told: list[Event]) -> Iterator[Event]:
    """Take events from a list, oldest first, each once, however many threads take of it."""
    try:
        while True:
            yield told.pop(0)
    except IndexError:
        return


# --- memory ---------------------------------------------------------------------------------------------------------

_REMEMBERED_NS: Final = 5_000_000_000
"""How long the runs of an ended root are remembered: a child that starts late (a task left behind) must not become a root."""
_SWEEP_NS: Final = 100_000_000
"""How much longer the first of them waits for others: forgotten together they cost a third of what they cost one by one."""
_MAX_KEYS: Final = 1_000
"""Recent roots whose ids can be asked for: 0.4 kB each."""


class RunTable:
    """The runs that are open or have just closed. Any thread.

    The span thread refers to this table and not to the handler, which lives as long as the application refers to it or to its
    scorer. The two dictionaries stay the same objects, as the handler has them as attributes of its own.

    Args:
        closed: whether no root is let in from the start.
        why_closed: what is logged when a root comes all the same; empty = nothing.

    Attributes:
        runs: run id → run, or for a step the nearest recorded run above it.
        roots: run id → root, oldest first, of the roots that have not ended.
        spans: makes the spans of the application's threads; None before the first root.
        units: roots that were let in.
        closed: whether no further root is let in.
    """

    def __init__(self, closed: bool = False, why_closed: str = "") -> None:
        self.runs: dict[int, Run] = {}
        self.roots: OrderedDict[int, Root] = OrderedDict()
        self.closed = closed
        self.why_closed = why_closed
        self.units = 0
        self.spans: RunSpans | None = None
        self._recently_closed: deque[tuple[int, Root]] = deque()
        self._keys: OrderedDict[int, UnitKey] = OrderedDict()

    def unit(self, run_id: int) -> UnitKey | None:
        """Return the unit of a run that is remembered, or of a recent root run; None when it is not known (any more)."""
        run = self.runs.get(run_id)
        return self._keys.get(run_id) if run is None else run.root.key

    def root_unit(self, run_id: int) -> UnitKey | None:
        """Return the unit of a recent root run; None when it is not known (any more)."""
        run = self.runs.get(run_id)
        if run is not None and run is run.root and run.id == run_id and run.root.key is not None:
            return run.root.key
        return self._keys.get(run_id)

    def units_of(self, trace_id: int) -> list[UnitKey]:
        """Return the units of a trace whose runs are remembered. O(runs)."""
        keys = dict.fromkeys(run.root.key for run in list(self.runs.values()) if not run.root.ignored)
        return [key for key in keys if key is not None and key.trace_id == trace_id]

    def running(self) -> list[Root]:
        """Return the roots that run and of which the span thread does not know."""
        return [root for root in list(self.roots.values()) if root.told is not None]

    def forget(self, root: Root) -> None:
        """Drop what is left of a root whose unit has closed."""
        if self.roots.get(root.id) is root:  # not its repetition under the same run id
            self.roots.pop(root.id, None)
        if self.spans is not None and not root.ignored:
            self.spans.draw_ahead()  # one is done, another will come: mostly the span thread's work
        root.input = root.history = root.given = None  # its content is not remembered with it
        root.asked = ()
        for run_id in root.ids:  # nor its children's spans: whatever is late becomes a child of the root
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
        """Return how many run ids are remembered: 0 after everything has ended and lingered."""
        self._sweep(time_ns() + _REMEMBERED_NS)
        return len(self.runs)

    def _sweep(self, now_ns: int) -> None:
        """Forget what ended roots left behind."""
        while self._recently_closed and now_ns - self._recently_closed[0][0] >= _REMEMBERED_NS:
            try:
                _, root = self._recently_closed.popleft()
            except IndexError:  # another thread swept
                return
            for run_id in (root.id, *root.ids):  # an application may give one run id to a run and to its repetition
                run = self.runs.get(run_id)
                if run is not None and run.root is root:
                    self.runs.pop(run_id, None)
            root.open.clear()


def thread_or_task() -> int:
    """Return what tells the caller's task, or its thread outside a loop, from others that run now."""
    loop: AbstractEventLoop | None = _get_running_loop()
    return get_ident() if loop is None else id(current_task(loop))


def is_over(task: ReferenceType[Task[Any]]) -> bool:
    """Whether nothing of a task can run any more. Any thread."""
    found = task()
    return found is None or found.done() or found.get_loop().is_closed()
