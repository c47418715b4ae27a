"""Cost of a handler, measured in many processes, because two processes of equal code may differ more than two versions.

    python -m benchmarks.processes --markdown benchmarks/processes.md     # half an hour; --rounds 1 --only chain for a look
    python -m benchmarks.processes --before EARLIER/src                  # compared with an earlier spanscore

Each contestant is started several times in a separate process, in random order. A process runs one workload with and without
one handler, in turn (`benchmarks.measure`), and prints the cost that the handler adds. So random properties of a process (its
memory, its hashes) affect both sides of the difference. The variation between processes is that of two contestants of the same
code, A/A. A target has no result if the A/A difference of its ratio is larger than `LARGEST_A_A`. Ratios are to OpenLLMetry's
median. Exits with 1 unless each target is met.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import spanscore as library
from benchmarks.measure import measure
from benchmarks.variants import Variant, no_op, openllmetry, spanscore
from benchmarks.verdicts import added
from benchmarks.workloads import workloads

__all__ = ["main"]

SEED = 25
BLOCKS = 4
"""Blocks of each side in one process; and as many pairs as half a workload's length."""
SCALE = 0.5
OURS, AGAIN, BEFORE, NO_OP, YARDSTICK = "spanscore", "spanscore again (A/A)", "spanscore before", "no-op", "OpenLLMetry"
CONTESTANTS = {OURS: spanscore, AGAIN: spanscore, BEFORE: spanscore, NO_OP: no_op, YARDSTICK: openllmetry}
TARGETS = {"p50": 0.10, "cpu": 0.20}
_NAMES = {"p50": "p50", "cpu": "CPU"}
LARGEST_A_A = {"p50": 0.02, "cpu": 0.03}
"""Largest difference of the medians of equal code, as a ratio to OpenLLMetry's."""
INTRODUCTION = """\
# Time that a callback handler adds to a request

This page shows the time that spanscore's callback adds to an invoke of an application, compared with OpenLLMetry's
callback. The command that writes the page is `python -m benchmarks.processes --markdown benchmarks/processes.md`.

**Result:** {result}

Each handler ran in {rounds} separate processes for each [workload](README.md#the-request-path), in random order. A judge
that answers at once scores 5 % of the units. A process measures the time that the handler adds to an invoke, compared with
the same application without a handler: its median (p50), its mean, and the CPU time of all threads. The table has the medians
of the processes; a negative figure is noise. A ratio compares this time with OpenLLMetry's, with the standard error by
processes (bootstrap). *A/A* is the same code again, *before* an earlier version, *no-op* a handler that does nothing. The
machine has {cores} cores, and its load was {load:.1f}.
"""
TARGETS_TEXT = """
The targets are ratios to OpenLLMetry. The last column is the difference of spanscore and its A/A. A target has no result if
this difference is above 0.02 (p50) or 0.03 (CPU).
"""


class OfHandler(NamedTuple):
    """The cost that a handler adds to an invoke in one process, µs: median of pairs, mean of blocks, CPU of all threads."""

    p50: float
    mean: float
    cpu: float


def main() -> None:
    """Run, print, write; exit with 1 unless each target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="number of processes of each contestant and workload")
    parser.add_argument("--only", action="append", default=[], metavar="WORKLOAD", help="may be given several times")
    parser.add_argument("--before", type=Path, metavar="SRC", help="src folder of an earlier checkout to compare with")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("CONTESTANT", "WORKLOAD"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(_one(*arguments.one)))
        return
    names = arguments.only or [work.name for work in workloads(asyncio.new_event_loop())]
    seen = {name: _measured(name, arguments.rounds, arguments.before) for name in names}
    page = "\n".join(_page(seen, arguments.rounds))
    print(page)
    if arguments.markdown:
        arguments.markdown.write_text(page + "\n")
    sys.exit(0 if all(_result(costs, what) == "met" for costs in seen.values() for what in TARGETS) else 1)


def _measured(workload: str, rounds: int, before: Path | None) -> dict[str, list[OfHandler]]:
    rng, costs = random.Random(SEED), dict[str, list[OfHandler]]()
    names = [name for name in CONTESTANTS if before or name != BEFORE]
    for turn in range(rounds):
        for name in rng.sample(names, len(names)):
            source = before if before and name == BEFORE else Path(library.__file__).parents[1]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.processes", "--one", name, workload],
                env={**os.environ, "PYTHONPATH": str(source)},
                cwd=source.parent,  # each tree with its own benchmarks, as arguments and names may differ
                check=True,
                stdout=subprocess.PIPE,
            )
            costs.setdefault(name, []).append(OfHandler(**json.loads(done.stdout)))
        print(f"{workload}: {turn + 1} of {rounds}", file=sys.stderr)
    return costs


def _one(name: str, workload: str) -> dict[str, Any]:
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    [work] = [one for one in workloads(asyncio.new_event_loop()) if one.name == workload]
    contestant = CONTESTANTS[name]()
    raw = measure(work, [Variant("none"), contestant], scale=SCALE, rounds=BLOCKS, seed=os.getpid())
    contestant.close()
    cost = added(raw)[contestant.name]
    return OfHandler(cost.p50, cost.mean, cost.cpu)._asdict()


def _ratio(costs: Mapping[str, list[OfHandler]], name: str, what: str) -> float:
    return _median(costs[name], what) / _median(costs[YARDSTICK], what)


def _median(costs: Sequence[OfHandler], what: str) -> float:
    return float(statistics.median(getattr(one, what) for one in costs))


def _a_a(costs: Mapping[str, list[OfHandler]], what: str) -> float:
    """Return the difference of the ratios of equal code."""
    return abs(_ratio(costs, OURS, what) - _ratio(costs, AGAIN, what))


def _result(costs: Mapping[str, list[OfHandler]], what: str) -> str:
    """Return whether a target is ``met`` or ``missed``; ``no result`` if equal code differs too much."""
    if _a_a(costs, what) > LARGEST_A_A[what]:
        return "no result"
    return "met" if _ratio(costs, OURS, what) <= TARGETS[what] else "missed"


def _summary(seen: Mapping[str, Mapping[str, list[OfHandler]]]) -> str:
    """Return the range of the added time, both runs of the same code included, and the number of targets that are met."""
    ours = [(costs, name) for costs in seen.values() for name in (OURS, AGAIN)]
    times = [_median(costs[name], "p50") for costs, name in ours]
    ratios = [_ratio(costs, name, "p50") for costs, name in ours]
    met = {what: sum(_result(costs, what) == "met" for costs in seen.values()) for what in TARGETS}
    return (
        f"spanscore adds {min(times):.0f} to {max(times):.0f} µs to the median invoke, which is {min(ratios):.3f} to "
        f"{max(ratios):.3f} of the time that\nOpenLLMetry adds. The target for p50 is met in {met['p50']} of {len(seen)} "
        f"workloads, the target for CPU in {met['cpu']}."
    )


def _spread(costs: Mapping[str, list[OfHandler]], name: str, what: str) -> str:
    """Return a ratio with its standard error, from the processes of both (bootstrap); 1 for OpenLLMetry itself."""
    if name == YARDSTICK:
        return "1"
    rng = random.Random(SEED)
    drawn = [{of: rng.choices(costs[of], k=len(costs[of])) for of in (name, YARDSTICK)} for _ in range(1_000)]
    return f"{_ratio(costs, name, what):.3f} ± {statistics.stdev(_ratio(one, name, what) for one in drawn):.3f}"


def _page(seen: Mapping[str, Mapping[str, list[OfHandler]]], rounds: int) -> Iterator[str]:
    yield INTRODUCTION.format(result=_summary(seen), rounds=rounds, cores=os.cpu_count(), load=os.getloadavg()[2])
    yield "| workload | | p50, µs | ÷ OpenLLMetry | mean, µs | ÷ OpenLLMetry | CPU, µs | ÷ OpenLLMetry |"
    yield "|---|---|---|---|---|---|---|---|"
    for workload, costs in seen.items():
        for name in (name for name in CONTESTANTS if name in costs):
            cells = [f"{_median(costs[name], what):,.0f} | {_spread(costs, name, what)}" for what in OfHandler._fields]
            yield f"| {workload} | {name} | {' | '.join(cells)} |"
    yield TARGETS_TEXT
    columns = " | ".join(f"{_NAMES[what]} at most {most}" for what, most in TARGETS.items())
    yield f"| workload | {columns} | difference of A/A: p50, CPU |"
    yield "|---|---|---|---|"
    for workload, costs in seen.items():
        values = [f"{_ratio(costs, OURS, what):.3f}, {_result(costs, what)}" for what in TARGETS]
        differences = ", ".join(f"{_a_a(costs, what):.3f}" for what in TARGETS)
        yield f"| {workload} | {' | '.join(values)} | {differences} |"


if __name__ == "__main__":
    main()
