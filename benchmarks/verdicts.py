"""Converts nanoseconds into added microseconds per invoke and ratios, and checks the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median, stdev
from typing import Any

from benchmarks.measure import Raw

__all__ = ["Added", "Verdict", "added", "as_json", "judge", "share_added", "tables"]

BASELINE, YARDSTICK, OURS, UNSAMPLED, NO_OP = "none", "OpenLLMetry", "spanscore", "spanscore, head-unsampled", "no-op"
P50_TARGETS = {"chain": 0.15, "rag": 0.15, "agent": 0.15, "async_chain": 0.2, "rag_big": 0.03}
MEAN_TARGET = 0.3
CPU_TARGET = 0.3
UNSAMPLED_TARGET = 2.5
COLUMNS = (("p50 µs", "p50", 8), ("p50 alone", "block_p50", 11), ("mean µs", "mean", 15), ("CPU µs", "cpu", 15))


@dataclass(frozen=True, slots=True)
class Added:
    """The time that a variant adds to one invoke, in microseconds.

    Attributes:
        p50: median of the paired differences of the interleaved part.
        block_p50: median of the paired differences of the blocks, without other variants that cool the caches.
        mean: mean of the blocks' differences: the time of the invoke and of the threads behind it.
        mean_error: standard error of ``mean``.
        paired_mean: mean of the interleaved differences; work deferred by more than 250 ms is counted for other variants.
        cpu: CPU time of the whole process, of every thread.
        cpu_error: standard error of ``cpu``.
    """

    p50: float
    block_p50: float
    mean: float
    mean_error: float
    paired_mean: float
    cpu: float
    cpu_error: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: met or missed."""

    workload: str
    what: str
    ratio: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the ratio is within its limit."""
        return self.ratio <= self.limit


def added(raw: Mapping[str, Raw]) -> dict[str, Added]:
    """Compare every variant with the bare application; the bare application's own entry is its absolute time."""
    base = raw[BASELINE]
    return {name: _absolute(base) if name == BASELINE else _difference(one, base) for name, one in raw.items()}


def share_added(raw: Mapping[str, Raw], name: str, to: str) -> tuple[float, float]:
    """Return the ratio of a variant's added time to another variant's, and its standard error, by the blocks of a round."""
    own, alone = (_minus(one.blocks.wall, _between(one.before.wall, one.after.wall)) for one in (raw[name], raw[to]))
    more = _minus(own, alone)
    return mean(more) / mean(alone), _error(more) / mean(alone)


def judge(workload: str, table: Mapping[str, Added]) -> list[Verdict]:
    """Return the verdicts on one workload; empty without a target."""
    verdicts = [
        Verdict(workload, "head-unsampled p50 / no-op", _ratio(table, UNSAMPLED, NO_OP, "p50"), UNSAMPLED_TARGET)
    ]
    if workload not in P50_TARGETS:
        return verdicts
    limits = {"p50": P50_TARGETS[workload], "mean": MEAN_TARGET, "cpu": CPU_TARGET}
    return [
        *(Verdict(workload, f"{what} / OpenLLMetry", _ratio(table, OURS, YARDSTICK, what), limit)
          for what, limit in limits.items()),
        *verdicts,
    ]  # fmt: skip


def tables(results: Mapping[str, Mapping[str, Added]]) -> str:
    """Return one plain table per workload."""
    return "\n\n".join(_table(workload, table) for workload, table in results.items())


def as_json(results: Mapping[str, Mapping[str, Added]], verdicts: list[Verdict]) -> dict[str, Any]:
    """Return the results as JSON types."""
    return {
        "added_us": {work: {name: asdict(one) for name, one in table.items()} for work, table in results.items()},
        "targets": [{**asdict(verdict), "met": verdict.met} for verdict in verdicts],
    }


def _absolute(base: Raw) -> Added:
    return _summary(base.interleaved, base.blocks.each, base.blocks.wall, base.blocks.cpu)


def _difference(one: Raw, base: Raw) -> Added:
    return _summary(
        _minus(one.interleaved, base.interleaved),
        _minus(one.blocks.each, one.before.each),
        _minus(one.blocks.wall, _between(one.before.wall, one.after.wall)),
        _minus(one.blocks.cpu, _between(one.before.cpu, one.after.cpu)),
    )


def _summary(paired: Sequence[float], alone: Sequence[float], wall: Sequence[float], cpu: Sequence[float]) -> Added:
    """Return the summary of nanoseconds in microseconds."""
    values = (median(paired), median(alone), mean(wall), _error(wall), mean(paired), mean(cpu), _error(cpu))
    return Added(*(value / 1e3 for value in values))


def _minus(mine: Sequence[float], bare: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(mine, bare, strict=True)]


def _between(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [mean(both) for both in zip(before, after, strict=True)]


def _error(values: Sequence[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def _ratio(table: Mapping[str, Added], name: str, to: str, what: str) -> float:
    return float(getattr(table[name], what) / getattr(table[to], what))


def _table(workload: str, table: Mapping[str, Added]) -> str:
    head = f"{workload:27}" + "".join(f"{title:>{width}} {'ratio':>6}" for title, _, width in COLUMNS)
    return "\n".join([head, "-" * len(head), *(_row(name, table) for name in table)])


def _row(name: str, table: Mapping[str, Added]) -> str:
    label = "application (absolute)" if name == BASELINE else name
    cells = []
    for _, what, width in COLUMNS:
        error = getattr(table[name], f"{what}_error", None)
        text = f"{getattr(table[name], what):.0f}" + ("" if error is None else f" ±{error:4.0f}")
        ratio = "" if name == BASELINE else f"{_ratio(table, name, YARDSTICK, what):.3f}"
        cells.append(f"{text:>{width}} {ratio:>6}")
    return f"{label:27}" + "".join(cells)
