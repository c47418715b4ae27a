"""A wrong setting is answered with its right form and the user's own value, which can be pasted and is then right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli._config_report import config_report
from spanscore.cli.main import app
from spanscore.config.reading import read_settings

M = "metrics: [exact_match]\n"

READY = {
    "sample_rate: 0.1": "sampling: {rate: 0.1}",
    "sampling_rate: 0.25": "sampling: {rate: 0.25}",
    "sample: 0.1": "sampling: {rate: 0.1}",
    "sampling: 0.1": "sampling: {rate: 0.1}",
    "sampling: {sample_rate: 0.1}": "sampling: {rate: 0.1}",
    "rate: 10%": "sampling: {rate: 10%}",
    "rates: 0.1": "sampling: {rate: 0.1} or sampling: {rates: {faithfulness: 0.1}}",
    "sampling: {rates: 0.1}": "sampling: {rate: 0.1} or sampling: {rates: {faithfulness: 0.1}}",
    "sampling: {exact_match: 0.2}": "sampling: {rates: {exact_match: 0.2}}",
    "rules: [{when: {any_error: true}, rate: 1}]": "sampling: {rules: [{when: {any_error: true}, rate: 1}]}",
    "rules: {when: {any_error: true}, rate: 1}": "sampling: {rules: [{when: {any_error: true}, rate: 1}]}",
    "budget: {usd: 2, per: 1h}": "judge: {budget: [{usd: 2, per: 1h}]}",
    "capture_content: true": "capture: {content: true}",
    "content: true": "capture: {content: true}",
    "capture_metadata: user_tier": "capture: {metadata: [user_tier]}",
    "hold: 5s": "outputs: {hold: 5s}",
    "outputs: {sinks: 'mypkg:Sink'}": 'sinks: ["mypkg:Sink"]',
    "judge: {gpt-4o: {input: 1, output: 2}}": "judge: {prices: {gpt-4o: {input: 1, output: 2}}}",
    "workers: 8": "limits: {workers: 8}",
}
IN_RULES = {
    "{when: {user_tier: gold}, rate: 1.0}": "when: {metadata: {user_tier: gold}}",
    "{user_tier: gold, rate: 1.0}": "when: {metadata: {user_tier: gold}}",
    "{when: user_tier, rate: 1.0}": "when: {metadata: {user_tier: …}}",
    "{when: error, rate: 1.0}": "when: {status: error}",
    "{workflow: refunds, rate: 1.0}": "when: {workflow: refunds}",
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "spanscore.yaml"


@pytest.mark.parametrize("wrong", READY)
def test_a_wrong_form_is_answered_with_the_right_one_which_can_be_pasted(file: Path, wrong: str) -> None:
    file.write_text(M + wrong)
    message = "\n".join(config_report(file).errors)

    assert f"write {READY[wrong]}" in message or f"such as {READY[wrong]}" in message
    in_section = wrong.partition(": {")[0] if wrong.startswith("outputs") else ""
    for form in READY[wrong].split(" or "):
        file.write_text(
            M + (f"{in_section}: {{{form}}}" if in_section else form).replace("faithfulness", "exact_match")
        )
        assert not [error for error in config_report(file).errors if "mypkg" not in error]


@pytest.mark.parametrize("wrong", IN_RULES)
def test_a_wrong_rule_is_answered_with_the_right_condition(file: Path, wrong: str) -> None:
    file.write_text(f"{M}sampling: {{rules: [{wrong}]}}")

    assert IN_RULES[wrong] in "\n".join(config_report(file).errors)


@pytest.mark.parametrize(
    ("metrics", "listed"),
    [
        ("exact_match", "metrics: [exact_match]"),
        ("exact_match, rouge_score", "metrics: [exact_match, rouge_score]"),
        ("{faithfulness: {pass_at: 0.7}, exact_match: }", "metrics: [{faithfulness: {pass_at: 0.7}}, exact_match]"),
    ],
)
def test_metrics_without_a_list_are_listed(file: Path, metrics: str, listed: str) -> None:
    file.write_text(f"metrics: {metrics}")

    assert config_report(file).errors[0].endswith(f"here: {listed}")


@pytest.mark.parametrize(
    "secret", ["api_kye: sk-1234", "judge: {api_kye: sk-1234}", "judge: {pass: sk-1234}", "tokn: sk-1234"]
)
def test_a_text_under_a_key_that_nobody_knows_is_not_shown(file: Path, secret: str) -> None:
    file.write_text(M + secret)

    assert "sk-1234" not in "\n".join(config_report(file).errors)


def test_a_control_character_and_a_long_value_are_not_quoted_as_they_are(file: Path) -> None:
    file.write_text(M + 'service_names: "a"\nqueue_size: "\\e[2J"\nbudget: ' + json.dumps(["x" * 500]))
    message = "\n".join(config_report(file).errors)

    assert "\x1b" not in message
    assert "x" * 200 not in message


# --- short forms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "model"),
    [
        ("gpt-4o-mini", "openai:gpt-4o-mini"),
        ("claude-haiku-4-5", "anthropic:claude-haiku-4-5"),
        ("ollama:llama3", "ollama:llama3"),
        ("lexical", "lexical"),
    ],
)
def test_a_judge_may_be_a_name(file: Path, short: str, model: str) -> None:
    file.write_text(f"{M}judge: {short}")

    assert read_settings(file).settings.judge.model == model


def test_a_variable_sets_another_key_of_a_section_in_its_short_form(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANSCORE_JUDGE__TIMEOUT", "5")
    monkeypatch.setenv("SPANSCORE_SERVE_METRICS__HOST", "0.0.0.0")
    file.write_text(f"{M}judge: gpt-4o-mini\nserve_metrics: 9999")
    settings = read_settings(file).settings

    assert (settings.judge.model, settings.judge.timeout) == ("openai:gpt-4o-mini", 5.0)
    assert settings.serve_metrics is not None
    assert (settings.serve_metrics.port, settings.serve_metrics.host) == (9999, "0.0.0.0")


def test_a_short_form_whose_model_is_of_no_known_provider_is_refused(file: Path) -> None:
    file.write_text(f"{M}judge: mymodel")

    assert "judge.model: 'mymodel' names no provider" in "\n".join(config_report(file).errors)
    with pytest.raises(ConfigurationError):
        OnlineScorer.from_config(file)


def test_the_schema_takes_the_short_form() -> None:
    schema = json.loads(CliRunner().invoke(app("check"), ["check", "--schema"]).output)
    kinds = json.dumps(schema["properties"]["judge"])

    assert re.search(r'"type": "string"', kinds)


# --- check --------------------------------------------------------------------------------------------------------------


def checked(file: Path, text: str) -> str:
    file.write_text(text)
    return " ".join(
        CliRunner()
        .invoke(app("check"), ["check", str(file)], env={"COLUMNS": "400", "OPENAI_API_KEY": "x"})
        .output.split()
    )


DEAR = "openai:gpt-4o-mini is asked about every unit by faithfulness"


@pytest.mark.parametrize(
    ("more", "warns"),
    [
        ("judge: gpt-4o-mini", True),
        ("judge: gpt-4o-mini\nsampling: {rate: 0.1, rates: {faithfulness: 1}}", True),
        ("judge: gpt-4o-mini\nsampling: {rate: 0.1}", False),
        ("judge: {model: 'openai:gpt-4o-mini', budget: [{usd: 5, per: 1d}]}", False),
        ("judge: {model: 'openai:gpt-4o-mini', prices: {gpt-4o-mini: {input: 0, output: 0}}}", False),
        ("judge: lexical", False),
    ],
)
def test_check_warns_if_a_paid_judge_is_asked_about_every_unit(file: Path, more: str, warns: bool) -> None:
    assert (DEAR in checked(file, f"metrics: [faithfulness, exact_match]\n{more}\n")) is warns


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("metrics: [faithfulness]", True),
        ("metrics: [faithfulness]\njudge: {timeout: 5s}", True),
        ("metrics: [faithfulness]\njudge: lexical", False),
        ("metrics: [exact_match]", False),
    ],
)
def test_check_warns_if_a_metric_needs_a_judge_and_none_is_named(file: Path, text: str, warns: bool) -> None:
    assert ("no judge is named" in checked(file, text)) is warns
