"""Durations and names of instruments as PromQL writes them."""

from __future__ import annotations

import pytest
from integrations.grafana import formulas

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring import promql as names
from spanscore.outputs.instrument_table import INSTRUMENTS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3_600, "1h"), (86_400, "1d"), (90, "90s"), (60, "1m"), (0.5, "500ms"), (5_400, "90m"), (172_800, "2d")],
)
def test_durations_are_whole_in_their_unit(seconds: float, text: str) -> None:
    assert promql.duration(seconds) == text


def test_values_in_matchers_cannot_leave_their_quotes() -> None:
    assert promql.matching({"job": 'a"b\\c\n', "service_name": ""}) == r'job="a\"b\\c\n",service_name=""'


def test_every_operand_is_summed_by_the_same_labels() -> None:
    sums = promql.increases("1h", 'job="bot"', ["gen_ai_evaluation_name"])
    one = (
        'sum by (gen_ai_evaluation_name) (increase(spanscore_{}_total{{job="bot",spanscore_evaluation_source=""}}[1h]))'
    )

    assert formulas.mean(sums) == f"clamp({one.format('weight_quality')} / {one.format('weight')}, 0, 1)"
    assert formulas.standard_error(sums).count("sum by (gen_ai_evaluation_name)") == formulas.standard_error(
        sums
    ).count("sum")


def test_the_failed_outcomes_are_those_of_the_model() -> None:
    assert set(promql.FAILED.split("|")) == {
        "timeout",
        "judge_error",
        "metric_error",
        "redaction_error",
        "judge_unavailable",
        "budget_exhausted",
    }


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
