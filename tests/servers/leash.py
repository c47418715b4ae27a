"""Run a command that ends when this process's standard input does, so that no server outlives its test session.

    python leash.py COMMAND ARGUMENT…

The starter holds the other end of standard input and never writes: when it dies, by whatever signal, the pipe ends here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

GRACE_S = 5.0  # between the polite signal and the other one


def main() -> int:
    """Return the command's exit status."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    threading.Thread(target=_watch_starter, args=(over,), daemon=True).start()
    threading.Thread(target=_watch_child, args=(child, over), daemon=True).start()
    over.wait()
    return _end(child)


def _watch_starter(over: threading.Event) -> None:
    os.read(0, 1)  # not through sys.stdin: its lock, held here, aborts the interpreter's exit
    over.set()


def _watch_child(child: subprocess.Popen[bytes], over: threading.Event) -> None:
    child.wait()
    over.set()


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.terminate()
    try:
        return child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


if __name__ == "__main__":
    sys.exit(main())
