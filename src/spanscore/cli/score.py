"""``spanscore score FILE``: stored samples → scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spanscore.settings.printable import printable

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
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Samples at once.")] = 32,
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
    said = "standard input" if file == "-" else printable(file)
    typer.echo(f"Scoring {said}: loading what it takes …", err=True)  # that is seconds
    from spanscore.cli._score_run import ScoreRun

    interrupted = ScoreRun(
        file=file,
        names=metrics,
        config=config,
        judge=judge,
        embeddings=embeddings,
        out=out,
        report=report,
        resume=resume,
        cache=cache,
        concurrency=concurrency,
        timeout=timeout,
        as_json=as_json,
    ).run()
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
