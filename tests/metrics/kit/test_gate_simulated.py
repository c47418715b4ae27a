"""The gate rejects false gains and accepts true ones: whole fits of a judge with a known gain.

All of it, with more runs, is ``python -m benchmarks.fitting``.
"""

from __future__ import annotations

import pytest
from benchmarks.fitting import cell


@pytest.mark.parametrize(("labels", "runs"), [(60, 20), (150, 6)])
def test_without_any_true_gain_a_candidate_looks_better_and_is_not_kept(labels: int, runs: int) -> None:
    of = cell(labels, 0.0, runs)

    assert of.kept <= 0.05
    assert of.looked >= 0.8
    assert of.promised >= 0.04


def test_a_true_gain_of_twelve_points_is_kept_as_often_as_labels_allow() -> None:
    assert cell(150, 0.12, 6).kept >= 0.4
    assert cell(400, 0.12, 2).kept >= 0.9
