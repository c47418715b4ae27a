"""``spanscore metrics``: every metric of the registry, with its documentation."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.registry import ALIASES, built_ins


def ran(*arguments: str) -> Any:
    return CliRunner().invoke(app("metrics"), ["metrics", *arguments], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(ran("--json").stdout)}


def test_every_metric_of_the_registry_is_there(rows: dict[str, Any]) -> None:
    assert list(rows) == sorted(built_ins())


@pytest.mark.parametrize("name", sorted(built_ins()))
def test_every_metric_tells_question_needs_and_price(rows: dict[str, Any], name: str) -> None:
    row = rows[name]

    assert row["question"]
    assert row["requires"]
    assert "``" not in json.dumps(row)
    assert row["cost"] is not None, row["cost_unknown"]
    assert (row["cost"]["calls"] > 0) == (row["cost"]["input_tokens"] > 0)


def test_calls_are_those_of_the_metric(rows: dict[str, Any]) -> None:
    calls = {
        name: rows[name]["cost"]["calls"] for name in ("exact_match", "aspect_critic", "faithfulness", "tool_call_f1")
    }

    assert calls == {"exact_match": 0, "aspect_critic": 1, "faithfulness": 2, "tool_call_f1": 0}


def test_fields_that_a_metric_reads_and_does_not_require_are_in_brackets(rows: dict[str, Any]) -> None:
    assert rows["tool_selection"]["optional"] == {"multi_turn": ["tools"]}
    assert "conversation: user_input, [tools]" in ran("--metric", "tool_selection").stdout


def test_the_table_has_a_row_per_metric() -> None:
    output = ran().stdout

    assert all(name in output for name in (*built_ins(), *ALIASES))
    assert "token" in output


def test_metrics_stand_in_groups_by_what_a_sample_needs(rows: dict[str, Any]) -> None:
    groups = {
        name: rows[name]["group"].split()[0]
        for name in ("faithfulness", "noise_sensitivity", "tool_call_f1", "bleu_score")
    }

    output = ran().stdout

    assert list(groups.values()) == ["live", "with", "conversations", "text"]
    places = [output.index(group) for group in ("live traffic:", "with a ref", "conversations and", "text against")]
    assert places == sorted(places)


def test_online_are_those_that_need_no_reference(rows: dict[str, Any]) -> None:
    online = {row["name"] for row in json.loads(ran("--online", "--json").stdout)}

    fields = {name: {field for kind in rows[name]["requires"].values() for field in kind} for name in rows}
    assert online == {name for name in rows if not any(re.match("reference|rubrics", one) for one in fields[name])}
    assert "faithfulness" in online
    assert "exact_match" not in ran("--online").stdout


def test_every_row_has_a_range() -> None:
    output = ran("--online").stdout

    first = {
        line.split()[0]: line.split(maxsplit=1)[1] for line in output.splitlines() if re.match("  [a-z_0-9]+  ", line)
    }
    assert "by the rubric " in first["rubrics_score"]
    assert all(re.match(r"[\[{]|by the rubric", rest) for rest in first.values()), first


def test_all_about_one() -> None:
    output = " ".join(ran("--metric", "faithfulness").stdout.split())

    for words in (
        "supported statements / all statements",
        "blind spot",
        "RAGAS: Automated",
        "pass_at",
        "2 judge calls",
    ):
        assert words in output


@pytest.mark.parametrize(("alias", "name"), sorted(ALIASES.items()))
def test_an_alias_is_reported_as_the_metric_it_stands_for(alias: str, name: str, rows: dict[str, Any]) -> None:
    assert json.loads(ran("--metric", alias, "--json").stdout) == rows[name]
    assert alias in rows[name]["aliases"]


def test_a_metric_from_outside_is_reported_as_far_as_it_tells_itself() -> None:
    row = json.loads(ran("--metric", "tests.live:Grounded", "--json").stdout)

    assert (row["question"], row["formula"], row["cost"]["calls"]) == (
        "Instant: 1 when the answer's first word is in the contexts.",
        "",
        0,
    )


def test_with_a_price_a_thousand_scores_have_a_cost(rows: dict[str, Any]) -> None:
    cost = rows["faithfulness"]["cost"]

    priced = json.loads(ran("--metric", "faithfulness", "--price", "1,2", "--json").stdout)["usd_per_1000"]

    assert priced == pytest.approx((cost["input_tokens"] + 2 * cost["output_tokens"]) * 1_000 / 1e6)
    assert rows["faithfulness"]["usd_per_1000"] is None
    assert f"{priced:.2g} USD per 1,000 scores" in ran("--metric", "faithfulness", "--price", "1,2").stdout


@pytest.mark.parametrize("price", ["cheap", "1", "1,-2", "1,2,3", "nan,1", "1,nan", "1,inf"])
def test_what_is_no_price_is_refused(price: str) -> None:
    assert ran("--price", price).exit_code == 2


def test_an_unknown_name_is_answered_with_close_ones() -> None:
    result = ran("--metric", "faithfulnes")

    assert isinstance(result.exception, ConfigurationError)
    assert "did you mean 'faithfulness'" in str(result.exception)
