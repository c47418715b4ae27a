"""Spools in a folder of the test, asked and answered in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.durable.asked import Asked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


@pytest.fixture
def spool(path: Path) -> Iterator[Callable[..., Asked]]:
    """Open a spool; all are closed at the end."""
    opened: list[Asked] = []

    def make(**options: object) -> Asked:
        opened.append(Asked(path, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.file.close(10)
