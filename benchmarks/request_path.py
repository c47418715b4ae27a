"""Cost of a handler on the request path, in one interleaved run with no handler, the bare SDK and other libraries.

python -m benchmarks.request_path [--quick] [--only chain --only rag] [--json results.json] [--profile chain]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import sys
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.measure import measure
from benchmarks.profiling import profile
from benchmarks.variants import spanscore, variants
from benchmarks.verdicts import Added, Verdict, added, as_json, judge, tables
from benchmarks.workloads import Workload, workloads

PACKAGES = (
    "spanscore", "langchain-core", "langchain", "langgraph", "opentelemetry-sdk", "langfuse",
    "openinference-instrumentation-langchain", "opentelemetry-instrumentation-langchain",
)  # fmt: skip


def main() -> int:
    """Run, print, write; return 1 if a target is missed."""
    arguments = _arguments()
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
    warnings.filterwarnings("ignore")  # OpenInference causes one per span; printing it would count as its time
    logging.disable(logging.ERROR)
    chosen = [work for work in workloads(asyncio.new_event_loop()) if not arguments.only or work.name in arguments.only]
    if arguments.profile:
        for workload in chosen:
            print(profile(workload, spanscore(), invokes=int(workload.block * 4 * arguments.scale)))
        return 0
    results = {workload.name: _one(workload, arguments) for workload in chosen}
    verdicts = [verdict for name, table in results.items() for verdict in judge(name, table)]
    print(f"{machine()}\n\n{tables(results)}\n")
    print("\n".join(_line(verdict) for verdict in verdicts))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), **as_json(results, verdicts)}, indent=1) + "\n")
    return 0 if all(verdict.met for verdict in verdicts) else 1


def _one(workload: Workload, arguments: Any) -> dict[str, Added]:
    begun = time.monotonic()
    contestants = variants(workload)
    try:
        raw = measure(workload, contestants, scale=arguments.scale, rounds=arguments.rounds, seed=arguments.seed)
    finally:
        for variant in contestants:
            variant.close()
    print(f"{workload.name}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return added(raw)


def _line(verdict: Verdict) -> str:
    word = "MET   " if verdict.met else "MISSED"
    return f"{word} {verdict.workload:12} {verdict.what:28} {verdict.ratio:6.3f}  (at most {verdict.limit})"


def machine() -> str:
    """Return a description of the machine and the versions."""
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; {versions}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="WORKLOAD", help="may be given several times")
    parser.add_argument("--quick", action="store_true", help="run a sixth of the length, for a quick look")
    parser.add_argument("--rounds", type=int, default=12, help="blocks per variant and workload")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order in which variants run")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--profile", action="store_true", help="profile spanscore's own time, without a comparison")
    arguments = parser.parse_args()
    arguments.scale = 1 / 6 if arguments.quick else 1.0
    return arguments


if __name__ == "__main__":
    sys.exit(main())
