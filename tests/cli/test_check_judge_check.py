"""``spanscore check`` of a judge check: its cost, its power, and its errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app

WHOLE = """
judge: {model: "openai:gpt-4o-mini", prices: {gpt-4o-mini: {input: 0.15, output: 0.60}}}
metrics: [faithfulness, exact_match]
alerts: {faithfulness: {baseline: 0.85}}
judge_check: {golden_set: labelled.jsonl, every: 6h}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return tmp_path


def label(folder: Path, count: int, **more: Any) -> None:
    lines = [{"human": True, "user_input": f"q{n}", "response": "r", "retrieved_contexts": ["c"]} for n in range(count)]
    (folder / "labelled.jsonl").write_text("\n".join(json.dumps({**line, **more}) for line in lines))


def checked(folder: Path, text: str = WHOLE, *arguments: str) -> Any:
    (folder / "spanscore.yaml").write_text(text)
    return CliRunner().invoke(app("check"), ["check", "spanscore.yaml", *arguments], env={"COLUMNS": "200"})


def test_what_a_judge_check_costs_and_sees_is_reported(folder: Path) -> None:
    label(folder, 60)

    output = checked(folder).stdout

    assert "judge check: 60 labelled samples of labelled.jsonl, every 6 h, for the judge of faithfulness\n" in output
    assert (
        "a day costs 480 questions, 0.037 USD, for each replica; of the processes of one machine, only one runs"
        in output
    )
    assert "kept in labelled.baseline.json, which must outlive the process" in output
    assert "a change is detected if 12 of 60 answers change, all in one direction (0.2 of them)" in output
    assert "to detect a change of 0.05 of them, label 240" in output


def test_too_few_labels_are_said_to_show_nothing(folder: Path) -> None:
    label(folder, 8)

    assert "no change is detectable with 8 labelled samples: 12 answers must change" in checked(folder).stdout


def test_a_file_of_labels_that_is_not_here_may_be_elsewhere(folder: Path) -> None:
    output = checked(folder)

    assert output.exit_code == 0
    assert "there is no file labelled.jsonl; judge_check.golden_set needs it" in output.stderr
    assert checked(folder, WHOLE, "--ready").exit_code == 3


@pytest.mark.parametrize(
    ("judge_check", "words"),
    [
        ("{golden_set: labelled.jsonl, metrics: [faithfullness]}", "judge_check.metrics names 'faithfullness'"),
        ("{golden_set: labelled.jsonl, every: 10s}", "judge_check.every"),
        ("{golden_set: labelled.jsonl, baseline: labelled.jsonl}", "not a baseline of a judge check"),
    ],
)
def test_what_is_wrong_with_a_judge_check_is_named(folder: Path, judge_check: str, words: str) -> None:
    label(folder, 60)

    output = checked(folder, WHOLE.replace("{golden_set: labelled.jsonl, every: 6h}", judge_check))

    assert output.exit_code == 2
    assert words in output.stderr


def test_a_wrong_line_of_the_labels_is_named(folder: Path) -> None:
    label(folder, 1, human="meh")

    output = checked(folder)

    assert output.exit_code == 2
    assert "labelled.jsonl, line 1, faithfulness" in output.stderr


def test_a_check_of_a_metric_that_lacks_its_library_here_has_no_plan_and_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    label(folder, 60, reference="r")
    watched = "{golden_set: labelled.jsonl, metrics: [non_llm_string_similarity]}"

    output = checked(folder, f"judge: lexical\nmetrics: [non_llm_string_similarity]\njudge_check: {watched}")

    assert (output.exit_code, "spanscore[text]" in output.output) == (0, True)
    assert "judge check: its cost and power are not shown, because not every metric can be built" in output.stdout
