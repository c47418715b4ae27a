"""``spanscore check`` on sampling rules: the matched units, and surprising effects of their wording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app

METRICS = "judge: {model: lexical}\nmetrics: [faithfulness, exact_match]\n"
LOW = "rules: [{{when: {{score: {{metric: {metric}, below: 0.5}}}}, rate: 1.0, name: low}}]"


def checked(folder: Path, sampling: str, more: str = "") -> Any:
    file = folder / "spanscore.yaml"
    file.write_text(f"{METRICS}sampling: {{{sampling}}}\n{more}")
    return json.loads(CliRunner().invoke(app("check"), ["check", str(file), "--json"]).stdout)


DESCRIBED = {
    "any_error: true": "something in it failed, handled or not",
    "min_tool_calls: 3": "it called tools 3 times or more",
    "model: gpt-4o": "it asked the model 'gpt-4o'",
    "score: {metric: exact_match, below: 0.5}": "the quality of exact_match is below 0.5",
    "status: ok, workflow: agent, slower_than: 5s": "status is ok and the workflow is 'agent' and it took 5 s or more",
}


@pytest.mark.parametrize("when", DESCRIBED)
def test_what_a_rule_takes_is_reported(tmp_path: Path, when: str) -> None:
    output = checked(tmp_path, f"rules: [{{when: {{{when}}}, rate: 0.5}}]")

    assert output["rules"] == [f"at least 0.5 when {DESCRIBED[when]}"]


def test_runs_that_failed_have_no_sample_unless_they_are_scored(tmp_path: Path) -> None:
    rules = "rules: [{when: {status: error}, rate: 1.0, name: errors}]"

    notes = [checked(tmp_path, rules, more)["notes"] for more in ("", "capture: {score_failed: true}")]

    found = [[note for note in rows if "sampling rule errors" in note] for rows in notes]
    assert [len(rows) for rows in found] == [1, 0]
    assert "failed runs have no sample" in found[0][0]
    assert "any_error: true" in found[0][0]


def test_metadata_that_no_span_has_are_reported_of_a_rule_that_looks_at_them(tmp_path: Path) -> None:
    rules = "rules: [{when: {metadata: {user_tier: gold, plan: b}}, rate: 1.0, name: gold}]"
    listed = "capture: {metadata: [user_tier, plan]}"

    notes = [checked(tmp_path, rules, more)["notes"] for more in ("", "capture: {metadata: [plan]}", listed)]

    found = [[note for note in rows if "sampling rule gold" in note] for rows in notes]
    assert [len(rows) for rows in found] == [1, 1, 0]
    assert "decides otherwise; capture.metadata: [user_tier, plan] exports it" in found[0][0]
    assert "capture.metadata: [user_tier] exports it" in found[1][0]


def test_that_every_unit_waits_for_a_score_is_reported(tmp_path: Path) -> None:
    notes = checked(tmp_path, LOW.format(metric="exact_match"))["notes"]

    assert "every unit waits for its score of exact_match: the sampling rule low uses it" in notes


REFUSED = {
    LOW.format(metric="faithfulness"): "faithfulness, which asks a judge",
    LOW.format(metric="spam"): "spam, which is not a metric here; there are faithfulness, exact_match",
    "rate: 0.1, "
    + LOW.format(metric="exact_match"): "exact_match, which is scored on 0.1 of the units; set sampling.rates",
}


@pytest.mark.parametrize("sampling", REFUSED)
def test_a_score_at_which_no_rule_can_look_is_a_fault(tmp_path: Path, sampling: str) -> None:
    (fault,) = checked(tmp_path, sampling)["faults"]

    assert f"sampling.rules: the sampling rule low reads the score of {REFUSED[sampling]}" in fault


@pytest.mark.parametrize("upstream", ["0", "1.5"])
def test_an_upstream_probability_that_is_none_is_a_fault(tmp_path: Path, upstream: str) -> None:
    (fault,) = checked(tmp_path, f"head_sampling_rate: {upstream}")["faults"]

    assert "sampling.head_sampling_rate" in fault


def test_shares_by_service_are_explained(tmp_path: Path) -> None:
    notes = checked(tmp_path, "head_sampling_rate: {by_service: {search: 10%}, default: 1}")["notes"]

    assert [note for note in notes if note.startswith("sampling.head_sampling_rate")] == [
        "sampling.head_sampling_rate: a unit without ot=th has the weight 10 if its service is search, 1 if it is any other; "
        "a unit with it, the weight that ot=th states; both are divided by the sampling rate"
    ]


WRONG_SHARES = {
    "{by_service: {search: 0}}": ".by_service.search: must be greater than 0 (given: 0)",
    "{search: 0.1}": ": has 'search'; write {by_service: {search: 0.1}, default: 1}",
}


@pytest.mark.parametrize("given", WRONG_SHARES)
def test_a_share_by_service_that_cannot_be_is_one_fault(tmp_path: Path, given: str) -> None:
    (fault,) = checked(tmp_path, f"head_sampling_rate: {given}")["faults"]

    assert fault.startswith(f"sampling.head_sampling_rate{WRONG_SHARES[given]}")
