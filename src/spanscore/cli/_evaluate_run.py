"""One run of ``spanscore evaluate``: scores the samples of a file, prints and writes the results, checks the quality gate."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from spanscore.cli._batches import cancel_open_batches, interrupted_batches, open_batch_run
from spanscore.cli._config_report import valid
from spanscore.cli._judge_topics import judge_problems, make_named
from spanscore.cli._options import INTERRUPTED, budget_spent, refuse_overwriting, refuse_unwritable
from spanscore.cli._topics import ConfigReport
from spanscore.config.judging import JurySettings
from spanscore.config.reading import SecretMask
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.printable import TextTable, printable
from spanscore.core.score import Outcome
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, MissingExtraError, NotReadyError
from spanscore.judges import embedder
from spanscore.judges import judge as make_judge
from spanscore.judges.batches.run import BatchRun
from spanscore.judges.lexical.judge import is_offline
from spanscore.metrics.catalog.configured import embedder_of, judge_named, judge_of, make_metric, metrics_with_juries
from spanscore.metrics.catalog.registry import create, current_name
from spanscore.pipeline.jobs import redactor_in
from spanscore.protocols import Embedder, Judge, Metric
from spanscore.stored.dataset import BadRecord, none_is_a_sample, read_samples
from spanscore.stored.evaluation import CONCURRENCY, MOST_AT_ONCE, Scoring
from spanscore.stored.evaluation_report import write_report
from spanscore.stored.evaluation_result import Result, Row, read_rows, write_rows
from spanscore.stored.quality_gate import (
    UNSCORED_ADVICE,
    CaseChange,
    GateResult,
    MetricGate,
    QualityBounds,
    check_quality,
    write_junit,
)
from spanscore.wiring.accounts import Accounts, configured_budget_ledger

if TYPE_CHECKING:
    from spanscore.cli.evaluate import EvaluateOptions

BELOW_BOUND, INCOMPLETE = 1, 3
"""Exit codes: a bound of the gate is not met; too many cases have no score."""
_SHOWN_CASES = 10
"""Maximum number of printed cases with a lower quality than in the baseline."""


@dataclass(frozen=True, slots=True)
class ScoreRun:
    """One run of ``spanscore evaluate``, with its quality gate."""

    options: EvaluateOptions

    def run(self) -> int:
        """Score the file, print and write the result; return the exit code."""
        options = self.options
        configured = self._read_configuration()
        metrics = self._make_metrics(configured)
        bounds = self._bounds([metric.name for metric in metrics])
        self._check_outputs()
        total = _count_records(options.file, bounds)
        notes = Terminal(stderr=True, highlight=False, markup=False)
        if configured is None and not options.judge and _asks_offline(metrics):
            offline = "No --judge given: the offline judge scores. To use a model: --judge openai:gpt-4o-mini"
            notes.print(offline, soft_wrap=True)
        batch = open_batch_run(metrics, options.out, "--out", notes) if options.batch else None
        scoring = self._score(metrics, configured, total, notes, batch)
        result = scoring.result()
        has_gate = any((options.baseline, options.max_drop, options.least, options.junit))
        verdict = self._check(bounds, result) if has_gate and not result.interrupted else None
        self._print(result, verdict, configured)
        for note in self._notes(result, scoring, batch):
            notes.print(note, soft_wrap=True)
        if result.interrupted:
            return INTERRUPTED
        return 0 if verdict is None else _exit_code(verdict)

    def cancel_batches(self) -> None:
        """Cancel the open batches of an earlier run, and print how many were cancelled."""
        metrics = self._make_metrics(self._read_configuration())
        typer.echo(cancel_open_batches(metrics, self.options.out, "--out"))

    def _check_outputs(self) -> None:
        options = self.options
        refuse_unwritable(options.out, options.report)
        written = {"--out": options.out, "--report": options.report, "--junit": options.junit}
        for option, path in written.items():
            refuse_overwriting(path, options.file, options.config, option=option)
        if options.report is not None and find_spec("jinja2") is None:
            raise MissingExtraError("jinja2", "report")

    def _read_configuration(self) -> ConfigReport | None:
        options = self.options
        if options.config is None:
            return None
        with _name_embeddings_option():
            return valid(
                options.config,
                judge=not options.judge,
                embeddings=not (options.judge or options.embeddings),
            )

    def _make_metrics(self, configured: ConfigReport | None) -> list[Metric]:
        """Return the named metrics with their configured parameters; without names, all metrics of the configuration."""
        settings, as_written = (configured.settings, configured.as_written) if configured else (None, SecretMask())
        judge = self.options.judge
        with as_written.mask_errors(), _name_embeddings_option():
            entries = _find_entries(self.options.metrics, settings)
            own_judge, own_embedder = _make_judge(settings, judge), _make_embedder(settings, self.options.embeddings)
            return [
                create(name, judge=own_judge, embeddings=own_embedder, **parameters)
                if jury is None or settings is None or judge  # ``--judge`` replaces a configured jury
                else make_metric(settings, name, parameters, jury, judge=own_judge, embeddings=own_embedder)
                for name, parameters, jury in entries
            ]

    def _bounds(self, metrics: Collection[str]) -> QualityBounds:
        """Return the bounds on these metrics. Wrong options are refused here, before a judge is paid.

        With ``--update-baseline``, ``--max-drop`` has no effect.
        """
        options = self.options
        if options.update_baseline and options.baseline is None:
            raise ConfigurationError("--update-baseline writes the file that --baseline names; name one")
        if not 0.0 <= options.max_unscored <= 1.0:
            raise ConfigurationError(f"--max-unscored is {options.max_unscored:g}; it is a share, from 0 to 1")
        refuse_unwritable(options.junit, options.baseline if options.update_baseline else None)
        drops = {} if options.update_baseline else _parse_bounds("--max-drop", options.max_drop or ())
        least = _parse_bounds("--min", options.least or ())
        bounds = QualityBounds(
            self._read_baseline(), drops, least, options.max_unscored, replaces=options.update_baseline
        )
        bounds.refuse_unknown(metrics)
        return bounds

    def _read_baseline(self) -> list[Row] | None:
        if self.options.baseline is None:
            return None
        rows = list(read_rows(self.options.baseline))
        if not rows and not self.options.update_baseline:
            fault = "holds no rows to compare with" if self.options.baseline.exists() else "is not there"
            raise ConfigurationError(f"{self.options.baseline} {fault}; --update-baseline writes it from this run")
        return rows or None

    def _check(self, bounds: QualityBounds, result: Result) -> GateResult:
        """Check a run against the bounds, and write the files that the options name."""
        verdict = check_quality(bounds, result)
        if self.options.junit is not None:
            write_junit(verdict, self.options.junit, suite=self.options.file)
        if self.options.update_baseline and self.options.baseline is not None:
            write_rows(self.options.baseline, result.rows)
        return verdict

    def _score(
        self,
        metrics: Sequence[Metric],
        configured: ConfigReport | None,
        total: int | None,
        console: Terminal,
        batch: BatchRun | None,
    ) -> Scoring:
        """Score the file behind a progress bar, until its end or Ctrl-C."""
        settings = configured.settings if configured else ScorerSettings()
        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *named_clocks()]
        columns += [PausedAccounts(Accounts(metrics)), *([] if batch is None else [BatchColumn(batch)])]
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("scored", total=total)
            scoring = Scoring(
                metrics,
                concurrency=self.options.concurrency or (CONCURRENCY if batch is None else MOST_AT_ONCE),
                batch=batch,
                timeout=self.options.timeout or settings.limits.timeout,
                out=self.options.out,
                fresh=not self.options.resume,
                cache=self.options.cache,
                redactor=redactor_in(settings.redactor),
                budget_ledger=configured_budget_ledger(settings, {metric.name: metric for metric in metrics}),
                progress=lambda done, _: bar.update(task, completed=done),
            )
            try:
                scoring.block(self.options.file)
            except KeyboardInterrupt:
                bar.update(task, description="interrupted")
        return scoring

    def _print(self, result: Result, verdict: GateResult | None, configured: ConfigReport | None) -> None:
        if self.options.as_json:
            gate = {} if verdict is None else {"gate": verdict.as_json()}
            typer.echo(json.dumps({**result.as_json(), **gate}, indent=2))
        else:
            Terminal().print(result)
            if verdict is not None:
                self._print_verdict(verdict)
        if self.options.report is not None:
            redactor = redactor_in(configured.settings.redactor) if configured else None
            write_report(result, self.options.report, source=self.options.file, redactor=redactor)

    def _print_verdict(self, verdict: GateResult) -> None:
        """Print a table of the cases with a lower quality, then a table of the metrics, with notes."""
        terminal = Terminal()
        fallen = [change for change in verdict.changes if change.after < change.before]
        if fallen:
            terminal.print(_changes_table(fallen))
        terminal.print(_gate_table(verdict.metrics))
        for line in _gate_lines(verdict):
            terminal.print_line(line)
        if self.options.update_baseline:
            terminal.print(f"{self.options.baseline} holds this run now.", markup=False)

    def _notes(self, result: Result, scoring: Scoring, batch: BatchRun | None) -> Iterator[str]:
        if unpaid := sum(row.outcome is Outcome.BUDGET_EXHAUSTED for row in result.rows):
            yield budget_spent(unpaid, f"with --out {self.options.out or 'FILE'}, which keeps the scored rows")
        if self.options.out is not None:
            others = scoring.left_in_file
            rest = f", with {others} of other samples, metrics or versions" if others else ""
            reused = f"{result.taken_over} of them taken over from an earlier run"
            yield f"{len(result.rows)} rows are in {self.options.out}{rest}; {reused}."
        if (page := self.options.report) is not None:
            yield f"The page of {len(result.rows)} rows is {page}; open {page.absolute().as_uri()}"
        if result.interrupted:
            yield "Interrupted: the scores until then are above." + (
                " Run it again to continue." if self.options.out else ""
            )
            yield from interrupted_batches(batch, "the same command")


def _asks_offline(metrics: Sequence[Metric]) -> bool:
    return any(is_offline(getattr(metric, "_judge", None)) for metric in metrics)


def _exit_code(verdict: GateResult) -> int:
    if not verdict.passed:
        return BELOW_BOUND
    return INCOMPLETE if verdict.incomplete else 0


def _parse_bounds(option: str, texts: Sequence[str]) -> Mapping[str, float]:
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


def _changes_table(fallen: Sequence[CaseChange]) -> TextTable:
    more = len(fallen) - _SHOWN_CASES
    title = f"{len(fallen)} cases fell" + (f", these most of all ({more} more)" if more > 0 else "")
    rows = [
        (printable(change.case), change.metric, f"{change.before:.2f}", f"{change.after:.2f}")
        for change in fallen[:_SHOWN_CASES]
    ]
    return TextTable(("case", "metric", "before", "now"), rows, title=title if len(fallen) > 1 else "1 case fell")


def _gate_table(metrics: Sequence[MetricGate]) -> TextTable:
    rows = []
    for gate in metrics:
        change, cases = "–", "–"
        if gate.change is not None:
            change = f"{gate.change.mean:+.3f} ({gate.change.low:+.3f} to {gate.change.high:+.3f})"
            cases = str(gate.cases)
        verdict = "does not hold" if gate.failed else "not known" if gate.incomplete else "holds"
        rows.append((gate.metric, _format_quality(gate.before), _format_quality(gate.quality), change, cases, verdict))
    return TextTable(("metric", "before", "now", "change (95 %)", "cases", "verdict"), rows, title="At the gate")


def _gate_lines(verdict: GateResult) -> Iterator[str]:
    if verdict.by_line:
        yield "cases are identified by line, as some have no id: the same line must be the same case"
    if verdict.not_in_baseline:
        yield f"{verdict.not_in_baseline:,} scored cases have no score in the baseline: they are not compared"
    if verdict.not_in_run:
        yield f"{verdict.not_in_run:,} cases of the baseline have no score in this run"
    for gate in verdict.metrics:
        yield from (f"{gate.metric} {why}" for why in gate.failed)
        yield from (f"{gate.metric}: {note}" for note in gate.notes)
        if gate.lacks:
            yield f"{gate.metric}: {gate.lacks}"
        if gate.evaluator_version_changed:
            yield f"{gate.metric}: the baseline is of another version or judge; a change may be the judge's"
    if verdict.incomplete:
        yield f"Not known: {UNSCORED_ADVICE}; --max-unscored allows more"


def _format_quality(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


class PausedAccounts(ProgressColumn):
    """A column of the progress bar that shows each paused account and the reason."""

    def __init__(self, accounts: Accounts) -> None:
        super().__init__()
        self._accounts = accounts

    def render(self, task: Task) -> Text:
        """Return a sentence per paused account; empty if every account answers, and at the end."""
        paused = [state for state in self._accounts.states() if state.breaker != "closed" and not task.finished]
        sentences = (
            f"{state.account!r} does not answer{f': {state.because}' if state.because else ''}; it is called again"
            for state in paused
        )
        return Text("; ".join(sentences), style="yellow")


class BatchColumn(ProgressColumn):
    """A column of the progress bar with the state of a run's open batches."""

    def __init__(self, batch: BatchRun) -> None:
        super().__init__()
        self._batch = batch

    def render(self, task: Task) -> Text:
        """Return the state of the batches; empty at the end."""
        return Text("" if task.finished else str(self._batch))


def named_clocks() -> tuple[ProgressColumn, ...]:
    """Return the columns of a progress bar for the elapsed and the remaining time, each after its name."""
    return TextColumn("elapsed"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()


def _count_records(file: str, bounds: QualityBounds) -> int | None:
    """Return the number of records; None for standard input and a pipe, which can be read only once."""
    if file == "-" or Path(file).is_fifo():
        return None
    ids, bad = list[str | int | None](), list[BadRecord]()
    for record in read_samples(file):
        ids.append(record.id)
        if isinstance(record.sample, BadRecord):
            bad.append(record.sample)
    if not ids:
        raise ConfigurationError(f"{file} holds no samples")
    if len(bad) == len(ids):
        raise none_is_a_sample(bad)
    bounds.refuse_cases(ids)
    return len(ids)


def _find_entries(
    metrics: str, settings: Configuration | None
) -> list[tuple[str, Mapping[str, Any], JurySettings | None]]:
    """Return the name, the parameters and the jury of each named metric, or of all metrics of the configuration."""
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    listed = [] if settings is None else list(metrics_with_juries(settings))
    if names:
        configured = {str(entry[1].get("name", entry[0])): entry for entry in listed}
        listed = [configured.get(name) or configured.get(current_name(name), (name, {}, None)) for name in names]
    if not listed:
        raise ConfigurationError("name the metrics: --metrics faithfulness,exact_match or --config spanscore.yaml")
    return listed


@contextmanager
def _name_embeddings_option() -> Iterator[None]:
    """Add the option for embeddings to an error about missing embeddings."""
    try:
        yield
    except NotReadyError:
        raise
    except ConfigurationError as error:
        if "needs embeddings" not in str(error):
            raise
        raise ConfigurationError(f"{error}; here: --embeddings provider:model") from error


def _make_embedder(settings: Configuration | None, name: str) -> Embedder | None:
    named = name or (settings.embeddings if settings else None)
    if not named:
        return None
    make = partial(embedder, named) if settings is None else partial(embedder_of, settings, named)
    return make_named("--embeddings" if name else "embeddings", named, make)


def _make_judge(settings: Configuration | None, name: str) -> Judge:
    if settings is not None and not name:
        for problem in judge_problems(settings):
            raise problem
        return judge_of(settings)
    named = name or "lexical"
    make = partial(make_judge, named) if settings is None else partial(judge_named, settings, named)
    return make_named("--judge", named, make)
