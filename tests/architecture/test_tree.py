"""Tracked files depend on no machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MACHINE_PATH = re.compile(r"(?<![\w.~$}-])/(?:root|work|Users|home|mnt|opt|srv)/\w")

OWN = ("src/", "tests/", "benchmarks/", ".ci/")
BESIDE = re.compile(r"\.\./\w")
ABOVE = re.compile(r"__file__\)(?:\.resolve\(\))?\.parents\[(\d+)\]")


def test_no_tracked_file_names_a_path_of_a_machine() -> None:
    found = [f"{name}:{n}: {line.strip()}" for name, n, line in _lines() if MACHINE_PATH.search(line)]

    assert not found, "\n".join(found)


def test_no_file_reads_a_folder_outside_of_the_checkout() -> None:
    found = [
        f"{name}:{n}: {line.strip()}" for name, n, line in _lines() if name.startswith(OWN) and _leaves(name, line)
    ]

    assert not found, "\n".join(found)


def _leaves(name: str, line: str) -> bool:
    """Whether a line of a file names a path outside of the checkout, or counts more parents than the file has in it."""
    return bool(BESIDE.search(line)) or any(int(up) > name.count("/") for up in ABOVE.findall(line))


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
