"""The fault matrix through ``langchain-openai``, each row played short; ``test_long_faults`` plays the long times."""

import sys

import pytest
from tests.judges.faults.reports import SHORT
from tests.judges.faults.rows import ROWS

LONG = {row for row in ROWS if row.startswith("429, Retry-After")}
"""Played short they would differ in fractions of a second; ``test_long_faults`` plays them."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memory and CPU are read as Linux tells them"),
    pytest.mark.flaky(reruns=2),  # scenes with deadlines, on a machine that others may use too
]


@pytest.mark.parametrize("row", [row for row in ROWS if row not in LONG])
def test_no_target_of_the_fault_matrix_is_missed(row):
    assert ROWS[row](SHORT).missed == []
