"""A small disk of the test's own: it can be filled, and be made read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_MOUNT = "mount -t tmpfs -o size={size} none {at} && exec {python} {script} {at}"


def run_on_small_disk(script: str, at: Path, *, size: str = "80m") -> str:
    """Run a script on a separate disk, mounted at ``at``; return its output. Skips if the process may not mount."""
    if (
        shutil.which("unshare") is None
        or subprocess.run([*_NAMESPACE, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no mounts of one's own on this system")
    program = at.parent / "program.py"
    program.write_text(script)
    command = _MOUNT.format(size=size, at=at, python=sys.executable, script=program)
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    namespace = [*_NAMESPACE, "sh", "-c", command]
    done = subprocess.run(namespace, check=False, capture_output=True, text=True, timeout=60, env=found)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
