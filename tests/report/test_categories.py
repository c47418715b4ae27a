"""Categories on the page: their shares over time and with intervals, and no mean without a quality."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.builders import a_unit_span, evaluations, make_score

from spanscore import report
from spanscore.core.score import Scale, categorical
from spanscore.core.span import SpanData
from spanscore.monitoring.estimates import mean_interval
from spanscore.report.charts import MOST_COLOURS, OTHERS, drawn_categories, shares
from spanscore.report.page import summary

PLAIN = categorical("intent", ["refund", "order", "other"])
JUDGED = categorical("intent", ["refund", "order", "other"], ["refund"])
WORDS = [("refund", 1.0), ("order", 0.5), ("order", 0.25), ("refund", 1.0)]


def spans(scale: Scale = PLAIN, *, evaluated: bool = True) -> list[SpanData]:
    made: list[SpanData] = []
    for minute, (word, chance) in enumerate(WORDS):
        score = make_score(word, "intent", scale=scale, probability=chance)
        unit = a_unit_span(score, minute=minute)
        made += [unit, *(evaluations(unit, score) if evaluated else [])]
    return made


def test_the_shares_are_weighted_with_their_intervals() -> None:
    (metric,) = summary(spans()).metrics

    assert list(metric.shares) == ["refund", "order", "other"]
    for word in metric.shares:
        assert metric.shares[word] == mean_interval((float(own == word), chance) for own, chance in WORDS)


def test_categories_without_a_quality_have_no_mean() -> None:
    (metric,) = summary(spans()).metrics

    assert (metric.mean, metric.pass_share, metric.points, metric.scores) == (None, None, (), 4)


def test_a_bad_category_fails_its_unit() -> None:
    found = summary(spans(JUDGED))
    (metric,) = found.metrics

    assert metric.mean == pytest.approx(6 / 8)
    assert [row.value for worst in found.ranking for row in worst.rows] == ["refund", "refund"]


def test_the_words_of_unit_spans_alone_have_shares_too() -> None:
    (metric,) = summary(spans(evaluated=False)).metrics

    assert {word: share.mean for word, share in metric.shares.items()} == {"refund": 0.25, "order": 0.75}


def test_the_page_stacks_the_shares_and_has_them_as_a_table(tmp_path: Path) -> None:
    found = report.write(spans(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    chart = shares(found.metrics[0], found)

    assert chart is not None
    assert chart in page
    assert "intent: order is the largest category" in page.lower()
    assert "<td>refund</td><td>25\u00a0%</td>" in page


def test_many_categories_share_the_last_colour() -> None:
    words = [f"w{n}" for n in range(MOST_COLOURS + 1)]
    scale = categorical("intent", words)
    made = [a_unit_span(make_score(word, "intent", scale=scale)) for word in words]
    (metric,) = summary(made).metrics

    drawn = drawn_categories(metric)

    assert len(drawn) == MOST_COLOURS
    assert drawn[-1] == OTHERS
