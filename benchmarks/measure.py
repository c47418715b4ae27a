"""Measures variants on one workload within one run, in two ways, as nanoseconds.

*Interleaved*: one invoke of every variant per iteration, in random order; the difference to the bare application of the
same iteration is paired. Its median is the cost of a typical request. It favours a design that defers work, which then delays a
variant that runs 250 ms later. So there are also *blocks*: each variant alone for a while, blocks interleaved. There the mean
includes the variant's deferred work, and the process's CPU time includes the work of every thread.
"""

from __future__ import annotations

import contextvars
import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.variants import Variant
from benchmarks.workloads import Workload

__all__ = ["Blocks", "Raw", "measure"]

COLLECT_EVERY = 50  # iterations between two collections, which are not timed
LEAD_IN_NS = 300_000_000  # before the clock of a block starts: deferred work (ours: 250 ms) is then as old as it gets


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one variant.

    Attributes:
        each: wall time of every invoke, in ns.
        wall: mean wall time per invoke, in ns.
        cpu: CPU time of the whole process per invoke, in ns, until all deferred work is done.
    """

    each: list[int]
    wall: float
    cpu: float


@dataclass(slots=True)
class Blocks:
    """Blocks of one variant in order; each list joins the values of all blocks."""

    each: list[int] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Append one block."""
        self.each.extend(block.each)
        self.wall.append(block.wall)
        self.cpu.append(block.cpu)


@dataclass(slots=True)
class Raw:
    """The measurements of one variant.

    Attributes:
        interleaved: wall time of each invoke, in ns, in the order of the iterations.
        blocks: blocks of the variant.
        before: the application alone, one block right before each of the variant's.
        after: the application alone, one block right after: drift of the machine affects both sides of the variant alike.
    """

    interleaved: list[int] = field(default_factory=list)
    blocks: Blocks = field(default_factory=Blocks)
    before: Blocks = field(default_factory=Blocks)
    after: Blocks = field(default_factory=Blocks)


def measure(workload: Workload, variants: Sequence[Variant], *, scale: float, rounds: int, seed: int) -> dict[str, Raw]:
    """Run one workload under every variant; the first is the application alone.

    Args:
        workload: the application.
        variants: the variants.
        scale: share of the workload's full length, (0, 1].
        rounds: blocks of each variant.
        seed: seed of the random order.
    """
    rng = random.Random(seed)
    raw = {variant.name: Raw() for variant in variants}
    _warm_up(workload, variants, max(5, int(40 * scale)))
    _interleave(workload, variants, raw, int(workload.iterations * scale), rng)
    order = [variant for _ in range(rounds) for variant in rng.sample(variants, len(variants))]
    _blocks(workload, variants[0], order, raw, max(10, int(workload.block * scale)))
    return raw


def _warm_up(workload: Workload, variants: Sequence[Variant], times: int) -> None:
    for variant in variants:
        for _ in range(times):
            _timed(workload, variant)
        variant.settle()


def _interleave(
    workload: Workload, variants: Sequence[Variant], raw: dict[str, Raw], iterations: int, rng: random.Random
) -> None:
    """Time one invoke of each variant per iteration; the collector runs between iterations, untimed."""
    gc.disable()
    try:
        for iteration in range(iterations):
            if iteration % COLLECT_EVERY == 0:
                gc.collect()
            for variant in rng.sample(variants, len(variants)):
                raw[variant.name].interleaved.append(_timed(workload, variant))
    finally:
        gc.enable()
    for variant in variants:
        variant.settle()


def _blocks(workload: Workload, bare: Variant, order: Sequence[Variant], raw: dict[str, Raw], invokes: int) -> None:
    """Run a block of each variant, and one of the application alone between any two."""
    before = _block(workload, bare, invokes)
    for variant in order:
        one = raw[variant.name]
        one.before.add(before)
        one.blocks.add(_block(workload, variant, invokes))
        before = _block(workload, bare, invokes)
        one.after.add(before)


def _block(workload: Workload, variant: Variant, invokes: int) -> Block:
    """Run one variant alone, with the collector on, as in an application."""
    gc.collect()
    lead_in, cpu = 0, time.process_time_ns()
    begun = time.perf_counter_ns()
    while time.perf_counter_ns() - begun < LEAD_IN_NS:
        _timed(workload, variant)
        lead_in += 1
    wall = time.perf_counter_ns()
    each = [_timed(workload, variant) for _ in range(invokes)]
    wall = time.perf_counter_ns() - wall
    variant.settle()
    return Block(each, wall / invokes, (time.process_time_ns() - cpu) / (lead_in + invokes))


def _timed(workload: Workload, variant: Variant) -> int:
    """Return the wall time of one invoke in ns, in its own context, because some libraries leave theirs attached."""
    context = contextvars.copy_context()
    start = time.perf_counter_ns()
    context.run(variant.run, workload)
    return time.perf_counter_ns() - start
