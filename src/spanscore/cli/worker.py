"""``spanscore worker CONFIG``: scores the units of a spool or a topic, in one or several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import current_process, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanscore.cli._options import option_parser
from spanscore.core.printable import format_duration, parse_duration, printable_lines
from spanscore.errors import SourceUnavailable
from spanscore.service.lifetime import HANGUP
from spanscore.service.worker import checked, environment_of
from spanscore.service.worker import worker as run

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from spanscore.service.lifetime import PrintLine

Work = Callable[[int], None]
"""Function that a process runs, given its number from 0 on, until a signal or the parent's end; picklable."""

BRIEF_S: Final = 10.0
"""A process that ends sooner by itself is expected to do so again, and is not restarted."""
_FOR_GOOD: Final = (0, 2, 3)
"""Exit codes after which a worker is not restarted, because a signal stopped it, or a person must act."""
_SIGNALED: Final = 128
"""A shell adds this to a signal's number for the exit code."""
_NOTHING_TO_READ: Final = 3


# --- processes ------------------------------------------------------------------------------------------------------


def in_processes(number: int, work: Work, print_line: PrintLine) -> int:
    """Run processes until all have ended; pass on SIGTERM, SIGINT and SIGHUP. Call it on the main thread, once in a process.

    A process that crashes or is killed is restarted, and its units are read again by some process. A process that ends within
    ten seconds of its start, or with an exit code that requires a person, ends all processes.

    Returns:
        The exit code: 0 if each process ended with 0, otherwise the first other code.
    """
    return _Processes(work, print_line).run(number)


@dataclass(slots=True)
class _Processes:
    _work: Work
    _print_line: PrintLine
    _running: dict[int, tuple[SpawnProcess, float]] = field(default_factory=dict)
    _code: int = 0
    _ending: bool = False

    def run(self, number: int) -> int:
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGINT, self._pass_on)
        signal.signal(signal.SIGHUP, self._send)
        try:
            for place in range(number):
                self._start(place)
            while self._running:
                wait([process.sentinel for process, _ in self._running.values()])
                for place, (process, since_s) in [*self._running.items()]:
                    if process.exitcode is not None:
                        self._handle_end(place, process.exitcode, monotonic() - since_s)
        finally:
            self._pass_on(signal.SIGTERM)  # if a process could not be started; otherwise all have ended
        return self._code

    def _start(self, place: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        process = spawn.Process(target=_apart, args=(self._work, place), name=_name(place))
        signal.pthread_sigmask(signal.SIG_BLOCK, HANGUP)  # the process inherits it, and reads the signal when it can
        process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANGUP)
        self._running[place] = process, monotonic()
        if self._ending:  # the signal came during the start
            process.terminate()

    def _handle_end(self, place: int, code: int, lived_s: float) -> None:
        del self._running[place]
        code = code if code >= 0 else _SIGNALED - code
        again = not self._ending and lived_s >= BRIEF_S and code not in _FOR_GOOD
        if not self._ending:
            then = "it is started again" if again else "all end"
            self._print_line(
                f"{_name(place)} ended with {code}, {format_duration(round(lived_s))} after its start: {then}"
            )
        if again:
            self._start(place)
            return
        self._code = self._code or code
        if not self._ending:
            self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int, _: object = None) -> None:
        self._ending = True
        self._send(number)

    def _send(self, number: int, _: object = None) -> None:
        for process, _ in [*self._running.values()]:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, number)


def _name(place: int) -> str:
    return f"process {place + 1}"


def _apart(work: Work, place: int) -> None:
    os.setpgrp()  # a terminal's signal then reaches only the first process, which passes it on once
    work(place)


# --- worker ---------------------------------------------------------------------------------------------------------


def worker(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, such as spanscore.yaml.")],
    wait: Annotated[
        float,
        typer.Option(
            "--startup-timeout",
            metavar="TIME",
            parser=option_parser(parse_duration),
            help="Longest wait at the start for a missing broker or disk: 30s, 5m.",
        ),
    ] = "30s",  # type: ignore[assignment]  # the default in a user's form; the parser converts it to seconds
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="Number of processes that share the work; each uses one core. The metric pages have consecutive ports "
            "from that of serve_metrics on. A process that crashes 10 s or more after its start is restarted; an earlier crash "
            "ends all, with its exit code.",
        ),
    ] = 1,
    rekey: Annotated[
        str, typer.Option(metavar="TOPIC", help="Do not score; copy the topic to this topic, keyed by conversation.")
    ] = "",
) -> None:
    """Score units that other processes captured: from a spool of this machine, a topic of traces, or both.

    Use the same configuration as the applications. The sections [bold]spool[/bold] and [bold]kafka[/bold] are the sources. Any
    number of workers share the work. Scores are sent to the endpoint that the OTEL_EXPORTER_OTLP_* variables set. A topic needs
    the extra [bold]kafka[/bold].

    SIGHUP reads the configuration again. After SIGTERM the worker stops reading. Scoring then has [bold]worker.drain[/bold] to
    finish; the exit code is 0.
    A second SIGTERM stops it immediately. The exit code is 2 if the configuration is wrong, 3 if there is no source to read.

    Example: spanscore worker spanscore.yaml --processes 2
    """
    if processes > 1:
        settings = checked(config, processes, rekey)
        environments = [dict(environment_of(place, processes, settings)) for place in range(processes)]
        raise typer.Exit(
            in_processes(processes, partial(_one_of_several, config, wait, rekey, environments), _print_line)
        )
    try:
        run(config, wait_s=wait, print_line=_print_line, rekey=rekey)
    except SourceUnavailable as error:
        typer.secho(printable_lines(str(error)), fg=typer.colors.RED, err=True)
        raise typer.Exit(_NOTHING_TO_READ) from None


def _one_of_several(config: Path, wait_s: float, rekey: str, environments: list[dict[str, str]], place: int) -> None:
    """Run the same command in one of several processes. The environment has the settings of this process."""
    from spanscore.cli.main import main  # it imports the commands

    os.environ.update(environments[place])
    sys.argv = ["spanscore", "worker", str(config), "--startup-timeout", f"{wait_s}s", "--rekey", rekey]
    main()


def _print_line(line: str) -> None:
    whose = f"{current_process().name}: " if parent_process() is not None else ""
    typer.echo(whose + printable_lines(line))
