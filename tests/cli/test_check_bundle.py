"""``spanscore check`` and ``calibrate`` with a bundle: the saving, the refusals, and which version is right more often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app

JUDGE = "judge: {model: 'openai:m', api_key_env: BUNDLE_KEY, prices: {m: {input: 1, output: 1}}}"
CRITICS = """\
metrics:
  - aspect_critic: {aspect: harmfulness%s}
  - aspect_critic: {name: polite, definition: The response is polite.%s}
"""


@pytest.fixture(autouse=True)
def _has_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUNDLE_KEY", "none")


def checked(folder: Path, first: str, second: str) -> tuple[Any, str]:
    file = folder / "spanscore.yaml"
    file.write_text(CRITICS % (first, second) + JUDGE)
    document = CliRunner().invoke(app("check"), ["check", str(file), "--json"]).stdout
    text = CliRunner().invoke(app("check"), ["check", str(file)], env={"COLUMNS": "300"})
    return json.loads(document), text.output


def test_the_cost_plan_has_the_saving_of_a_bundle(tmp_path: Path) -> None:
    single, _ = checked(tmp_path, "", "")
    bundled, text = checked(tmp_path, ", bundle: true", ", bundle: true")

    assert [cost["calls"] for cost in bundled["costs"]] == [0.5, 0.5]
    assert sum(cost["usd"] for cost in bundled["costs"]) < sum(cost["usd"] for cost in single["costs"])
    assert [cost["usd_alone"] for cost in bundled["costs"]] == [cost["usd"] for cost in single["costs"]]
    assert "bundle of harmfulness, polite: 1 question instead of 2, " in text
    assert " % less)" in text


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            ", bundle: true, fields: [response]",
            "have different fields; a bundle has metrics of equal fields and one judge",
        ),
        (", bundle: true, judges: ['openai:m', 'openai:n']", "have different judges"),
        (", bundle: perhaps", "bundle is 'perhaps'; it is true or false"),
    ],
)
def test_a_bundle_that_cannot_be_is_one_line(tmp_path: Path, second: str, message: str) -> None:
    document, _ = checked(tmp_path, ", bundle: true", second)

    assert [fault for fault in document["faults"] if message in fault]


def rows(folder: Path, name: str, labels: Path, judged: str) -> Path:
    config, out = folder / f"{name}.yaml", folder / f"{name}.jsonl"
    config.write_text("judge: lexical\nmetrics:\n" + judged)
    ran = CliRunner().invoke(app("evaluate"), ["evaluate", str(labels), "--config", str(config), "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    return out


def test_calibrate_compares_the_bundled_and_the_single_metric_on_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = tmp_path / "labels.jsonl"
    answers = [("Thank you!", True), ("You idiot.", False)] * 8
    lines = ({"human": human, "user_input": f"q{n}", "response": text} for n, (text, human) in enumerate(answers))
    labels.write_text("\n".join(map(json.dumps, lines)))
    critic = "  - aspect_critic: {name: polite, definition: The response is polite.%s}\n"
    single = rows(tmp_path, "single", labels, critic % "")
    other = "  - aspect_critic: {aspect: refusal, bundle: true}\n"
    bundled = rows(tmp_path, "bundled", labels, critic % ", bundle: true" + other)

    command = ["calibrate", str(labels), "-m", "polite", "--scores", str(bundled), "--against", str(single)]
    against = json.loads(CliRunner().invoke(app("calibrate"), [*command, "--json"]).stdout)["against"]

    assert "bundled" not in against.pop("evaluator_version")
    assert against == {"labels": 16, "before": 16, "gained": 0, "lost": 0, "p": 1.0}
    assert "labels only this version gets right" in CliRunner().invoke(app("calibrate"), command).stdout
