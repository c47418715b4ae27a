"""The file of a spool, whose rows are deleted soon."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from spanscore.core import loop
from spanscore.wiring.outputs import ExportConfirmation


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a spool. Its scores are flushed 10 ms after they were emitted, instead of a second, so its rows go soon."""
    soon = partial(ExportConfirmation, later=lambda _, flush: loop.later(0.01, flush))
    monkeypatch.setattr("spanscore.wiring.durable.ExportConfirmation", soon)
    return tmp_path / "spool.db"
