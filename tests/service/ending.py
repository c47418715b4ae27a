"""Processes that end in a given way. The module imports little, because each of them imports it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.servers.server import poll


def waits_but_first(code: int, folder: Path, place: int) -> None:
    """The first process ends when the other exists; the other ends on a signal."""
    there = folder / "there"
    if place:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        there.touch()
        signal.pause()
    poll(there.exists, deadline_s=60, what="that the other is there")
    sys.exit(code)


def dies_once(folder: Path, _: int) -> None:
    """Be killed the first time, and end well the second."""
    been = folder / "been"
    if not been.exists():
        been.touch()
        os.kill(os.getpid(), signal.SIGKILL)
