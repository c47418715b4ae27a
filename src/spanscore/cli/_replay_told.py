"""ReplayTally → what ``spanscore replay`` tells: while it goes on, and at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from spanscore.cli._config_report import ConfigReport
from spanscore.cli._cost_plan import costs_of, usd_told
from spanscore.cli._sizes import Sizes
from spanscore.cli._source_told import not_read
from spanscore.core.printable import Fitting
from spanscore.core.terminal import Terminal
from spanscore.stored.replay import ReplayScorer, ReplayTally
from spanscore.stored.traces import TraceStore
from spanscore.stored.unit_reading import NO_CONTENT, UnitReader
from spanscore.wiring.preview import UnitCost

__all__ = ["PlannedCost", "describe_traces", "of_store", "plan_costs", "show_progress", "summary", "unit_costs"]

_NOT_TOLD: Final = ("scored", "not_sampled")


@dataclass(frozen=True, slots=True)
class PlannedCost:
    """What scoring costs that a dry run has found.

    Attributes:
        units: that the metric would score.
        calls: of its judge; None where nobody knows. Likewise ``tokens``.
        usd: None also where the judge's model has no price.
    """

    metric: str
    units: int
    calls: float | None
    tokens: float | None
    usd: float | None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def unit_costs(report: ConfigReport, sizes: Sizes) -> Mapping[str, UnitCost]:
    """Return metric → what one score costs, as ``spanscore check`` tells it; those of which nobody knows are left out."""
    names = [metric.name for metric in report.metrics]
    costs = costs_of(report.of_metrics, names, sizes)
    return {cost.metric: UnitCost(cost.calls, cost.input_tokens + cost.output_tokens, cost.usd) for cost in costs}


def plan_costs(report: ConfigReport, taken: Counter[str]) -> Sequence[PlannedCost]:
    """Return what it would cost to score so many units by each metric."""
    costs = unit_costs(report, Sizes())
    names = (metric.name for metric in report.metrics)
    return [PlannedCost(name, taken[name], *costs.get(name, UnitCost()).times(taken[name])) for name in names]


@contextmanager
def show_progress(
    tally: ReplayTally, console: Terminal, tell: Callable[[ReplayTally], str]
) -> Iterator[Callable[[], None]]:
    """Show how far it is, until the block ends; yield what is to be called when it may have changed."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=4) as bar:
        task = bar.add_task("reading …", total=None)

        def update() -> None:
            bar.update(task, description=tell(tally))

        yield update
        update()


def summary(
    tally: ReplayTally, made: ReplayScorer, store: TraceStore, reader: UnitReader, costs: Sequence[PlannedCost] | None
) -> Iterator[Any]:
    """Yield what came of it; ``costs``: of a dry run, None of any other."""
    yield describe_traces(tally)
    yield _scores(tally, made) if costs is None else _dry(tally, costs)
    if tally.told or tally.anew:
        yield (
            f"{tally.told:,} decisions to score are as the store tells them; {tally.anew:,} were made anew, by the rates and "
            "rules of the configuration"
        )
    if costs is None and tally.calls:
        money = "" if tally.usd is None else f", {usd_told(tally.usd)}"
        yield f"{tally.calls:,} judge calls: {tally.tokens:,} tokens{money}"
    yield from of_store(tally, store, reader)


def of_store(tally: ReplayTally, store: TraceStore, reader: UnitReader) -> Iterator[str]:
    """Yield what must be known of a store, of the spans that were read of it, and of what could not be."""
    yield from (f"lost in the store: {lost}" for lost in store.lost)
    if tally.units and not tally.with_content:
        yield f"{tally.units:,} units, {NO_CONTENT}"
    for key, units in tally.lacking.items():
        yield (
            f"{units:,} units have no metadata {key}, at which a sampling rule looks: for them it does not hold "
            "(capture.metadata exports it)"
        )
    yield from reader.translator.notes()
    if reader.orphans:
        yield f"{reader.orphans:,} spans belong to units whose root is not there"
    yield from (f"{spans:,} of the spans have {what}: it is read as its start" for what, spans in reader.mended.items())
    yield from not_read(tally.unread, tally.unread_total)


def describe_traces(tally: ReplayTally) -> str:
    """Return what was read."""
    dialects = ", ".join(f"{name} {units:,}" for name, units in tally.dialects.most_common())
    outside = f"; {tally.outside:,} more outside the time" if tally.outside else ""
    return f"{tally.traces:,} traces with {tally.units:,} units{f' ({dialects})' if dialects else ''}{outside}"


def _scores(tally: ReplayTally, made: ReplayScorer) -> Fitting:
    rows = list[tuple[str, ...]]()
    for metric in made.scorer._stored_units().metrics:
        name = metric.name
        ended = {
            **made.scorer.status().outcomes.get(name, {}),
            **tally.outcomes.get(name, {}),
        }  # of revisions it knows none
        others = {outcome: units for outcome, units in ended.items() if units and outcome not in _NOT_TOLD}
        outcomes = "\n".join(f"{outcome} {units:,}" for outcome, units in sorted(others.items()))
        rows.append(
            (name, f"{tally.skipped[name]:,}", f"{tally.taken[name]:,}", f"{ended.get('scored', 0):,}", outcomes)
        )
    return Fitting(("metric", "there already", "taken", "scored", "not scored"), rows)


def _dry(tally: ReplayTally, costs: Sequence[PlannedCost]) -> Fitting:
    rows = [
        (
            cost.metric,
            f"{tally.skipped[cost.metric]:,}",
            f"{cost.units:,}",
            _number(cost.calls),
            _number(cost.tokens),
            _usd(cost.usd),
        )
        for cost in costs
    ]
    title = "what would be scored, and what that costs on short samples"
    return Fitting(("metric", "there already", "would be scored", "judge calls", "tokens", "USD"), rows, title=title)


def _number(number: float | None) -> str:
    return "?" if number is None else f"{number:,.0f}"


def _usd(usd: float | None) -> str:
    return "no price" if usd is None else usd_told(usd).removesuffix(" USD")
