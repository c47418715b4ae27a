"""``spanscore worker CONFIG``: scores what a spool or a topic holds, in one or several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import current_process, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanscore.core.printable import format_duration, parse_duration, printable_lines
from spanscore.errors import SourceUnavailable
from spanscore.service.worker import checked, environment_of
from spanscore.service.worker import worker as run

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from spanscore.service.lifetime import Say

Work = Callable[[int], None]
"""The work of a process, given its number from 0 on; can be pickled. It ends by a signal, and when its parent has ended."""

_BRIEF_S: Final = 10.0
"""A process that ends sooner by itself will do so again."""
_FOR_GOOD: Final = (0, 2, 3)
"""Exit codes after which a worker is not started again: it was asked to end, or a person must act."""
_SIGNALED: Final = 128
"""A shell adds it to a signal's number."""
_NOTHING_TO_READ: Final = 3


# --- processes ------------------------------------------------------------------------------------------------------


def in_processes(number: int, work: Work, say: Say) -> int:
    """Run processes until all have ended; pass on SIGTERM and SIGINT. Call it on the main thread, once in a process.

    A process that crashes or is killed is started again, and its units are read again, by it or another process. One that ends
    within ten seconds of its start, or with an exit code that asks a person to act, ends them all.

    Args:
        number: of the processes.
        work: the work of each.
        say: prints a line.

    Returns:
        The exit code: 0 if each process ended with 0, else that of the first that did not.
    """
    return _Processes(work, say).run(number)


class _Processes:
    def __init__(self, work: Work, say: Say) -> None:
        self._work = work
        self._say = say
        self._running: dict[int, tuple[SpawnProcess, float]] = {}
        self._code = 0
        self._ending = False

    def run(self, number: int) -> int:
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGINT, self._pass_on)
        try:
            for place in range(number):
                self._start(place)
            while self._running:
                wait([process.sentinel for process, _ in self._running.values()])
                for place, (process, since_s) in [*self._running.items()]:
                    if process.exitcode is not None:
                        self._ended(place, process.exitcode, monotonic() - since_s)
        finally:
            self._pass_on(signal.SIGTERM)  # if a process could not be started; else all have ended
        return self._code

    def _start(self, place: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        process = spawn.Process(target=_apart, args=(self._work, place), name=_name(place))
        process.start()
        self._running[place] = process, monotonic()
        if self._ending:  # the signal came while it was started
            process.terminate()

    def _ended(self, place: int, code: int, lived_s: float) -> None:
        del self._running[place]
        code = code if code >= 0 else _SIGNALED - code
        again = not self._ending and lived_s >= _BRIEF_S and code not in _FOR_GOOD
        if not self._ending:
            then = "it is started again" if again else "all end"
            self._say(f"{_name(place)} ended with {code}, {format_duration(round(lived_s))} after its start: {then}")
        if again:
            self._start(place)
            return
        self._code = self._code or code
        if not self._ending:
            self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int, _: object = None) -> None:
        self._ending = True
        for process, _ in [*self._running.values()]:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, number)


def _name(place: int) -> str:
    return f"process {place + 1}"


def _apart(work: Work, place: int) -> None:
    os.setpgrp()  # what a terminal sends to all goes to the first process, which passes it on once
    work(place)


# --- worker ---------------------------------------------------------------------------------------------------------


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
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
    """Run the same command in one of the processes, with the environment that tells it from the others."""
    from spanscore.cli.main import main  # it imports the commands

    os.environ.update(environments[place])
    sys.argv = ["spanscore", "worker", str(config), "--startup-timeout", f"{wait_s}s", "--rekey", rekey]
    main()


def _say(line: str) -> None:
    whose = f"{current_process().name}: " if parent_process() is not None else ""
    typer.echo(whose + printable_lines(line))
