"""``spanscore collect``: from the spans of a demo to cases that ``spanscore evaluate`` reads."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore import semconv
from spanscore.cli.main import app
from spanscore.errors import ConfigurationError


def ran(*arguments: Any) -> Any:
    return CliRunner().invoke(app(arguments[0]), [*map(str, arguments)])


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("demo") / "spans.jsonl"
    assert ran("demo", "--requests", 60, "--out", file).exit_code == 0
    return file


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_failing_units_are_cases_that_fail_again(spans: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"

    result = ran("collect", spans, "--when", "faithfulness<0.5", "--out", cases)

    assert result.exit_code == 0, result.output
    found = lines(cases)
    assert f"{len(found)} cases are in" in result.stdout
    assert all(one["scores"]["faithfulness"]["value"] < 0.5 and one["retrieved_contexts"] for one in found)
    again = json.loads(ran("evaluate", cases, "-m", "faithfulness", "--json").stdout)
    assert again["metrics"]["faithfulness"]["mean"] < 0.5


@pytest.mark.parametrize("configured", [False, True])
def test_the_command_that_it_suggests_runs(
    configured: bool, spans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own config.yaml").write_text("judge: lexical\nmetrics: [faithfulness]\n")
    more = ["--config", "own config.yaml"] if configured else []

    result = ran("collect", spans, "--out", "my cases.jsonl", *more)

    (command,) = re.findall(r"^Score them: spanscore (.*)$", result.stdout, re.MULTILINE)
    assert ran(*shlex.split(command)).exit_code == 0
    assert "faithfulness" in {row["metric"] for row in lines(Path("rows.jsonl"))}


def test_cases_without_scores_are_scored_by_the_command_that_it_suggests(
    spans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spans.jsonl").write_text(re.sub(r"(gen_ai\.evaluation|spanscore)\.", "other.", spans.read_text()))

    result = ran("collect", "spans.jsonl", "--out", "cases.jsonl")

    (command,) = re.findall(r"^Score them: spanscore (.*)$", result.stdout, re.MULTILINE)
    assert ran(*shlex.split(command)).exit_code == 0


def test_a_case_says_where_it_is_from_and_how_probable_its_scores_were(spans: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    ran("collect", spans, "--when", "faithfulness>=0", "--out", cases)

    (first, *_) = lines(cases)
    assert first["id"] == f"{first['trace_id']}-{first['span_id']}"
    assert 0.0 < first["probability"] <= 1.0
    assert first["duration_s"] > 0
    keys = {"value", "label", "evaluator_version", "probability", "explanation"}
    assert keys == first["scores"]["faithfulness"].keys()


def test_the_file_is_its_owners_alone(spans: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ran("collect", spans, "--out", tmp_path / "cases.jsonl")
    finally:
        os.umask(before)

    assert (tmp_path / "cases.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_redactor_runs_before_anything_is_written(spans: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"

    result = ran("collect", spans, "--redactor", "tests.cli.test_collect:without_ferries", "--out", cases)

    assert result.exit_code == 0, result.output
    assert "[boat]" in cases.read_text()
    assert "ferry" not in cases.read_text()


def failing(text: str) -> str:
    """Raise, as a redactor with a fault does."""
    raise ValueError(text)


def test_nothing_is_written_where_the_redactor_fails(spans: Path, tmp_path: Path) -> None:
    refused = ran("collect", spans, "--redactor", "tests.cli.test_collect:failing", "--out", tmp_path / "cases.jsonl")

    assert "the redactor raised ValueError" in str(refused.exception)
    assert not (tmp_path / "cases.jsonl").exists()


def without_ferries(text: str) -> str:
    """Return a text that names no ferry."""
    return text.replace("ferry", "[boat]").replace("Ferry", "[boat]")


def test_the_counts_are_there_as_json(spans: Path, tmp_path: Path) -> None:
    result = ran("collect", spans, "--sample", 10, "--out", tmp_path / "cases.jsonl", "--json")

    counts = json.loads(result.stdout)
    assert counts["units"] == 60
    assert counts["cases"] <= 10
    assert "faithfulness" in counts["metrics"]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("truth<0.5", "none with a score of truth; there are scores of"),
        ("faithfulness<0", "and no condition holds"),
        ("faithfulness=fial", "none with a score of faithfulness that is fial; its scores are"),
    ],
)
def test_where_there_is_no_case_the_reason_is_reported_and_nothing_written(
    spans: Path, tmp_path: Path, when: str, expected: str
) -> None:
    refused = ran("collect", spans, "--when", when, "--out", tmp_path / "cases.jsonl")

    assert isinstance(refused.exception, ConfigurationError)
    assert expected in str(refused.exception)
    assert not (tmp_path / "cases.jsonl").exists()


def test_only_units_that_began_between_both_times_are_collected(spans: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"

    before = ran("collect", spans, "--until", "2020-01-01T00:00Z", "--out", cases)
    assert "none of its 60 units began between --since and --until" in str(before.exception)
    assert not cases.exists()

    since = ran("collect", spans, "--since", "2020-01-01T00:00Z", "--json", "--out", cases)
    document = json.loads(since.stdout)
    assert (document["units"], document["outside"]) == (60, 0)


def test_spans_without_content_are_reported_to_be(spans: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.jsonl"
    bare.write_text("".join(f"{json.dumps(_without_content(json.loads(line)))}\n" for line in spans.open()))

    refused = ran("collect", bare, "--out", tmp_path / "cases.jsonl")

    assert "60 units, none with content: capture.content was off" in str(refused.exception)


def _without_content(request: dict[str, Any]) -> dict[str, Any]:
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                kept = [one for one in span["attributes"] if not semconv.is_content(one["key"])]
                span["attributes"] = kept
    return request


def test_a_file_of_other_lines_holds_no_units(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text('{"user_input": "When?"}\n')

    assert "holds no spans" in str(ran("collect", file, "--out", tmp_path / "x.jsonl").exception)
