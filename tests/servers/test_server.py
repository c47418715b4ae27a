"""A server lives as long as its starter, and reports why it does not start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.server import Server, free_port, poll

ROOT = Path(__file__).parents[2]

STARTER = """
import sys, threading
from pathlib import Path
from tests.servers.server import Server, free_port

port = free_port()
command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
url = f"http://127.0.0.1:{port}/"
server = Server(command, environment={}, folder=Path(sys.argv[1]), ready=url, deadline_s=30)
print(server.pid, port, flush=True)
threading.Event().wait()
"""


def test_server_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        leash, port = map(int, starter.stdout.readline().split())
        starter.send_signal(signal.SIGKILL)

    poll(lambda: not _alive(leash), deadline_s=20, what=f"process {leash} to end")
    with pytest.raises(ConnectionRefusedError):
        _connect(port)


def test_stop_returns_when_the_server_is_gone(tmp_path: Path) -> None:
    port = free_port()
    server = Server(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        environment={}, folder=tmp_path, ready=f"http://127.0.0.1:{port}/", deadline_s=30,
    )  # fmt: skip

    server.stop()

    with pytest.raises(ConnectionRefusedError):
        _connect(port)


def test_server_that_does_not_come_up_says_what_it_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no licence')"]

    with pytest.raises(RuntimeError, match="no licence"):
        Server(command, environment={}, folder=tmp_path, ready=f"http://127.0.0.1:{free_port()}/", deadline_s=30)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _connect(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        pass
