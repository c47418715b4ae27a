"""``spanscore preview``, ``replay`` and ``collect``: what each does with a trace store, and what it prints."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any, Final

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from spanscore.cli._config_report import ConfigReport, valid
from spanscore.cli._cost_plan import Sizes, costs_of, requests_per_day_in
from spanscore.cli._options import budget_spent, refuse_overwriting, refuse_unwritable
from spanscore.cli._part_plans import session_metrics_in
from spanscore.config.collect import CaseCondition, condition_of
from spanscore.config.tree import ScorerSettings
from spanscore.core.files import whole_file
from spanscore.core.job import Job, SampledUnit
from spanscore.core.printable import TextTable, format_count, format_number, format_usd, names_listed
from spanscore.core.score import Outcome
from spanscore.core.terminal import Terminal
from spanscore.core.timebox import Timebox
from spanscore.errors import ConfigurationError, SampleError, writing
from spanscore.judges.score_context import suppressed_context
from spanscore.metrics.catalog.registry import built_ins
from spanscore.outputs.collected_cases import CollectedCase, FoundScore
from spanscore.pipeline.jobs import Hooks, JobBuilder, redactor_in
from spanscore.pipeline.sampling import PreviewTally
from spanscore.protocols import Metric, Redactor
from spanscore.report import write
from spanscore.stored.replay import (
    Journal,
    Replay,
    ReplayBounds,
    ReplayScorer,
    ReplayTally,
    refuse_unready,
    replay_scorer,
    units_between,
)
from spanscore.stored.trace_stores import store_of, time_of
from spanscore.stored.traces import TraceStore, Unread
from spanscore.stored.unit_reading import (
    NO_CONTENT,
    CaseCounts,
    EvaluatedUnits,
    StoredUnit,
    UnitPlan,
    UnitReader,
    drawn,
    folded,
    found,
    reading_settings,
)
from spanscore.wiring.metrics import dialects_of
from spanscore.wiring.preview import Preview, UnitCost, preview_of, tally_of

__all__ = [
    "CollectRun",
    "PlannedCost",
    "PreviewRun",
    "ReplayRun",
    "between",
    "describe_traces",
    "not_read",
    "nothing_in",
    "of_store",
    "plan_costs",
    "show_progress",
    "summary",
    "unit_costs",
]

# --- between --------------------------------------------------------------------------------------------------------

# ``--since`` and ``--until`` → seconds since the epoch.


def between(since: str, until: str) -> tuple[float | None, float | None]:
    """Return both ends of a time; None of one that is empty.

    Raises:
        ConfigurationError: one is none, or nothing lies between them.
    """
    now_s = time.time()
    since_s, until_s = (None if not text else time_of(text, now_s) for text in (since, until))
    if since_s is not None and until_s is not None and until_s <= since_s:
        raise ConfigurationError(f"--until {until} is not after --since {since}: no unit began between them")
    return since_s, until_s


# --- source told ----------------------------------------------------------------------------------------------------

# What is told of a source of stored spans: what of it could not be read, and why there is nothing to look at.

_NAMED: Final = 20


def not_read(first: Sequence[Unread], total: int) -> Iterator[str]:
    """Yield what could not be read.

    Args:
        first: some of it at least.
        total: how much that is.
    """
    for trace in first[:_NAMED]:
        yield f"not read: {trace.name}: {trace.because}"
    if total > _NAMED:
        yield f"not read: {total - _NAMED:,} more"


def nothing_in(source: str, traces: int, unread: Sequence[Unread], outside: int = 0) -> str:
    """Return why a source has no unit to look at.

    Args:
        traces: that were read.
        unread: what could not be.
        outside: units before or after the time that was asked for.
    """
    if unread and not traces:
        return f"{source}: nothing in it could be read; the first: {unread[0].name}: {unread[0].because}"
    if outside:
        return f"{source}: none of its {outside:,} units began between --since and --until"
    if traces:
        return f"{source} holds no units: no root of a chain, agent or model call is in {traces:,} traces"
    return f"{source} holds no spans: a file has lines of OTLP-JSON, as the Collector's 'file' exporter writes them"


# --- replay told ----------------------------------------------------------------------------------------------------

# ReplayTally → what ``spanscore replay`` tells: while it goes on, and at the end.

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
        money = "" if tally.usd is None else f", {format_usd(tally.usd)} USD"
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


def _scores(tally: ReplayTally, made: ReplayScorer) -> TextTable:
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
    return TextTable(("metric", "there already", "taken", "scored", "not scored"), rows)


def _dry(tally: ReplayTally, costs: Sequence[PlannedCost]) -> TextTable:
    rows = [
        (
            cost.metric,
            f"{tally.skipped[cost.metric]:,}",
            f"{cost.units:,}",
            format_number(cost.calls),
            format_number(cost.tokens),
            format_usd(cost.usd, "no price"),
        )
        for cost in costs
    ]
    title = "what would be scored, and what that costs on short samples"
    return TextTable(("metric", "there already", "would be scored", "judge calls", "tokens", "USD"), rows, title=title)


# --- preview run ----------------------------------------------------------------------------------------------------

# What ``spanscore preview`` does with what it was given: a store → what a configuration would take of it.

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


# --- replay run -----------------------------------------------------------------------------------------------------

# What ``spanscore replay`` does with what it was given: a store → files or evaluation spans, a table, a page.

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


# --- collect run ----------------------------------------------------------------------------------------------------

# What ``spanscore collect`` does with what it was given: a store → a file of cases.

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
    pipeline = JobBuilder(dialects_of(settings, box), Hooks(redactor).within(box), box)

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
