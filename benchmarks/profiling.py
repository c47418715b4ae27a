"""Sampling profiler for spanscore's own CPU time, by thread and by function, while one workload runs.

The weight of a sample is the CPU time of its thread since the previous sample. So waiting has no weight, and the weights of a
thread add up to its CPU time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from benchmarks.variants import Variant
from benchmarks.workloads import Workload

__all__ = ["profile"]

INTERVAL_S = 0.0005
SWITCH_S = 0.0001  # of the GIL; at the default of 5 ms a busy thread is sampled only at places that release the GIL
HOLD_S = 0.1
SHOWN = 20  # rows per thread
OURS = "/spanscore/"
PROFILER = "profiler"

Weights = Counter[tuple[str, str]]


class Sampler:
    """Samples every thread repeatedly, on a thread of its own.

    Attributes:
        spent: thread → CPU time in ns.
        within: (thread, function of ours) → CPU time in it and in its calls, in ns.
        leaves: (thread, ``function of ours → innermost function``) → CPU time in ns.
    """

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.within: Weights = Counter()
        self.leaves: Weights = Counter()
        self._clocks = _clocks()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=PROFILER, daemon=True)

    def __enter__(self) -> Sampler:
        self._before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._before)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            sys.setswitchinterval(HOLD_S)  # a stack that changes during reading is garbage
            with suppress(AttributeError):
                self._look()
            sys.setswitchinterval(SWITCH_S)

    def _look(self) -> None:
        clocks, frames = _clocks(), sys._current_frames()
        for (ident, name), now in clocks.items():
            weight = now - self._clocks.get((ident, name), 0)
            if weight > 0 and ident in frames:
                self._count(name, frames[ident], weight)
        self._clocks = clocks

    def _count(self, thread: str, frame: FrameType, weight: int) -> None:
        self.spent[thread] += weight
        ours = [one for one in _stack(frame) if OURS in one.f_code.co_filename]
        for name in {_name(one) for one in ours}:
            self.within[thread, name] += weight
        if ours:
            leaf = _name(ours[0]) if ours[0] is frame else f"{_name(ours[0])} → {_name(frame)}"
            self.leaves[thread, leaf] += weight


def profile(workload: Workload, variant: Variant, *, invokes: int) -> str:
    """Run a workload under one variant; return its cost, by callback, by thread and by function."""
    callbacks = _time_callbacks(variant.handlers[0])
    for _ in range(20):
        variant.run(workload)
    variant.settle()
    callbacks.clear()
    for _ in range(invokes):
        variant.run(workload)
    variant.settle()
    timed = Counter(callbacks)
    with Sampler() as sampler:
        for _ in range(invokes):
            variant.run(workload)
        variant.settle()
    variant.close()
    per_invoke = 1e-3 / invokes
    return "\n".join(
        [
            f"== {workload.name}: {invokes} invokes, µs per invoke",
            f"-- {sum(timed.values()) * per_invoke:.1f} in callbacks, on the application's threads",
            *(f"{spent * per_invoke:9.1f}  {name}" for name, spent in timed.most_common()),
            "-- CPU by thread (from here on slowed down by the profiler)",
            *(f"{spent * per_invoke:9.1f}  {name}" for name, spent in sampler.spent.most_common()),
            "-- in a function of ours and its calls",
            *_rows(sampler.within, per_invoke),
            "-- by place",
            *_rows(sampler.leaves, per_invoke),
            "",
        ]
    )


def _time_callbacks(handler: BaseCallbackHandler) -> Counter[str]:
    """Wrap every callback of a handler in a clock; return a counter of ns by name, which the calls fill."""
    spent: Counter[str] = Counter()
    for name in [name for name in dir(handler) if name.startswith("on_")]:
        setattr(handler, name, _timed(name, getattr(handler, name), spent))
    return spent


def _timed(name: str, callback: Callable[..., Any], spent: Counter[str]) -> Callable[..., Any]:
    clock = time.perf_counter_ns

    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = clock()
        try:
            return callback(*args, **kwargs)
        finally:
            spent[name] += clock() - begun

    return timed


def _rows(weights: Weights, per_invoke: float) -> list[str]:
    """Return the heaviest rows of our own threads, thread by thread."""
    rows = []
    for name in sorted({thread for thread, _ in weights if thread.startswith("spanscore")}):
        mine = Counter({where: spent for (thread, where), spent in weights.items() if thread == name})
        rows += [f"{spent * per_invoke:9.1f}  {name:16} {where}" for where, spent in mine.most_common(SHOWN)]
    return rows


def _stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _name(frame: FrameType) -> str:
    folder, _, file = frame.f_code.co_filename.rpartition("/")
    return f"{folder.rpartition('/')[2]}/{file}:{frame.f_code.co_qualname}"


def _clocks() -> dict[tuple[int, str], int]:
    """Return the CPU time in ns of every thread but the profiler, by identity and name; pools count as one."""
    return {
        (thread.ident, thread.name.partition("-")[0] if "Pool" in thread.name else thread.name): _cpu_ns(thread.ident)
        for thread in threading.enumerate()
        if thread.ident is not None and thread.name != PROFILER
    }


def _cpu_ns(ident: int) -> int:
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
