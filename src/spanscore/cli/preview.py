"""``spanscore preview CONFIG SOURCE``: which stored units a configuration would score, and at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import INTERRUPTED, SourceOfReplay, UnitsSince, UnitsUntil


def preview(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration to try.")],
    source: SourceOfReplay,
    since: UnitsSince = "",
    until: UnitsUntil = "",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop when so many units would be scored.")
    ] = None,
    context_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of the contexts of a request together; about 150 if not given."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it all as JSON.")] = False,
) -> None:
    """Tell which units each rate and rule would take, how many, what that would cost, and ten of them by name.

    [bold]spanscore preview spanscore.yaml spans.jsonl[/bold]

    No judge is asked, and nothing is shown of what was asked or answered. The dice are those of the live scorer; what was
    decided then has no say, so that a changed configuration can be tried on last week's spans.
    """
    typer.echo("Preview: loading what it takes …", err=True)  # that is seconds
    from spanscore.cli._stored_traces import PreviewRun

    interrupted = PreviewRun(
        config=config,
        source=source,
        since=since,
        until=until,
        limit=limit,
        context_tokens=context_tokens,
        as_json=as_json,
    ).run()
    if interrupted:
        raise typer.Exit(INTERRUPTED)
