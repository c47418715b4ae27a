"""What ``spanscore evaluate`` does with what it was given: samples of a file → rows, a table, a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
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

from spanscore.cli._budget_spent import budget_spent
from spanscore.cli._config_report import ConfigReport, judge_problems, named_problems, valid
from spanscore.cli._interrupted import INTERRUPTED
from spanscore.cli._quality_gate import QualityGate, exit_code
from spanscore.cli._to_be_written import refuse_overwriting, refuse_unwritable
from spanscore.config.reading import AsWritten
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.score import Outcome
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges import embedder
from spanscore.judges import judge as make_judge
from spanscore.judges.lexical.judge import is_offline
from spanscore.metrics.catalog.configured import embedder_of, entries, judge_named, judge_of
from spanscore.metrics.catalog.registry import create, current_name
from spanscore.pipeline.jobs import redactor_in
from spanscore.protocols import Embedder, Judge, Metric, Redactor
from spanscore.stored.dataset import Bad, none_is_a_sample, read_samples
from spanscore.stored.evaluation import Scoring
from spanscore.stored.evaluation_report import check_report, write_report
from spanscore.stored.evaluation_result import Result
from spanscore.stored.quality_gate import GateResult, QualityBounds
from spanscore.wiring.accounts import Accounts, purse_for

__all__ = ["ScoreRun", "WhoIsAway", "named_clocks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRun:
    """One run of the command: its settings, as ``spanscore evaluate --help`` tells them.

    Attributes:
        names: of metrics, with commas between; empty = those of ``config``.
        judge: empty = that of ``config``, else the offline one; ``embeddings`` likewise.
        timeout: seconds; 0 = that of ``config``, else the scorer's default.
        gate: what the run is held against, where anything is asked of it.
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
    concurrency: int
    timeout: float
    as_json: bool
    gate: QualityGate

    def run(self) -> int:
        """Score, tell and write; return the exit code.

        Raises:
            SpanscoreError: an option, the configuration or the file is wrong.
        """
        configured = self._read_configuration()
        metrics = self._metrics(configured)
        gate = self.gate.gate([metric.name for metric in metrics])
        refuse_unwritable(self.out)
        refuse_overwriting(self.file, "--out", self.out)
        if self.report is not None:
            check_report(self.report)
        total = _count_records(self.file, gate)
        notes = Terminal(stderr=True, highlight=False, markup=False)
        if (
            configured is None
            and not self.judge
            and any(is_offline(getattr(metric, "_judge", None)) for metric in metrics)
        ):
            offline = "No --judge given: the offline judge scores. To use a model: --judge openai:gpt-4o-mini"
            notes.print(offline, soft_wrap=True)
        bar = _bar(notes, Accounts(metrics))
        scoring = _score_file(partial(self._scoring, metrics, configured), self.file, total, bar)
        result = scoring.result()
        held = self.gate.hold(gate, result, self.file) if self.gate.is_asked and not result.interrupted else None
        self._tell(result, held, _redactor(configured))
        for note in self._notes(result, scoring):
            notes.print(note, soft_wrap=True)
        if result.interrupted:
            return INTERRUPTED
        return 0 if held is None else exit_code(held)

    def _read_configuration(self) -> ConfigReport | None:
        if self.config is None:
            return None
        with _naming_embeddings():
            return valid(self.config, judge=not self.judge, embeddings=not (self.judge or self.embeddings))

    def _metrics(self, configured: ConfigReport | None) -> list[Metric]:
        settings, as_written = (configured.settings, configured.as_written) if configured else (None, AsWritten())
        with as_written.told():
            return _metrics(self.names, settings, self.judge, self.embeddings)

    def _scoring(self, metrics: Sequence[Metric], configured: ConfigReport | None, **more: Any) -> Scoring:
        settings = configured.settings if configured else ScorerSettings()
        return Scoring(
            metrics,
            concurrency=self.concurrency,
            timeout=self.timeout or settings.limits.timeout,
            out=self.out,
            fresh=not self.resume,
            cache=self.cache,
            redactor=redactor_in(settings.redactor),
            purse=purse_for(settings, {metric.name: metric for metric in metrics}),
            **more,
        )

    def _tell(self, result: Result, held: GateResult | None, redactor: Redactor | None) -> None:
        if self.as_json:
            at_gate = {} if held is None else {"gate": held.as_json()}
            typer.echo(json.dumps({**result.as_json(), **at_gate}, indent=2))
        else:
            Terminal().print(result)
            if held is not None:
                self.gate.tell(held)
        if self.report is not None:
            write_report(result, self.report, source=self.file, redactor=redactor)

    def _notes(self, result: Result, scoring: Scoring) -> Iterator[str]:
        if unpaid := sum(row.outcome is Outcome.BUDGET_EXHAUSTED for row in result.rows):
            yield budget_spent(unpaid, f"with --out {self.out or 'FILE'}, which keeps what is scored")
        if self.out is not None:
            left = scoring.left_in_file
            beside = f", beside {left} of other samples, metrics or versions" if left else ""
            taken = f"{result.taken_over} of them taken over from an earlier run"
            yield f"{len(result.rows)} rows are in {self.out}{beside}; {taken}."
        if self.report is not None:
            yield f"The page of {len(result.rows)} rows is {self.report}; open {self.report.absolute().as_uri()}"
        if result.interrupted:
            yield "Interrupted: what was scored until then is above." + (
                " Run it again to continue." if self.out else ""
            )


def _redactor(configured: ConfigReport | None) -> Redactor | None:
    return redactor_in(configured.settings.redactor) if configured is not None else None


class WhoIsAway(ProgressColumn):
    """Which accounts are not asked now, and why: a bar that stands still says nothing."""

    def __init__(self, accounts: Accounts) -> None:
        super().__init__()
        self._accounts = accounts

    def render(self, task: Task) -> Text:
        """Return it; empty where all answer, and at the end."""
        away = [state for state in self._accounts.states() if state.breaker != "closed" and not task.finished]
        sentences = (
            f"{state.account!r} does not answer{f': {state.because}' if state.because else ''}; it is asked again"
            for state in away
        )
        return Text("; ".join(sentences), style="yellow")


def _bar(console: Terminal, accounts: Accounts) -> Progress:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    return Progress(*columns, *named_clocks(), WhoIsAway(accounts), console=console)


def named_clocks() -> tuple[ProgressColumn, ...]:
    """Return the columns of a bar for the time that has passed and the time that is left, each behind its name."""
    return TextColumn("elapsed"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()


def _score_file(make: Callable[..., Scoring], file: str, total: int | None, shown: Progress) -> Scoring:
    """Score a file behind a bar, until its end or Ctrl-C."""
    with shown as bar:
        task = bar.add_task("scored", total=total)
        scoring = make(progress=lambda done, _: bar.update(task, completed=done))
        try:
            scoring.block(file)
        except KeyboardInterrupt:
            bar.update(task, description="interrupted")
    return scoring


def _count_records(file: str, gate: QualityBounds) -> int | None:
    """Return the number of records; None for standard input, which can be read once only.

    Raises:
        ConfigurationError: there is none, or the gate cannot tell them apart.
        SampleError: none of them is a sample.
    """
    if file == "-":
        return None
    ids, bad = list[str | int | None](), list[Bad]()
    for read in read_samples(file):
        ids.append(read.id)
        if isinstance(read.sample, Bad):
            bad.append(read.sample)
    if not ids:
        raise ConfigurationError(f"{file} holds no samples")
    if len(bad) == len(ids):
        raise none_is_a_sample(bad)
    gate.refuse_cases(ids)
    return len(ids)


def _metrics(metrics: str, settings: Configuration | None, judge: str, embeddings: str) -> list[Metric]:
    """Make the metrics that are named, with the configuration's parameters where it has some; without names all of it."""
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    listed = [] if settings is None else list(entries(settings))
    if names:
        configured = {str(parameters.get("name", name)): (name, parameters) for name, parameters in listed}
        listed = [configured.get(name) or configured.get(current_name(name), (name, {})) for name in names]
    if not listed:
        raise ConfigurationError("say what to score: --metrics faithfulness,exact_match or --config spanscore.yaml")
    judging, vectors = _judge(settings, judge), _embedder(settings, embeddings)
    with _naming_embeddings():
        return [create(name, judge=judging, embeddings=vectors, **parameters) for name, parameters in listed]


@contextmanager
def _naming_embeddings() -> Iterator[None]:
    """Have an error about embeddings that are missing name the option that gives them."""
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
