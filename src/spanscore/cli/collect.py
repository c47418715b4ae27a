"""``spanscore collect SOURCE``: makes a data set from stored traces, of units that meet a condition, or of a random sample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import SourceOfReplay, UnitsSince, UnitsUntil, takes_options


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """The options of ``spanscore collect``. An empty text is an option that was not given."""

    source: SourceOfReplay
    out: Annotated[
        Path, typer.Option(help="The file to write, .jsonl, readable by its owner only, because it contains content.")
    ]
    when: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COND",
            help="Condition for a unit: 'faithfulness<0.5', 'harmless=fail'. Repeat it to combine by 'or'.",
        ),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Draw this many cases, weighted by the traffic that each represents."),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the draw: equal seeds draw equal cases.")] = 0
    config: Annotated[
        Path | None,
        typer.Option(
            help="A spanscore.yaml: its capture section locates question, answer and contexts, and its redactor applies."
        ),
    ] = None
    redactor: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Your function from text to text, such as 'my_pkg.privacy:redact'. It runs on all content, in place of "
            "the configuration's redactor.",
        ),
    ] = ""
    since: UnitsSince = ""
    until: UnitsUntil = ""
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False


@takes_options(CollectOptions)
def collect(options: CollectOptions) -> None:
    """Make a data set from stored traces. [bold]--when[/bold] selects units, [bold]--sample[/bold] draws some of them.

    [bold]spanscore collect spans.jsonl --when 'faithfulness<0.5' --when harmless=fail --out cases.jsonl[/bold]

    A case is a sample in ragas's field names, with trace id, scores, evaluator version and sampling probability. Units with
    equal questions become one case, with the number of these units. Stored spans have content only if it was exported
    ([bold]capture.content[/bold]). No judge is called.
    """
    typer.echo("Collect: loading libraries …", err=True)  # this takes seconds
    from spanscore.cli._stored_traces import collect_cases

    collect_cases(options)
