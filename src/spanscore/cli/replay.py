"""``spanscore replay CONFIG SOURCE``: scores stored traces as the live scorer would have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import INTERRUPTED, CancelBatches, InBatches, UnitsSince, UnitsUntil, takes_options


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of ``spanscore replay``. An empty text is an option that was not given."""

    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration of the live scorer.")]
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Source of the spans: a file or folder of OTLP-JSON lines (.jsonl, .json, also .gz; the Collector's 'file' "
            "exporter), 'jaeger:http://host:16686?service=NAME' or 'tempo:http://host:3200?q={…}'.",
        ),
    ]
    since: UnitsSince = ""
    until: UnitsUntil = ""
    max_rate: Annotated[
        str, typer.Option("--max-rate", metavar="RATE", help="Highest rate of units: 50/s, 700/min.")
    ] = ""
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Score at most this many units.")] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Score nothing: show the units that would be scored, and their cost.")
    ] = False
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of an earlier replay to continue. Its scores are kept, and new scores are added. Without "
            "this option, a replay writes such a file, scores.jsonl.",
        ),
    ] = None
    rescore: Annotated[
        bool,
        typer.Option(
            "--rescore", help="Also score units with scores of the same id; the new scores are a new revision."
        ),
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for scores.jsonl and report.html. Default: replay. No score is sent."),
    ] = None
    export: Annotated[
        bool,
        typer.Option(
            "--export",
            help="Send evaluation spans by OTEL_EXPORTER_OTLP_* and write no files; the spans have the times of their units.",
        ),
    ] = False
    batch: InBatches = False
    batch_cancel: CancelBatches = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False


@takes_options(ReplayOptions)
def replay(options: ReplayOptions) -> None:
    """Score stored traces, with the sampling decisions and the score ids of live scoring.

    [bold]spanscore replay spanscore.yaml 'jaeger:http://localhost:16686?service=bot' --since 7d --dry-run[/bold]

    Sampling decisions in the traces are kept, and units that already have a score are not scored again. Scores are sent only
    with [bold]--export[/bold]. Ctrl-C keeps the scores so far and exits with 130; [bold]--resume[/bold] continues from there.
    """
    typer.echo("Replay: loading libraries …", err=True)  # this takes seconds
    from spanscore.cli._stored_traces import ReplayRun

    replay_run = ReplayRun(options)
    if options.batch_cancel:
        replay_run.cancel_batches()
    elif replay_run.run():
        raise typer.Exit(INTERRUPTED)
