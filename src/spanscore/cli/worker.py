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
"""A process that crashes sooner after its start, in s, is not restarted, because it is expected to crash again."""
_FINAL_CODES: Final = (0, 2, 3)
"""Exit codes after which a process is not restarted, because a signal stopped it, or a person must act."""
_SIGNALED: Final = 128
"""A shell adds this to a signal's number for the exit code."""
_NO_SOURCE: Final = 3


# --- processes ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WorkerProcesses:
    """The processes of one command, numbered from 0 on. ``run`` ends when all of them have ended.

    SIGTERM, SIGINT and SIGHUP are passed on to them. A process that crashes or is killed is restarted, and any process reads
    its units again. If a process ends within ten seconds of its start, or with an exit code that requires a person, all
    processes are ended.
    """

    _work: Work
    _print_line: PrintLine
    _running: dict[int, tuple[SpawnProcess, float]] = field(default_factory=dict)
    _exit_code: int = 0
    _ending: bool = False

    def run(self, number: int) -> int:
        """Run this number of processes, and return 0 if each ended with 0, otherwise the first other exit code.

        Call it on the main thread, once in a process.
        """
        signal.signal(signal.SIGTERM, self._end_all)
        signal.signal(signal.SIGINT, self._end_all)
        signal.signal(signal.SIGHUP, self._send_signal)
        try:
            for place in range(number):
                self._start(place)
            while self._running:
                wait([process.sentinel for process, _ in self._running.values()])
                for place, (process, started_s) in [*self._running.items()]:
                    if process.exitcode is not None:
                        self._handle_end(place, process.exitcode, monotonic() - started_s)
        finally:
            self._end_all(signal.SIGTERM)  # if a process could not be started; otherwise all have ended
        return self._exit_code

    def _start(self, place: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        process = spawn.Process(target=_run_in_own_group, args=(self._work, place), name=_name(place))
        signal.pthread_sigmask(signal.SIG_BLOCK, HANGUP)  # the process inherits it, and reads the signal when it can
        process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANGUP)
        self._running[place] = process, monotonic()
        if self._ending:  # the signal came during the start
            process.terminate()

    def _handle_end(self, place: int, code: int, lifetime_s: float) -> None:
        del self._running[place]
        code = code if code >= 0 else _SIGNALED - code
        is_restarted = not self._ending and lifetime_s >= BRIEF_S and code not in _FINAL_CODES
        if not self._ending:
            then = "it is started again" if is_restarted else "all end"
            self._print_line(
                f"{_name(place)} ended with {code}, {format_duration(round(lifetime_s))} after its start: {then}"
            )
        if is_restarted:
            self._start(place)
            return
        self._exit_code = self._exit_code or code
        if not self._ending:
            self._end_all(signal.SIGTERM)

    def _end_all(self, number: int, _: object = None) -> None:
        self._ending = True
        self._send_signal(number)

    def _send_signal(self, number: int, _: object = None) -> None:
        for process, _ in [*self._running.values()]:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, number)


def _name(place: int) -> str:
    return f"process {place + 1}"


def _run_in_own_group(work: Work, place: int) -> None:
    os.setpgrp()  # otherwise a terminal's signal would reach this process twice: directly, and passed on
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
        work = partial(_run_one_of_several, config, wait, rekey, environments)
        raise typer.Exit(WorkerProcesses(work, _print_line).run(processes))
    try:
        run(config, wait_s=wait, print_line=_print_line, rekey=rekey)
    except SourceUnavailable as error:
        typer.secho(printable_lines(str(error)), fg=typer.colors.RED, err=True)
        raise typer.Exit(_NO_SOURCE) from None


def _run_one_of_several(
    config: Path, wait_s: float, rekey: str, environments: list[dict[str, str]], place: int
) -> None:
    """Run the command with one process. ``environments[place]`` has the settings that differ between the processes."""
    from spanscore.cli.main import main  # it imports the commands

    os.environ.update(environments[place])
    sys.argv = ["spanscore", "worker", str(config), "--startup-timeout", f"{wait_s}s", "--rekey", rekey]
    main()


def _print_line(line: str) -> None:
    prefix = f"{current_process().name}: " if parent_process() is not None else ""
    typer.echo(prefix + printable_lines(line))
