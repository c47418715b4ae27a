"""Simulation of a budget's effect on the estimates: 100 days, with a budget of a tenth of the full cost.

    python -m benchmarks.budget            # three minutes; --days 5 for a look

Sampler, pacer and budget ledger are the real ones, on a simulated clock. Bad answers cost more to judge, and there are bursts
of five times the traffic that score worse and cost more. So a method that stops after the money is spent, or that counts only
cheap units, is biased here. The true mean of all units is printed next to the estimate of each day.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import pi, sin
from random import Random
from statistics import mean, stdev
from typing import NamedTuple

from spanscore.config.judging import Budget, Spent
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.errors import JudgeBudgetSpent
from spanscore.judges.effects.budget_ledger import BudgetLedger, Reservation
from spanscore.monitoring.estimates import MeanInterval, mean_interval
from spanscore.pipeline.sampling import BudgetPacer, RateSampler

__all__ = ["Day", "Report", "days", "report"]

DAY_S = 86_400.0
METRIC = "faithfulness"
UNITS_PER_S = 0.6
BURSTS_A_DAY = 6
BURST_S = (300.0, 1_500.0)
BURST_TRAFFIC = 5.0
FIRST_DAY = 20_000
"""Days since the epoch."""
DEMAND = 10.0
"""Cost of scoring all units, in budgets."""
USD_PER_TOKEN = 1e-6


class Arrival(NamedTuple):
    """One unit: its closing time, its quality, and the cost of judging it."""

    at_s: float
    quality: float
    tokens: float
    latency_s: float


class Day(NamedTuple):
    """One day: the true mean and the estimate.

    Attributes:
        lost: sampled units that no judge scored: they ended as ``budget_exhausted``.
        spent: share of the day's money.
        worst_window: highest share of a window's money that was billed in it.
    """

    true_mean: float
    estimate: MeanInterval
    units: int
    scored: int
    lost: int
    spent: float
    worst_window: float


class Report(NamedTuple):
    """The summary of several days.

    Attributes:
        bias: mean of estimate − truth.
        error: standard error of ``bias``.
    """

    bias: float
    error: float
    coverage: float
    spent: float
    worst_window: float

    def missed(self) -> list[str]:
        """Return the missed targets."""
        met = {
            "bias at most 0.002": abs(self.bias) <= 0.002,
            "coverage at least 0.93": self.coverage >= 0.93,
            "spent at least 0.85": self.spent >= 0.85,
            "worst window at most 1.00": self.worst_window <= 1.0,
        }
        return [target for target, is_met in met.items() if not is_met]

    def __str__(self) -> str:
        return (
            f"bias of the day's mean {self.bias:+.4f} ± {self.error:.4f}, coverage {self.coverage:.2f}, "
            f"spent {self.spent:.2f}, worst window {self.worst_window:.3f}"
        )


def traffic(seed: int, day: int, *, scale: float = 1.0) -> list[Arrival]:
    """Return a day's units; equal seeds give equal units; ``scale``: share of the usual traffic."""
    random = Random(f"{seed}/{day}")
    bursts = [
        (start, start + random.uniform(*BURST_S))
        for start in (random.uniform(0, DAY_S * 0.97) for _ in range(BURSTS_A_DAY))
    ]
    return [*_arrivals(random, (FIRST_DAY + day) * DAY_S, bursts, scale)]


def _arrivals(random: Random, begin_s: float, bursts: list[tuple[float, float]], scale: float) -> Iterator[Arrival]:
    most, at_s = UNITS_PER_S * scale * 1.5 * BURST_TRAFFIC, 0.0
    while (at_s := at_s + random.expovariate(most)) < DAY_S:
        burst = any(start <= at_s < end for start, end in bursts)
        rate = UNITS_PER_S * scale * (1 + 0.5 * sin(2 * pi * at_s / DAY_S)) * (BURST_TRAFFIC if burst else 1.0)
        if random.random() * most < rate:
            quality = min(1.0, max(0.0, random.gauss(0.6 if burst else 0.85, 0.2)))
            tokens = 1_000 * (1 + 2 * (1 - quality)) * random.lognormvariate(0, 0.4) * (1.5 if burst else 1.0)
            yield Arrival(begin_s + at_s, quality, tokens, random.expovariate(0.3))


@dataclass
class Simulation:
    """The decisions of a scorer on a stream of units, and their cost.

    Attributes:
        paced: whether the rates are lowered; otherwise all units are scored until the money of a window is spent.
    """

    budget: Budget
    paced: bool = True
    now_s: float = FIRST_DAY * DAY_S
    out: list[tuple[float, int, Reservation, Spent]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget_ledger = BudgetLedger([self.budget], clock=lambda: self.now_s)
        pacer = BudgetPacer(
            [self.budget], self.budget_ledger, lambda: {METRIC: len(self.out)}, clock=lambda: self.now_s
        )
        self.sampler = RateSampler({METRIC: 1.0}, pacer=pacer if self.paced else None)

    def day(self, units: Sequence[Arrival], random: Random) -> Day:
        """Return the result of a day."""
        scores, lost = list[tuple[float, float]](), 0
        billed: Counter[int] = Counter()
        for number, unit in enumerate(units):
            self._settle(unit.at_s)
            decision = self.sampler.decide(
                SamplingContext(UnitKey(random.getrandbits(128), 1), is_trace_root=True), METRIC
            )
            if not decision.take:
                continue
            cost = Spent(unit.tokens * USD_PER_TOKEN, unit.tokens, 1.0)
            try:
                reserved = self.budget_ledger.reserve(METRIC, Spent().plus(cost, 1.3))  # at the longest answer so far
            except JudgeBudgetSpent:
                lost += 1
                continue
            heapq.heappush(self.out, (unit.at_s + unit.latency_s, number, reserved, cost))
            billed[int(unit.at_s // self.budget.window_s)] += round(cost.usd * 1e9)
            scores.append((unit.quality, decision.probability))
        estimate = mean_interval(scores)
        assert estimate is not None
        limit = self.budget.amount * 1e9
        return Day(
            true_mean=mean(unit.quality for unit in units),
            estimate=estimate,
            units=len(units),
            scored=len(scores),
            lost=lost,
            spent=billed.total() / (limit * DAY_S / self.budget.window_s),
            worst_window=max(billed.values()) / limit,
        )

    def _settle(self, now_s: float) -> None:
        """Advance the clock, and process the answers until then."""
        while self.out and self.out[0][0] <= now_s:
            self.now_s, _, reserved, cost = heapq.heappop(self.out)
            reserved.settle(cost)
        self.now_s = now_s


def days(number: int, *, seed: int = 1, scale: float = 1.0, paced: bool = True) -> Iterator[Day]:
    """Yield simulated days with an hourly budget of a tenth of the cost of all units."""
    tokens = sum(unit.tokens for unit in traffic(seed, 0, scale=scale))
    budget = Budget(usd=tokens * USD_PER_TOKEN / 24 / DEMAND, per="1h")
    simulation = Simulation(budget, paced=paced)
    for day in range(number):
        yield simulation.day(traffic(seed, day, scale=scale), Random(f"ids {seed}/{day}"))


def report(found: Sequence[Day]) -> Report:
    """Return the summary of all days."""
    errors = [day.estimate.mean - day.true_mean for day in found]
    covered = sum(day.estimate.low <= day.true_mean <= day.estimate.high for day in found)
    return Report(
        bias=mean(errors),
        error=stdev(errors) / len(errors) ** 0.5,
        coverage=covered / len(found),
        spent=mean(day.spent for day in found),
        worst_window=max(day.worst_window for day in found),
    )


def _line(day: Day) -> str:
    middle, low, high = day.estimate
    kept = " " if low <= day.true_mean <= high else "*"
    what = f"{day.scored:6,} of {day.units:,} scored, {day.lost:5,} ended as budget"
    money = f"{day.spent:.2f} of the money spent, worst window {day.worst_window:.3f}"
    return f"{day.true_mean:.4f}  {middle:.4f} [{low:.4f}, {high:.4f}]{kept} {what}, {money}"


def main() -> int:
    """Print each day and the summary; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7, help="the method was tuned on seed 1")
    arguments = parser.parse_args()
    found = []
    print("day  true    estimate and its 95 % interval (* = the truth is outside)")
    for day in days(arguments.days, seed=arguments.seed):
        found.append(day)
        print(f"{len(found):3}  {_line(day)}", flush=True)
    for name, days_of in (("paced", found), ("stop when spent", [*days(10, seed=arguments.seed, paced=False)])):
        print(f"{name:16} {report(days_of)}")
    missed = report(found).missed()
    print(f"missed: {', '.join(missed)}" if missed else "all targets are met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
