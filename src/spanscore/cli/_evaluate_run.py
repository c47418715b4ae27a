"""One run of ``spanscore evaluate``: scores the samples of a file, prints and writes the results, applies the quality gate."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
from spanscore.cli._judge_topics import judge_problems, named_problems
from spanscore.cli._options import INTERRUPTED, budget_spent, refuse_overwriting, refuse_unwritable
from spanscore.cli._topics import ConfigReport
from spanscore.config.judging import JurySettings
from spanscore.config.reading import SecretMask
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.printable import TextTable, printable
from spanscore.core.score import Outcome
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, NotReadyError
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
from spanscore.stored.evaluation_report import check_report, write_report
from spanscore.stored.evaluation_result import Result, Row, read_rows, write_rows
from spanscore.stored.quality_gate import (
    LEAVE_OUT,
    CaseChange,
    GateResult,
    MetricGate,
    QualityBounds,
    check_quality,
    write_junit,
)
from spanscore.wiring.accounts import Accounts, configured_budget_ledger

FELL, INCOMPLETE = 1, 3
"""Exit codes: a bound of the gate does not hold; too many cases have no score."""
_CASES = 10
"""Changed cases that are printed at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityGate:
    """The gate of ``spanscore evaluate``: options, verdict, and the update of the baseline.

    Attributes:
        baseline: file with the rows of an earlier run; None = no baseline.
        update: whether this run's rows replace the baseline.
        max_drop: bounds such as ``metric=0.03`` on the drop of a mean quality.
        least: bounds such as ``metric=0.98`` on the mean quality.
        max_unscored: share of a metric's cases that may have no score, [0, 1].
        junit: file for the verdicts in JUnit's format; None = no file.
    """

    baseline: Path | None
    update: bool
    max_drop: Sequence[str]
    least: Sequence[str]
    max_unscored: float
    junit: Path | None

    @property
    def is_asked(self) -> bool:
        """Whether an option of the gate was given."""
        return bool(self.baseline or self.max_drop or self.least or self.junit)

    def gate(self, metrics: Collection[str]) -> QualityBounds:
        """Return the bounds of these metrics, before a judge is paid. A baseline that will be replaced bounds no drop.

        Raises:
            ConfigurationError: an option is wrong, or there is no baseline yet.
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
        """Return the verdict on a run, and write the files that the options name.

        Raises:
            ConfigurationError: the run cannot be compared with the baseline, or a file cannot be written.
        """
        held = check_quality(gate, result)
        if self.junit is not None:
            write_junit(held, self.junit, suite=source)
        if self.update and self.baseline is not None and not result.interrupted:
            write_rows(self.baseline, result.rows)
        return held

    def print_verdict(self, held: GateResult) -> None:
        """Print the cases with a drop in quality, then the metrics."""
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
    """Return the exit code of the command."""
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


def _cases(fallen: Sequence[CaseChange]) -> TextTable:
    more = len(fallen) - _CASES
    title = f"{len(fallen)} cases fell" + (f", these most of all ({more} more)" if more > 0 else "")
    rows = [
        (printable(change.case), change.metric, f"{change.before:.2f}", f"{change.after:.2f}")
        for change in fallen[:_CASES]
    ]
    return TextTable(("case", "metric", "before", "now"), rows, title=title if len(fallen) > 1 else "1 case fell")


def _metrics(metrics: Sequence[MetricGate]) -> TextTable:
    rows = []
    for gate in metrics:
        change, cases = "–", "–"
        if gate.change is not None:
            change = f"{gate.change.mean:+.3f} ({gate.change.low:+.3f} to {gate.change.high:+.3f})"
            cases = str(gate.cases)
        verdict = "does not hold" if gate.failed else "not known" if gate.incomplete else "holds"
        rows.append((gate.metric, _number(gate.before), _number(gate.quality), change, cases, verdict))
    return TextTable(("metric", "before", "now", "change (95 %)", "cases", "verdict"), rows, title="At the gate")


def _lines(held: GateResult) -> Iterator[str]:
    if held.by_line:
        yield "cases are identified by line, as some have no id: the same line must be the same case"
    if held.not_in_baseline:
        yield f"{held.not_in_baseline:,} scored cases have no score in the baseline: they are not compared"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRun:
    """One run of ``spanscore evaluate``, with its options.

    Attributes:
        names: names of metrics, separated by commas; empty = the metrics of ``config``.
        judge: empty = the judge of ``config``; without ``config`` the offline judge.
        embeddings: empty = those of ``config``; otherwise the offline embeddings if the judge is offline, or no embeddings.
        concurrency: samples that are scored at the same time; None = 32, or 10,000 with ``batch``.
        batch: whether the judge is called by its provider's batch endpoint.
        timeout: seconds for one metric on one sample; 0 = the timeout of ``config``, otherwise the scorer's default.
    """

    file: str
    names: str
    config: Path | None
    judge: str
    embeddings: str
    out: Path | None
    report: Path | None
    resume: bool
    cache: bool
    concurrency: int | None
    batch: bool
    timeout: float
    as_json: bool
    gate: QualityGate

    def run(self) -> int:
        """Score the file, print and write the result; return the exit code.

        Raises:
            SpanscoreError: an option, the configuration or the file is wrong.
        """
        configured = self._read_configuration()
        metrics = self._metrics(configured)
        gate = self.gate.gate([metric.name for metric in metrics])
        refuse_unwritable(self.out)
        refuse_overwriting(self.file, self.out)
        if self.report is not None:
            check_report(self.report)
        total = _count_records(self.file, gate)
        notes = Terminal(stderr=True, highlight=False, markup=False)
        if configured is None and not self.judge:
            _note_offline(metrics, notes)
        batch = open_batch_run(metrics, self.out, "--out", notes) if self.batch else None
        scoring = self._score(metrics, configured, total, notes, batch)
        result = scoring.result()
        held = self.gate.hold(gate, result, self.file) if self.gate.is_asked and not result.interrupted else None
        self._print(result, held, configured)
        for note in self._notes(result, scoring, batch):
            notes.print(note, soft_wrap=True)
        if result.interrupted:
            return INTERRUPTED
        return 0 if held is None else exit_code(held)

    def cancel_batches(self) -> None:
        """Cancel the open batches of an earlier run, and print their numbers.

        Raises:
            SpanscoreError: the configuration or the file of the batches is wrong, or a provider refuses.
        """
        metrics = self._metrics(self._read_configuration())
        typer.echo(cancel_open_batches(metrics, self.out, "--out"))

    def _read_configuration(self) -> ConfigReport | None:
        if self.config is None:
            return None
        with _naming_embeddings():
            return valid(self.config, judge=not self.judge, embeddings=not (self.judge or self.embeddings))

    def _metrics(self, configured: ConfigReport | None) -> list[Metric]:
        settings, as_written = (configured.settings, configured.as_written) if configured else (None, SecretMask())
        with as_written.mask_errors():
            return _make_metrics(self.names, settings, self.judge, self.embeddings)

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
        with Progress(*columns, PausedAccounts(Accounts(metrics)), BatchColumn(batch), console=console) as bar:
            task = bar.add_task("scored", total=total)
            scoring = Scoring(
                metrics,
                concurrency=self.concurrency or (CONCURRENCY if batch is None else MOST_AT_ONCE),
                batch=batch,
                timeout=self.timeout or settings.limits.timeout,
                out=self.out,
                fresh=not self.resume,
                cache=self.cache,
                redactor=redactor_in(settings.redactor),
                budget_ledger=configured_budget_ledger(settings, {metric.name: metric for metric in metrics}),
                progress=lambda done, _: bar.update(task, completed=done),
            )
            try:
                scoring.block(self.file)
            except KeyboardInterrupt:
                bar.update(task, description="interrupted")
        return scoring

    def _print(self, result: Result, held: GateResult | None, configured: ConfigReport | None) -> None:
        if self.as_json:
            at_gate = {} if held is None else {"gate": held.as_json()}
            typer.echo(json.dumps({**result.as_json(), **at_gate}, indent=2))
        else:
            Terminal().print(result)
            if held is not None:
                self.gate.print_verdict(held)
        if self.report is not None:
            redactor = redactor_in(configured.settings.redactor) if configured else None
            write_report(result, self.report, source=self.file, redactor=redactor)

    def _notes(self, result: Result, scoring: Scoring, batch: BatchRun | None) -> Iterator[str]:
        if unpaid := sum(row.outcome is Outcome.BUDGET_EXHAUSTED for row in result.rows):
            yield budget_spent(unpaid, f"with --out {self.out or 'FILE'}, which keeps the scored rows")
        if self.out is not None:
            left = scoring.left_in_file
            beside = f", with {left} of other samples, metrics or versions" if left else ""
            taken = f"{result.taken_over} of them taken over from an earlier run"
            yield f"{len(result.rows)} rows are in {self.out}{beside}; {taken}."
        if self.report is not None:
            yield f"The page of {len(result.rows)} rows is {self.report}; open {self.report.absolute().as_uri()}"
        if result.interrupted:
            yield "Interrupted: the scores until then are above." + (" Run it again to continue." if self.out else "")
            yield from interrupted_batches(batch, "the same command")


def _note_offline(metrics: Sequence[Metric], notes: Terminal) -> None:
    if any(is_offline(getattr(metric, "_judge", None)) for metric in metrics):
        offline = "No --judge given: the offline judge scores. To use a model: --judge openai:gpt-4o-mini"
        notes.print(offline, soft_wrap=True)


class PausedAccounts(ProgressColumn):
    """A column of the progress bar that shows each paused account and the reason."""

    def __init__(self, accounts: Accounts) -> None:
        super().__init__()
        self._accounts = accounts

    def render(self, task: Task) -> Text:
        """Return a sentence per paused account; empty if every account answers, and at the end."""
        away = [state for state in self._accounts.states() if state.breaker != "closed" and not task.finished]
        sentences = (
            f"{state.account!r} does not answer{f': {state.because}' if state.because else ''}; it is called again"
            for state in away
        )
        return Text("; ".join(sentences), style="yellow")


class BatchColumn(ProgressColumn):
    """A column with the progress of a batch run."""

    def __init__(self, batch: BatchRun | None) -> None:
        super().__init__()
        self._batch = batch

    def render(self, task: Task) -> Text:
        """Return the open batches and their answers; empty without a batch."""
        return Text("" if self._batch is None or task.finished else str(self._batch))


def named_clocks() -> tuple[ProgressColumn, ...]:
    """Return the columns of a progress bar for the elapsed and the remaining time, each after its name."""
    return TextColumn("elapsed"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()


def _count_records(file: str, gate: QualityBounds) -> int | None:
    """Return the number of records; None for standard input, which can be read only once.

    Raises:
        ConfigurationError: the file has no record, or the gate cannot compare its records.
        SampleError: no record is a sample.
    """
    if file == "-":
        return None
    ids, bad = list[str | int | None](), list[BadRecord]()
    for read in read_samples(file):
        ids.append(read.id)
        if isinstance(read.sample, BadRecord):
            bad.append(read.sample)
    if not ids:
        raise ConfigurationError(f"{file} holds no samples")
    if len(bad) == len(ids):
        raise none_is_a_sample(bad)
    gate.refuse_cases(ids)
    return len(ids)


def _make_metrics(metrics: str, settings: Configuration | None, judge: str, embeddings: str) -> list[Metric]:
    """Return the named metrics with their configured parameters; without names, all metrics of the configuration."""
    entries = _find_entries(metrics, settings)
    judging, vectors = _judge(settings, judge), _embedder(settings, embeddings)
    with _naming_embeddings():
        return [
            create(name, judge=judging, embeddings=vectors, **parameters)
            if jury is None or settings is None or judge
            else make_metric(settings, name, parameters, jury, judge=judging, embeddings=vectors)
            for name, parameters, jury in entries
        ]


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
def _naming_embeddings() -> Iterator[None]:
    """Add the option for embeddings to an error about missing embeddings."""
    try:
        yield
    except NotReadyError:
        raise
    except ConfigurationError as error:
        if "needs embeddings" not in str(error):
            raise
        raise ConfigurationError(f"{error}; here: --embeddings provider:model") from error


def _embedder(settings: Configuration | None, name: str) -> Embedder | None:
    named = name or (settings.embeddings if settings else None)
    if not named:
        return None
    make = partial(embedder, named) if settings is None else partial(embedder_of, settings, named)
    for problem in named_problems("--embeddings" if name else "embeddings", named, make):
        raise problem
    return make()


def _judge(settings: Configuration | None, name: str) -> Judge:
    if settings is not None and not name:
        for problem in judge_problems(settings):
            raise problem
        return judge_of(settings)
    named = name or "lexical"
    make = partial(make_judge, named) if settings is None else partial(judge_named, settings, named)
    for problem in named_problems("--judge", named, make):
        raise problem
    return make()
