"""The gate of ``spanscore evaluate``: its options read, what came of it told, and a baseline kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from spanscore.cli._to_be_written import refuse_unwritable
from spanscore.core.printable import printable
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.stored.evaluation_result import Result, Row, read_rows, write_rows
from spanscore.stored.quality_gate import (
    LEAVE_OUT,
    CaseChange,
    GateResult,
    MetricGate,
    QualityBounds,
    checked,
    write_junit,
)

__all__ = ["FELL", "INCOMPLETE", "QualityGate", "exit_code"]

FELL, INCOMPLETE = 1, 3
"""Exit codes: a bound does not hold; too many cases have no score."""
_CASES = 10
"""Changed cases that are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityGate:
    """The options of the gate, as they were given.

    Attributes:
        baseline: rows of an earlier run; None = nothing to fall from.
        update: whether this run's rows take its place.
        max_drop: ``metric=0.03``, each; ``least`` likewise.
        max_unscored: share, [0, 1].
        junit: a file to write; None = none.
    """

    baseline: Path | None
    update: bool
    max_drop: Sequence[str]
    least: Sequence[str]
    max_unscored: float
    junit: Path | None

    @property
    def is_asked(self) -> bool:
        """Whether anything is to be held."""
        return bool(self.baseline or self.max_drop or self.least or self.junit)

    def gate(self, metrics: Collection[str]) -> QualityBounds:
        """Return what these metrics must hold, before anything is paid for; a baseline that is replaced is shown, not held.

        Raises:
            ConfigurationError: an option is none, or there is no baseline yet.
        """
        if self.update and self.baseline is None:
            raise ConfigurationError("--update-baseline writes the file that --baseline names; name one")
        if not 0.0 <= self.max_unscored <= 1.0:
            raise ConfigurationError(f"--max-unscored is {self.max_unscored:g}; it is a share, from 0 to 1")
        refuse_unwritable(self.junit, self.baseline if self.update else None)
        drops = {} if self.update else _bounds("--max-drop", self.max_drop)
        least = _bounds("--min", self.least)
        gate = QualityBounds(self._rows(), drops, least, self.max_unscored, replaces=self.update)
        gate.refuse_unknown(metrics)
        return gate

    def _rows(self) -> list[Row] | None:
        if self.baseline is None:
            return None
        rows = list(read_rows(self.baseline))
        if not rows and not self.update:
            lacks = "holds no rows to compare with" if self.baseline.exists() else "is not there"
            raise ConfigurationError(f"{self.baseline} {lacks}; --update-baseline writes it from this run")
        return rows or None

    def hold(self, gate: QualityBounds, result: Result, source: str) -> GateResult:
        """Hold a run against it, and write what was asked for.

        Raises:
            ConfigurationError: as ``checked``; or a file cannot be written.
        """
        held = checked(gate, result)
        if self.junit is not None:
            write_junit(held, self.junit, suite=source)
        if self.update and self.baseline is not None and not result.interrupted:
            write_rows(self.baseline, result.rows)
        return held

    def tell(self, held: GateResult) -> None:
        """Print what changed, case by case, then the metrics."""
        terminal = Terminal()
        fallen = [change for change in held.changes if change.after < change.before]
        if fallen:
            terminal.print(_cases(fallen))
        terminal.print(_metrics(held.metrics))
        for line in _lines(held):
            terminal.print_line(line)
        if self.update:
            terminal.print(f"{self.baseline} holds this run now.", markup=False)


def exit_code(held: GateResult) -> int:
    """Return how the command ends."""
    if not held.passed:
        return FELL
    return INCOMPLETE if held.incomplete else 0


def _bounds(option: str, texts: Sequence[str]) -> Mapping[str, float]:
    bounds: dict[str, float] = {}
    for text in ",".join(texts).split(","):
        name, equals, number = text.strip().partition("=")
        if not text.strip():
            continue
        try:
            bound = float(number)
        except ValueError:
            bound = -1.0
        if not name or not equals or not 0.0 <= bound <= 1.0:
            raise ConfigurationError(
                f"{option} {text.strip()!r}: write a metric and a number from 0 to 1: faithfulness=0.03"
            )
        bounds[name] = bound
    return bounds


def _cases(fallen: Sequence[CaseChange]) -> Table:
    more = len(fallen) - _CASES
    title = f"{len(fallen)} cases fell" + (f", these most of all ({more} more)" if more > 0 else "")
    table = Table(title=title if len(fallen) > 1 else "1 case fell", title_justify="left")
    table.add_column("case", overflow="fold")
    table.add_column("metric", overflow="fold")
    for name in ("before", "now"):
        table.add_column(name, justify="right", no_wrap=True)
    for change in fallen[:_CASES]:
        table.add_row(printable(change.case), change.metric, f"{change.before:.2f}", f"{change.after:.2f}")
    return table


def _metrics(metrics: Sequence[MetricGate]) -> Table:
    table = Table(title="At the gate", title_justify="left")
    table.add_column("metric", overflow="fold")
    for name in ("before", "now", "change (95 %)", "cases", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for gate in metrics:
        table.add_row(
            gate.metric,
            _number(gate.before),
            _number(gate.quality),
            "–"
            if gate.change is None
            else f"{gate.change.mean:+.3f} ({gate.change.low:+.3f} to {gate.change.high:+.3f})",
            str(gate.cases) if gate.change is not None else "–",
            _verdict(gate),
        )
    return table


def _verdict(gate: MetricGate) -> str:
    if gate.failed:
        return "does not hold"
    return "not known" if gate.incomplete else "holds"


def _lines(held: GateResult) -> Iterator[str]:
    if held.by_line:
        yield "cases are told apart by their lines, as some have no id: the same line must be the same case"
    if held.not_in_baseline:
        yield f"{held.not_in_baseline:,} scored cases have no score in the baseline: they are compared with nothing"
    if held.not_in_run:
        yield f"{held.not_in_run:,} cases of the baseline have no score in this run"
    for gate in held.metrics:
        yield from (f"{gate.metric} {why}" for why in gate.failed)
        yield from (f"{gate.metric}: {note}" for note in gate.notes)
        if gate.lacks:
            yield f"{gate.metric}: {gate.lacks}"
        if gate.evaluator_version_changed:
            yield f"{gate.metric}: the baseline is of another version or judge; a change may be the judge's"
    if held.incomplete:
        yield f"Not known: {LEAVE_OUT}; --max-unscored allows more"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
