"""Simulation of tuning a judge: how often a tuned judge is kept, by its true gain and the number of labels.

Its results are the reason for the split in ``metrics/kit/tuned_prompts.py``.

    python -m benchmarks.fitting --markdown benchmarks/fitting.md    # five minutes; --runs 50 for a look

Each run is a whole ``metric.fit`` on newly drawn labels with a simulated judge: its accuracy, and the effect of demonstrations
on it, are known. The effect of demonstrations on a real model is not simulated, and unknown here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple

from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import AnnotatedSample, SingleTurnSample
from spanscore.metrics import AspectCritic
from spanscore.metrics.kit.tuned_prompts import Fitted

__all__ = ["Cell", "SimulatedJudge", "cell", "fitted", "labelled"]

LABELS = (60, 150, 400)
GAINS = (0.0, 0.12)
RIGHT = 0.78
"""Share of samples on which the untuned judge is right."""
SHARED = 0.8
"""Probability that the sample alone determines a verdict; otherwise another prompt draws a new one. So two equally good prompts
differ on 12 % of the samples."""
PASSES = 0.6
TEACHES = 0.25
"""Share of samples that have the full effect if they are a demonstration."""
RUNS = 200
INTRODUCTION = """\
This page shows how often `metric.fit` keeps a tuned judge, by the true gain and the number of labels. If no candidate has a
true gain, `fit` keeps one in at most 2.5 % of the runs. A true gain of 0.12 is kept in half of the runs with 150 labels, and
in nearly all runs with 400.

`fit` takes demonstrations from 30 % of the labels and selects the best of 16 candidates on the next 35 % (the selection part).
The candidate is kept if McNemar's exact one-sided test on the last 35 % (the test part) gives p ≤ .05. The gains in the table
are means of the selected candidate over the runs. The last column is the share of runs in which the same test on the selection
part would have kept it: with no true gain, in up to a fifth of the runs.

The judge is simulated. Untuned, it is right on {right:.0f} % of the samples; a demonstration that teaches it adds the true
gain. Two equally good prompts give different verdicts on 12 % of the samples. The gain of a real model from demonstrations has
not been measured. `python -m benchmarks.fitting` makes the page: {runs:,} runs for each row, with 4 demonstrations in each
candidate.
"""
_HEADERS = (
    "a candidate looked better in the selection part",
    "gain in the selection part",
    "gain in the test part",
    "would be kept by the selection part",
)


@dataclass(frozen=True, slots=True)
class SimulatedJudge:
    """A judge of known accuracy; a suitable demonstration raises its accuracy by ``gain``.

    Attributes:
        seed: seed of its verdicts: equal questions get equal verdicts.
        gain: 0 = demonstrations change single verdicts, but not the accuracy.
    """

    seed: int
    gain: float
    model: str = "simulated"

    async def ask(self, prompt: Prompt) -> Reply:
        """Return the right verdict, or the wrong one."""
        shown = [_facts(one.evidence["response"]) for one in prompt.examples]
        share = RIGHT + self.gain * any(teaches for _, _, teaches in shown)
        number, passes, _ = _facts(prompt.evidence["response"])
        rng = Random(f"{self.seed} {number} {[number for number, _, _ in shown]}")
        hard = Random(f"{self.seed} {number}").random() if rng.random() < SHARED else rng.random()
        verdict = passes if hard < share else not passes
        return Reply(text=json.dumps({"reason": "", "verdict": int(verdict)}), model=self.model)


def _facts(response: str) -> tuple[int, bool, bool]:
    """Return the number of a sample, its right verdict, and whether it teaches."""
    number, passes, teaches = response.split()
    return int(number), passes == "pass", teaches == "teaches"


def labelled(number: int, seed: int) -> list[AnnotatedSample]:
    """Return labels, one per sample."""
    rng, found = Random(seed), list[AnnotatedSample]()
    for line in range(1, number + 1):
        passes, teaches = rng.random() < PASSES, rng.random() < TEACHES
        said = f"{line} {'pass' if passes else 'fail'} {'teaches' if teaches else 'plain'}"
        found.append(AnnotatedSample(line=line, sample=SingleTurnSample(response=said), human=passes, judged={}))
    return found


def fitted(labels: int, gain: float, seed: int) -> Fitted:
    """Return the result of one run."""
    metric = AspectCritic(SimulatedJudge(seed, gain), definition="It is right.")
    return metric.fit_sync(labelled(labels, seed), seed=seed)


class Cell(NamedTuple):
    """Many runs with equal numbers of labels and equal gain.

    Attributes:
        kept: share of runs that change the metric.
        looked: share of runs in which a candidate looked better on the labels of the selection.
        promised: mean gain of the chosen candidate on these labels.
        tested: mean gain of the chosen candidate on the third part.
        same_part: share of runs in which a test on the labels of the selection would have kept it.
    """

    kept: float
    looked: float
    promised: float
    tested: float
    same_part: float


def cell(labels: int, gain: float, runs: int) -> Cell:
    """Run several times, each with new labels and verdicts."""
    found = [fitted(labels, gain, seed) for seed in range(runs)]
    chosen = [one.chosen for one in found if one.chosen is not None]
    tested = [one.tested for one in found if one.tested is not None]
    return Cell(
        kept=fmean(one.kept for one in found),
        looked=len(chosen) / runs,
        promised=fmean((one.gained - one.lost) / one.labels for one in chosen),
        tested=fmean((one.gained - one.lost) / one.labels for one in tested),
        same_part=sum(one.shown for one in chosen) / runs,
    )


def table(runs: int) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# How often a tuned judge is kept\n"
    yield INTRODUCTION.format(runs=runs, right=100 * RIGHT)
    yield _row("true gain", "labels", "kept", *_HEADERS)
    yield _row(*["---"] * (3 + len(_HEADERS)))
    for gain, labels in product(GAINS, LABELS):
        of = cell(labels, gain, runs)
        gains = f"{of.promised:+.3f}", f"{of.tested:+.3f}"
        yield _row(f"{gain:.2f}", str(labels), f"**{of.kept:.3f}**", f"{of.looked:.3f}", *gains, f"{of.same_part:.3f}")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and on request also write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args(arguments)
    lines = []
    for line in table(asked.runs):
        print(line, flush=True)
        lines.append(line)
    if asked.markdown:
        asked.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
