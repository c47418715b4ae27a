"""What is to be in one place is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "spanscore"
TEXT = {str(file.relative_to(SRC)): file.read_text() for file in SRC.rglob("*.py")}


@pytest.mark.parametrize(("call", "place"), [("register_at_fork", "runtime/fork.py"), ("Thread", "runtime/threads.py")])
def test_forks_are_heard_of_and_threads_started_in_one_file(call: str, place: str) -> None:
    assert [file for file, text in TEXT.items() if re.search(rf"\b{call}\(", text)] == [place]
