"""``spanscore check`` of ``collect``: the content of the file, its place and form, and reasons against writing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(folder: Path, collect: str, more: str = "") -> Any:
    (folder / "spanscore.yaml").write_text(f"metrics: [exact_match]\ncollect: {collect}\n{more}")
    return CliRunner().invoke(app(), ["check", "spanscore.yaml"], env={"COLUMNS": "300"})


CASES = "{when: [exact_match<0.5, exact_match=fail], out: cases.jsonl, max_bytes: 5MB}"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            "",
            "unchanged, because there is no redactor; readable by its owner alone; with the file before (.1) up to 5 MB",
        ),
        ("redactor: tests.cli.test_collect:without_ferries", "as the redactor returns it; readable by its owner alone"),
        (
            "spool: {path: a.db, score_here: false}",
            "the process that scores the units writes the cases, not this process",
        ),
    ],
)
def test_that_content_goes_to_a_file_is_reported_and_no_file_is_made(folder: Path, more: str, expected: str) -> None:
    done = checked(folder, CASES, more)

    assert (done.exit_code, expected in done.stdout) == (0, True), done.output
    assert not (folder / "cases.jsonl").exists()
    if "score_here" not in more:
        place = f"content is written to {folder / 'cases.jsonl'}, for units with exact_match<0.5 or exact_match=fail"
        assert place in done.stdout


def test_a_file_that_others_can_read_is_announced_to_become_its_owners_alone(folder: Path) -> None:
    (folder / "cases.jsonl").touch()
    (folder / "cases.jsonl").chmod(0o644)

    assert "(mode 0644): writing the first case restricts it to its owner (0600)" in checked(folder, CASES).stdout
    assert (folder / "cases.jsonl").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("collect", "code", "expected"),
    [
        (
            "{when: [exact_mach<1], out: a.jsonl}",
            2,
            "exact_mach, which is not a metric here: did you mean 'exact_match'",
        ),
        ("{when: [exact_match], out: a.jsonl}", 1, "'exact_match' is no condition; write for example"),
        ("{when: [], out: a.jsonl}", 1, "collect.when"),
        ("{when: [exact_match<1], out: .}", 2, "exists, and is not a file"),
        ("{when: [exact_match<1], out: no/a.jsonl}", 0, "there is no folder"),
        ("{when: [exact_match<1], out: a.jsonl, max_bytes: 1kB}", 2, "collect.max_bytes"),
    ],
)
def test_what_keeps_cases_from_their_file_is_reported(folder: Path, collect: str, code: int, expected: str) -> None:
    done = checked(folder, collect)

    said = f"{done.output} {done.exception}"
    assert (done.exit_code, expected in said) == (code, True), said  # 1: an error of the command line, with exit code 2


@pytest.mark.parametrize(
    ("redactor", "expected"),
    [
        ("tests.cli.test_collect:without_fairies", "did you mean 'without_ferries'?"),
        ("no_such_pkg:redact", "finds no module 'no_such_pkg'"),
        ("redact", "Your own is written 'my_pkg.privacy:redact'"),
        ("tests.cli.test_collect:Path.home", "has no Path.home"),
        ("{tests.config.test_arrival:Unusual: {instaed: x}}", "has no parameter 'instaed': did you mean 'instead'?"),
    ],
)
def test_a_redactor_that_is_none_is_wrong(folder: Path, redactor: str, expected: str) -> None:
    done = checked(folder, "null", f"redactor: {redactor}")

    assert (done.exit_code, expected in done.output) == (2, True), done.output


def test_check_names_the_file_of_spans_and_whether_content_is_in_it(tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text(f"metrics: [exact_match]\noutputs: {{spans_to: {tmp_path / 'spans.jsonl'}}}\n")
    without = CliRunner().invoke(app(), ["check", str(config)], env={"COLUMNS": "300"})
    config.write_text(config.read_text() + "capture: {content: true}\n")
    with_content = CliRunner().invoke(app(), ["check", str(config)], env={"COLUMNS": "300"})
    config.write_text("metrics: [exact_match]\noutputs: {spans_to: nowhere/spans.jsonl}\n")
    missing = CliRunner().invoke(app(), ["check", str(config)], env={"COLUMNS": "300"})

    assert "spans.jsonl, without content; with the file before (.1) up to 100 MB" in without.output
    assert "spans.jsonl, with prompts and answers" in with_content.output
    assert "nowhere; outputs.spans_to needs it" in missing.output
