"""Simulation of the mean if units with bad feedback are judged in addition to the sample.

    python -m benchmarks.feedback [--runs 400] [--units 20000]

Users with a bad answer complain more often. A tenth of all units is scored; half of the units are kept, and judged if a user
complains. The sampler, the sums and the mean are the library's. Takes some four minutes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev
from typing import Final

from spanscore import semconv
from spanscore.core.job import Decision, UnitCounts
from spanscore.core.score import UNIT_INTERVAL, Outcome, Score
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.monitoring.estimates import running_mean
from spanscore.outputs.instruments import Telemetry
from spanscore.pipeline.sampling import RateSampler

__all__ = ["FeedbackRun", "one_run"]

METRIC: Final = "helpful"
RATE, KEPT = 0.1, 0.5
GOOD: Final = 0.75
COMPLAINS: Final = {1.0: 0.02, 0.0: 0.15}
"""Quality → share of such units about which a user complains."""


@dataclass(frozen=True, slots=True)
class FeedbackRun:
    """The result of one run; means are differences from the truth.

    Attributes:
        population: mean of the population.
        naive: mean if the units judged after a complaint were included.
        complained: Σw of the source, as a share of the units with a complaint.
    """

    population: float
    naive: float
    complained: float


def one_run(seed: int, units: int) -> FeedbackRun:
    """Simulate traffic, and return the errors of the means."""
    rng, sampler = Random(seed), RateSampler({METRIC: RATE}, feedback_rate=KEPT)
    apart, among = _telemetry(), _telemetry()
    qualities, complaints = [], 0
    for _ in range(units):
        y = float(rng.random() < GOOD)
        qualities.append(y)
        facts = SamplingContext(UnitKey(rng.getrandbits(128), rng.getrandbits(64)), is_trace_root=True)
        taken, said = sampler.decide(facts, METRIC), rng.random() < COMPLAINS[y]
        complaints += said
        if taken.take:
            for telemetry in (apart, among):
                telemetry.record(None, _score(y, taken))
        if said and (kept := sampler.for_feedback(facts)).take:
            apart.record(None, _score(y, kept, semconv.SOURCE_FEEDBACK))
            if not taken.take:
                among.record(None, _score(y, kept))
    weights = apart.sums(semconv.WEIGHT).items()
    source = sum(w for labels, w in weights if dict(labels).get(semconv.EVALUATION_SOURCE) == semconv.SOURCE_FEEDBACK)
    truth = fmean(qualities)
    return FeedbackRun(_mean(apart) - truth, _mean(among) - truth, source / complaints)


def _score(y: float, decision: Decision, source: str | None = None) -> Score:
    label = UNIT_INTERVAL.label(y)
    return Score(
        metric=METRIC,
        version="1",
        outcome=Outcome.SCORED,
        value=y,
        quality=y,
        label=label,
        evaluator_version="1/simulated/1",
        probability=decision.probability,
        source=source,
    )


class _NoUnits:
    def count_units(self) -> UnitCounts:
        return UnitCounts({}, {}, {}, {})


def _telemetry() -> Telemetry:
    return Telemetry(None, _NoUnits())


def _mean(telemetry: Telemetry) -> float:
    found = running_mean(METRIC, UNIT_INTERVAL, telemetry.sums)
    assert found is not None
    return found.mean


def main() -> None:
    """Print the bias of the means over all runs, with its standard error."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=400)
    arguments.add_argument("--units", type=int, default=20_000)
    asked = arguments.parse_args()
    runs = [one_run(seed, asked.units) for seed in range(asked.runs)]
    values = {
        "bias of the population's mean": [run.population for run in runs],
        "bias with these units included": [run.naive for run in runs],
        "share of the units with a complaint that the source represents": [run.complained for run in runs],
    }
    for what, found in values.items():
        print(f"{what}: {fmean(found):+.4f} ± {stdev(found) / len(found) ** 0.5:.4f}")


if __name__ == "__main__":
    main()
