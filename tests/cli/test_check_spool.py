"""``spanscore check`` of a spool: its effects, and obstacles to writing it."""

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


def checked(folder: Path, spool: str, more: str = "") -> Any:
    (folder / "spanscore.yaml").write_text(f"metrics: [exact_match]\nspool: {spool}\n{more}")
    return CliRunner().invoke(app(), ["check", "spanscore.yaml"], env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    ("spool", "expected"),
    [
        ("{path: a.db}", "spool: a.db, up to 1 GB and 7 d; scored in this process, or in any process that shares it"),
        (
            "{path: a.db, score_here: false, max_bytes: 5MB}",
            "spool: a.db, up to 5 MB and 7 d; scored by spanscore worker",
        ),
        ("{path: a.db, sync: normal}", "its content survives kill -9, not a power failure"),
    ],
)
def test_what_a_spool_does_is_reported_and_no_file_is_made(folder: Path, spool: str, expected: str) -> None:
    checked_one = checked(folder, spool)

    assert (checked_one.exit_code, expected in checked_one.stdout) == (0, True), checked_one.output
    assert not (folder / "a.db").exists()


@pytest.mark.parametrize(
    ("spool", "more", "wrong"),
    [
        ("{path: a.db}", "limits: {job_queue: {memory: {capacity: 4}}}", "spool and limits.job_queue are both given"),
        (
            "{path: a.db, score_here: false}",
            "sampling: {feedback: {rate: 0.5}}",
            "sampling.feedback is not possible with",
        ),
    ],
)
def test_what_cannot_stand_beside_a_spool_is_wrong(folder: Path, spool: str, more: str, wrong: str) -> None:
    result = checked(folder, spool, more)

    assert result.exit_code == 2
    assert wrong in result.output


def test_a_folder_that_is_not_here_may_be_where_the_scorer_runs(folder: Path) -> None:
    result = checked(folder, "{path: nowhere/a.db}")

    assert result.exit_code == 0
    assert f"there is no folder {folder}/nowhere; spool.path needs it" in result.output
