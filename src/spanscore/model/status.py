"""Status: what a person asks in the first hour, as a value and as a small table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Status"]


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a scorer at one moment. ``print(scorer.status())`` shows it as tables.

    Attributes:
        providers: rows of (what, which, endpoint, last result).
        units: roots recorded since the start.
        refused: roots turned away because the inbox was full.
        eligible: metric → units that entered.
        pending: metric → units between entry and outcome.
        outcomes: metric → outcome → units.
        reasons: "metric outcome" → the latest reason.
        judges: metric → model of its judge.
        queue: places taken, places in all.
        hold: units parked, units released by reason, spans lost.
        closed: whether the scorer was shut down.
        neighbours: other instrumentations that trace LangChain in this process now.
        unpriced: models of judges that were paid for at a price nobody gave; their cost is in no sum.
        folded: measurements whose attributes became ``other``, as an instrument had too many sets of them.
    """

    providers: Sequence[Sequence[str]]
    units: int
    refused: int
    eligible: Mapping[str, int]
    pending: Mapping[str, int]
    outcomes: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, str]
    judges: Mapping[str, str]
    queue: tuple[int, int]
    hold: Mapping[str, int]
    closed: bool
    neighbours: Sequence[str] = ()
    unpriced: Sequence[str] = ()
    folded: int = 0

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=110, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __rich__(self) -> Any:
        """Return the tables."""
        from rich.console import Group

        return Group(self._metrics_table(), self._providers_table(), self._line(), *self._notes())

    def _metrics_table(self) -> Any:
        from rich.table import Table

        table = Table(
            "metric",
            "judge",
            "eligible",
            "pending",
            "outcomes",
            "latest reason",
            title="spanscore",
            title_justify="left",
        )
        for name in self.eligible:
            counts = ", ".join(f"{outcome} {units}" for outcome, units in sorted(self.outcomes.get(name, {}).items()))
            reason = "; ".join(text for key, text in self.reasons.items() if key.split(" ", 1)[0] == name)
            table.add_row(
                name,
                self.judges.get(name, ""),
                str(self.eligible[name]),
                str(self.pending.get(name, 0)),
                counts or "–",
                reason,
            )
        return table

    def _providers_table(self) -> Any:
        from rich.table import Table

        table = Table("signal", "provider", "endpoint", "last result")
        for row in self.providers:
            table.add_row(*row)
        return table

    def _notes(self) -> Iterator[str]:
        if self.unpriced:
            yield f"no price of {', '.join(self.unpriced)}: their cost is not counted; give judge(…, prices=…) one"
        if self.folded:
            yield f"{self.folded} measurements are told as 'other': too many different models, agents or series"

    def _line(self) -> str:
        hold = ", ".join(f"{name} {count}" for name, count in self.hold.items())
        state = "shut down" if self.closed else "running"
        beside = f"; also traced by {', '.join(self.neighbours)}" if self.neighbours else ""
        units = f"units {self.units}, refused {self.refused}; queue {self.queue[0]} of {self.queue[1]}"
        return f"{state}; {units}; hold: {hold}{beside}"
