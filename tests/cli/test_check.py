"""``spanscore check``: what a configuration will do, and what in it cannot be, without asking anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError

WHOLE = """
judge: {model: lexical}
sampling:
  rate: 0.05
  rates: {faithfulness: 0.02}
  rules: [{when: {status: error}, rate: 1.0}, {when: {metadata: user_tier, equals: gold}, rate: 0.5}]
metrics:
  - faithfulness: {pass_at: 0.7}
  - exact_match
  - topic_adherence
  - aspect_critic: {name: harmless, definition: "Could the response cause harm?", direction: lower}
capture: {retrieved_contexts: output.passages}
alerts:
  faithfulness: {baseline: 0.85, min_drop: 0.1}
  harmless: {baseline: 0.98}
  topic_adherence: {baseline: 0.4, threshold: 0.3, min_scores: 50}
  exact_match: {}
"""


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(key, raising=False)


def ran(folder: Path, text: str, *arguments: str) -> Any:
    file = folder / "spanscore.yaml"
    file.write_text(text)
    return CliRunner().invoke(app(), ["check", str(file), *arguments], env={"COLUMNS": "200"})


def plan(folder: Path, text: str) -> Any:
    return json.loads(ran(folder, text, "--json").stdout)


def test_what_will_be_scored_is_told(tmp_path: Path) -> None:
    told = ran(tmp_path, WHOLE)

    assert told.exit_code == 0, told.output
    for words in ("the offline heuristic", "0.02 … 1", "harmless", "metadata user_tier is 'gold'", "can be used"):
        assert words in told.stdout


def test_each_field_says_where_it_comes_from(tmp_path: Path) -> None:
    fields = {metric["name"]: metric["fields"] for metric in plan(tmp_path, WHOLE)["metrics"]}

    assert fields["faithfulness"]["single_turn"]["retrieved_contexts"] == "output.passages (capture.retrieved_contexts)"
    assert fields["faithfulness"]["single_turn"]["user_input"].startswith("the last human message, else question")
    assert "spanscore.expected(reference=…)" in fields["exact_match"]["single_turn"]["reference"]
    assert fields["topic_adherence"]["multi_turn"]["user_input"].startswith("the messages of a unit")


def test_each_alert_says_from_how_many_scores_it_speaks(tmp_path: Path) -> None:
    alerts = {alert["metric"]: alert for alert in plan(tmp_path, WHOLE)["alerts"]}

    minimum = {name: (alert["min_scores"], alert["requests"]) for name, alert in alerts.items()}
    assert minimum == {
        "faithfulness": (100, 5_000),
        "harmless": (400, 8_000),
        "topic_adherence": (50, 1_000),
        "exact_match": (100, 2_000),
    }
    assert "does not hold" in alerts["topic_adherence"]["notes"][0]
    assert "without a baseline" in alerts["exact_match"]["notes"][0]


WRONG: dict[str, list[str]] = {
    "metrics: [faithfullness]": ["metrics:", "'faithfullness'", "did you mean faithfulness"],
    "metrics: [{faithfulness: {strictness: 3}}]": ["faithfulness", "'strictness'", "it takes"],
    "metrics: [exact_match, exact_match]": ["2 are called 'exact_match'", "name="],
    "metrics: [exact_match]\nsampling: {rates: {exact: 0.1}}": ["sampling.rates.exact", "'exact_match'"],
    "metrics: [exact_match]\nalerts: {exat_match: {}}": ["alerts.exat_match", "did you mean 'exact_match'?"],
    "metrics: ['tests.line:Grounded': {name: id}]": ["'id'", "spanscore.score.id"],
    "metrics: [exact_match]\njudge: {model: 'nonesuch:x'}": ["judge.model", "nonesuch"],
    "metrics: [exact_match]\njudge: {model: 'openai:gpt-4o-mini'}": ["judge.model", "OPENAI_API_KEY is not set"],
    "metrics: [exact_match]\njudge: {model: 'anthropic:claude'}": ["'anthropic:claude'", "ANTHROPIC_API_KEY"],
    "metrics: [response_relevancy]\nembeddings: 'openai:x'": ["embeddings: 'openai:x'", "OPENAI_API_KEY"],
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_is_named_and_the_exit_code_is_2(tmp_path: Path, text: str) -> None:
    told = ran(tmp_path, text)

    assert told.exit_code == 2
    assert all(word in " ".join(told.stderr.split()) for word in WRONG[text]), told.stderr


@pytest.mark.parametrize(
    ("given", "priced"), [("gpt-4o-mini", True), ("gpt-4o", False), (None, False)], ids=["its own", "another's", "none"]
)
def test_prices_are_told_and_the_model_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, priced: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    prices = f", prices: {{{given}: {{input: 0.15, output: 0.6}}}}" if given else ""

    told = ran(tmp_path, f"metrics: [faithfulness]\njudge: {{model: 'openai:gpt-4o-mini'{prices}}}")

    assert (f"price of {given}: 0.15 USD per million tokens read, 0.6 written" in told.stdout) == (given is not None)
    assert ("judge.prices has no price of gpt-4o-mini" in told.stdout) == (not priced), told.stdout


def test_the_offline_judge_needs_no_price(tmp_path: Path) -> None:
    assert "price" not in ran(tmp_path, WHOLE).stdout


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = "metrics: [faithfullness, {aspect_critic: {}}]\njudge: {model: 'openai:x'}"

    assert len(plan(tmp_path, text)["faults"]) == 3


def test_embeddings_that_are_missing_beside_a_model_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    faults = plan(tmp_path, "metrics: [response_relevancy]\njudge: {model: 'openai:x'}")["faults"]

    assert ["response_relevancy needs embeddings" in fault for fault in faults] == [True]


def test_a_file_that_cannot_be_read_is_an_error_and_json_where_asked(tmp_path: Path) -> None:
    text = "metrics: [exact_match]\nsampling: {rte: 3}"

    told, as_json = ran(tmp_path, text), ran(tmp_path, text, "--json")

    assert isinstance(told.exception, ConfigurationError)
    assert as_json.exit_code == 2
    assert "did you mean 'rate'" in json.loads(as_json.stdout)["faults"][1]
