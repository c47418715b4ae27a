"""The tables of the how-tos agree with the library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanscore.core.score import Outcome
from spanscore.metrics.catalog.cost import cost_of
from spanscore.metrics.catalog.registry import built_ins

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
MONITORING = ROOT / "src" / "spanscore" / "monitoring"


def rows(page: str, *columns: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables of a page that have these columns."""
    within = False
    for line in (PAGES / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        within = within or cells == [*columns] if cells else False
        if within and cells != [*columns] and set(line) - set("|- "):
            yield cells


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


DECISIONS = [
    (metric, *map(int, cost.split(" · ")))
    for _, use, cost in rows("choose-metrics.md", "you have: you want to know", "use", "calls · tokens")
    for metric in named(use)
]


def test_every_metric_stands_once_where_one_chooses() -> None:
    assert sorted(metric for metric, _, _ in DECISIONS) == sorted(built_ins())


@pytest.mark.parametrize(("metric", "calls", "tokens"), DECISIONS, ids=[metric for metric, _, _ in DECISIONS])
def test_what_a_metric_costs_is_what_the_catalog_counts(metric: str, calls: int, tokens: int) -> None:
    if metric == "rouge_score":
        pytest.importorskip("rouge_score")
    cost = cost_of(metric)

    counted = cost.input_tokens + cost.output_tokens
    assert calls == cost.calls
    assert tokens == pytest.approx(counted, rel=0.25)  # by the tokenizer that is here


def test_every_outcome_is_said_what_to_do_about() -> None:
    outcomes = [row[0] for row in rows("find-out-why-a-request-has-no-score.md", "outcome", "meaning", "action")]

    assert [name for cell in outcomes for name in named(cell)] == [outcome.value for outcome in Outcome]


def test_every_alert_is_said_what_to_do_about() -> None:
    made = "".join(source.read_text() for source in MONITORING.glob("*.py"))
    alerts = [row[0] for row in rows("choose-a-baseline-and-alerts.md", "alert", "meaning", "do")]

    assert {name for cell in alerts for name in named(cell)} == set(re.findall(r'name="(Spanscore\w+)"', made))
