"""Server: one process with a readiness URL, bound to the life of the process that started it (see ``leash.py``)."""

from __future__ import annotations

import ipaddress
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Server", "cache_dir", "children", "fetch_json", "free_port", "listening", "poll"]

T = TypeVar("T")
_PORTS = random.SystemRandom()  # tests seed the other one
_given: set[int] = set()
_WORKERS = 16
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS  # each has ports of its own

LEASH = Path(__file__).with_name("leash.py")
BELOW_EPHEMERAL = 15_000, 32_768  # a server may bind its given port seconds after the port was chosen
STOP_WITHIN_S = 15.0  # the leash itself waits 5 s before it kills
LISTENING = "0A"  # a socket's state in /proc/net/tcp
LOG_TAIL = 3_000  # characters quoted when a server does not come up


class Server:
    """One running server.

    Args:
        command: program and arguments.
        environment: on top of this process's own.
        folder: working directory; the server's output goes to ``server.log`` in it.
        ready: a URL that answers 200 once the server is up, or a function that returns whether it is.
        deadline_s: to become ready.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        ready: str | Callable[[], bool],
        deadline_s: float,
    ) -> None:
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(LEASH), *command],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            poll(lambda: self._ready(ready), deadline_s=deadline_s, what=f"{command[0]} to be ready")
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Process id of the leash; the server is its child."""
        return self._process.pid

    def stop(self) -> None:
        """End the server; returns when it is gone."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(STOP_WITHIN_S)

    def _ready(self, ready: str | Callable[[], bool]) -> bool:
        if self._process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-LOG_TAIL:]
            raise RuntimeError(f"the server exited with {self._process.returncode} before it was ready:\n{tail}")
        return _answers(ready) if isinstance(ready, str) else ready()


def absent_commands(*needed: str) -> str | None:
    """Return the commands that are missing on the PATH, as a sentence; None if all exist."""
    missing = [command for command in needed if not shutil.which(command)]
    return f"{' and '.join(missing)} is not on the PATH" if missing else None


def cache_dir() -> Path:
    """Folder of downloads and builds between runs, outside the tree."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spanscore-servers"


def free_port() -> int:
    """Return a TCP port on loopback that was free just now, and that no system gives to whoever asks for any port.

    Each call returns another port, in this process and in other test processes: a caller may ask for two before binding them.
    """
    while True:
        port = _PORTS.randrange(BELOW_EPHEMERAL[0] + _WORKER, BELOW_EPHEMERAL[1], _WORKERS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def fetch_json(url: str, parameters: Mapping[str, str] | None = None) -> Any:
    """Return a server's JSON response to a GET.

    Raises:
        RuntimeError: the answer is an error; holds its status and text.
    """
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    try:
        with urllib.request.urlopen(f"{url}{query}", timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{url} {parameters or ''}: {error.code} {error.read().decode(errors='replace')}") from None


def poll(question: Callable[[], T], *, deadline_s: float, what: str, every_s: float = 0.1) -> T:
    """Ask until the answer is true-ish and return it. The first pause is 20 ms; each is half as long again, up to ``every_s``.

    Raises:
        TimeoutError: the deadline passed; names the awaited condition and the last answer.
    """
    deadline, pause_s = time.monotonic() + deadline_s, 0.02
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {deadline_s:g} s for {what}; the last answer was {answer!r}")
        time.sleep(min(pause_s, every_s))
        pause_s *= 1.5
    return answer


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process and its children listen for TCP, without ports. Linux only."""
    inodes = {
        link.split("[")[1].rstrip("]") for one in _family(pid) for link in _links(one) if link.startswith("socket:")
    }
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {_address(row[1]) for row in rows if row[3] == LISTENING and row[9] in inodes}


def children(pid: int) -> list[int]:
    """Return the processes that a process's main thread has started and that have not ended. Linux only."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:  # one that has ended meanwhile
        return []


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _family(pid: int) -> list[int]:
    return [pid, *(one for child in children(pid) for one in _family(child))]


def _links(pid: int) -> Iterator[str]:
    with suppress(FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since the folder was read
                yield os.readlink(link)


def _address(hexadecimal: str) -> str:
    """Read an address of /proc/net: words of four bytes in the machine's (little-endian) order."""
    packed = bytes.fromhex(hexadecimal.split(":", maxsplit=1)[0])
    address = ipaddress.ip_address(b"".join(packed[n : n + 4][::-1] for n in range(0, len(packed), 4)))
    return str(getattr(address, "ipv4_mapped", None) or address)
