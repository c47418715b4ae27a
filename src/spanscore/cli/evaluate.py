"""``spanscore evaluate FILE``: scores the samples of a file, and can act as a quality gate in a CI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import CancelBatches, InBatches, takes_options
from spanscore.core.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """The options of ``spanscore evaluate``. An empty text is an option that was not given."""

    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="Samples as .jsonl (one a line), .json or .csv; '-' reads standard input. The fields have ragas's names: "
            "user_input, response, retrieved_contexts, reference …, or the older question, answer, contexts, ground_truth.",
        ),
    ]
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            "-m",
            help="Names of metrics, separated by commas: exact_match,polite. Needed without --config. See: spanscore metrics",
        ),
    ] = ""
    config: Annotated[
        Path | None,
        typer.Option(
            help="A spanscore.yaml with a judge and metrics with their parameters; --metrics then selects some."
        ),
    ] = None
    judge: Annotated[
        str,
        typer.Option(help="provider:model (openai:gpt-5) or lexical (offline). Default: that of --config, or lexical."),
    ] = ""
    embeddings: Annotated[
        str,
        typer.Option(
            help="For metrics that compare meanings: provider:model, such as openai:MODEL; or lexical, which counts words. "
            "Default: those of --config; without them lexical if the judge is lexical."
        ),
    ] = ""
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a row per sample and metric, .jsonl or .csv, during the run. Rows already in the file are kept."
        ),
    ] = None
    report: Annotated[
        Path | None, typer.Option(help="Write one HTML page: means, distributions, outcomes, the worst samples.")
    ] = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            help="Reuse rows in --out of the same sample, metric version, code and judge, without paying again (failures are "
            "retried). --no-resume drops them and scores everything again.",
        ),
    ] = True
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="Send equal questions to a model once. --no-cache sends each one, to show how much the answers vary.",
        ),
    ] = True
    batch: InBatches = False
    batch_cancel: CancelBatches = False
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            metavar="N",
            help="Samples that are scored at the same time. Default: 32, with --batch 10,000.",
            show_default=False,
        ),
    ] = None
    timeout: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Time limit for one metric on one sample; 0 = limits.timeout of --config, otherwise 180.",
        ),
    ] = 0.0
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="Rows of an earlier run (.jsonl, .csv). Each case is compared with its earlier row, by id or line."
        ),
    ] = None
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write this run's rows to --baseline, whatever the verdict is.")
    ] = False
    max_drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=X", help="Allowed drop of a mean quality: faithfulness=0.03. Repeat for more metrics."
        ),
    ] = None
    least: Annotated[
        list[str] | None,
        typer.Option(
            "--min", metavar="NAME=X", help="Lowest allowed mean quality: harmless=0.98. Repeat for more metrics."
        ),
    ] = None
    max_unscored: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Allowed share of a metric's cases without a score. Cases that its applies_when excludes do not count, "
            "unless they have a score in the baseline.",
        ),
    ] = 0.05
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts in JUnit's format, which a CI can show.")] = (
        None
    )
    as_json: Annotated[bool, typer.Option("--json", help="Print means, intervals and counts as JSON.")] = False


@takes_options(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> None:
    """Score the samples in a file with the metrics that also score live traces.

    [bold]spanscore evaluate samples.jsonl -m faithfulness,response_relevancy --judge openai:gpt-4o-mini --out
    scores.jsonl[/bold]

    Ctrl-C keeps the scores so far. With --out, the same command continues from there, with --batch also a day later. Samples
    without a score are counted by reason and are in no mean.

    With --baseline, --max-drop or --min the command is a quality gate. The exit code is 1 if a quality fell by more than
    --max-drop and by more than noise, or is below --min. The exit code is 3 if more than --max-unscored of a metric's cases
    have no score. Unreadable lines and missing cases of the baseline count as unscored.

    [bold]spanscore evaluate cases.jsonl -m faithfulness --baseline base.jsonl --max-drop faithfulness=0.03[/bold]
    """
    source = "standard input" if options.file == "-" else printable(options.file)
    typer.echo(f"Scoring {source}: loading libraries …", err=True)  # this takes seconds
    from spanscore.cli._evaluate_run import ScoreRun

    score_run = ScoreRun(options)
    if options.batch_cancel:
        score_run.cancel_batches()
    elif exit_code := score_run.run():
        raise typer.Exit(exit_code)
