"""``spanscore score FILE``: stored samples → scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from spanscore.cli._config_report import judge_problems, named_problems, valid
from spanscore.dataset import Result, Scoring, read_samples
from spanscore.dataset.reading import Bad, none_is_a_sample
from spanscore.dataset.reporting import check_report, write_report
from spanscore.errors import ConfigurationError
from spanscore.judges import embedder
from spanscore.judges import judge as make_judge
from spanscore.judges.lexical.judge import is_offline
from spanscore.line.options import Options
from spanscore.line.terminal import Terminal
from spanscore.metrics.catalog.configured import embedder_of, entries, judge_of
from spanscore.metrics.catalog.registry import create, current_name
from spanscore.protocols import Embedder, Judge, Metric
from spanscore.settings.environment import AsWritten
from spanscore.settings.tree import Settings

__all__ = ["score"]

_INTERRUPTED = 130
"""128 + SIGINT: what a shell expects of a command that Ctrl-C ended."""


def score(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="Samples, one a line (.jsonl), as .json or as .csv; '-' reads standard input. Fields by ragas's names: "
            "user_input, response, retrieved_contexts, reference …, or the older question, answer, contexts, ground_truth.",
        ),
    ],
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            "-m",
            help="Names with commas between: faithfulness,exact_match. Needed without --config. See: spanscore metrics",
        ),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            help="A spanscore.yaml: its judge and its metrics with their parameters; --metrics then picks some."
        ),
    ] = None,
    judge: Annotated[
        str,
        typer.Option(
            help="Who judges: provider:model (openai:gpt-4o-mini), or lexical, the offline heuristic (default)."
        ),
    ] = "",
    embeddings: Annotated[
        str,
        typer.Option(
            help="For metrics that compare meanings: provider:model, such as openai:MODEL; or lexical, which counts words "
            "(default beside the lexical judge)."
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a row per sample and metric, .jsonl or .csv, as they come. Rows already in it are kept."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write one HTML page: means, distributions, outcomes, the worst samples.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--fresh",
            help="Rows in --out of the same sample, metric version and judge are taken over and not paid for again "
            "(failures are tried again). --fresh drops them and scores everything again.",
        ),
    ] = True,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="Ask a model equal questions once. --no-cache asks every one again, to see how much its answers differ.",
        ),
    ] = True,
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Samples at once.")] = 32,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Seconds for one metric on one sample; 0 = limits.timeout of --config, else 180.",
        ),
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print means, intervals and counts as JSON.")] = False,
) -> None:
    """Score the samples in a file, with the metrics that score live traces.

    [bold]spanscore score samples.jsonl -m faithfulness,response_relevancy --judge openai:gpt-4o-mini --out scores.jsonl[/bold]

    Ctrl-C keeps what there is; the same command again continues from there. What could not be scored is counted by reason and
    is in no mean.
    """
    configured = None if config is None else valid(config, judge=not judge, embeddings=not (judge or embeddings))
    settings, as_written = (configured.settings, configured.as_written) if configured else (None, AsWritten())
    with as_written.told():
        made = _metrics(metrics, settings, judge, embeddings)
    deadline_s = timeout or (configured.options if configured else Options()).timeout
    if report is not None:
        check_report(report)
    total = _counted(file)
    notes = Terminal(stderr=True, highlight=False)
    if _judged_offline_unasked(made, settings, judge):
        notes.print("No --judge given: the offline judge scores. To use a model: --judge openai:gpt-4o-mini")
    make = partial(Scoring, made, concurrency=concurrency, timeout=deadline_s, out=out, fresh=not resume, cache=cache)
    scoring = _scored(make, file, total, notes)
    result = scoring.result()
    if as_json:
        typer.echo(json.dumps(result.as_json(), indent=2))
    else:
        Terminal().print(result)
    if report is not None:
        write_report(result, report, source=file)
    for note in _notes(result, scoring, out, report):
        notes.print(note, soft_wrap=True)
    if result.interrupted:
        raise typer.Exit(_INTERRUPTED)


def _judged_offline_unasked(metrics: Sequence[Metric], settings: Settings | None, asked: str) -> bool:
    offline = any(is_offline(getattr(metric, "_judge", None)) for metric in metrics)
    return offline and settings is None and not asked


def _scored(make: Callable[..., Scoring], file: str, total: int | None, console: Terminal) -> Scoring:
    """Score a file behind a bar, until its end or Ctrl-C."""
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("scored", total=total)
        scoring = make(progress=lambda done, _: bar.update(task, completed=done))
        try:
            scoring.block(file)
        except KeyboardInterrupt:
            bar.update(task, description="interrupted")
    return scoring


def _notes(result: Result, scoring: Scoring, out: Path | None, report: Path | None) -> Iterator[str]:
    if out is not None:
        left = scoring.left_in_file
        beside = f", beside {left} of other samples, metrics or versions" if left else ""
        taken = f"{result.taken_over} of them taken over from an earlier run"
        yield f"{len(result.rows)} rows are in {out}{beside}; {taken}."
    if report is not None:
        yield f"The page is {report}."
    if result.interrupted:
        yield "Interrupted: what was scored until then is above." + (" Run it again to continue." if out else "")


def _counted(file: str) -> int | None:
    """Return the number of records; None for standard input, which can be read once only.

    Raises:
        ConfigurationError: there is none.
        SampleError: none of them is a sample.
    """
    if file == "-":
        return None
    total, bad = 0, list[Bad]()
    for total, (_, sample) in enumerate(read_samples(file), 1):  # noqa: B007
        if isinstance(sample, Bad):
            bad.append(sample)
    if total == 0:
        raise ConfigurationError(f"{file} holds no samples")
    if len(bad) == total:
        raise none_is_a_sample(bad)
    return total


def _metrics(metrics: str, settings: Settings | None, asked: str, embeddings: str) -> list[Metric]:
    """Make the metrics that are named, with the configuration's parameters where it has some; without names all of it."""
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    listed = [] if settings is None else list(entries(settings))
    if names:
        configured = {str(parameters.get("name", name)): (name, parameters) for name, parameters in listed}
        listed = [configured.get(name) or configured.get(current_name(name), (name, {})) for name in names]
    if not listed:
        raise ConfigurationError("say what to score: --metrics faithfulness,exact_match or --config spanscore.yaml")
    judging, vectors = _judge(settings, asked), _embedder(settings, embeddings)
    return [create(name, judge=judging, embeddings=vectors, **parameters) for name, parameters in listed]


def _embedder(settings: Settings | None, asked: str) -> Embedder | None:
    if settings is None:
        return embedder(asked) if asked else None
    named = asked or settings.embeddings
    return embedder_of(settings, named) if named else None


def _judge(settings: Settings | None, asked: str) -> Judge:
    if settings is not None and not asked:
        for problem in judge_problems(settings):
            raise problem
        return judge_of(settings)
    named = asked or "lexical"
    for problem in named_problems("--judge", named, partial(make_judge, named)):
        raise problem
    return make_judge(named)
