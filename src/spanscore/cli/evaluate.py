"""``spanscore evaluate FILE``: scores for stored samples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import CancelBatches, InBatches
from spanscore.core.printable import printable


def evaluate(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="Samples, one a line (.jsonl), as .json or as .csv; '-' reads standard input. Fields by ragas's names: "
            "user_input, response, retrieved_contexts, reference …, or the older question, answer, contexts, ground_truth.",
        ),
    ],
    *,
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            "-m",
            help="Names with commas between: exact_match,polite. Needed without --config. See: spanscore metrics",
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
        typer.Option(help="Who judges: provider:model (openai:gpt-5), or lexical, the offline heuristic (default)."),
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
            "--resume/--no-resume",
            help="Rows in --out of the same sample, metric version, code and judge are taken over and not paid for again "
            "(failures are tried again). --no-resume drops them and scores everything again.",
        ),
    ] = True,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="Ask a model equal questions once. --no-cache asks every one again, to see how much its answers differ.",
        ),
    ] = True,
    batch: InBatches = False,
    batch_cancel: CancelBatches = False,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            metavar="N",
            help="Samples at once; 32 if not given, 10,000 with --batch.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Seconds for one metric on one sample; 0 = limits.timeout of --config, else 180.",
        ),
    ] = 0.0,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="Rows of an earlier run (.jsonl, .csv): each case is compared with itself, by its id or line."
        ),
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option(
            "--update-baseline", help="Write this run's rows to --baseline, whatever comes of the comparison."
        ),
    ] = False,
    max_drop: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=X", help="How far its mean quality may fall: faithfulness=0.03. Again for another."),
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option("--min", metavar="NAME=X", help="The lowest mean quality: harmless=0.98. Again for another."),
    ] = None,
    max_unscored: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Cases of a metric without a score, for any reason but its applies_when, at most."
        ),
    ] = 0.05,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit does, for a CI to show.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print means, intervals and counts as JSON.")] = False,
) -> None:
    """Score the samples in a file, with the metrics that score live traces.

    [bold]spanscore evaluate samples.jsonl -m faithfulness,response_relevancy --judge openai:gpt-4o-mini --out
    scores.jsonl[/bold]

    Ctrl-C keeps what there is; the same command again continues from there, with --batch also a day later. What could not be
    scored is counted by reason and is in no mean.

    With --baseline, --max-drop or --min it is a gate: the exit code is 1 where something fell by more than is allowed and by
    more than noise, 3 if more than --max-unscored of a metric's cases have no score; lines that cannot be read and cases of the
    baseline that are gone count, cases that its applies_when leaves out do not.
    [bold]spanscore evaluate cases.jsonl -m faithfulness --baseline base.jsonl --max-drop faithfulness=0.03[/bold]
    """
    source = "standard input" if file == "-" else printable(file)
    typer.echo(f"Scoring {source}: loading what it takes …", err=True)  # that is seconds
    from spanscore.cli._evaluate_run import QualityGate, ScoreRun

    gate = QualityGate(
        baseline=baseline,
        update=update_baseline,
        max_drop=max_drop or (),
        least=least or (),
        max_unscored=max_unscored,
        junit=junit,
    )
    ended = ScoreRun(
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
        batch=batch,
        batch_cancel=batch_cancel,
        timeout=timeout,
        as_json=as_json,
        gate=gate,
    ).run()
    if ended:
        raise typer.Exit(ended)
