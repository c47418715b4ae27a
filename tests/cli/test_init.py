"""A first configuration: check accepts it, an editor understands it, and existing files are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError

ANSWERS: list[list[str]] = [
    [],
    ["--backend", "prometheus", "--metrics", "faithfulness"],
    ["--judge", "openai:gpt-4o-mini", "--metrics", "response_relevancy,context_recall"],
]


@pytest.mark.parametrize("answers", ANSWERS)
def test_what_it_writes_passes_check_and_its_schema(answers: list[str], tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"

    _invoked("init", str(file), *answers, "--schema")

    schema = json.loads((tmp_path / "spanscore.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(yaml.safe_load(file.read_text("utf-8")))
    assert _invoked("check", str(file)).exit_code == 0


def test_its_first_line_leads_an_editor_to_the_schema_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"

    _invoked("init", str(file), "--schema")

    _, _, named = file.read_text("utf-8").partition("\n")[0].partition("# yaml-language-server: $schema=")
    assert (tmp_path / named).read_text("utf-8") == _invoked("check", "--schema").output


def test_the_printed_example_passes_check(tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(_invoked("check", "--example").output, "utf-8")

    assert _invoked("check", str(file)).exit_code == 0


def test_without_being_asked_it_writes_no_schema(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"

    done = _invoked("init", str(file))

    assert [*tmp_path.iterdir()] == [file]
    assert "schema" not in file.read_text("utf-8") + done.output


def test_answers_are_what_is_in_force(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"

    _invoked("init", str(file), "--judge", "openai:gpt-4o-mini", "-m", "faithfulness", "--backend", "prometheus")

    given = yaml.safe_load(file.read_text("utf-8"))
    assert given["judge"] == {"model": "openai:gpt-4o-mini"}
    assert given["metrics"] == ["faithfulness"]
    assert given["serve_metrics"] == {"port": 9464, "host": "127.0.0.1"}


def test_a_file_that_is_there_stays_unless_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text("metrics: [exact_match]")

    with pytest.raises(ConfigurationError, match="--force"):
        _invoked("init", str(file))
    assert file.read_text() == "metrics: [exact_match]"

    _invoked("init", str(file), "--force")
    assert "faithfulness" in file.read_text("utf-8")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["-m", "faithfullness"], "did you mean 'faithfulness'"),
        (["-m", "aspect_critic"], "definition"),
        (["--judge", "nonsense"], "provider:model"),
    ],
)
def test_an_answer_that_cannot_be_is_reported_and_nothing_is_written(
    answers: list[str], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        _invoked("init", str(tmp_path / "spanscore.yaml"), *answers)

    assert [*tmp_path.iterdir()] == []


def test_at_a_terminal_it_asks(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"exact_match\n\nprometheus\n")
    command = [sys.executable, "-c", "from spanscore.cli.main import main; main()", "init"]

    try:
        done = subprocess.run(
            command, check=True, stdin=theirs, capture_output=True, text=True, cwd=tmp_path, timeout=100
        )
    finally:
        os.close(theirs)
        os.close(ours)

    given: dict[str, Any] = yaml.safe_load((tmp_path / "spanscore.yaml").read_text("utf-8"))
    assert "Judge: provider:model" in done.stdout
    assert (given["metrics"], given["judge"]["model"], given["serve_metrics"]["port"]) == (
        ["exact_match"],
        "lexical",
        9464,
    )


def _invoked(*words: str) -> Any:
    return CliRunner().invoke(app(words[0]), [*words], catch_exceptions=False)


def test_a_disk_that_is_full_keeps_no_part_of_a_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # less than the schema has
    try:
        with pytest.raises(ConfigurationError, match="cannot be written: File too large"):
            _invoked("init", str(tmp_path / "spanscore.yaml"), "--schema")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert [*tmp_path.iterdir()] == []
