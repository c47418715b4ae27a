from __future__ import annotations

import pytest
from integrations.grafana import formulas

from spanscore.monitoring import promql


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
