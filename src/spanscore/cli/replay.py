"""``spanscore replay CONFIG SOURCE``: scores for stored traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import INTERRUPTED, CancelBatches, InBatches, UnitsSince, UnitsUntil


def replay(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration of the live scorer.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Where the spans are: a file or folder of OTLP-JSON lines (.jsonl, .json, also .gz; the Collector's 'file' "
            "exporter), 'jaeger:http://host:16686?service=NAME' or 'tempo:http://host:3200?q={…}'.",
        ),
    ],
    *,
    since: UnitsSince = "",
    until: UnitsUntil = "",
    rate: Annotated[str, typer.Option("--max-rate", metavar="RATE", help="Units at most: 50/s, 700/min.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Score so many units at most.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Score nothing: tell what would be scored, and what that costs.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on: what is in the file is not scored again, and what is scored is added to it. A replay writes one "
            "without this, too: scores.jsonl.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--rescore", help="Score also what has scores of the same id, as a further revision beside them."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for scores.jsonl and report.html; 'replay' if not given. Nothing leaves."
        ),
    ] = None,
    emit: Annotated[
        bool,
        typer.Option(
            "--export", help="Send evaluation spans by OTEL_EXPORTER_OTLP_* instead, with the times of their units."
        ),
    ] = False,
    batch: InBatches = False,
    batch_cancel: CancelBatches = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Score stored traces, with the decisions and score ids that they have live, or would have had.

    [bold]spanscore replay spanscore.yaml 'jaeger:http://localhost:16686?service=bot' --since 7d --dry-run[/bold]

    What the traces tell of decisions stands; what they hold of scores is not scored again. Nothing is emitted without
    [bold]--export[/bold]. Ctrl-C keeps what there is and exits with 130; [bold]--resume[/bold] goes on from there.
    """
    typer.echo("Replay: loading what it takes …", err=True)  # that is seconds
    from spanscore.cli._stored_traces import ReplayRun

    interrupted = ReplayRun(
        config=config,
        source=source,
        since=since,
        until=until,
        rate=rate,
        limit=limit,
        dry_run=dry_run,
        resume=resume,
        again=again,
        out=out,
        emit=emit,
        batch=batch,
        batch_cancel=batch_cancel,
        as_json=as_json,
    ).run()
    if interrupted:
        raise typer.Exit(INTERRUPTED)
