"""``spanscore collect SOURCE``: a data set of the cases that matter in stored traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import SourceOfReplay, TracesSince, TracesUntil


def collect(
    source: SourceOfReplay,
    *,
    out: Annotated[
        Path, typer.Option(help="The file to write, .jsonl, readable by its owner alone: it holds content.")
    ],
    when: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COND", help="Units of which it holds: 'faithfulness<0.5', 'harmless=fail'. Again for 'or'."
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Draw so many, each by the traffic for which it stands.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draw: the same one draws the same cases.")] = 0,
    config: Annotated[
        Path | None, typer.Option(help="A spanscore.yaml: what it says of capture finds question, answer and contexts.")
    ] = None,
    redactor: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Of a function of yours, text to text: 'my_pkg.privacy:redact'. It runs on all, in place of the "
            "configuration's.",
        ),
    ] = "",
    since: TracesSince = "",
    until: TracesUntil = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Make a data set of stored traces: the failing ones, or a random share of all.

    [bold]spanscore collect spans.jsonl --when 'faithfulness<0.5' --when harmless=fail --out cases.jsonl[/bold]

    A case is a sample in ragas's field names, with trace id, scores, evaluator version and sampling probability. Equal
    questions are one case, which says how many they were. Spans hold content only with [bold]capture.content[/bold]. No judge
    is asked.
    """
    typer.echo("Collect: loading what it takes …", err=True)  # that is seconds
    from spanscore.cli._stored_traces import CollectRun

    CollectRun(
        source=source,
        out=out,
        when=when or (),
        sample=sample,
        seed=seed,
        config=config,
        redactor=redactor,
        since=since,
        until=until,
        as_json=as_json,
    ).run()
