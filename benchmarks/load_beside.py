"""Load test of an application whose scoring runs in another process on the same disk: the cost of a call.

    python -m benchmarks.load_beside [--rounds 3] [--event-queue 10000] [--json beside.json]

Ten minutes. The application calls a chain 20,000 times, one after the other, with a model that answers at once. Measured are
the application and the work that is done for it. Three variants run in random order in each round, each with its own scorer:

- *capture*: every run is captured, none is sampled; the reference for the others;
- *beside*: every run is scored, by ``spanscore worker`` on the spool that the application writes (``score_here: false``);
- *inside*: every run is scored in the application's own process.

The event queue has room for the burst (``limits: {event_queue_size: 40000}``), and so has the queue *inside*;
``--event-queue 10000`` is the default, of which the span thread must empty a part during the burst. The judge answers at
once, so that the worker uses all available CPU; with a slower judge it uses less.
Target: the mean call *beside* takes at most 1.3 × that of *capture*. In every run each unit must have one outcome in the
application, and each delegated unit one in the worker.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any
from urllib.request import urlopen

import yaml
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.servers.server import free_port

from benchmarks.otlp_servers import COMMAND
from benchmarks.variants import NullExporter
from benchmarks.workloads import QUESTION, make_chain
from spanscore import OnlineScorer

MOST = 1.3
WARM_UP = 200
ENDED_AS = {"capture": "not_sampled", "beside": "delegated", "inside": "scored"}
METRIC = "benchmarks.variants:Instant"
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst under one variant.

    Attributes:
        mean_us: mean time of a call, in µs.
        p50_us: median time of a call, in µs.
        p99_us: 99th percentile of the time of a call, in µs.
        outcomes: outcomes of the application's units.
        worker: outcomes of the worker's units; empty without a worker.
        settled_s: seconds from the last call until every unit was scored.
    """

    variant: str
    mean_us: float
    p50_us: float
    p99_us: float
    outcomes: dict[str, int]
    worker: dict[str, int]
    settled_s: float


def main() -> int:
    """Run, print, write; return 1 if the target is missed or a unit is missing."""
    arguments = _arguments()
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
    rng, rounds = random.Random(arguments.seed), list[dict[str, Burst]]()
    for number in range(arguments.rounds):
        order = rng.sample([*VARIANTS], len(VARIANTS))
        rounds.append(
            {name: _burst(name, arguments.calls, arguments.event_queue or 2 * arguments.calls) for name in order}
        )
        print(f"round {number + 1}: {', '.join(order)}", *map(_line, rounds[-1].values()), sep="\n  ", flush=True)
    ratios = {name: median(_ratio(one, name) for one in rounds) for name in VARIANTS if name != "capture"}
    whole = all(_is_whole(burst, arguments.calls) for one in rounds for burst in one.values())
    met = ratios["beside"] <= MOST
    for name, ratio in ratios.items():
        print(f"{name}: the mean call takes {ratio:.2f} × that of capture alone")
    print(f"target, beside: at most {MOST} ×: {'met' if met else 'MISSED'}; units {'whole' if whole else 'MISSING'}")
    if arguments.json:
        document = {
            "calls": arguments.calls,
            "ratios": ratios,
            "rounds": [[*map(asdict, one.values())] for one in rounds],
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if met and whole else 1


def _burst(variant: str, calls: int, event_queue: int) -> Burst:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "spanscore.yaml"
        spool = {"path": str(Path(folder) / "spool.db"), "score_here": False}
        config.write_text(
            yaml.safe_dump({"metrics": [METRIC], "spool": spool, "limits": {"event_queue_size": event_queue}})
        )
        return VARIANTS[variant](config, variant, calls)


def _alone(config: Path, variant: str, calls: int) -> Burst:
    more = {"queue_size": 2 * calls, "queue_bytes": 10**10} if variant == "inside" else {}
    scorer = _scorer(config, sample_rate=float(variant == "inside"), spool=None, **more)
    taken = _called(scorer, calls)
    begun = time.monotonic()
    outcomes = _flushed(scorer)
    return _burst_of(variant, taken, outcomes, {}, time.monotonic() - begun)


def _beside(config: Path, variant: str, calls: int) -> Burst:
    page = free_port()
    with _worker(config, page) as worker:
        _said(worker, "scores: ")
        scorer = _scorer(config, sample_rate=1.0)
        taken = _called(scorer, calls)
        begun = time.monotonic()
        outcomes = _flushed(scorer)
        while _scored(page) < outcomes.get("delegated", 0):
            time.sleep(0.1)
        settled = time.monotonic() - begun
        worker.send_signal(signal.SIGTERM)
        return _burst_of(variant, taken, outcomes, _outcomes(_said(worker, "instant: ")), settled)


VARIANTS: dict[str, Callable[[Path, str, int], Burst]] = {"capture": _alone, "beside": _beside, "inside": _alone}


def _scorer(config: Path, **options: Any) -> OnlineScorer:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(NullExporter(), max_queue_size=1_000_000))
    return OnlineScorer.from_config(config, tracer_provider=provider, **options)


def _called(scorer: OnlineScorer, calls: int) -> list[float]:
    """Call the chain; return the time of each call, in s."""
    chain, taken = make_chain(), list[float]()
    given: Any = {"callbacks": [scorer.handler]}
    for _ in range(WARM_UP):
        chain.invoke({"question": QUESTION}, given)
    gc.collect()
    for _ in range(calls):
        begun = time.perf_counter()
        chain.invoke({"question": QUESTION}, given)
        taken.append(time.perf_counter() - begun)
    return taken


def _flushed(scorer: OnlineScorer) -> dict[str, int]:
    scorer.flush(timeout=600)
    outcomes = dict(scorer.status().outcomes["instant"])
    scorer.shutdown()
    return outcomes


def _worker(config: Path, page: int) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "worker", str(config)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**clean, **environment, "SPANSCORE_SERVE_METRICS": str(page)},
    )


def _said(worker: subprocess.Popen[str], beginning: str) -> str:
    assert worker.stdout is not None
    return next(line for line in worker.stdout if line.startswith(beginning))


def _scored(page: int) -> int:
    """Return the number of units that the worker has scored."""
    with urlopen(f"http://127.0.0.1:{page}/status", timeout=60) as answer:
        found = re.search(r"scored (\d+)", answer.read().decode())
    return int(found[1]) if found else 0


def _outcomes(line: str) -> dict[str, int]:
    return {
        name: int(units.replace(",", ""))
        for name, units in re.findall(r"(\w+) ([\d,]*\d)(?:,|$)", line.partition(": eligible ")[2])
    }


def _burst_of(
    variant: str, taken: Sequence[float], outcomes: dict[str, int], worker: dict[str, int], settled: float
) -> Burst:
    cuts = quantiles(taken, n=100)
    return Burst(variant, fmean(taken) * 1e6, cuts[49] * 1e6, cuts[98] * 1e6, outcomes, worker, settled)


def _ratio(bursts: dict[str, Burst], name: str) -> float:
    return bursts[name].mean_us / bursts["capture"].mean_us


def _is_whole(burst: Burst, calls: int) -> bool:
    """Return whether each unit has the variant's outcome; a refused unit would have cost the application next to nothing."""
    due = {ENDED_AS[burst.variant]: calls + WARM_UP}
    return burst.outcomes == due and burst.worker in ({}, {"scored": calls + WARM_UP})


def _line(burst: Burst) -> str:
    text = f"{burst.variant:8} mean {burst.mean_us:5.0f} µs, p50 {burst.p50_us:5.0f}, p99 {burst.p99_us:6.0f}; {burst.outcomes}"
    return text + (f"; worker {burst.worker}" if burst.worker else "") + f"; settled after {burst.settled_s:.1f} s"


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--event-queue", type=int, help="room in the event queue; default: for the whole burst")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
