"""Numbers as a person reads them."""

import pytest

from spanscore.report.findings import format_score


@pytest.mark.parametrize(
    ("quality", "pass_at", "shown"),
    [
        (0.497, 0.5, "0.497"),
        (0.49996, 0.5, "0.49996"),
        (0.494, 0.5, "0.49"),
        (0.5, 0.5, "0.50"),
        (0.696, 0.7, "0.696"),
        (0.499999999, 0.5, "0.500000"),
        (0.497, None, "0.50"),
    ],
)
def test_a_score_that_just_fails_is_not_shown_as_one_that_passes(quality, pass_at, shown):
    assert format_score(quality, quality, pass_at) == shown
