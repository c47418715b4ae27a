"""``spanscore worker CONFIG``: what a spool or a topic holds in, scores out."""

from __future__ import annotations

import os
import sys
from functools import partial
from multiprocessing import current_process, parent_process
from pathlib import Path
from typing import Annotated

import typer

from spanscore.config.kinds import seconds_of
from spanscore.core.printable import printable_lines
from spanscore.errors import SourceUnavailable
from spanscore.service.processes import in_processes
from spanscore.service.worker import checked, environment_of
from spanscore.service.worker import worker as run

__all__ = ["worker"]

_NOTHING_TO_READ = 3


def _seconds(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def worker(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, such as spanscore.yaml.")],
    wait: Annotated[
        float,
        typer.Option(
            "--startup-timeout",
            metavar="TIME",
            parser=_seconds,
            help="How long at most to wait at the start for a broker or disk that is not there: 30s, 5m.",
        ),
    ] = "30s",  # type: ignore[assignment]  # what a person would write; the parser makes seconds of it
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="How many processes share the work, of which each uses one core; their pages have the ports from that of"
            " serve_metrics on. One that crashes is started again.",
        ),
    ] = 1,
    rekey: Annotated[
        str, typer.Option(metavar="TOPIC", help="Score nothing; write the topic to this one, keyed by conversation.")
    ] = "",
) -> None:
    """Score what others have captured: the spool that applications on this machine write, a topic of traces, or both.

    By the same configuration as theirs: [bold]spool[/bold] and [bold]kafka[/bold] in the file say what is read. Any number of
    workers share the work. Scores leave by OTEL_EXPORTER_OTLP_*. A topic needs the extra [bold]kafka[/bold].

    SIGTERM ends it: nothing more is read, and what is being scored has [bold]worker.drain[/bold]; the exit code is 0. A second
    one ends it at once. Where the configuration is wrong the exit code is 2; where there is nothing to read from, 3.

    Example: spanscore worker spanscore.yaml --processes 2
    """
    if processes > 1:
        settings = checked(config, processes, rekey)
        environments = [dict(environment_of(place, processes, settings)) for place in range(processes)]
        raise typer.Exit(in_processes(processes, partial(_one_of_several, config, wait, rekey, environments), _say))
    try:
        run(config, wait_s=wait, say=_say, rekey=rekey)
    except SourceUnavailable as error:
        typer.secho(printable_lines(str(error)), fg=typer.colors.RED, err=True)
        raise typer.Exit(_NOTHING_TO_READ) from None


def _one_of_several(config: Path, wait_s: float, rekey: str, environments: list[dict[str, str]], place: int) -> None:
    """Be one of the processes: the same command, given alone, with what tells it from the others."""
    from spanscore.cli.main import main  # it imports the commands

    os.environ.update(environments[place])
    sys.argv = ["spanscore", "worker", str(config), "--startup-timeout", f"{wait_s}s", "--rekey", rekey]
    main()


def _say(line: str) -> None:
    whose = f"{current_process().name}: " if parent_process() is not None else ""
    typer.echo(whose + printable_lines(line))
