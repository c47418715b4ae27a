"""Helm, built once with Go into the cache: it lints and renders a chart without a cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.servers import go
from tests.servers.server import cache_dir

__all__ = ["VERSION", "install", "installed", "obstacle", "run"]

VERSION = "3.18.6"
MODULE = f"helm.sh/helm/v3/cmd/helm@v{VERSION}"


def installed() -> bool:
    """Whether the binary is there."""
    return _binary().is_file()


def obstacle() -> str | None:
    """Return why Helm cannot be built here; None when it can, or already is."""
    return None if installed() else go.obstacle("Helm")


def install() -> None:
    """Build Helm (some three minutes) unless it is there.

    Raises:
        RuntimeError: there is no Go.
        subprocess.CalledProcessError: the build failed; Go has printed the reason.
    """
    if reason := obstacle():
        raise RuntimeError(reason)
    if not installed():
        with go.building(_binary()) as (work, environment):
            asked = {**environment, "GOBIN": str(work), "CGO_ENABLED": "0"}
            subprocess.run(["go", "install", MODULE], cwd=work, env=asked, check=True)


def run(*arguments: str) -> str:
    """Return Helm's output.

    Raises:
        ValueError: Helm failed; has its output.
    """
    asked = [str(_binary()), *arguments]
    done = subprocess.run(asked, capture_output=True, check=False, text=True, env={**os.environ, "KUBECONFIG": "/none"})
    if done.returncode:
        raise ValueError(f"{done.stdout}{done.stderr}".strip())
    return done.stdout


def _binary() -> Path:
    return cache_dir() / f"helm-{VERSION}" / "helm"
