"""Chromium, from Debian's package, headless: opens pages, reports every error and request, takes screenshots.

Driven over the DevTools protocol on a free loopback port.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import apt
from tests.servers.server import Server, free_port, poll

__all__ = ["Browser", "Tab", "install", "installed", "running"]

PACKAGE = "chromium"
READY_WITHIN_S = 60.0  # 1 s on a quiet machine
ANSWER_WITHIN_S = 30.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
)  # fmt: skip
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowRight": 39, "1": 49, "2": 50, "n": 78, "s": 83, "u": 85}


@dataclass(slots=True)
class Tab:
    """One tab.

    Attributes:
        problems: console errors, uncaught exceptions and errors logged by the browser itself, as text.
        requests: every URL asked for, the page's own first.
    """

    _socket: Any
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _loaded: bool = False

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, watched: bool = True) -> None:
        """Open a page in a window of this size; returns when it has loaded.

        Args:
            watched: note ``problems`` and ``requests``. False for a measurement: while somebody listens, V8 looks up the
                source line of every frame for each error that a script throws and catches, and reads the script again for it.
        """
        for domain in ("Page", "Runtime", "Network", "Log") if watched else ("Page",):
            self.send(f"{domain}.enable")
        self.dark(dark)
        self.size(width, height)
        self._loaded = False
        self.send("Page.navigate", url=url)
        self._until(lambda: self._loaded, f"{url} to load")

    def size(self, width: int, height: int) -> None:
        """Make the window as large as this, in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def dark(self, on: bool) -> None:
        """Prefer the dark colours, or the light ones."""
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}],
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, as JSON allows.

        Raises:
            RuntimeError: it threw.
        """
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Return the value of an expression as soon as it is truthy."""
        return poll(lambda: self.evaluate(expression), deadline_s=ANSWER_WITHIN_S, what=expression)

    def press(self, key: str) -> None:
        """Press and release a key of ``KEYS``."""
        text = {"text": "\r"} if key == "Enter" else {"text": key} if key == " " else {}
        code = {"windowsVirtualKeyCode": KEYS[key], "key": key, "code": "Space" if key == " " else key}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    def screenshot(self, path: Path) -> None:
        """Write the window's picture as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def pdf(self) -> bytes:
        """Return the page as it prints."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol and return its result; events that come meanwhile are noted.

        Raises:
            RuntimeError: the browser refused it.
        """
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = self._next()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def _until(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {ANSWER_WITHIN_S:g} s for {what}")
            self._next()

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=ANSWER_WITHIN_S))
        given = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(given["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if given["type"] in {"error", "warning", "assert"}:
                self.problems.append(json.dumps(given["args"])[:500])
            case "Log.entryAdded" if given["entry"]["level"] in {"error", "warning"}:
                self.problems.append(given["entry"]["text"])
        return message


@dataclass(frozen=True, slots=True)
class Browser:
    """A running browser.

    Attributes:
        url: of its DevTools.
    """

    url: str

    @contextmanager
    def tab(self) -> Iterator[Tab]:
        """Open an empty tab; closed at the end of the block."""
        from websockets.sync.client import connect

        request = urllib.request.Request(f"{self.url}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=ANSWER_WITHIN_S) as answer:
            target = json.load(answer)
        with connect(target["webSocketDebuggerUrl"], max_size=None, open_timeout=ANSWER_WITHIN_S) as socket:
            yield Tab(socket)
        with urllib.request.urlopen(f"{self.url}/json/close/{target['id']}", timeout=ANSWER_WITHIN_S):
            pass


def installed() -> bool:
    """Whether the program is there."""
    return shutil.which(PACKAGE) is not None


def install() -> None:
    """Install Debian's package (414 MB) unless it is there. Raises as ``apt.install`` does."""
    if not installed():
        apt.install(PACKAGE)


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """Run Chromium with a new profile in ``folder``; stopped at the end of the block, or with this process."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = Server(
        [
            str(shutil.which(PACKAGE)),
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            f"--remote-debugging-port={port}",
        ],
        environment={
            "HOME": str(folder),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TMPDIR": "/tmp",  # for its own socket, with a path of at most 107 characters on Linux
        },
        folder=folder,
        ready=f"{url}/json/version",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Browser(url)
    finally:
        server.stop()
