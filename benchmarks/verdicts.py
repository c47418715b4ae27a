"""Verdicts: nanoseconds → added microseconds per invoke, ratios, and which targets are met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import mean, median, stdev
from typing import Any

from benchmarks.measure import Raw

__all__ = ["Added", "Verdict", "added", "as_json", "judge", "tables"]

BASELINE, YARDSTICK, OURS, UNSAMPLED, NO_OP = "none", "OpenLLMetry", "spanscore", "spanscore, head-unsampled", "no-op"
P50_TARGETS = {"chain": 0.15, "rag": 0.15, "agent": 0.15, "async_chain": 0.2, "rag_big": 0.03}
MEAN_TARGET = 0.3
CPU_TARGET = 0.3
UNSAMPLED_TARGET = 2.5


@dataclass(frozen=True, slots=True)
class Added:
    """What a variant adds to one invoke, in microseconds.

    Attributes:
        p50: median of the paired differences of the interleaved part.
        mean: of the blocks' differences: what the invoke and the threads behind it took from the clock.
        mean_error: standard error of ``mean``.
        paired_mean: of the interleaved differences; work deferred past 100 ms falls on other variants there.
        cpu: of the whole process, every thread.
        cpu_error: standard error of ``cpu``.
    """

    p50: float
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


def judge(workload: str, table: Mapping[str, Added]) -> list[Verdict]:
    """Return the verdicts on one workload; none where it has no target."""
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
    """Return what was seen as plain values."""
    return {
        "added_us": {work: {name: asdict(one) for name, one in table.items()} for work, table in results.items()},
        "targets": [{**asdict(verdict), "met": verdict.met} for verdict in verdicts],
    }


def _absolute(base: Raw) -> Added:
    wall, cpu = base.block_wall, base.block_cpu
    return Added(
        median(base.interleaved) / 1e3,
        mean(wall) / 1e3, _error(wall) / 1e3, mean(base.interleaved) / 1e3,
        mean(cpu) / 1e3, _error(cpu) / 1e3,
    )  # fmt: skip


def _difference(one: Raw, base: Raw) -> Added:
    paired = [mine - bare for mine, bare in zip(one.interleaved, base.interleaved, strict=True)]
    wall = [mine - bare for mine, bare in zip(one.block_wall, base.block_wall, strict=True)]
    cpu = [mine - bare for mine, bare in zip(one.block_cpu, base.block_cpu, strict=True)]
    return Added(
        median(paired) / 1e3,
        mean(wall) / 1e3, _error(wall) / 1e3, mean(paired) / 1e3,
        mean(cpu) / 1e3, _error(cpu) / 1e3,
    )  # fmt: skip


def _error(values: list[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def _ratio(table: Mapping[str, Added], name: str, to: str, what: str) -> float:
    return float(getattr(table[name], what) / getattr(table[to], what))


def _table(workload: str, table: Mapping[str, Added]) -> str:
    head = f"{workload:26} {'p50 µs':>9} {'ratio':>6} {'mean µs':>16} {'ratio':>6} {'CPU µs':>16} {'ratio':>6}"
    return "\n".join([head, "-" * len(head), *(_row(name, table) for name in table)])


def _row(name: str, table: Mapping[str, Added]) -> str:
    one = table[name]
    label = "bare application (absolute)" if name == BASELINE else name
    cells = [(f"{one.p50:9.0f}", "p50"), (f"{one.mean:9.0f} ±{one.mean_error:5.0f}", "mean")]
    cells.append((f"{one.cpu:9.0f} ±{one.cpu_error:5.0f}", "cpu"))
    ratios = ["" if name == BASELINE else f"{_ratio(table, name, YARDSTICK, what):.3f}" for _, what in cells]
    return f"{label:26} " + " ".join(f"{text} {ratio:>6}" for (text, _), ratio in zip(cells, ratios, strict=True))
