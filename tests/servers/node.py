"""An application of Node (``node_app/``), installed once by npm into the cache: it asks a model, and its spans leave by OTLP.

    node.ask("What is the capital of France?", times=10, model=openai.url, to=f"{collector}/v1/traces")

The cache goes by a hash of its files.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.server import absent_commands, cache_dir

__all__ = ["SERVICE", "ask", "install", "installed", "obstacle"]

SERVICE = "javascript"
"""Its ``service.name``."""
SOURCES = Path(__file__).with_name("node_app")
ENDS_WITHIN_S = 60.0  # 1 s on a quiet machine


def installed() -> bool:
    """Whether the application of the present files is in the cache and there is a Node to run it."""
    return _folder().is_dir() and shutil.which("node") is not None


def obstacle() -> str | None:
    """Return why it cannot be installed here; None when it can, or already is."""
    return None if installed() else absent_commands("node", "npm")


def install() -> None:
    """Install it (some seconds) unless it is there.

    Raises:
        RuntimeError: there is no Node or no npm.
        subprocess.CalledProcessError: npm failed and has printed the reason.
    """
    if reason := obstacle():
        raise RuntimeError(reason)
    if installed():
        return
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
        made = shutil.copytree(SOURCES, Path(scratch, "app"))
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=made, check=True, stdin=subprocess.DEVNULL)
        made.replace(_folder())


def ask(question: str, *, times: int, model: str, to: str) -> None:
    """Run the application; returns when its spans have been sent.

    Args:
        question: asked each time, in a trace of its own.
        times: how often.
        model: base URL of an OpenAI server.
        to: address for OTLP traces, path included.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    command = ["node", "ask.mjs", model, to, str(times), question]
    subprocess.run(command, cwd=_folder(), check=True, stdin=subprocess.DEVNULL, timeout=ENDS_WITHIN_S)


def _folder() -> Path:
    files = sorted(SOURCES.iterdir())
    fingerprint = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    return cache_dir() / f"node-app-{fingerprint}"
