"""RunMemory: the runs that are open or have just closed, shared by the handler and the span thread.

The span thread holds this and not the handler: a handler lives as long as the application refers to it, or to its scorer.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from time import time_ns
from typing import TYPE_CHECKING, Final

from spanscore.core.span import UnitKey
from spanscore.receivers.callback.runs import Root, Run

if TYPE_CHECKING:
    from spanscore.receivers.callback.spans import RunSpans

__all__ = ["RunMemory"]

_REMEMBERED_NS: Final = 5_000_000_000
"""How long the runs of an ended root are remembered: a child that starts late (a task left behind) must not become a root."""
_SWEEP_NS: Final = 100_000_000
"""How much longer the first of them waits for others: forgotten together they cost a third of what they cost one by one."""
_MAX_KEYS: Final = 1_000
"""Recent roots whose ids can be asked for: 0.4 kB each."""


class RunMemory:
    """Any thread. The two dictionaries stay the same objects, as the handler has them as attributes of its own.

    Attributes:
        runs: run id → run, or for a step the nearest recorded run above it.
        roots: run id → root, oldest first, of the roots that have not ended.
        spans: makes the spans of the application's threads; None before the first root.
        units: roots that were let in.
        closed: whether no further root is let in.
        why_closed: what is logged when a root comes all the same; empty = nothing.
    """

    def __init__(self) -> None:
        self.runs: dict[int, Run] = {}
        self.roots: OrderedDict[int, Root] = OrderedDict()
        self.closed = False
        self.why_closed = ""
        self.reset()

    def reset(self) -> None:
        """Forget every run, and count from zero: in a forked child, where roots open at the fork are never ended."""
        self.runs.clear()
        self.roots.clear()
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
