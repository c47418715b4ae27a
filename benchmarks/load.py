"""Load test with a thousand concurrent chains: the delay that scoring adds, and one outcome for every unit.

    python -m benchmarks.load [--rounds 8] [--json load.json]

Two shapes. *Burst*: 1,000 ``ainvoke`` calls in one ``gather``; the loop is saturated, so a thousand calls wait for every
microsecond that is added to one. *Steady*: the calls start spread over the model's time, so that 1,000 are in flight and the
loop is busy for a third, as in a service; this reveals a thread that holds the GIL.

Each round runs each shape without spanscore, twice, and with it at each rate, in random order. The pairs of runs without it
give the A/A interval, which is the difference of two equal runs. The added p99 must be inside.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.variants import Instant, NullExporter
from benchmarks.workloads import QUESTION, make_chain
from spanscore.core.sample import Sample
from spanscore.core.score import Score

JUDGE_S = 0.2
RATES = (0.05, 1.0)
COVERAGE = 95  # per cent of the pairs of equal runs lie within the A/A interval

Runs = dict[float | None, list[tuple[float, "LedgerCounts | None"]]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The way in which calls arrive.

    Attributes:
        model_s: time of the model; the rest is the chain's own time.
        spread_s: the calls start evenly over this time.
    """

    name: str
    model_s: float
    spread_s: float


SHAPES = (Shape("burst", 1.0, 0.0), Shape("steady", 4.0, 4.0))


class SlowJudge(Instant):
    """A metric with a judge that takes 200 ms."""

    name = "slow"

    async def score(self, sample: Sample) -> Score:
        await asyncio.sleep(JUDGE_S)
        return await super().score(sample)


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """The ledger after one run: every eligible unit has one outcome."""

    eligible: int
    pending: int
    outcomes: dict[str, int]
    flush_s: float

    @property
    def balanced(self) -> bool:
        """Whether no unit is pending or lost."""
        return self.pending == 0 and self.eligible == sum(self.outcomes.values())


@dataclass(frozen=True, slots=True)
class Result:
    """One shape and rate, over all rounds; times in ms.

    Attributes:
        added_p99_ms: median over the rounds of the p99 with spanscore minus the mean of the two without.
        interval_ms: half-width that contains the differences of 95 % of all pairs of runs without spanscore.
    """

    shape: str
    rate: float
    p99_ms: float
    added_p99_ms: float
    interval_ms: float
    counts: list[LedgerCounts]

    @property
    def met(self) -> bool:
        """Whether the chain's own p99 is within the variation of runs without spanscore."""
        return abs(self.added_p99_ms) <= self.interval_ms

    @property
    def balanced(self) -> bool:
        """Whether the ledger was balanced after every round."""
        return all(one.balanced for one in self.counts)


def main() -> int:
    """Run, print, write; return 1 if a target is missed."""
    arguments = _arguments()
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
    results = [result for shape in SHAPES for result in _shape(shape, arguments)]
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0 if all(result.met and result.balanced for result in results) else 1


def _shape(shape: Shape, arguments: Any) -> list[Result]:
    runs = _rounds(shape, arguments.calls, arguments.rounds, random.Random(arguments.seed))
    without = [p99 for p99, _ in runs[None]]
    interval = _interval(without)
    results = [_result(shape, rate, runs[rate], without, interval) for rate in RATES]
    print(
        f"{shape.name}: {arguments.calls} ainvokes, {arguments.rounds} rounds, model {shape.model_s} s, judge {JUDGE_S} s"
    )
    print(f"       without spanscore: own p99 {median(without):.1f} ms, A/A interval ±{interval:.1f} ms")
    print("\n".join(_line(result) for result in results), flush=True)
    return results


def _rounds(shape: Shape, calls: int, rounds: int, rng: random.Random) -> Runs:
    """Return the p99s by rate; runs without spanscore (None) come twice per round, one after the other."""
    runs: Runs = {None: [], **{rate: [] for rate in RATES}}
    _p99(shape, calls, ())  # warm up
    for _ in range(rounds):
        for rate in rng.sample([None, None, *RATES], 2 + len(RATES)):
            runs[rate].append((_p99(shape, calls, ()), None) if rate is None else _scored(shape, calls, rate))
    return runs


def _scored(shape: Shape, calls: int, rate: float) -> tuple[float, LedgerCounts]:
    """Run once under a new scorer, so that each run has its own ledger."""
    from spanscore import OnlineScorer

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(NullExporter(), max_queue_size=100_000))
    scorer = OnlineScorer(metrics=[SlowJudge()], sample_rate=rate, tracer_provider=provider)
    p99 = _p99(shape, calls, (scorer.handler,))
    begun = time.monotonic()
    scorer.flush(timeout=60)
    flushed = time.monotonic() - begun
    status = scorer.status()
    counts = LedgerCounts(status.eligible["slow"], status.pending["slow"], dict(status.outcomes["slow"]), flushed)
    scorer.shutdown()
    provider.shutdown()
    return p99, counts


def _p99(shape: Shape, calls: int, handlers: Sequence[BaseCallbackHandler]) -> float:
    """Return the 99th percentile of the chains' time without the model's, in ms."""
    gc.collect()
    own = asyncio.run(_concurrently(shape, calls, handlers))
    return quantiles(own, n=100)[98] * 1e3


async def _concurrently(shape: Shape, calls: int, handlers: Sequence[BaseCallbackHandler]) -> list[float]:
    chain = make_chain(delay_s=shape.model_s)

    async def one(number: int) -> float:
        await asyncio.sleep(shape.spread_s * number / calls)
        begun = time.perf_counter()
        await chain.ainvoke({"question": QUESTION}, {"callbacks": list(handlers)})
        return time.perf_counter() - begun - shape.model_s

    return list(await asyncio.gather(*(one(number) for number in range(calls))))


def _interval(without: list[float]) -> float:
    apart = sorted(abs(one - other) for one, other in itertools.combinations(without, 2))
    return quantiles(apart, n=100)[COVERAGE - 1] if len(apart) > 1 else apart[0]


def _result(
    shape: Shape, rate: float, runs: list[tuple[float, LedgerCounts | None]], without: list[float], interval: float
) -> Result:
    added = median(
        p99 - (one + other) / 2 for (p99, _), one, other in zip(runs, without[::2], without[1::2], strict=True)
    )
    counts = [one for _, one in runs if one is not None]
    return Result(shape.name, rate, median(p99 for p99, _ in runs), added, interval, counts)


def _line(result: Result) -> str:
    word = "MET   " if result.met else "MISSED"
    balance = "balanced" if result.balanced else "NOT BALANCED"
    last = result.counts[-1]
    return (
        f"{word} rate {result.rate:4}: own p99 {result.p99_ms:.1f} ms, added {result.added_p99_ms:+.1f} ms; "
        f"ledger {balance}: eligible {last.eligible} = {last.outcomes} + pending {last.pending}; flush {last.flush_s:.1f} s"
    )


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the results here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
