"""Profiling: where spanscore's own time goes, by thread and by function, sampled while one workload runs."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from types import FrameType

from benchmarks.variants import Variant
from benchmarks.workloads import Workload

__all__ = ["profile"]

INTERVAL_S = 0.001
SHOWN = 18
OURS = "/spanscore/"


def profile(workload: Workload, variant: Variant, *, invokes: int) -> str:
    """Run a workload under one variant; return each thread's CPU per invoke and the functions it was seen in."""
    for _ in range(20):
        variant.run(workload)
    variant.settle()
    seen: Counter[tuple[str, str]] = Counter()
    stop = threading.Event()
    sampler = threading.Thread(target=_sample, args=(stop, seen), name="profiler", daemon=True)
    before = _cpu_by_thread()
    sampler.start()
    for _ in range(invokes):
        variant.run(workload)
    variant.settle()
    after = _cpu_by_thread()
    stop.set()
    sampler.join()
    variant.close()
    cpu = {name: (spent - before.get(name, 0.0)) / invokes * 1e6 for name, spent in after.items()}
    return "\n".join([f"== {workload.name}: {invokes} invokes", *_threads(cpu), *_functions(seen), ""])


def _sample(stop: threading.Event, seen: Counter[tuple[str, str]]) -> None:
    """Count, per thread, the innermost frame, and the innermost frame of ours that called it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)  # else a busy thread is only ever seen where it lets go of the GIL
    try:
        while not stop.wait(INTERVAL_S):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                where = _where(frame)
                if where is not None and names.get(ident) != "profiler":
                    seen[(names.get(ident, "?"), where)] += 1
    finally:
        sys.setswitchinterval(before)


def _where(frame: FrameType) -> str | None:
    """Return ``ours → innermost``; None when nothing of ours is on the stack."""
    innermost, ours = frame, frame
    while OURS not in ours.f_code.co_filename:
        if ours.f_back is None:
            return None
        ours = ours.f_back
    mine = _name(ours)
    return mine if ours is innermost else f"{mine} → {_name(innermost)}"


def _name(frame: FrameType) -> str:
    folder, _, file = frame.f_code.co_filename.rpartition("/")
    return f"{folder.rpartition('/')[2]}/{file}:{frame.f_code.co_qualname}"


def _cpu_by_thread() -> dict[str, float]:
    """Return CPU seconds so far, by thread name; the profiler's own left out."""
    spent: Counter[str] = Counter()
    for thread in threading.enumerate():
        if thread.ident is not None and thread.name != "profiler":
            spent[thread.name] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))  # type: ignore[attr-defined,unused-ignore]
    return dict(spent)


def _threads(cpu: dict[str, float]) -> list[str]:
    return [f"{us:9.0f} µs CPU per invoke   {name}" for name, us in sorted(cpu.items(), key=lambda item: -item[1])]


def _functions(seen: Counter[tuple[str, str]]) -> list[str]:
    total = sum(seen.values()) or 1
    return [f"{100 * count / total:6.1f} %   {thread:24} {where}" for (thread, where), count in seen.most_common(SHOWN)]
