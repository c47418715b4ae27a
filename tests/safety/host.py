"""Whole processes for the safety suite: the same program run without spanscore and with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass

PRELUDE = """
import os, signal, sys, threading, time
from tests.line import QUESTION, Failing, Grounded, Slow, a_trace, model, rag
from spanscore import OnlineScorer
SCORED = os.environ["SCORED"] == "1"
scorer = OnlineScorer([Grounded()], service_name="app") if SCORED else None
config = {"callbacks": [scorer.handler]} if SCORED else {}
chain = rag()
def ask():
    return chain.invoke(QUESTION, config=config)
"""
"""What each program begins with; it may make a scorer of its own."""


@dataclass
class Ended:
    """How a program went.

    Attributes:
        exit_s: from the line ``leaving`` it printed last to its end.
    """

    code: int
    out: list[str]
    err: str
    exit_s: float


def run(code: str, *, scored: bool = True, signal_at: int | None = None, **environment: str) -> Ended:
    """Run a program that prints ``leaving`` before it ends; it gets ``signal_at`` when it has printed ``ready``."""
    process = start(code, scored=scored, **environment)
    out, left_at = [], time.monotonic()
    try:
        for line in process.stdout:
            out.append(line.rstrip("\n"))
            left_at = time.monotonic()
            if out[-1] == "ready" and signal_at is not None:
                process.send_signal(signal_at)
        process.wait(30)
    finally:
        process.kill()
    return Ended(process.returncode, out, process.stderr.read(), time.monotonic() - left_at)


def start(code: str, *, scored: bool = True, stdin: bool = False, **environment: str) -> subprocess.Popen[str]:
    """Start a program; its output is text, line by line."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    return subprocess.Popen(
        [sys.executable, "-u", "-c", PRELUDE + textwrap.dedent(code)],
        env={**clean, "SCORED": str(int(scored)), **environment},
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stop(process: subprocess.Popen[str], deadline_s: float = 15.0) -> int:
    """Ask a process we started to end, and wait for it."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
