"""Speed of a spool compared with memory and with a bare log with fsync; and the state after kill -9.

    python -m benchmarks.spool --markdown benchmarks/spool.md             # six minutes; --rounds 5 for a look
    python -m benchmarks.spool --crashes 100                              # ten minutes: 100 seeds, one process and two

Jobs of 6 kB come in groups: the next group is put after all jobs of the last are durable. The variants take turns in random
order, and are compared within a turn, because the speed of a disk varies from second to second. Exits with 1 if a target is
missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

from tests.durable.crashes import Crashes, crashed

from benchmarks.measure import measure
from benchmarks.variants import Variant, spanscore
from benchmarks.verdicts import added
from benchmarks.workloads import workloads
from spanscore.config import Spool
from spanscore.durable.rows import RowKey
from spanscore.durable.spool import SpoolFile
from spanscore.durable.spool_writer import Sync

__all__ = ["main"]

SEED = 23
GROUPS = (1, 8, 64)
JOB = os.urandom(6_000)
TARGET = 0.35
"""Target for the spool: jobs a second as a share of the bare log's, at 64."""
INTRODUCTION = """\
# Speed of a spool compared with a bare log

This page shows how many jobs a second a spool (a file of units that wait for scores) stores, compared with memory and with a
bare log, a file with one `fsync` per group. `python -m benchmarks.spool` writes the page.

Each variant stored jobs of 6 kB in {rounds} rounds, in turn with the others. A cell has the median of jobs a second · the
ratio to the bare log of the same round (median, 95 % interval by bootstrap). Python {python}, {cores} CPUs, a load of
{load:.0f}.
"""
OPENED_S = 2.0
_JOBS = {1: 30, 8: 240, 64: 1_920}
"""Jobs of one turn, by size of the group."""

Keep: TypeAlias = Callable[[int, int], None]
"""Function that makes jobs durable, given their number and the size of a group."""


class Measured(NamedTuple):
    """The result of one variant and group: jobs a second, and the ratio to the bare log of the same turn with its interval."""

    per_s: float
    ratio: float
    low: float
    high: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--crashes", type=int, default=0, metavar="SEEDS")
    arguments = parser.parse_args()
    if arguments.crashes:
        sys.exit(0 if _crash(arguments.crashes) else 1)
    with tempfile.TemporaryDirectory() as folder:
        measured = {group: _measured(Path(folder), group, arguments.rounds) for group in GROUPS}
        page = "\n".join(
            [
                *_page(measured, _put_us(Path(folder)), arguments.rounds),
                *_opening(Path(folder)),
                *_requests(arguments.rounds),
            ]
        )
    print(page)
    if arguments.markdown:
        arguments.markdown.write_text(page + "\n")
    sys.exit(0 if measured[64]["spool"].ratio >= TARGET else 1)


def _measured(folder: Path, group: int, rounds: int) -> dict[str, Measured]:
    rng = random.Random(SEED)
    per_s: dict[str, list[float]] = {}
    with _variants(folder) as variants:
        for _ in range(rounds):
            for name in rng.sample(sorted(variants), len(variants)):
                began = time.perf_counter()
                variants[name](_JOBS[group], group)
                per_s.setdefault(name, []).append(_JOBS[group] / (time.perf_counter() - began))
    return {name: _compared(seen, per_s["bare log"], rng) for name, seen in per_s.items()}


def _compared(seen: list[float], bare: list[float], rng: random.Random) -> Measured:
    ratios = [one / other for one, other in zip(seen, bare, strict=True)]
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2_000))
    return Measured(statistics.median(seen), statistics.median(ratios), medians[50], medians[-51])


@contextmanager
def _variants(folder: Path) -> Iterator[dict[str, Keep]]:
    with ExitStack() as stack:
        made: dict[str, AbstractContextManager[Keep]] = {
            "bare log": _log(folder / "a.log"),
            "bare log again (A/A)": _log(folder / "b.log"),
            "in memory": _memory(),
            "spool": _spool(folder / "full.db", "full"),
            "spool, sync: normal": _spool(folder / "normal.db", "normal"),
            "spool, put to done": _spool(folder / "whole.db", "full", whole=True),
        }
        yield {name: stack.enter_context(variant) for name, variant in made.items()}


@contextmanager
def _log(path: Path) -> Iterator[Keep]:
    """Append jobs to a file, each group with one ``fsync``."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def keep(jobs: int, group: int) -> None:
        for _ in range(jobs // group):
            for _ in range(group):
                os.write(file, JOB)
            os.fsync(file)

    yield keep
    os.close(file)


@contextmanager
def _memory() -> Iterator[Keep]:
    """Give jobs to a thread that answers for them."""
    queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def answer() -> None:
        while (callback := queue.get()) is not None:
            callback()

    def keep(jobs: int, group: int) -> None:
        for _ in range(jobs // group):
            _await_all(group, lambda _, result: queue.put(result))

    threading.Thread(target=answer, daemon=True).start()
    yield keep
    queue.put(None)


@contextmanager
def _spool(path: Path, sync: Sync, *, whole: bool = False, max_bytes: int = 10**9) -> Iterator[Keep]:
    spool = SpoolFile(path, sync=sync, max_bytes=max_bytes)
    rng = random.Random(SEED)

    def burst(group: int) -> None:
        keys = [RowKey(rng.getrandbits(128), rng.getrandbits(64), 0) for _ in range(group)]
        _await_all(group, lambda n, callback: spool.put(keys[n], JOB, lambda *_: callback(), own=True))
        if whole:
            _await_all(1, lambda _, callback: spool.begin(keys, callback))
            _await_all(group, lambda n, callback: spool.keep_scores(keys[n], b"{}" * 200, lambda _: callback()))
            spool.done(keys)
            _await_all(1, lambda _, callback: spool.begin((), callback))

    def keep(jobs: int, group: int) -> None:
        for _ in range(jobs // group):
            burst(group)

    yield keep
    if spool.state().fault is not None:
        sys.exit(spool.state().fault)
    spool.close(30)


def _await_all(number: int, ask: Callable[[int, Callable[[], None]], None]) -> None:
    left = [number]
    done = threading.Event()

    def on_result() -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    for one in range(number):
        ask(one, on_result)
    done.wait()


def _put_us(folder: Path) -> float:
    """Return the cost of one ``put`` for its caller, in µs: the median of bursts of 64."""
    spool, each = SpoolFile(folder / "put.db"), []
    for burst in range(100):
        began = time.perf_counter()
        for number in range(64):
            spool.put(RowKey(burst, number, 0), JOB, lambda *_: None, own=True)
        each.append((time.perf_counter() - began) / 64 * 1e6)
        time.sleep(0.05)
    spool.close(30)
    return statistics.median(each)


def _page(measured: dict[int, dict[str, Measured]], put_us: float, rounds: int) -> Iterator[str]:
    seen = measured[64]["spool"].ratio
    said = "met" if seen >= TARGET else "missed"
    yield INTRODUCTION.format(
        rounds=rounds, python=platform.python_version(), cores=os.cpu_count(), load=os.getloadavg()[0]
    )
    yield "| | " + " | ".join(f"{group} at a time" for group in GROUPS) + " |"
    yield "|---|" + "---|" * len(GROUPS)
    for name in measured[1]:
        yield f"| {name} | " + " | ".join(_cell(measured[group][name]) for group in GROUPS) + " |"
    yield f"\nThe target is at least {TARGET} × the bare log, with the spool at 64: **{said}** ({seen:.2f})."
    yield f"One `put` costs its caller {put_us:.1f} µs (median of bursts of 64), because another thread writes to the disk."
    yield "\nA group of fewer than 64 jobs waits 10 ms for further jobs before it is written. This wait is most of the time in"
    yield "the first columns. The jobs of a burst come 64 at a time. *put to done* is a job's whole life: kept, in work, with"
    yield "its scores, deleted and wiped. Each group then needs four transactions; the other variants need one."


def _opening(folder: Path) -> Iterator[str]:
    path = folder / "large.db"
    with _spool(path, "normal", max_bytes=10**10) as keep:
        keep(160_000, 64)
    warm = _opened_in_s(path)
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    cold = _opened_in_s(path)
    said = "met" if max(warm, cold) < OPENED_S else "missed"
    yield f"\nA spool of {path.stat().st_size / 1e9:.1f} GB opened in {warm:.2f} s, and in {cold:.2f} s when no part of it was"
    yield f"in memory. The target is less than {OPENED_S:.0f} s: **{said}**."


def _opened_in_s(path: Path) -> float:
    began = time.perf_counter()
    SpoolFile(path)
    return time.perf_counter() - began


def _cell(seen: Measured) -> str:
    return f"{seen.per_s:,.0f} · {seen.ratio:.2f} ({seen.low:.2f}–{seen.high:.2f})"


def _requests(rounds: int) -> Iterator[str]:
    """Measure a chain with and without a spool, 5 % sampled."""
    logging.disable(logging.ERROR)
    (chain,) = (one for one in workloads(asyncio.new_event_loop()) if one.name == "chain")
    with tempfile.TemporaryDirectory() as folder:
        variants = [Variant("none"), spanscore(name="in memory"), spanscore(name="in memory again (A/A)")]
        variants.append(spanscore(name="with a spool", spool=Spool(path=Path(folder) / "spool.db")))
        try:
            table = added(measure(chain, variants, scale=1.0, rounds=rounds, seed=SEED))
        finally:
            for variant in variants:
                variant.close()
    yield "\nThe last table shows the time that spanscore adds to a request: a chain, 5 % of the runs sampled, as in"
    yield "`benchmarks/request_path.py`.\n"
    yield "| units wait | p50 µs | mean µs |"
    yield "|---|---|---|"
    for name, row in list(table.items())[1:]:
        yield f"| {name} | {row.p50:.1f} | {row.mean:.1f} ± {row.mean_error:.1f} |"


def _crash(seeds: int) -> bool:
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for processes in (1, 2):
            seen = [crashed(Path(folder), seed=1_000 * processes + seed, processes=processes) for seed in range(seeds)]
            whole = Crashes(*(sum(getattr(one, name) for one in seen) for name in Crashes.__slots__))
            print(f"{processes} process{'es' * (processes > 1)}, {seeds} seeds: {whole}", flush=True)
            good &= not whole.lost and not whole.differing
    return good


if __name__ == "__main__":
    main()
