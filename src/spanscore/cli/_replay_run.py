"""What ``spanscore replay`` does with what it was given: a store → files or evaluation spans, a table, a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, Final

import typer

from spanscore.cli._between import between
from spanscore.cli._budget_spent import budget_spent
from spanscore.cli._config_report import ConfigReport, valid
from spanscore.cli._replay_told import plan_costs, show_progress, summary
from spanscore.cli._session_plan import session_metrics_in
from spanscore.cli._source_told import nothing_in
from spanscore.cli._traffic import requests_per_day_in
from spanscore.core.score import Outcome
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, SampleError, writing
from spanscore.report import write
from spanscore.stored.replay import (
    Journal,
    Replay,
    ReplayBounds,
    ReplayScorer,
    ReplayTally,
    refuse_unready,
    replay_scorer,
)
from spanscore.stored.trace_stores import store_of
from spanscore.stored.traces import TraceStore
from spanscore.stored.unit_reading import EvaluatedUnits, UnitReader

__all__ = ["ReplayRun"]

_FOLDER: Final = Path("replay")
_SCORES: Final = "scores.jsonl"
_PAGE: Final = "report.html"
_A_DAY_S: Final = 86_400.0
_END_S: Final = 10.0
"""For what is being scored when Ctrl-C comes, and for the last evaluation spans to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """One run of the command: its settings, as ``spanscore replay --help`` tells them; a text that is empty was not given."""

    config: Path
    source: str
    since: str
    until: str
    rate: str
    limit: int | None
    dry_run: bool
    resume: Path | None
    again: bool
    out: Path | None
    emit: bool
    as_json: bool

    def run(self) -> bool:
        """Score, tell and write; return whether Ctrl-C ended it.

        Raises:
            SpanscoreError: an option, the configuration or the source is wrong.
        """
        report = valid(self.config)
        tally = ReplayTally(key for rule in report.settings.sampling.rules for key in rule.when.metadata or ())
        since_s, until_s = between(self.since, self.until)
        bounds = self._bounds(since_s, until_s)
        store = store_of(self.source, since_s=since_s, until_s=until_s)
        file = self._file()
        evaluated = _read_evaluated(file)
        beforehand = [*self._beforehand()]  # the journal makes its file
        journal = self._journal(file)
        made = self._scorer(report, tally, journal)
        notes = Terminal(stderr=True, highlight=False, markup=False)
        for note in (*made.notes, *beforehand):
            notes.print_line(note)
        reader = UnitReader(made.settings, evaluated)
        with show_progress(tally, notes, lambda tally: str(tally.state())) as on_progress:
            replay = Replay(
                store, reader, made.scorer._stored_units(), bounds, tally=tally, journal=journal, told=on_progress
            )
            interrupted, arrived = self._run_replay(replay, made, journal)
        if not interrupted:
            self._refuse_nothing(tally)
        self._tell(report, tally, made, store, reader, interrupted=interrupted)
        for note in self._afterwards(tally, file, interrupted=interrupted, arrived=arrived):
            notes.print_line(note)
        if self.emit and not (arrived or interrupted):
            raise ConfigurationError(
                "not all that was scored has left: is the backend there? Run it again: the ids are the same, so what has "
                "arrived is no second score; with --resume FILE no judge is asked twice"
            )
        return interrupted

    def _refuse_nothing(self, tally: ReplayTally) -> None:
        """Make sure that there were units; within a time that was asked for there may be none, as where each hour is replayed.

        Raises:
            ConfigurationError: there were none, or nothing could be read.
        """
        may_be = bool(self.since or self.until) and not (tally.unread_total and not tally.traces)
        if not (tally.units or may_be):
            raise ConfigurationError(nothing_in(self.source, tally.traces, tally.unread, tally.outside))

    def _bounds(self, since_s: float | None, until_s: float | None) -> ReplayBounds:
        try:
            per_second = requests_per_day_in(self.rate) / _A_DAY_S if self.rate else inf
        except ValueError as error:
            raise ConfigurationError(f"--max-rate: {error}") from None
        if self.rate and "/" not in self.rate:  # a rate of traffic is then one of a day
            raise ConfigurationError(
                f"--max-rate: {self.rate!r} does not say in which time; write {self.rate}/s, or /min"
            )
        bounds = ReplayBounds.of(since_s, until_s, limit=self.limit)
        return replace(bounds, per_second=per_second, again=self.again)

    def _file(self) -> Path | None:
        """Return where what is scored is kept, and was; None = nowhere.

        Raises:
            ConfigurationError: two options contradict each other, or there is a file already that nobody wants to go on with.
        """
        if self.emit and self.out is not None:
            raise ConfigurationError("--export writes no files, and --out sends nothing: choose one of them")
        if self.resume is not None and self.out is not None and self.resume.parent != self.out:
            raise ConfigurationError(f"--resume {self.resume} goes on in its own folder: leave --out out")
        if self.resume is not None or self.emit or self.dry_run:
            return self.resume
        file = (self.out or _FOLDER) / _SCORES
        if file.exists() and file.stat().st_size:
            raise ConfigurationError(
                f"{file} is there already: --resume {file} goes on with it, --out names another folder"
            )
        return file

    def _journal(self, file: Path | None) -> Journal | None:
        if file is None or self.dry_run:
            return None
        refuse_unready(self.config)
        return Journal(file, waits=self.emit)

    def _scorer(self, report: ConfigReport, tally: ReplayTally, journal: Journal | None) -> ReplayScorer:
        if self.dry_run:  # asks no judge, and needs no key to one
            of_sessions = session_metrics_in(report.of_metrics, report.metrics)
            return replay_scorer(
                self.config, metrics=[metric for metric in report.metrics if metric not in of_sessions]
            )
        if journal is None:
            return replay_scorer(self.config, emits=self.emit, sinks=[tally])
        answers = journal.path.with_name(f"{journal.path.name}.answers")
        return replay_scorer(self.config, emits=self.emit, answers=answers, sinks=[tally, journal.sink])

    def _run_replay(self, replay: Replay, made: ReplayScorer, journal: Journal | None) -> tuple[bool, bool]:
        """Run it; return whether Ctrl-C ended it, and whether all that was to leave has arrived."""
        interrupted, arrived = False, True
        try:
            replay.look() if self.dry_run else replay.score()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            arrived = made.scorer.shutdown(_END_S)
            if journal is not None:
                if arrived:
                    journal.commit()
                journal.close()
        return interrupted, arrived

    def _tell(
        self,
        report: ConfigReport,
        tally: ReplayTally,
        made: ReplayScorer,
        store: TraceStore,
        reader: UnitReader,
        *,
        interrupted: bool,
    ) -> None:
        costs = plan_costs(report, tally.taken)
        if self.as_json:
            document: dict[str, Any] = {**tally.as_json(), "interrupted": interrupted, "lost": list(store.lost)}
            document |= {"dry_run": self.dry_run, "cost": [cost.as_json() for cost in costs]} if self.dry_run else {}
            typer.echo(json.dumps(document, indent=2))
            return
        for part in summary(tally, made, store, reader, costs if self.dry_run else None):
            Terminal().print_line(part) if isinstance(part, str) else Terminal().print(part, highlight=False)

    def _beforehand(self) -> Iterator[str]:
        if self.resume is not None and not self.resume.exists():
            yield f"--resume {self.resume} is not there: beginning anew"
        if self.emit and not self.dry_run:
            yield (
                "--export: evaluation spans have the times of the units that they are of; some stores refuse spans "
                "that old, or "
                "put them where nobody looks"
            )

    def _afterwards(self, tally: ReplayTally, file: Path | None, *, interrupted: bool, arrived: bool) -> Iterator[str]:
        if self.dry_run:
            yield from ["Interrupted: the counts are of what was read until then."] * interrupted
            return
        unpaid = tally.of(Outcome.BUDGET_EXHAUSTED)
        if interrupted:
            again = "" if file is None else f" To go on: --resume {file}"
            yield f"Interrupted: what was scored until then is kept.{again}"
        elif file is not None and arrived and not unpaid:
            for ending in ("", "-wal", "-shm"):
                file.with_name(f"{file.name}.answers{ending}").unlink(missing_ok=True)
        if unpaid:
            yield budget_spent(unpaid, f"with --resume {file or 'FILE'}")
        if file is None or self.emit:
            return
        yield f"{tally.scored:,} scores are in {file}, with the spans of their units: what the judge read"
        yield from _page(file)


def _read_evaluated(file: Path | None) -> EvaluatedUnits:
    evaluated = EvaluatedUnits()
    if file is not None and file.is_file():
        try:
            evaluated.read(Journal.spans(file))
        except SampleError as error:
            raise SampleError(f"{file}: {error}") from None
    return evaluated


def _page(file: Path) -> Iterator[str]:
    if find_spec("jinja2") is None:
        yield f'no page: pip install "spanscore[report]", then spanscore report {file}'
        return
    page = file.with_name(_PAGE)
    with writing(page):
        page.touch(0o600)
        page.chmod(0o600)  # it may have been there, and others' to read; it holds what the judge read
        write(Journal.spans(file), page)
    yield f"The page is {page}; open {page.absolute().as_uri()}"
