"""A second judge's scores in a file: compared with the metric's own, pair by pair, and in none of the page's numbers."""

from __future__ import annotations

from pathlib import Path

from tests.report.builders import a_unit_span, evaluations, make_score

from spanscore.core.span import SpanData
from spanscore.report import summary, write
from spanscore.report.spans import Spans


def make_unit(own: float | None, shadow: float | None, *, probability: float = 1.0) -> list[SpanData]:
    """A unit's span with the evaluation spans of both judges."""
    first = make_score(own, judge_model="old", evaluator_version="1/old/1", probability=probability)
    second = make_score(
        shadow, judge_model="new", evaluator_version="1/new/1", probability=probability, source="shadow", threshold=0
    )
    span = a_unit_span(first)
    return [span, *evaluations(span, first, second)]


def test_a_shadow_is_in_no_row_mean_outcome_or_ranking() -> None:
    units = [*make_unit(0.9, 0.1), *make_unit(None, None), *make_unit(0.7, None)]

    found = summary(units)

    assert [(metric.metric, metric.scores, round(metric.mean or 0, 9)) for metric in found.metrics] == [
        ("faithfulness", 2, 0.8)
    ]
    assert [step.remaining for step in found.steps] == [3, 3, 3, 2, 2]
    assert found.ranking == ()
    assert {row.outcome for row in Spans.read(units).rows()} == {"scored", "judge_error"}


def test_a_metric_is_compared_with_its_shadow_on_the_units_that_both_scored() -> None:
    units = [*make_unit(0.9, 0.5), *make_unit(0.7, 0.5), *make_unit(None, 0.0), *make_unit(0.1, None)]

    (metric,) = summary(units).metrics

    (result,) = metric.shadows
    assert result.startswith("new: mean 0.50 against 0.80 on the same 2 units; difference −0.30 (95 %: ")


def test_the_page_says_it_beside_the_metric(tmp_path: Path) -> None:
    write([span for _ in range(3) for span in make_unit(0.9, 0.4)], tmp_path / "report.html")

    assert "Second judge new: mean 0.40 against 0.90 on the same 3 units" in (tmp_path / "report.html").read_text()
