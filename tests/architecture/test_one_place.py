"""Names with one place are defined only there, and each of them is used."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from spanscore import semconv

SRC = Path(__file__).parents[2] / "src" / "spanscore"
TEXT = {str(file.relative_to(SRC)): file.read_text() for file in SRC.rglob("*.py")}
NAMES = [name for name in vars(semconv) if name.isupper()]


@pytest.mark.parametrize(("call", "place"), [("register_at_fork", "core/threads.py"), ("Thread", "core/threads.py")])
def test_forks_are_heard_of_and_threads_started_in_one_file(call: str, place: str) -> None:
    assert [file for file, text in TEXT.items() if re.search(rf"\b{call}\(", text)] == [place]


def test_every_name_that_crosses_a_wire_is_used() -> None:
    used = {name for text in TEXT.values() for name in re.findall(r"\bsemconv\.([A-Z]\w*)", text)}
    source = TEXT["semconv.py"]
    mentioned = Counter(re.findall(r"\b[A-Z][A-Z0-9_]+\b", source))  # twice: in a set of them, too

    assert len(NAMES) > 100
    assert [name for name in NAMES if name not in used and mentioned[name] == 1] == []
