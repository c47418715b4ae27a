"""What ``spanscore collect`` does with what it was given: a store → a file of cases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from spanscore.cli._between import between
from spanscore.cli._source_told import not_read, nothing_in
from spanscore.cli._to_be_written import refuse_overwriting, refuse_unwritable
from spanscore.config.collect import CaseCondition, condition_of
from spanscore.config.tree import ScorerSettings
from spanscore.core.files import whole_file
from spanscore.core.job import Job, SampledUnit
from spanscore.core.printable import format_count, names_listed
from spanscore.core.terminal import Terminal
from spanscore.core.timebox import Timebox
from spanscore.errors import ConfigurationError, writing
from spanscore.judges.score_context import suppressed_context
from spanscore.metrics.catalog.registry import built_ins
from spanscore.outputs.collected_cases import CollectedCase
from spanscore.pipeline.jobs import Hooks, Pipeline, redactor_in
from spanscore.protocols import Redactor
from spanscore.stored.trace_stores import store_of
from spanscore.stored.traces import TraceStore, Unread
from spanscore.stored.unit_reading import (
    NO_CONTENT,
    CaseCounts,
    StoredUnit,
    UnitReader,
    drawn,
    folded,
    found,
    reading_settings,
)
from spanscore.wiring.metrics import dialects_of

__all__ = ["CollectRun"]

_REASONS: Final = 3
_ANY_METRIC: Final = "response_relevancy"
"""Scores a question with its answer, which every case has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRun:
    """One run of the command: its settings, as ``spanscore collect --help`` tells them; a text that is empty was not given."""

    source: str
    out: Path
    when: Sequence[str]
    sample: int | None
    seed: int
    config: Path | None
    redactor: str
    since: str
    until: str
    as_json: bool

    def run(self) -> None:
        """Read, write and tell.

        Raises:
            SpanscoreError: an option, the configuration or the source is wrong, or there is nothing to write.
        """
        conditions = [condition_of(text) for text in self.when]
        refuse_unwritable(self.out)
        refuse_overwriting(self.source, "--out", self.out)
        settings = reading_settings(self.config)
        since_s, until_s = between(self.since, self.until)
        store = store_of(self.source, since_s=since_s, until_s=until_s)
        counts, unread = CaseCounts(), list[Unread]()
        read = _reader(settings, redactor_in(self.redactor or settings.redactor))
        with _progress() as bar:
            task = bar.add_task("reading …", total=None)
            stored = _units(store, UnitReader(settings), counts, unread)
            cases = found(stored, conditions, read, counts)
            passing = (_show_progress(case, bar, task, counts) for case in cases)
            kept = folded(passing if self.sample is None else drawn(passing, self.sample, self.seed))
        if not kept:
            raise ConfigurationError(_nothing(self.source, conditions, counts, unread))
        self._write(kept)
        self._tell(kept, counts, unread, sorted({condition.metric for condition in conditions} - counts.metrics))

    def _write(self, cases: Sequence[CollectedCase]) -> None:
        """Write them whole or not at all, for their owner alone."""
        with writing(self.out), whole_file(self.out, mode=0o600, errors="replace") as file:
            file.writelines(case.line() for case in cases)

    def _tell(
        self, cases: Sequence[CollectedCase], counts: CaseCounts, unread: Sequence[Unread], unknown: Sequence[str]
    ) -> None:
        if self.as_json:
            plain: dict[str, Any] = {**asdict(counts), "metrics": sorted(counts.metrics), "cases": len(cases)}
            plain |= {"unknown_metrics": list(unknown)}
            typer.echo(json.dumps({**plain, "unread": [trace._asdict() for trace in unread]}, indent=2))
            return
        notes = Terminal(highlight=False, markup=False)
        for line in (
            *_lines(self.out, cases, counts, unread, _option_of_metrics(self.config, counts.metrics)),
            *(f"no unit has a {_describe_unknown(metric, counts)}" for metric in unknown),
        ):
            notes.print_line(line)


def _reader(settings: ScorerSettings, redactor: Redactor | None) -> Any:
    box = Timebox(settings.limits.hook_timeout, suppressed_context)
    pipeline = Pipeline(dialects_of(settings, box), Hooks(redactor).within(box), box)

    def read(stored: StoredUnit) -> Job:
        return pipeline.job(SampledUnit(stored.unit, {}))

    return read


def _units(store: TraceStore, reader: UnitReader, counts: CaseCounts, unread: list[Unread]) -> Iterator[StoredUnit]:
    for trace in store.traces():
        if isinstance(trace, Unread):
            unread.append(trace)
            continue
        counts.traces += 1
        yield from reader.units(trace)


def _progress() -> Progress:
    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    notes = Terminal(stderr=True)
    return Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)


def _show_progress(case: CollectedCase, bar: Progress, task: Any, counts: CaseCounts) -> CollectedCase:
    bar.update(task, description=f"{counts.units:,} units, {counts.matched:,} of them wanted")
    return case


def _nothing(source: str, conditions: Sequence[CaseCondition], counts: CaseCounts, unread: Sequence[Unread]) -> str:
    if not counts.units:
        return nothing_in(source, counts.traces, unread)
    units = f"{source}: {format_count(counts.units, 'unit')}"
    return f"{units}, {_none_of_them(conditions, counts)}"


def _none_of_them(conditions: Sequence[CaseCondition], counts: CaseCounts) -> str:
    unknown = sorted({condition.metric for condition in conditions} - counts.metrics)
    if unknown and counts.metrics:
        return f"none with a {_describe_unknown(unknown[0], counts)}"
    if unknown:
        return "none with a score: are its evaluation spans in there? Without --when all units are taken"
    if not counts.matched:
        return "and of none of them does a condition hold"
    if counts.without_content:
        return NO_CONTENT
    return f"and of none of them can a sample be made: {next(iter(counts.unusable))}"


def _describe_unknown(metric: str, counts: CaseCounts) -> str:
    return f"score of {metric}; there are scores of {names_listed(sorted(counts.metrics))}"


def _lines(
    out: Path, cases: Sequence[CollectedCase], counts: CaseCounts, unread: Sequence[Unread], option: str
) -> Iterator[str]:
    units = sum(case.times for case in cases)
    of = "" if units == len(cases) else f", for {units:,} units with {len(cases):,} different questions"
    are = "1 case is" if len(cases) == 1 else f"{len(cases):,} cases are"
    yield f"{are} in {out}{of}; {counts.matched:,} of {counts.units:,} units were wanted"
    for reason, times in (counts.without_content + counts.unusable).most_common(_REASONS):
        yield f"{times:,} left out: {reason}"
    yield from not_read(unread, len(unread))
    yield f"Score them: spanscore evaluate {quote(str(out))} {option} --out rows.jsonl"


def _option_of_metrics(config: Path | None, metrics: Iterable[str]) -> str:
    """Return the option of ``spanscore evaluate`` that names metrics: the configuration's, else built-in ones that scored."""
    if config is not None:
        return f"--config {quote(str(config))}"
    names = sorted(built_ins().keys() & metrics)
    return f"--metrics {','.join(names) or _ANY_METRIC}"
