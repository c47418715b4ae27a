from __future__ import annotations

import pytest

from spanscore import semconv
from spanscore.monitoring import promql as names
from spanscore.outputs.instrument_table import INSTRUMENTS


@pytest.mark.parametrize(
    ("instrument", "name"),
    [
        (semconv.WEIGHT_QUALITY2, "spanscore_weight_quality2_total"),
        (semconv.EVALUATIONS, "spanscore_evaluations_total"),
        (semconv.PENDING, "spanscore_evaluation_pending"),
        (semconv.JUDGE_COST, "spanscore_judge_cost_USD_total"),
        (semconv.JUDGE_DURATION, "spanscore_judge_duration_seconds"),
        (semconv.QUALITY_HISTOGRAM, "spanscore_quality"),
        (semconv.RECEIVE_BYTES, "spanscore_receive_bytes_total"),
    ],
)
def test_an_instrument_has_the_name_that_the_collector_gives_it(instrument: str, name: str) -> None:
    assert names.series(instrument) == name


def test_no_gauge_has_the_unit_for_which_translators_differ() -> None:
    assert [name for name, about in INSTRUMENTS.items() if about.kind == "gauge" and about.unit == "1"] == []
