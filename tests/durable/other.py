"""Another process with the same spool: it makes calls on request, and can be killed and stopped."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.durable.asked import Asked


class Other:
    """``ask("taken")`` is ``Asked.taken()`` over there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, call: str, *arguments: Any, **named: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(repr((call, arguments, named)) + "\n")
        self._process.stdin.flush()
        return ast.literal_eval(self._process.stdout.readline())

    def kill(self) -> None:
        """End it; it stays a zombie, as under a parent that does not look."""
        self._process.kill()
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def other(path: Path, **options: Any) -> Iterator[Other]:
    """Yield another process with the spool open."""
    if not hasattr(signal, "SIGSTOP"):
        pytest.skip("no signals on this system")
    command = [sys.executable, "-m", "tests.durable.other", str(path), repr(options)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Other(process)
    finally:
        process.kill()
        process.communicate()


def _answer(path: str, options: str) -> None:
    asked = Asked(Path(path), **ast.literal_eval(options))
    for line in sys.stdin:
        call, arguments, named = ast.literal_eval(line)
        answer = getattr(asked, call)(*arguments, **named)
        print(repr(str(answer) if isinstance(answer, str) else answer), flush=True)


if __name__ == "__main__":
    _answer(*sys.argv[1:])
