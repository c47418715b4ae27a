"""Programs built with Go, once, into the cache; and the files of Go's modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["building", "module", "obstacle"]


def obstacle(name: str) -> str | None:
    """Return why nothing can be built here; None when it can."""
    return None if shutil.which("go") else f"go is not on the PATH, and {name} must be built"


@contextmanager
def building(binary: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield a folder to build in and Go's environment; ``folder / binary.name`` is then moved to its place.

    The folder is removed in any case, so that a partial build is never taken for the binary.
    """
    home = binary.parent
    work = home.with_name(f"{home.name}.{os.getpid()}")
    work.mkdir(parents=True)
    try:
        yield work, {**os.environ, "GOPROXY": _proxy()}
        home.mkdir(exist_ok=True)
        (work / binary.name).replace(binary)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def module(name: str) -> Path:
    """Return the folder with the files of a module, ``path@version``; downloaded if it is missing."""
    asked = ["go", "mod", "download", "-json", name]
    environment = {**os.environ, "GOPROXY": _proxy(), "GOFLAGS": "-mod=mod"}
    completed = subprocess.run(asked, capture_output=True, check=True, text=True, env=environment, cwd="/").stdout
    return Path(json.loads(completed)["Dir"])


def _proxy() -> str:
    """Return Go's proxies without ``direct``: a refused request must fail immediately, not go to version control."""
    asked = subprocess.run(["go", "env", "GOPROXY"], capture_output=True, check=True, text=True)
    return asked.stdout.strip().removesuffix(",direct")
