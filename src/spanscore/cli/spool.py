"""``spanscore spool``: shows the rows that wait in a spool, the processes that hold them, and the dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from spanscore.cli._options import option_parser
from spanscore.core.printable import TextTable, format_age, format_bytes, format_duration, parse_duration
from spanscore.core.terminal import Terminal
from spanscore.durable.spool import HeldRows, SpoolInspection, drop_older, inspect_spool, retry_dead_letters
from spanscore.durable.spool_table import MOST_CRASHES

_SHOWN_DEAD_LETTERS = 20
"""Maximum number of dead letters that are listed."""


def spool(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The spool's file, [bold]spool.path[/bold] of the configuration.")
    ],
    retry: Annotated[
        bool, typer.Option("--retry-dead-letters", help="Return the dead letters to the spool, to be scored again.")
    ] = False,
    max_age_s: Annotated[
        float | None,
        typer.Option(
            "--drop-older-than",
            metavar="AGE",
            parser=option_parser(parse_duration),
            help="Delete rows older than this (7d, 12h), except rows under a valid lease. Deleted rows are in no count.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the state as JSON.")] = False,
) -> None:
    """Show the state of a spool: size, age, waiting units of each metric, the processes that hold rows, and the dead letters.

    [bold]spanscore spool /var/lib/spanscore/spool.db[/bold]

    Content is never printed: a dead letter is shown by its ids, age and reason. A lease of another machine, or of an earlier
    boot, counts as valid. Other processes can use the spool at the same time. The exit code is 2 if the file is not a spool.
    """
    inspect_spool(file)  # a file that is not a spool stays unchanged
    notes = []
    if retry:
        notes.append(f"{retry_dead_letters(file):,} will be tried again")
    if max_age_s is not None:
        notes.append(f"{drop_older(file, max_age_s):,} older than {format_duration(max_age_s)} deleted")
    inspection = inspect_spool(file)
    if as_json:
        typer.echo(json.dumps({**_as_json(inspection), "notes": notes}, indent=2))
    else:
        _print_state(inspection, notes)


def _print_state(inspection: SpoolInspection, notes: list[str]) -> None:
    terminal, state = Terminal(highlight=False), inspection.state
    for note in notes:
        terminal.print(note)
    waits = f", the oldest for {format_age(state.oldest_s)}" if state.depth else ""
    terminal.print(f"{state.depth:,} wait or are being scored{waits}; {format_bytes(state.bytes)}")
    if state.messages:
        terminal.print(
            f"messages of sinks: {', '.join(f'{name} {number:,}' for name, number in state.messages.items())}"
        )
    if inspection.held:
        rows = [
            (str(held.pid), f"{held.rows:,}", f"{held.in_work:,}", _describe_lease(held)) for held in inspection.held
        ]
        terminal.print(TextTable(("process", "holds", "in work", "lease"), rows))
    if inspection.waiting:
        waiting = [(metric, f"{units:,}", format_age(oldest_s)) for metric, units, oldest_s in inspection.waiting]
        terminal.print(TextTable(("metric", "waits", "oldest"), waiting))
    if inspection.dead_letters:
        terminal.print(f"{len(inspection.dead_letters):,} dead letters; --retry-dead-letters has them scored again")
        for key, crashes, age_s in inspection.dead_letters[:_SHOWN_DEAD_LETTERS]:
            why = _format_crashes(crashes)
            row = f"  trace {key.trace_id:032x}  span {key.span_id:016x}  {format_age(age_s)} old  {why}"
            terminal.print(row, soft_wrap=True)


def _format_crashes(crashes: int) -> str:
    if crashes >= MOST_CRASHES:
        return f"{crashes} crashes"
    return f"could not be read (crashes: {crashes})" if crashes else "could not be read"


def _describe_lease(held: HeldRows) -> str:
    if held.has_ended:
        return "has ended: free"
    if held.lease_s is None:
        return "of another machine, or an earlier boot"
    return f"{held.lease_s:.0f} s left" if held.lease_s > 0 else "late: free"


def _as_json(inspection: SpoolInspection) -> dict[str, Any]:
    state = inspection.state
    dead_letters = [
        {
            "trace_id": f"{key.trace_id:032x}",
            "span_id": f"{key.span_id:016x}",
            "revision": key.revision,
            "crashes": attempts,
            "age_s": age_s,
        }
        for key, attempts, age_s in inspection.dead_letters
    ]
    return {
        "depth": state.depth,
        "bytes": state.bytes,
        "oldest_s": state.oldest_s,
        "messages": dict(state.messages),
        "owners": [held._asdict() for held in inspection.held],
        "waiting": [row._asdict() for row in inspection.waiting],
        "dead_letters": dead_letters,
    }
