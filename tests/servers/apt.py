"""Debian packages of servers; installed only if apt-get exists and may be used."""

from __future__ import annotations

import os
import shutil
import subprocess

__all__ = ["install", "obstacle"]


def install(*packages: str) -> None:
    """Install the packages without starting them.

    Raises:
        RuntimeError: this machine has no apt-get, or this user may not use it; the message gives an alternative.
        subprocess.CalledProcessError: apt-get failed and has printed the reason.
    """
    if reason := obstacle():
        raise RuntimeError(f"{reason}; install {' and '.join(packages)} by hand")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=True, stdout=subprocess.DEVNULL)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(command, env=quiet, check=True, stdout=subprocess.DEVNULL)


def obstacle() -> str | None:
    """Return why packages cannot be installed here; None when they can."""
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    return None if os.geteuid() == 0 else "apt-get wants root"
