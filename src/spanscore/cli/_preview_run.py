"""What ``spanscore preview`` does with what it was given: a store → what a configuration would take of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from spanscore.cli._between import between
from spanscore.cli._config_report import ConfigReport, valid
from spanscore.cli._replay_told import describe_traces, of_store, show_progress, unit_costs
from spanscore.cli._session_plan import session_metrics_in
from spanscore.cli._sizes import Sizes
from spanscore.cli._source_told import nothing_in
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.outputs.collected_cases import FoundScore
from spanscore.pipeline.sampling import PreviewTally
from spanscore.protocols import Metric
from spanscore.stored.replay import ReplayBounds, ReplayTally, units_between
from spanscore.stored.trace_stores import store_of
from spanscore.stored.traces import TraceStore
from spanscore.stored.unit_reading import StoredUnit, UnitPlan, UnitReader
from spanscore.wiring.preview import Preview, UnitCost, preview_of, tally_of

__all__ = ["PreviewRun"]

_NOT_OF_A_SCORE: Final = frozenset[str]()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRun:
    """One run of the command: its settings, as ``spanscore preview --help`` tells them; a text that is empty was not given."""

    config: Path
    source: str
    since: str
    until: str
    limit: int | None
    context_tokens: int | None
    as_json: bool

    def run(self) -> bool:
        """Read and tell; return whether Ctrl-C ended it.

        Raises:
            SpanscoreError: an option, the configuration or the source is wrong, or there is nothing in it.
        """
        report = valid(self.config)
        metrics, settings = _of_units(self.config, report), report.settings
        since_s, until_s = between(self.since, self.until)
        store = store_of(self.source, since_s=since_s, until_s=until_s)
        reader = UnitReader(settings)
        rates = {name: settings.sampling.rates_of(name)[0] for name in metrics}
        tally = tally_of(settings, rates, settings.sampling.rules)
        read = ReplayTally(key for rule in settings.sampling.rules for key in rule.when.metadata or ())
        with show_progress(
            read, Terminal(stderr=True, highlight=False, markup=False), lambda read: _so_far(read, tally)
        ) as on_progress:
            units = units_between(store, reader, ReplayBounds.of(since_s, until_s), read, on_progress)
            interrupted = self._count(units, tally, read, metrics)
        if not read.units and not interrupted:
            raise ConfigurationError(nothing_in(self.source, read.traces, read.unread, read.outside))
        costs = unit_costs(report, Sizes(self.context_tokens))
        notes = [*self._on_costs(costs), *_notes(report)]
        preview = preview_of(tally, rates=rates, rules=settings.sampling.rules, costs=costs, notes=notes)
        self._tell(preview, read, store, reader, interrupted=interrupted)
        return interrupted

    def _on_costs(self, costs: Mapping[str, UnitCost]) -> Iterator[str]:
        if any(cost.calls for cost in costs.values()):
            yield f"costs are {Sizes(self.context_tokens)}"

    def _count(
        self, units: Iterator[StoredUnit], tally: PreviewTally, read: ReplayTally, metrics: Mapping[str, Metric]
    ) -> bool:
        try:
            for stored in units:
                if self.limit is not None and tally.taken >= self.limit:
                    break
                root = stored.unit.root
                facts = stored.unit.facts()._replace(scores=_qualities(stored.evaluated.found, metrics))
                decisions = tally.add(facts, None if root is None else root.start_ns)
                taken = {name for name, decision in decisions.items() if decision.take}
                read.read(stored, UnitPlan((), taken, _NOT_OF_A_SCORE, _NOT_OF_A_SCORE))
        except KeyboardInterrupt:
            return True
        return False

    def _tell(
        self, preview: Preview, read: ReplayTally, store: TraceStore, reader: UnitReader, *, interrupted: bool
    ) -> None:
        about = [*of_store(read, store, reader)]
        if self.as_json:
            counts = {"traces": read.traces, "outside": read.outside, "dialects": dict(read.dialects)}
            plain = {**counts, **preview.as_json(), "notes": [*preview.notes, *about], "interrupted": interrupted}
            typer.echo(json.dumps(plain, indent=2))
            return
        terminal = Terminal(highlight=False, markup=False)
        for part in (describe_traces(read), *preview.render(), *about):
            terminal.print_line(part) if isinstance(part, str) else terminal.print(part)
        if interrupted:
            typer.echo("Interrupted: the counts are of what was read until then.", err=True)


def _of_units(config: Path, report: ConfigReport) -> Mapping[str, Metric]:
    """Return the metrics that score units, by name."""
    of_sessions = session_metrics_in(report.of_metrics, report.metrics)
    metrics = {metric.name: metric for metric in report.metrics if metric not in of_sessions}
    if not metrics:
        raise ConfigurationError(
            f"{config} has no metric that scores units and can be made here: sampling takes units for these alone"
        )
    return metrics


def _qualities(scores: Mapping[str, FoundScore], metrics: Mapping[str, Metric]) -> dict[str, float | None]:
    """Return the qualities that the store has of a unit, at which rules on scores look."""
    values = ((name, score.value) for name, score in scores.items() if name in metrics)
    return {name: None if value is None else metrics[name].scale.quality(value) for name, value in values}


def _so_far(read: ReplayTally, tally: PreviewTally) -> str:
    return f"{read.traces:,} traces · {read.units:,} units · {tally.taken:,} would be scored"


def _notes(report: ConfigReport) -> Iterator[str]:
    if report.settings.judge.budget:
        yield "judge.budget lowers the rates by the hour: what is told here is without that"
    if of_sessions := session_metrics_in(report.of_metrics, report.metrics):
        yield f"conversations are not previewed: {', '.join(metric.name for metric in of_sessions)}"
    if report.unmade:
        yield f"not previewed, as they cannot be made here: {', '.join(report.unmade)}"
    yield from (f"not ready here: {lacking}" for lacking in report.missing)
