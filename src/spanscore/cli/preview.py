"""``spanscore preview CONFIG SOURCE``: the stored units that a configuration would score, and the cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import INTERRUPTED, ContextTokens, SourceOfReplay, UnitsSince, UnitsUntil, takes_options


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewOptions:
    """The options of ``spanscore preview``. An empty text is an option that was not given."""

    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration to try.")]
    source: SourceOfReplay
    since: UnitsSince = ""
    until: UnitsUntil = ""
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this many units that would be scored.")
    ] = None
    context_tokens: ContextTokens = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the preview as JSON.")] = False


@takes_options(PreviewOptions)
def preview(options: PreviewOptions) -> None:
    """Show the units that each rate and rule would sample: their number, their cost, and ten of them by name.

    [bold]spanscore preview spanscore.yaml spans.jsonl[/bold]

    No judge is called, and no question or answer is shown. Sampling uses the same random numbers as the live scorer. Decisions
    in the stored spans are ignored, so that you can try a changed configuration on last week's spans.
    """
    typer.echo("Preview: loading libraries …", err=True)  # this takes seconds
    from spanscore.cli._stored_traces import preview_traces

    if preview_traces(options):
        raise typer.Exit(INTERRUPTED)
