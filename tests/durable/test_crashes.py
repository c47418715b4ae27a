"""Acknowledged rows survive kill -9, in one process and in two. ``benchmarks/spool.py --crashes 100`` has more seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.durable.crashes import crashed


@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_acknowledged_is_emitted_with_one_value_or_counted(tmp_path: Path, processes: int) -> None:
    seen = crashed(tmp_path, seed=processes, processes=processes, kills=3)

    assert seen.acknowledged > 0
    assert (seen.lost, seen.differing) == (0, 0)
