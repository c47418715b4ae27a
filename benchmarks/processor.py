"""Cost of ScoringSpanProcessor for an application that uses OpenInference, 5 % sampled, in one interleaved run.

python -m benchmarks.processor [--quick] [--only chain --only rag] [--every]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import warnings
from typing import Any

from benchmarks.measure import Raw, measure
from benchmarks.request_path import machine
from benchmarks.variants import SAMPLE_RATE, Variant, openinference, scored_openinference
from benchmarks.verdicts import added, share_added
from benchmarks.workloads import Workload, workloads

WORKLOADS = ("chain", "rag", "rag_big", "agent")
MOST = 0.1
"""Highest ratio to the cost that OpenInference itself adds, in the mean."""
SAMPLED, EVERY = f"beside it, {SAMPLE_RATE:.0%}", "beside it, every unit"
ALONE = "OpenInference"
COLUMNS = ("p50", "block_p50", "mean", "cpu")


def main() -> int:
    """Run and print; return 1 if the target is missed."""
    arguments = _arguments()
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
    warnings.filterwarnings("ignore")  # OpenInference causes one per span; printing it would count as its time
    logging.disable(logging.ERROR)
    chosen = [one for one in workloads(asyncio.new_event_loop()) if one.name in (arguments.only or WORKLOADS)]
    print(machine(), end="\n\n")
    print(f"{'added µs per invoke':32}" + "".join(f"{column:>12}" for column in COLUMNS) + "     mean ±")
    met = [_print_result(workload, _one(workload, arguments)) for workload in chosen]
    return 0 if all(met) else 1


def _one(workload: Workload, arguments: Any) -> dict[str, Raw]:
    contestants = [
        Variant("none"),
        Variant("application again (A/A)"),
        openinference(),
        scored_openinference(name=SAMPLED),
        *([scored_openinference(name=EVERY, rate=1.0)] if arguments.every else []),
    ]
    try:
        return measure(workload, contestants, scale=arguments.scale, rounds=arguments.rounds, seed=1)
    finally:
        for variant in contestants:
            variant.close()


def _print_result(workload: Workload, raw: dict[str, Raw]) -> bool:
    """Print a workload's rows; return whether its target is met."""
    table = added(raw)
    print(workload.name)
    for name, row in table.items():
        values = "".join(f"{getattr(row, column):12.1f}" for column in COLUMNS)
        print(f"  {name:30}{values} {row.mean_error:10.1f}")
    alone = table[ALONE]
    for name in table.keys() & {SAMPLED, EVERY}:
        more = {column: getattr(table[name], column) - getattr(alone, column) for column in COLUMNS}
        ratios = "".join(f"{more[column] / getattr(alone, column):12.3f}" for column in COLUMNS)
        print(f"  {'× OpenInference, ' + name:30}{ratios} {share_added(raw, name, ALONE)[1]:10.3f}")
    return share_added(raw, SAMPLED, ALONE)[0] <= MOST


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="WORKLOAD", help="may be given several times")
    parser.add_argument("--quick", action="store_true", help="run a sixth of the length, for a quick look")
    parser.add_argument("--every", action="store_true", help="add a contestant that scores every unit")
    parser.add_argument("--rounds", type=int, default=12, help="blocks per variant and workload")
    arguments = parser.parse_args()
    arguments.scale = 1 / 6 if arguments.quick else 1.0
    return arguments


if __name__ == "__main__":
    sys.exit(main())
