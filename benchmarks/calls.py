"""Number of spanscore's Python calls on the application's thread per invoke: the request path without a clock.

    python -m benchmarks.calls [--before SRC]

A clock needs an idle machine to resolve 5 %; calls are counted exactly. Each workload is invoked with no unit sampled and with
every unit sampled, and the least of five counts is printed. ``--before`` adds an earlier spanscore by its ``src`` folder.
Targets: the numbers in ``LIMITS``, and the same numbers with inner units (``units.also``), which are found on spanscore's own
thread. The suite checks both (``tests/capture/test_calls.py``). Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benchmarks.variants import Variant, spanscore
from benchmarks.workloads import Workload, workloads

RATES: Final = {"not sampled": 1e-9, "sampled": 1.0}
"""Name of a row → sampling rate; at rate 0 a scorer would capture nothing."""
LIMITS: Final[dict[str, float]] = {
    "chain, not sampled": 45,
    "chain, sampled": 89,
    "rag, not sampled": 47,
    "rag, sampled": 86,
    "agent, not sampled": 65,
    "agent, sampled": 174,
}
"""Workload → highest number of calls per invoke: the number measured in November 2026 and 5 %."""
SLACK: Final = 1.0
"""Calls per invoke by which two counts of the same code may differ, because the span thread wakes at other times."""
INVOKES: Final = 20
ROUNDS: Final = 5
WARM: Final = 30
ALSO: Final = "units.also"


def count_calls(workload: Workload, variant: Variant) -> float:
    """Return the least number of spanscore's Python calls on this thread per invoke, after a warm-up."""
    for _ in range(WARM):
        variant.run(workload)
    variant.settle()
    return min(_count(workload, variant) for _ in range(ROUNDS))


def _count(workload: Workload, variant: Variant) -> float:
    calls = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and f"{os.sep}spanscore{os.sep}" in frame.f_code.co_filename

    sys.setprofile(profile)
    try:
        for _ in range(INVOKES):
            variant.run(workload)
    finally:
        sys.setprofile(None)
    variant.settle()
    return calls / INVOKES


def counts_of(*, inner: bool = False) -> dict[str, float]:
    """Return workload → calls per invoke; ``inner``: whether retrievers, tools and model calls are units of their own."""
    also = [{"kind": kind} for kind in ("retriever", "tool", "agent", "chat")]
    options: dict[str, Any] = {"units": {"also": also}} if inner else {}
    counts = {}
    for sampled, rate in RATES.items():
        variant = spanscore(rate=rate, **options)
        for work in workloads(asyncio.new_event_loop()):
            if (name := f"{work.name}, {sampled}") in LIMITS:
                counts[name] = count_calls(work, variant)
        variant.close()
    return counts


def _counts_before(src: Path) -> dict[str, float]:
    """Return the counts of an earlier spanscore, by this benchmark in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(src), str(Path(__file__).parents[1])])}
    command = [sys.executable, "-m", "benchmarks.calls", "--json"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    counts: dict[str, float] = json.loads(done.stdout)
    return counts


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="SRC", help="src folder of an earlier checkout to compare with")
    parser.add_argument("--json", action="store_true", help="print only the counts of this tree")
    arguments = parser.parse_args()
    own = counts_of()
    if arguments.json:
        print(json.dumps(own))
        return 0
    columns = {"calls per invoke": own, f"with {ALSO}": counts_of(inner=True), "at most": LIMITS}
    if arguments.before:
        columns["before"] = _counts_before(arguments.before)
    print(f"| workload | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in LIMITS:
        print(f"| {name} | {' | '.join(f'{column[name]:.1f}' for column in columns.values())} |")
    inner = columns[f"with {ALSO}"]
    missed = [name for name, most in LIMITS.items() if own[name] > most or inner[name] > own[name] + SLACK]
    print(f"\nTargets: {'missed on ' + ', '.join(missed) if missed else 'met'}.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
