"""Runs of ``spanscore preview``, ``replay`` and ``collect``: each reads a trace source and prints a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from spanscore.cli._batches import cancel_open_batches, interrupted_batches, open_batch_run
from spanscore.cli._config_report import valid
from spanscore.cli._cost_plan import Sizes, costs_of, requests_per_day_in
from spanscore.cli._options import budget_spent, refuse_overwriting, refuse_unwritable
from spanscore.cli._topics import ConfigReport
from spanscore.config.collect import CaseCondition, condition_of
from spanscore.config.tree import ScorerSettings
from spanscore.core import loop
from spanscore.core.files import whole_file
from spanscore.core.job import SampledUnit
from spanscore.core.printable import TextTable, format_count, format_number, format_usd, names_listed
from spanscore.core.sample import ON_DEMAND
from spanscore.core.score import Outcome
from spanscore.core.terminal import Terminal
from spanscore.core.timebox import Timebox
from spanscore.errors import ConfigurationError, SampleError, writing
from spanscore.judges.batches.run import BatchRun
from spanscore.judges.score_context import suppressed_context
from spanscore.metrics.catalog.configured import metrics_of
from spanscore.metrics.catalog.registry import built_ins
from spanscore.outputs.collected_cases import CollectedCase
from spanscore.pipeline.jobs import Hooks, JobBuilder, redactor_in
from spanscore.pipeline.sampling import PreviewTally
from spanscore.protocols import Metric, Sink
from spanscore.report import write
from spanscore.scorer import receivers_of
from spanscore.stored.replay import (
    MOST_IN_BATCHES,
    MOST_UNDER_WAY,
    Journal,
    Replay,
    ReplayScorer,
    ReplayTally,
    refuse_unready,
    replay_scorer,
)
from spanscore.stored.trace_stores import TraceSource
from spanscore.stored.unit_reading import (
    NO_CONTENT,
    CaseCounts,
    EvaluatedUnits,
    StoredUnit,
    UnitPlan,
    UnitReader,
    draw_cases,
    find_cases,
    fold_cases,
    reading_settings,
)
from spanscore.wiring.metrics import dialects_of, image_limit_of
from spanscore.wiring.preview import UnitCost, preview_of, tally_of

if TYPE_CHECKING:
    from spanscore.cli.collect import CollectOptions
    from spanscore.cli.preview import PreviewOptions
    from spanscore.cli.replay import ReplayOptions

_MOST_UNREAD: Final = 20
"""Maximum number of unreadable parts of a source that are listed."""
_INTERRUPTED: Final = "Interrupted: the counts cover the units that were read until then."


# --- shared by preview and replay ------------------------------------------------------------------------------------


def _make_tally(report: ConfigReport, trace_source: TraceSource) -> ReplayTally:
    keys = {key for rule in report.settings.sampling.rules for key in rule.when.metadata or ()}
    return ReplayTally(trace_source, keys)


def _costs_per_score(report: ConfigReport, sizes: Sizes, *, batch: bool = False) -> Mapping[str, UnitCost]:
    """Return metric → cost of one score, as in ``spanscore check``; metrics with an unknown cost are left out."""
    return {
        cost.metric: UnitCost(cost.calls, cost.input_tokens + cost.output_tokens, cost.batch_usd if batch else cost.usd)
        for cost in costs_of(report, sizes)
    }


@contextmanager
def _show_progress(
    console: Terminal, describe: Callable[[], str], *, transient: bool = False
) -> Iterator[Callable[[], None]]:
    """Show a line of progress until the block ends; yield the function that updates it.

    A transient line disappears at the end, and is left out if the console is not a terminal.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    disabled = transient and not console.is_terminal
    with Progress(*columns, console=console, refresh_per_second=4, transient=transient, disable=disabled) as bar:
        task = bar.add_task("reading …", total=None)

        def update() -> None:
            bar.update(task, description=describe())

        yield update
        update()


def _describe_traces(tally: ReplayTally) -> str:
    dialects = ", ".join(f"{name} {units:,}" for name, units in tally.dialects.most_common())
    trace_source = tally.trace_source
    units = f"{tally.units:,} units{f' ({dialects})' if dialects else ''}{_describe_outside(trace_source)}"
    return f"{trace_source.traces_read:,} traces with {units}"


def _describe_outside(trace_source: TraceSource) -> str:
    return f"; {trace_source.outside:,} more outside the time" if trace_source.outside else ""


def _describe_source(tally: ReplayTally, reader: UnitReader) -> Iterator[str]:
    """Yield notes on a trace store, on its spans, and on the parts that could not be read."""
    yield from (f"lost in the store: {lost}" for lost in tally.trace_source.store.lost)
    if tally.units and not tally.with_content:
        yield f"{tally.units:,} units, {NO_CONTENT}"
    for key, units in tally.lacking.items():
        yield (
            f"{units:,} units have no metadata {key}, which a sampling rule uses: the rule does not apply to them "
            "(capture.metadata exports it)"
        )
    yield from reader.translator.notes()
    if reader.orphans:
        yield f"{reader.orphans:,} spans belong to units whose root is missing"
    yield from (
        f"{spans:,} of the spans have {fault}: it is read as its start" for fault, spans in reader.mended.items()
    )
    yield from tally.trace_source.describe_unread()


# --- preview ---------------------------------------------------------------------------------------------------------


def preview_traces(options: PreviewOptions) -> bool:
    """Read the source and print its preview; return whether Ctrl-C ended it."""
    report = valid(options.config)
    metrics, sampling = {metric.name: metric for metric in report.unit_metrics}, report.settings.sampling
    if not metrics:
        raise ConfigurationError(
            f"{options.config} has no metric that scores units and can be made here; sampling needs one"
        )
    trace_source = TraceSource.of(options.source, options.since, options.until, most_kept=_MOST_UNREAD)
    reader, counts = UnitReader(report.settings), _make_tally(report, trace_source)
    rates = {name: sampling.rates_of(name)[0] for name in metrics}
    tally = tally_of(report.settings, rates, sampling.rules)

    def describe() -> str:
        return f"{trace_source.traces_read:,} traces · {counts.units:,} units · {tally.taken:,} would be scored"

    with _show_progress(Terminal(stderr=True, highlight=False, markup=False), describe) as on_progress:
        interrupted = _count_units(trace_source.units(reader, on_progress), tally, counts, metrics, options.limit)
    if not counts.units and not interrupted:
        raise ConfigurationError(trace_source.describe_emptiness())
    sizes = Sizes(options.context_tokens)
    costs = _costs_per_score(report, sizes)
    notes = [*_preview_notes(report, costs, sizes)]
    preview = preview_of(tally, rates=rates, rules=sampling.rules, costs=costs, notes=notes)
    about_source = [*_describe_source(counts, reader)]
    if options.as_json:
        document: dict[str, Any] = {"traces": trace_source.traces_read, "outside": trace_source.outside}
        document |= {"dialects": dict(counts.dialects), **preview.as_json()}
        document |= {"notes": [*notes, *about_source], "interrupted": interrupted}
        typer.echo(json.dumps(document, indent=2))
        return interrupted
    terminal = Terminal(highlight=False, markup=False)
    for part in (_describe_traces(counts), *preview.render(), *about_source):
        terminal.print_line(part) if isinstance(part, str) else terminal.print(part)
    if interrupted:
        typer.echo(_INTERRUPTED, err=True)
    return interrupted


def _count_units(
    units: Iterator[StoredUnit],
    tally: PreviewTally,
    counts: ReplayTally,
    metrics: Mapping[str, Metric],
    limit: int | None,
) -> bool:
    """Count the units that the metrics would sample; return whether Ctrl-C ended the run."""
    try:
        for stored in units:
            if limit is not None and tally.taken >= limit:
                break
            values = {name: score.value for name, score in stored.evaluated.found.items() if name in metrics}
            qualities = {
                name: None if value is None else metrics[name].scale.quality(value) for name, value in values.items()
            }
            facts, root = stored.unit.facts()._replace(scores=qualities), stored.unit.root
            decisions = tally.add(facts, None if root is None else root.start_ns)
            sampled = {name for name, decision in decisions.items() if decision.take}
            counts.read(stored, UnitPlan((), sampled, frozenset(), frozenset()))
    except KeyboardInterrupt:
        return True
    return False


def _preview_notes(report: ConfigReport, costs: Mapping[str, UnitCost], sizes: Sizes) -> Iterator[str]:
    if any(cost.calls for cost in costs.values()):
        yield f"costs are {sizes}"
    if report.settings.judge.budget:
        yield "judge.budget lowers the rates by the hour; this preview does not include that"
    if of_sessions := report.session_metrics:
        yield f"conversations are not previewed: {', '.join(metric.name for metric in of_sessions)}"
    if also := report.settings.units.also:
        yield f"inner units are not previewed: {', '.join(str(entry.group) for entry in also)}"
    if report.unmade:
        yield f"not previewed, as they cannot be made here: {', '.join(report.unmade)}"
    yield from (f"not ready here: {lacking}" for lacking in report.missing)


# --- replay ----------------------------------------------------------------------------------------------------------

_FOLDER: Final = Path("replay")
_SCORES: Final = "scores.jsonl"
_PAGE: Final = "report.html"
_A_DAY_S: Final = 86_400.0
END_S: Final = 10.0
"""Time at Ctrl-C for units that are being scored, and for sending the last evaluation spans."""
_BATCH_END_S: Final = 2.0
"""Time for the last scores, if Ctrl-C ends a run whose other units wait for batches."""


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """One run of ``spanscore replay``."""

    options: ReplayOptions

    def run(self) -> bool:
        """Score the source and write the report; return whether Ctrl-C ended it."""
        report = valid(self.options.config)
        trace_source = TraceSource.of(
            self.options.source, self.options.since, self.options.until, most_kept=_MOST_UNREAD
        )
        tally, per_second = _make_tally(report, trace_source), self._units_per_second()
        file = self._choose_file()
        evaluated = _read_evaluated(file)
        about_options = [*self._describe_options()]  # before the journal creates its file
        journal = self._open_journal(file)
        scoring = self._make_scorer(report, tally, journal)
        notes = Terminal(stderr=True, highlight=False, markup=False)
        for note in (*scoring.notes, *about_options):
            notes.print_line(note)
        reader = UnitReader(scoring.settings, evaluated)
        batch = self._open_batch_run(scoring, file, notes)
        with _show_progress(notes, lambda: _describe_progress(tally, batch)) as on_progress:
            replay = Replay(
                tally=tally,
                reader=reader,
                receiver=receivers_of(scoring.scorer).stored_units(),
                per_second=per_second,
                limit=self.options.limit,
                again=self.options.rescore,
                journal=journal,
                most_under_way=self._most_in_progress,
                on_progress=on_progress,
            )
            interrupted, delivered = self._run_replay(replay, scoring, batch)
        if not (interrupted or tally.units or self._may_have_no_unit(trace_source)):
            raise ConfigurationError(trace_source.describe_emptiness())
        costs = [*_plan_costs(report, tally, batch=self.options.batch)] if self.options.dry_run else None
        if self.options.as_json:
            document: dict[str, Any] = {
                **tally.as_json(),
                "interrupted": interrupted,
                "lost": list(trace_source.store.lost),
            }
            document |= {} if costs is None else {"dry_run": True, "cost": costs}
            typer.echo(json.dumps(document, indent=2))
        else:
            _print_summary(tally, scoring, reader, costs)
        for note in self._describe_end(tally, file, batch, interrupted=interrupted, delivered=delivered):
            notes.print_line(note)
        if self.options.export and not (delivered or interrupted):
            raise ConfigurationError(
                "some scores were not delivered: is the backend running? Run the command again: ids are stable, so a "
                "delivered score is not doubled; with --resume FILE no judge is called twice"
            )
        return interrupted

    def cancel_batches(self) -> None:
        """Cancel the open batches of an earlier run, and print their numbers."""
        report = valid(self.options.config)
        with report.as_written.mask_errors():  # the report's own metrics have the offline judge
            metrics = metrics_of(report.settings)
        file = self.options.resume or self._new_file()
        typer.echo(cancel_open_batches(metrics, file, "--resume"))

    def _may_have_no_unit(self, trace_source: TraceSource) -> bool:
        """Return whether no unit is no error: the user gave a time range, and the source could be read."""
        was_read = bool(trace_source.traces_read) or not trace_source.unread_total
        return was_read and bool(self.options.since or self.options.until)

    def _units_per_second(self) -> float:
        rate = self.options.max_rate
        try:
            per_second = requests_per_day_in(rate) / _A_DAY_S if rate else inf
        except ValueError as error:
            raise ConfigurationError(f"--max-rate: {error}") from None
        if rate and "/" not in rate:  # without a unit the parser would read units per day
            raise ConfigurationError(f"--max-rate: {rate!r} has no unit of time; write {rate}/s, or /min")
        return per_second

    def _new_file(self) -> Path:
        return (self.options.out or _FOLDER) / _SCORES

    def _choose_file(self) -> Path | None:
        """Return the file for scores, which has scores only if ``--resume`` names it; None = no file."""
        resume, out, export = self.options.resume, self.options.out, self.options.export
        if export and out is not None:
            raise ConfigurationError("--export only sends, and --out only writes files: choose one of them")
        if resume is not None and out is not None and resume.parent != out:
            raise ConfigurationError(f"--resume {resume} continues in its own folder: remove --out")
        if resume is not None or export or self.options.dry_run:
            return resume
        file = self._new_file()
        if file.exists() and file.stat().st_size:
            raise ConfigurationError(f"{file} exists already: --resume {file} continues it, --out names another folder")
        return file

    @property
    def _most_in_progress(self) -> int:
        return MOST_IN_BATCHES if self.options.batch else MOST_UNDER_WAY

    def _open_batch_run(self, scoring: ReplayScorer, file: Path | None, notes: Terminal) -> BatchRun | None:
        if not self.options.batch or self.options.dry_run:
            return None
        run = open_batch_run(receivers_of(scoring.scorer).stored_units().metrics, file, "--resume", notes)
        loop.run(run.begin())
        return run

    def _open_journal(self, file: Path | None) -> Journal | None:
        if file is None or self.options.dry_run:
            return None
        refuse_unready(self.options.config)
        return Journal(file, waits=self.options.export, under_way=self._most_in_progress)

    def _make_scorer(self, report: ConfigReport, tally: ReplayTally, journal: Journal | None) -> ReplayScorer:
        if self.options.dry_run:  # calls no judge, and needs no API key
            return replay_scorer(self.options.config, metrics=report.unit_metrics)
        answers = None if journal is None else journal.path.with_name(f"{journal.path.name}.answers")
        sinks: list[Sink] = [tally, *([] if journal is None else [journal.sink])]
        under_way = self._most_in_progress
        return replay_scorer(
            self.options.config, emits=self.options.export, answers=answers, sinks=sinks, under_way=under_way
        )

    def _run_replay(self, replay: Replay, scoring: ReplayScorer, batch: BatchRun | None) -> tuple[bool, bool]:
        """Run the replay; return whether Ctrl-C ended it, and whether all its spans were delivered."""
        is_complete = False
        try:
            replay.run(dry=self.options.dry_run)
            is_complete = True
        except KeyboardInterrupt:
            pass
        finally:
            delivered = scoring.scorer.shutdown(END_S if is_complete or batch is None else _BATCH_END_S)
            if batch is not None:
                loop.run(batch.close(whole=is_complete))
            if replay.journal is not None:
                if delivered:
                    replay.journal.commit()
                replay.journal.close()
        return not is_complete, delivered

    def _describe_options(self) -> Iterator[str]:
        if self.options.resume is not None and not self.options.resume.exists():
            yield f"--resume {self.options.resume} does not exist: starting from the beginning"
        if self.options.export and not self.options.dry_run:
            yield (
                "--export: evaluation spans have the times of their units; some stores refuse spans that old, or show "
                "them only in old time ranges"
            )

    def _describe_end(
        self, tally: ReplayTally, file: Path | None, batch: BatchRun | None, *, interrupted: bool, delivered: bool
    ) -> Iterator[str]:
        if self.options.dry_run:
            yield from [_INTERRUPTED] * interrupted
            return
        unpaid = sum(counts[Outcome.BUDGET_EXHAUSTED.value] for counts in tally.outcomes.values())
        if interrupted:
            how = "" if file is None else f" To continue: --resume {file}"
            yield f"Interrupted: the scores until then are kept.{how}"
            yield from interrupted_batches(batch, f"the command with --resume {file}")
        elif file is not None and delivered and not unpaid:
            _remove_answers(file)
        if unpaid:
            yield budget_spent(unpaid, f"with --resume {file or 'FILE'}")
        if file is None or self.options.export:
            return
        yield f"{tally.scored:,} scores are in {file}, with the spans of their units: the texts of the source, not redacted"
        yield _write_page(file)


def _describe_progress(tally: ReplayTally, batch: BatchRun | None) -> str:
    return "; ".join(filter(None, (str(tally.state()), "" if batch is None else str(batch))))


def _remove_answers(file: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        file.with_name(f"{file.name}.answers{ending}").unlink(missing_ok=True)


def _write_page(file: Path) -> str:
    if find_spec("jinja2") is None:
        return f'no page: pip install "spanscore[report]", then spanscore report {file}'
    page = file.with_name(_PAGE)
    with writing(page):
        page.touch(0o600)
        page.chmod(0o600)  # the page has the texts of the units; an existing file may be readable by other users
        write(Journal.spans(file), page)
    return f"The page is {page}; open {page.absolute().as_uri()}"


def _read_evaluated(file: Path | None) -> EvaluatedUnits:
    evaluated = EvaluatedUnits()
    if file is not None and file.is_file():
        try:
            evaluated.read(Journal.spans(file))
        except SampleError as error:
            raise SampleError(f"{file}: {error}") from None
    return evaluated


def _plan_costs(report: ConfigReport, tally: ReplayTally, *, batch: bool) -> Iterator[dict[str, Any]]:
    """Yield the cost of the units that each metric takes; None = unknown. Without a price, ``usd`` is also None."""
    costs = _costs_per_score(report, Sizes(), batch=batch)
    for name in (metric.name for metric in report.metrics):
        units = tally.taken[name]
        yield {"metric": name, "units": units, **costs.get(name, UnitCost()).times(units)._asdict()}


def _print_summary(
    tally: ReplayTally, scoring: ReplayScorer, reader: UnitReader, costs: Sequence[Mapping[str, Any]] | None
) -> None:
    """Print the lines and the table of a replay; ``costs``: those of a dry run, None for a run that scores."""
    terminal = Terminal()
    terminal.print_line(_describe_traces(tally))
    terminal.print(_table_scores(tally, scoring) if costs is None else _table_costs(tally, costs), highlight=False)
    if tally.from_store or tally.anew:
        terminal.print_line(
            f"{tally.from_store:,} sampling decisions come from the store; {tally.anew:,} were made anew, by the "
            "rates and rules of the configuration"
        )
    if costs is None and tally.calls:
        money = "" if tally.usd is None else f", {format_usd(tally.usd)} USD"
        terminal.print_line(f"{tally.calls:,} judge calls: {tally.tokens:,} tokens{money}")
    for line in _describe_source(tally, reader):
        terminal.print_line(line)


def _table_scores(tally: ReplayTally, scoring: ReplayScorer) -> TextTable:
    rows = list[tuple[str, ...]]()
    of_first_revisions = scoring.scorer.status().outcomes
    for name in (metric.name for metric in receivers_of(scoring.scorer).stored_units().metrics):
        outcomes = {**of_first_revisions.get(name, {}), **tally.outcomes.get(name, {})}
        scored = outcomes.pop("scored", 0)
        outcomes.pop("not_sampled", None)
        others = "\n".join(f"{outcome} {units:,}" for outcome, units in sorted(outcomes.items()) if units)
        rows.append((name, f"{tally.skipped[name]:,}", f"{tally.taken[name]:,}", f"{scored:,}", others))
    return TextTable(("metric", "there already", "taken", "scored", "not scored"), rows)


def _table_costs(tally: ReplayTally, costs: Sequence[Mapping[str, Any]]) -> TextTable:
    rows = list[tuple[str, ...]]()
    for cost in costs:
        amounts = format_number(cost["calls"]), format_number(cost["tokens"]), format_usd(cost["usd"], "no price")
        rows.append((cost["metric"], f"{tally.skipped[cost['metric']]:,}", f"{cost['units']:,}", *amounts))
    title = "units that would be scored, and the cost on short samples"
    return TextTable(("metric", "there already", "would be scored", "judge calls", "tokens", "USD"), rows, title=title)


# --- collect ---------------------------------------------------------------------------------------------------------

_SHOWN_REASONS: Final = 3
_DEFAULT_METRIC: Final = "response_relevancy"
"""Metric for a question and its answer, which every case has."""


def collect_cases(options: CollectOptions) -> None:
    """Read the source, write its cases and print the counts."""
    conditions = list(map(condition_of, options.when or ()))
    out = options.out
    refuse_unwritable(out)
    refuse_overwriting(out, options.source)
    settings = reading_settings(options.config)
    trace_source, counts = TraceSource.of(options.source, options.since, options.until), CaseCounts()

    def describe() -> str:
        return f"{counts.units:,} units, {counts.matched:,} of them match"

    with _show_progress(Terminal(stderr=True), describe, transient=True) as on_progress:
        cases = read_stored_cases(
            trace_source, settings, conditions, counts, redactor=options.redactor, on_trace=on_progress
        )
        kept = fold_cases(cases if options.sample is None else draw_cases(cases, options.sample, options.seed))
    unknown = [condition for condition in conditions if not counts.has_word(condition)]
    if not kept:
        raise ConfigurationError(_describe_lack(trace_source, counts, unknown))
    with writing(out), whole_file(out, mode=0o600, errors="replace") as file:
        file.writelines(case.line() for case in kept)
    if options.as_json:
        document: dict[str, Any] = {"traces": trace_source.traces_read, **asdict(counts)}
        document |= {"outside": trace_source.outside, "metrics": sorted(counts.metrics), "cases": len(kept)}
        document["unknown_metrics"] = sorted({condition.metric for condition in unknown} - counts.metrics.keys())
        document["unread"] = [part._asdict() for part in trace_source.unread]
        typer.echo(json.dumps(document, indent=2))
        return
    terminal = Terminal(highlight=False, markup=False)
    for line in (*_describe_cases(kept, counts, out, _describe_outside(trace_source)), *trace_source.describe_unread()):
        terminal.print_line(line)
    terminal.print_line(_how_to_score(counts, out, options.config))
    for condition in unknown:
        terminal.print_line(f"no unit has a {_describe_unknown(condition, counts)}")


def _describe_cases(cases: Sequence[CollectedCase], counts: CaseCounts, out: Path, outside: str) -> Iterator[str]:
    units = sum(case.times for case in cases)
    of = "" if units == len(cases) else f", for {units:,} units with {len(cases):,} different questions"
    are = "1 case is" if len(cases) == 1 else f"{len(cases):,} cases are"
    yield f"{are} in {out}{of}; {counts.matched:,} of {counts.units:,} units matched{outside}"
    for reason, times in (counts.without_content + counts.unusable).most_common(_SHOWN_REASONS):
        yield f"{times:,} left out: {reason}"


def _how_to_score(counts: CaseCounts, out: Path, config: Path | None) -> str:
    names = sorted(built_ins().keys() & counts.metrics.keys())
    option = f"--metrics {','.join(names) or _DEFAULT_METRIC}" if config is None else f"--config {quote(str(config))}"
    return f"Score them: spanscore evaluate {quote(str(out))} {option} --out rows.jsonl"


def read_stored_cases(
    trace_source: TraceSource,
    settings: ScorerSettings,
    conditions: Sequence[CaseCondition],
    counts: CaseCounts,
    *,
    redactor: str = "",
    on_trace: Callable[[], None] = lambda: None,
) -> Iterator[CollectedCase]:
    """Yield the cases of a source, with redacted samples and explanations.

    Args:
        conditions: alternative conditions; empty = every unit matches.
        counts: counts of the units, which are updated.
        redactor: name of the redactor; empty = that of the settings.
        on_trace: function that is called after each trace.
    """
    box = Timebox(settings.limits.hook_timeout, suppressed_context)
    hooks = Hooks(redactor_in(redactor or settings.redactor)).within(box)
    images = image_limit_of(settings, redacts=hooks.redactor is not None)
    builder = JobBuilder(dialects_of(settings, box), hooks, box, on_demand=ON_DEMAND, images=images)
    reader = UnitReader(settings)
    cases = find_cases(
        trace_source.units(reader, on_trace),
        conditions,
        lambda unit: builder.job(SampledUnit(unit, {})).samples,
        counts,
    )
    return cases if hooks.redactor is None else (_redact_explanations(case, hooks, box) for case in cases)


def _redact_explanations(case: CollectedCase, hooks: Hooks, box: Timebox) -> CollectedCase:
    """Return a case with redacted explanations; if the redactor fails on an explanation, it is left out."""
    scores = {
        metric: score._replace(explanation=score.explanation and hooks.redact_text(score.explanation, box))
        for metric, score in case.scores.items()
    }
    return replace(case, scores=scores)


def _describe_lack(trace_source: TraceSource, counts: CaseCounts, unknown: Sequence[CaseCondition]) -> str:
    """Return the reason why a source has no case. ``unknown`` are the conditions whose metric or category has no score."""
    if not counts.units:
        return trace_source.describe_emptiness()
    if unknown and counts.metrics:
        reason = f"none with a {_describe_unknown(unknown[0], counts)}"
    elif unknown:
        reason = "none with a score: does the source contain its evaluation spans? Without --when all units are taken"
    elif not counts.matched:
        reason = "and no condition holds for any of them"
    elif counts.without_content:
        reason = NO_CONTENT
    else:
        reason = f"and none of them gives a sample: {next(iter(counts.unusable))}"
    return f"{trace_source.name}: {format_count(counts.units, 'unit')}, {reason}"


def _describe_unknown(condition: CaseCondition, counts: CaseCounts) -> str:
    words = counts.metrics.get(condition.metric)
    if words is None:
        return f"score of {condition.metric}; there are scores of {names_listed(sorted(counts.metrics))}"
    seen = f"its scores are {names_listed(sorted(words))}" if words else "its scores are numbers"
    return f"score of {condition.metric} that is {condition.bound}; {seen}"
