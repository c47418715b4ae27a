"""Simulation of the alerts on drops: the number of false alarms, the delay of true alarms, and the end of alerts.

    python -m benchmarks.alerts [--months 200] [--report FILE]

It applies the rules of ``spanscore.monitoring`` to scores per minute, without a Prometheus: the same sums, windows, deviance
and recovery, one evaluation a minute, ``for`` and ``keep_firing_for``. A false alarm is an alert that begins while scores are
independent and their mean is the lowest tolerated one. It prints the tables of ``alerts.md``; each cell has its own seed. Takes
five minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.monitoring import estimates
from spanscore.monitoring.alert import FOR_INTERVALS
from spanscore.monitoring.drops import KEEP_DIVISOR
from spanscore.monitoring.recorded import EDGE, LITTLE_VARIED

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

SHARED, ALERT = Monitoring(), AlertSettings(baseline=0.85)
TOLERATED = estimates.TOLERATED * ALERT.min_drop
MONTH, DAY = 43_200, 1_440
SETS = ((60,), (60, 360, 1_440), tuple(int(one // 60) for one in SHARED.windows))
"""Sets of windows that are watched together, in minutes."""
TRAFFIC = {"1/s": 3.0, "10/s": 30.0, "100/s": 300.0}
"""Request rate → scores per minute, if one request in twenty is scored."""
DROPS = (0.05, 0.1, 0.3)
MOST_DELAY = {"1/s": (970, 217, 34), "10/s": (77, 23, 5), "100/s": (14, 5, 3)}
"""Target for the median delay of pass/fail scores in minutes, for each of the drops."""
RUNS = 25
"""Runs that are simulated at a time: 25 months take 1 GB."""


@dataclass(frozen=True)
class Law:
    """The distribution of scores around their mean.

    Attributes:
        spread: a + b of the beta distribution of a unit's quality; 0 = pass/fail.
        steps: number of steps of the quality; 0 = continuous.
    """

    name: str
    spread: float = 0.0
    steps: int = 0

    def draw(self, rng: np.random.Generator, mean: float, count: int) -> Floats:
        """Return ``count`` scores."""
        quality = rng.beta(mean * self.spread, (1 - mean) * self.spread, count)
        return rng.binomial(self.steps, quality) / self.steps if self.steps else quality


PASS_FAIL, STEPPED, CONTINUOUS = Law("pass/fail"), Law("5-point", 2.0, 4), Law("continuous", 10.0)
LAWS = ((PASS_FAIL, 0.95), (PASS_FAIL, 0.85), (PASS_FAIL, 0.5), (STEPPED, 0.85), (CONTINUOUS, 0.85))
"""Distributions with their baselines."""


@dataclass(frozen=True)
class Sums:
    """Sums per minute, in arrays of runs × minutes."""

    n: Floats
    y: Floats
    y2: Floats

    def __add__(self, other: Sums) -> Sums:
        """Return these minutes, followed by the other ones."""
        pairs = ((self.n, other.n), (self.y, other.y), (self.y2, other.y2))
        return Sums(*(np.concatenate(pair, axis=1) for pair in pairs))

    def mixed(self, other: Sums) -> Sums:
        """Return the sums of both for the same minutes."""
        return Sums(self.n + other.n, self.y + other.y, self.y2 + other.y2)


def scored(law: Law, mean: float, per_minute: float | Floats, shape: tuple[int, int], rng: np.random.Generator) -> Sums:
    """Return the sums of minutes; the number of scores per minute is Poisson."""
    n = rng.poisson(per_minute, shape)
    if not law.spread:
        passed = rng.binomial(n, mean).astype(float)
        return Sums(n.astype(float), passed, passed)
    if isinstance(per_minute, float) and n.size > POOL:
        pool = scored(law, mean, per_minute, (1, POOL), rng)
        drawn = rng.integers(0, POOL, shape)
        return Sums(pool.n[0, drawn], pool.y[0, drawn], pool.y2[0, drawn])
    of, y = np.repeat(np.arange(n.size), n.ravel()), law.draw(rng, mean, int(n.sum()))
    sums = [np.bincount(of, values, n.size).reshape(shape).astype(float) for values in (y, y * y)]
    return Sums(n.astype(float), *sums)


POOL = 100_000
"""Number of simulated minutes from which longer stretches are drawn."""


@dataclass(frozen=True)
class Rule:
    """The condition of a window at each evaluation, as in ``spanscore:dropped``.

    Attributes:
        design_effect: factor on the variance of the mean, before ``strays`` is added.
    """

    null: float | Floats
    z: float
    least: int = estimates.MIN_SCORES
    strays: float | Floats = 0.0
    design_effect: float = 1.0


@dataclass(frozen=True)
class Window:
    """The content of a window at each evaluation.

    Attributes:
        p: mean, kept away from 0 and 1 so that its logarithm is finite.
        error2: variance of the mean.
    """

    n: Floats
    p: Floats
    error2: Floats

    @classmethod
    def of(cls, sums: Sums, minutes: int) -> Window:
        """Return a window of this many minutes, at the evaluations from the end of the first day on."""
        n, y, y2 = (sliding(one, minutes) for one in (sums.n, sums.y, sums.y2))
        with np.errstate(all="ignore"):  # an empty window has no mean: as in PromQL
            return cls(n, np.clip(y / n, EDGE, 1 - EDGE), np.maximum(y2 / n - (y / n) ** 2, 0) / n)

    def __getitem__(self, where: Flags) -> Window:
        """Return the window at some evaluations."""
        return Window(self.n[where], self.p[where], self.error2[where])

    def is_below(self, rule: Rule) -> Flags:
        """Return whether the window is below the tolerated mean, as in ``spanscore:dropped``."""
        error2 = rule.design_effect * self.error2 + rule.strays
        far = self._deviance(rule.null, error2) > rule.z**2
        below: Flags = (self.p < rule.null) & far & (self.n >= rule.least)
        return below

    def is_better(self, than: Window, null: Floats) -> Flags:
        """Return whether the window has recovered, as in ``spanscore:recovered``."""
        far = self._deviance(than.p, self.error2) > estimates.RECOVERED_Z**2
        return (self.p > null) & (self.p > than.p) & far & (self.n >= estimates.MIN_SCORES)

    def _deviance(self, level: float | Floats, error2: Floats) -> Floats:
        p, failing = self.p, 1 - self.p
        with np.errstate(all="ignore"):  # equal scores have no error
            most = np.clip(p * self.n, 1, LITTLE_VARIED)
            size = self.n * np.minimum(p * failing / (error2 * self.n), most)
            found: Floats = 2 * size * (p * np.log(p / level) + failing * np.log(failing / (1 - level)))
            return found


def windows_of(sums: Sums, minutes: Iterable[int]) -> dict[int, Window]:
    """Return minutes → window, shortest first."""
    return {one: Window.of(sums, one) for one in sorted(minutes)}


def sliding(values: Floats, minutes: int) -> Floats:
    """Return the sums over this many minutes up to each minute, from the end of the first day on."""
    total = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1)
    return total[:, DAY + 1 :] - total[:, DAY + 1 - minutes : total.shape[1] - minutes]


def rules_of(windows: Sequence[int], null: float) -> dict[int, Rule]:
    """Return the rules of windows (in minutes) that are watched together."""
    shared = {"interval_s": 60.0, "every_s": ALERT.false_alarm_every, "shares": len(windows)}
    return {minutes: Rule(null, estimates.critical_z(window_s=60.0 * minutes, **shared)) for minutes in windows}  # type: ignore[arg-type]


def firing(windows: Mapping[int, Window], rules: Mapping[int, Rule]) -> Flags:
    """Return whether the alert is on at each evaluation: runs × evaluations.

    Args:
        windows: minutes → window, shortest first; windows that are watched together.
        rules: minutes → condition of the window.
    """
    lengths = list(windows)
    dropped, recovered = (np.zeros(windows[lengths[0]].n.shape, bool) for _ in range(2))
    for shorter, minutes in zip([None, *lengths], lengths, strict=False):
        window = windows[minutes]
        below = window.is_below(rules[minutes])
        if shorter is not None:
            null = np.broadcast_to(rules[shorter].null, below.shape)[below]
            recovered[below] |= windows[shorter][below].is_better(window[below], null)
        dropped |= below & ~_lately(recovered, minutes)
    return _state(dropped, lengths[-1] // KEEP_DIVISOR)


def _lately(flags: Flags, minutes: int) -> Flags:
    """Return whether a flag was set within the minutes before, as in ``present_over_time``."""
    count = np.cumsum(np.pad(flags, ((0, 0), (1, 0))), axis=1, dtype=np.int32)
    now = np.arange(1, count.shape[1])
    past: Flags = count[:, now] > count[:, np.maximum(now - minutes, 0)]
    return past


def _state(holds: Flags, keep: int) -> Flags:
    """Return whether an alert is on: from ``for`` on, and for ``keep`` evaluations after its condition has ended."""
    on = np.zeros_like(holds)
    for state, true in zip(on, holds, strict=True):
        until = -1
        for start, end in np.flatnonzero(np.diff(np.pad(true, 1).astype(np.int8))).reshape(-1, 2).tolist():
            begins = start if start <= until else start + FOR_INTERVALS
            if begins < end:
                state[begins : end + keep], until = True, end + keep
    return on


def begun(on: Flags) -> int:
    """Return the number of alerts that begin."""
    return int((on[:, 1:] & ~on[:, :-1]).sum())


def false_alarms(
    law: Law, baseline: float, per_minute: float, sets: Sequence[tuple[int, ...]], months: int
) -> list[float]:
    """Return the alerts that begin in 30 days at the lowest tolerated mean, for each set of windows."""
    rng = np.random.default_rng([2, round(1_000 * baseline), round(per_minute), round(law.spread)])
    null, counted = baseline - TOLERATED, np.zeros(len(sets))
    for runs in [RUNS] * (months // RUNS) or [months]:
        sums = scored(law, null, per_minute, (runs, MONTH + DAY), rng)
        windows = windows_of(sums, {minutes for one in sets for minutes in one})
        for i, watched in enumerate(sets):
            on = firing({minutes: windows[minutes] for minutes in watched}, rules_of(watched, null))
            counted[i] += begun(on)
    return [float(one) for one in counted / (months // RUNS * RUNS or months)]


@dataclass(frozen=True)
class Drop:
    """Runs in which quality drops, at some time within a minute, and recovers.

    Attributes:
        begins: evaluations before the drop, which comes within the minute that follows.
        late: share of that minute before the drop, per run.
        on: whether an alert is on.
    """

    begins: int
    late: Floats
    on: Flags

    def delays(self) -> Floats:
        """Return minutes from the drop to the first alert of each run; infinite without an alert."""
        after = self.on[:, self.begins :]
        found: Floats = np.where(after.any(axis=1), after.argmax(axis=1) + 1 - self.late, np.inf)
        return found


def dropping(law: Law, drop: float, per_minute: float, *, lasts: int, after: int, runs: int, seed: int = 3) -> Drop:
    """Return runs of two good days, a drop of this many minutes, and the time after it."""
    rng = np.random.default_rng([seed, round(1_000 * drop), round(per_minute), round(law.spread)])
    baseline, late = 0.85, rng.random((runs, 1))
    low = baseline - drop
    sums = scored(law, baseline, per_minute, (runs, 2 * DAY), rng)
    sums += scored(law, baseline, per_minute * late, (runs, 1), rng).mixed(
        scored(law, low, per_minute * (1 - late), (runs, 1), rng)
    )
    sums += scored(law, low, per_minute, (runs, lasts - 1), rng)
    sums += scored(law, baseline, per_minute, (runs, after), rng)
    on = firing(windows_of(sums, SETS[-1]), rules_of(SETS[-1], baseline - TOLERATED))
    return Drop(DAY, late[:, 0], on)


@dataclass(frozen=True)
class Recovery:
    """Ends of alerts after a drop: minutes for each run, and the number of alerts that began again."""

    ended: Floats
    again: float


def recovery(law: Law, drop: float, per_minute: float, runs: int) -> Recovery:
    """Return the ends of alerts in the two days after a drop of two hours, for the runs in which it was detected."""
    found = dropping(law, drop, per_minute, lasts=120, after=2 * DAY, runs=runs, seed=4)
    seen = found.on[:, found.begins : found.begins + 120].any(axis=1)
    after = found.on[seen, found.begins + 120 :]
    return Recovery((~after).argmax(axis=1).astype(float), begun(after) / max(1, int(seen.sum())))


def _false_alarm_rows(months: int) -> Iterator[str]:
    yield "| scores | requests | " + " | ".join(f"{len(one)} window{'s' * (len(one) > 1)}" for one in SETS) + " |"
    yield "|---" * (len(SETS) + 2) + "|"
    for law, baseline in LAWS:
        for requests, per_minute in TRAFFIC.items():
            rates = false_alarms(law, baseline, per_minute, SETS, months)
            cells = [f"{rate:.2f}{_owed(per_minute, one)}" for rate, one in zip(rates, SETS, strict=True)]
            yield f"| {law.name} {baseline:g} | {requests} | {' | '.join(cells)} |"


def _owed(per_minute: float, windows: Sequence[int]) -> str:
    """Mark cells whose shortest usable window has 1,000 scores: there half of the budget must be used."""
    speaking = [per_minute * minutes for minutes in windows if per_minute * minutes >= estimates.MIN_SCORES]
    return " *" if min(speaking) >= 1_000 else ""


def _delay_rows(runs: int) -> Iterator[str]:
    yield "| scores | requests | " + " | ".join(f"drop of {drop:g}" for drop in DROPS) + " |"
    yield "|---" * (len(DROPS) + 2) + "|"
    for law in (PASS_FAIL, STEPPED, CONTINUOUS):
        for requests, per_minute in TRAFFIC.items():
            cells = []
            for drop, most in zip(DROPS, MOST_DELAY[requests], strict=True):
                delays = dropping(law, drop, per_minute, lasts=8 * most, after=0, runs=runs).delays()
                text = f"{_rounded(np.median(delays))} ({_rounded(np.percentile(delays, 95))})"
                cells.append(f"{text}, at most {most}" if law is PASS_FAIL else text)
            yield f"| {law.name} 0.85 | {requests} | {' | '.join(cells)} |"


def _rounded(minutes: np.floating) -> str:
    return f"{float(f'{minutes:.3g}'):,g}"  # 1,140, not 1.14e+03


def _recovery_rows(runs: int) -> Iterator[str]:
    yield "| scores a minute | drop | end: median | 95th percentile | longest | alerts that began again, per drop |"
    yield "|---|---|---|---|---|---|"
    for per_minute in (3.0, 10.0, 60.0, 300.0):
        for drop in (0.1, 0.3):
            found = recovery(PASS_FAIL, drop, per_minute, runs)
            ended = " | ".join(f"{np.percentile(found.ended, share):.0f} min" for share in (50, 95, 100))
            yield f"| {per_minute:g} | {drop:g} | {ended} | {found.again:.2f} |"


def main() -> None:
    """Print the tables, or write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=200, help="months per cell of the first table")
    parser.add_argument("--runs", type=int, default=400, help="runs per cell of the other tables")
    parser.add_argument("--report", type=Path, help="file for the tables")
    asked = parser.parse_args()
    tables = {
        FALSE: _false_alarm_rows(asked.months),
        DELAYS: _delay_rows(asked.runs),
        RECOVERIES: _recovery_rows(asked.runs),
    }
    text = "\n\n".join([HEAD, *(f"{words}\n\n" + "\n".join(rows) for words, rows in tables.items())]) + "\n"
    asked.report.write_text(text, encoding="utf-8") if asked.report else print(text)


HEAD = """# Drop alerts, simulated

This page shows how often a drop alert is false, how soon it comes and how it ends.
`python -m benchmarks.alerts` simulates it with fixed seeds, the default windows (5m, 15m, 1h, 6h, 1d) and the default settings.
The rules are evaluated once a minute. One request in twenty is scored, and the scores are independent."""
FALSE = """## False alarms in 30 days

The settings allow one false alarm in 30 days. The true mean is the lowest tolerated mean, the baseline less a quarter of
`min_drop`, and every alert that begins is counted. One window is 1h, and three windows are 1h, 6h and 1d. In cells with *, the
shortest window in use holds 1,000 scores or more; the target is 0.5 to 1 there."""
DELAYS = """## Minutes from a drop to the alert: median (95th percentile)

The baseline is 0.85, and the drop comes at a random second between two evaluations of the rules. *At most* is the target
for the median of pass/fail scores."""
RECOVERIES = """## After a drop of two hours

A pass/fail metric falls from 0.85, and returns to 0.85 after two hours. The table shows the minutes from this return until
no alert was on, and how many alerts began again in the next two days."""


if __name__ == "__main__":
    main()
