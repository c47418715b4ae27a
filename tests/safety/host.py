"""Whole processes for the safety suite: the same program run without spanscore and with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass

PRELUDE = """
import atexit, os, signal, sys, threading, time
def starved_s():
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:  # Linux tells
        return 0.0
def note():
    notes.append((time.monotonic(), starved_s()))
def ended():
    if notes:  # a forked child that leaves another way has none
        note()
        (left_at, starved_before), (ended_at, starved_after) = notes
        os.write(int(os.environ["EXIT_FILE"]), str(ended_at - left_at - (starved_after - starved_before)).encode())
def leaving():
    print("leaving")
    note()
notes = []
if "EXIT_FILE" in os.environ:
    atexit.register(ended)  # the first to be registered, the last to run
from tests.live import QUESTION, Failing, Grounded, Slow, a_trace, model, rag
from tests.servers.server import poll
from spanscore import OnlineScorer
SCORED = os.environ["SCORED"] == "1"
scorer = OnlineScorer([Grounded()], service_name="app") if SCORED else None
config = {"callbacks": [scorer.handler]} if SCORED else {}
chain = rag()
def ask():
    return chain.invoke(QUESTION, config=config)
def judging(*scorers):  # returns when each of them is at its unit
    begun = lambda: all(sum(each.status().eligible.values()) for each in scorers)
    poll(begun, deadline_s=20, what="every judge to be asked")
    time.sleep(0.1)
"""
"""The beginning of each program, which may create a scorer of its own, and calls ``leaving()`` before it ends.

It measures its own exit, from there until after the last exit hook. The time before the interpreter is loaded or after it ends,
and the wait for a processor, do not concern spanscore.
"""


@dataclass
class Ended:
    """How a program went.

    Attributes:
        exit_s: from ``leaving()`` to behind the last exit hook, without the time it waited for a processor; nan when it did not
            get there.
    """

    code: int
    out: list[str]
    err: str
    exit_s: float


def run(
    code: str, *, scored: bool = True, signal_at: int | None = None, seconds: float = 30, **environment: str
) -> Ended:
    """Run a program to its end; it gets ``signal_at`` when it has printed ``ready``, and ends ``seconds`` after its output."""
    with tempfile.TemporaryFile() as file:
        process = start(code, scored=scored, exit_file=file.fileno(), **environment)
        out = []
        try:
            for line in process.stdout:
                out.append(line.rstrip("\n"))
                if out[-1] == "ready" and signal_at is not None:
                    process.send_signal(signal_at)
            process.wait(seconds)
        finally:
            process.kill()
        file.seek(0)
        return Ended(process.returncode, out, process.stderr.read(), float(file.read() or "nan"))


def start(
    code: str, *, scored: bool = True, stdin: bool = False, exit_file: int | None = None, **environment: str
) -> subprocess.Popen[str]:
    """Start a program; its output is text, line by line. It writes how long its exit took to ``exit_file``, open here."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    if exit_file is not None:
        environment["EXIT_FILE"] = str(exit_file)
    return subprocess.Popen(
        [sys.executable, "-u", "-c", PRELUDE + textwrap.dedent(code)],
        env={**clean, "SCORED": str(int(scored)), **environment},
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=() if exit_file is None else (exit_file,),
    )


def stop(process: subprocess.Popen[str], deadline_s: float = 15.0) -> int:
    """Ask a process we started to end, and wait for it."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
