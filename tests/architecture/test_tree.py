"""What is tracked holds on every machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MACHINE_PATH = re.compile(r"(?<![\w.~$}-])/(?:root|work|Users|home|mnt|opt|srv)/\w")


def test_no_tracked_file_names_a_path_of_a_machine() -> None:
    found = [f"{name}:{n}: {line.strip()}" for name, n, line in _lines() if MACHINE_PATH.search(line)]

    assert not found, "\n".join(found)


def _lines() -> list[tuple[str, int, str]]:
    git = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(git, check=False, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: nothing is tracked")
    lines = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            lines += [(name, n, line) for n, line in enumerate(text.splitlines(), 1)]
    return lines
