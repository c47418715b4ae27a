"""What a budget does to the estimates: 100 simulated days, with a budget at a tenth of what the traffic would cost.

    python -m benchmarks.budget            # three minutes; --days 5 for a look

The sampler, its pacer and the purse are the real ones, on a clock that is wound by hand. Bad answers cost more to judge, and
there are bursts of five times the traffic that score worse and cost more: whoever stops when the money is spent, or counts
only what was cheap, is biased here. Beside the estimate of each day stands the true mean of all its units.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import pi, sin
from random import Random
from statistics import mean, stdev
from typing import NamedTuple

from spanscore.errors import JudgeBudgetSpent
from spanscore.judges.effects.purse import Purse, Reservation
from spanscore.model.span import Facts, UnitKey
from spanscore.monitoring.estimates import MeanInterval, mean_interval
from spanscore.sampling.pacing import BudgetPacer
from spanscore.sampling.rates import RateSampler
from spanscore.settings.budget import Budget, Spent

__all__ = ["Day", "Report", "days", "report"]

DAY_S = 86_400.0
METRIC = "faithfulness"
UNITS_PER_S = 0.6
BURSTS_A_DAY = 6
BURST_S = (300.0, 1_500.0)
BURST_TRAFFIC = 5.0
FIRST_DAY = 20_000
"""Since the epoch."""
TARGETS = {"bias": 0.002, "coverage": 0.93, "spent": 0.85, "worst window": 1.00}


class Arrival(NamedTuple):
    """One unit: when it closes, how good it is, and what judging it takes."""

    at_s: float
    quality: float
    tokens: float
    latency_s: float


class Day(NamedTuple):
    """One day: the truth, and what was made of it."""

    true_mean: float
    estimate: MeanInterval
    units: int
    scored: int
    ended_as_budget: int
    spent: float
    worst_window: float


class Report(NamedTuple):
    """All days together, by the names of the targets."""

    bias: float
    coverage: float
    spent: float
    worst_window: float

    def met(self) -> bool:
        """Whether all targets are."""
        return (
            abs(self.bias) <= TARGETS["bias"]
            and self.coverage >= TARGETS["coverage"]
            and self.spent >= TARGETS["spent"]
            and self.worst_window <= TARGETS["worst window"]
        )


def traffic(seed: int, day: int, *, scale: float = 1.0) -> list[Arrival]:
    """Return a day's units, the same for the same seed; ``scale``: share of the usual traffic."""
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
    """A scorer's decisions on a stream of units."""

    budget: Budget
    now_s: float = 0.0
    open: list[tuple[float, int, Reservation, Spent]] = field(default_factory=list)
    windows: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.purse = Purse([self.budget], clock=lambda: self.now_s)
        pacer = BudgetPacer([self.budget], self.purse, clock=lambda: self.now_s)
        self.purse.factors = pacer.factors
        self.sampler = RateSampler({METRIC: 1.0}, pacer=pacer)

    def day(self, units: list[Arrival], random: Random) -> Day:
        """Return what a day comes to."""
        scores, turned_away, spent = list[tuple[float, float]](), 0, 0.0
        for unit in units:
            self.now_s = unit.at_s
            self._settle()
            decision = self.sampler.decide(Facts(UnitKey(random.getrandbits(128), 1), is_trace_root=True), METRIC)
            if not decision.take:
                continue
            cost = Spent(unit.tokens * 1e-6, unit.tokens, 1.0)
            try:
                reserved = self.purse.reserve(METRIC, cost.plus(cost, 0.3))  # more than it will be: the longest answer
            except JudgeBudgetSpent:
                turned_away += 1
                continue
            heapq.heappush(self.open, (unit.at_s + unit.latency_s, len(scores), reserved, cost))
            self.windows[int(unit.at_s // self.budget.window_s)] += cost.of(self.budget.unit)  # type: ignore[assignment]
            spent += cost.of(self.budget.unit)
            scores.append((unit.quality, decision.probability))
        estimate = mean_interval(scores, binary=False)
        assert estimate is not None
        limit = self.budget.amount
        worst = max(self.windows.values()) / limit
        self.windows.clear()
        return Day(
            mean(unit.quality for unit in units),
            estimate,
            len(units),
            len(scores),
            turned_away,
            spent / (limit * DAY_S / self.budget.window_s),
            worst,
        )

    def _settle(self) -> None:
        while self.open and self.open[0][0] <= self.now_s:
            _, _, reserved, cost = heapq.heappop(self.open)
            reserved.settle(cost)


def days(number: int, seed: int, *, scale: float = 1.0, window: str = "1h", demand: float = 10.0) -> Iterator[Day]:
    """Yield simulated days in which all would cost ``demand`` budgets."""
    first = traffic(seed, 0, scale=scale)
    usd = sum(unit.tokens for unit in first) * 1e-6
    windows = DAY_S / Budget(calls=1, per=window).window_s
    simulation = Simulation(Budget(usd=usd / windows / demand, per=window), now_s=FIRST_DAY * DAY_S)
    for day in range(number):
        yield simulation.day(traffic(seed, day, scale=scale), Random(f"ids {seed}/{day}"))


def report(found: list[Day]) -> Report:
    """Return what all days say together."""
    covered = sum(day.estimate.low <= day.true_mean <= day.estimate.high for day in found)
    return Report(
        mean(day.estimate.mean - day.true_mean for day in found),
        covered / len(found),
        mean(day.spent for day in found),
        max(day.worst_window for day in found),
    )


def main() -> None:
    """Print each day, and what they say together."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--window", default="1h")
    arguments = parser.parse_args()
    found = []
    for day in days(arguments.days, arguments.seed, scale=arguments.scale, window=arguments.window):
        found.append(day)
        middle, low, high = day.estimate
        lost = f"{day.ended_as_budget} ended as budget, spent {day.spent:.3f}, worst window {day.worst_window:.3f}"
        print(f"{len(found):3} true {day.true_mean:.4f} est {middle:.4f} [{low:.4f}, {high:.4f}] {day.scored} {lost}")
    print(report(found), stdev(day.estimate.mean - day.true_mean for day in found) / len(found) ** 0.5)


if __name__ == "__main__":
    main()
