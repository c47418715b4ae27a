"""``${NAME}`` in a file: the environment's value is used, and never shown."""

from __future__ import annotations

import traceback
from operator import attrgetter
from pathlib import Path

import pytest
from tests.live import a_trace

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli._config_report import config_report
from spanscore.cli._cost_plan import Sizes
from spanscore.cli._plan import plan_of
from spanscore.config.reading import SecretMask, read_settings

SECRET = "hunter2-of-acme"


def written(folder: Path, text: str) -> Path:
    file = folder / "spanscore.yaml"
    file.write_text(text)
    return file


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setenv("RATE", "0.25")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("NOWHERE", raising=False)


ARRIVES = {
    "service_name: ${SECRET}": ("service_name", SECRET),
    "service_name: bot-${SECRET}-${RATE}": ("service_name", f"bot-{SECRET}-0.25"),
    "service_name: $${SECRET}": ("service_name", "${SECRET}"),
    "service_name: $SECRET {SECRET}": ("service_name", "$SECRET {SECRET}"),
    "sampling: {rate: '${RATE}'}": ("sampling.rate", 0.25),
    "sampling: {rates: {'${SECRET}': 0.5}}": ("sampling.rates", {SECRET: 0.5}),
    "monitoring: {dimensions: {tier: ['${SECRET}', free]}}": ("monitoring.dimensions", {"tier": (SECRET, "free")}),
}


@pytest.mark.parametrize("text", ARRIVES)
def test_a_text_holds_what_the_environment_does(tmp_path: Path, text: str) -> None:
    place, value = ARRIVES[text]

    settings = read_settings(written(tmp_path, f"metrics: [exact_match]\n{text}")).settings

    assert attrgetter(place)(settings) == value


MISSING = {
    "service_name: ${NOWHERE}": "service_name: NOWHERE is not set in the environment (given: '${NOWHERE}')",
    "judge: {model: 'openai:${NOWHERE}'}": "judge.model: NOWHERE is not set",
    "metrics: [exact_match, '${NOWHERE}']": "metrics.1: NOWHERE is not set",
    "sampling: {rates: {'${NOWHERE}': 0.5}}": "sampling.rates.${NOWHERE}: NOWHERE is not set",
    "service_name: ${RATE:-bot}": "service_name: '${RATE:-bot}' names no variable of the environment; write ${NAME}, or $${",
}


@pytest.mark.parametrize("text", MISSING)
def test_what_the_environment_does_not_hold_is_a_fault_that_names_it_beside_the_others(
    tmp_path: Path, text: str
) -> None:
    given = text if text.startswith("metrics") else f"metrics: [exact_match]\n{text}"

    with pytest.raises(ConfigurationError) as raised:
        read_settings(written(tmp_path, f"{given}\nlimits: {{workers: 0}}"))

    assert MISSING[text] in str(raised.value)
    assert "limits.workers" in str(raised.value)


WRONG = {
    "outputs: {hold: '${SECRET}'}": "outputs.hold: '${SECRET}' is no duration",
    "sampling: {rate: '${SECRET}'}": "(given: '${SECRET}')",
    "sampling: {rate: '${SECRET}${SECRET}${SECRET}${SECRET}${SECRET}${SECRET}${SECRET}${SECRET}'}": "(given: '${SECRET}$",
    "sampling: {'${SECRET}': 1}": "sampling.${SECRET}: no such setting",
    "judge: {model: '${SECRET}'}": "judge '${SECRET}'",
    "judge: {model: 'nonesuch:${SECRET}'}": "'nonesuch:${SECRET}'",
    "embeddings: 'nonesuch:${SECRET}'\nmetrics: [{response_relevancy: {}}]": "nonesuch:${SECRET}",
    "sampling: {rates: {'${SECRET}': 0.1}}": "sampling.rates names '${SECRET}'",
    "metrics: ['${SECRET}']": "'${SECRET}'",
    "capture: {extract: {response: '${SECRET}'}}": "${SECRET}",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_fault_shows_the_text_of_the_file_and_not_what_the_environment_holds(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text if "metrics:" in text else f"metrics: [exact_match]\n{text}")

    with pytest.raises(ConfigurationError) as raised:
        OnlineScorer.from_config(file, tracer_provider=a_trace().provider)

    report = config_report(file)
    assert WRONG[text] in str(raised.value)
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert report.errors
    assert SECRET not in str((report.errors, report.missing))


def test_what_a_configuration_will_do_is_reported_in_the_words_of_the_file(tmp_path: Path) -> None:
    rules = "sampling: {rules: [{when: {workflow: '${SECRET}'}, rate: 1}]}"
    text = f"metrics: [exact_match]\njudge: {{model: 'openai:${{SECRET}}'}}\n{rules}"

    plan = plan_of(config_report(written(tmp_path, text)), None, Sizes())

    assert plan.judge == "openai:${SECRET}"
    assert SECRET not in str(plan)


def test_the_shortest_of_values_hides_no_part_of_other_words() -> None:
    shown = SecretMask({"a": "${A}", "a b": "x${A} b", "": "${EMPTY}"})

    assert shown("an 'a' and 'a b' in a sample") == "an '${A}' and 'x${A} b' in ${A} sample"
