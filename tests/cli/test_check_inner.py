"""``spanscore check`` of ``units.also``: the entries, and why they cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app

ENTRY = "{kind: tool, name: search, rate: 0.5, metrics: [exact_match]}"


def check(folder: Path, entry: str) -> Any:
    path = folder / "spanscore.yaml"
    path.write_text(f"metrics: [exact_match]\nunits: {{also: [{entry}]}}\n")
    return CliRunner().invoke(app(), ["check", str(path)], env={"COLUMNS": "300"})


def test_each_entry_has_a_line(tmp_path: Path) -> None:
    done = check(tmp_path, ENTRY)

    assert done.exit_code == 0
    assert (
        "units.also: each tool search below a recorded root is a unit of its own: exact_match, rate 0.5" in done.stdout
    )


def test_an_alert_counts_inner_units(tmp_path: Path) -> None:
    entry = "{kind: tool, rate: 0.5, alerts: {exact_match: {baseline: 0.9, min_drop: 0.2}}}"
    lines = check(tmp_path, entry).stdout.splitlines()

    at = next(number for number, line in enumerate(lines) if line.startswith("alert on exact_match (tool): "))
    assert "a drop of 0.2 or more below 0.9; at its rate of 0.5, a window" in lines[at]
    assert lines[at + 1] == "  before it may alert: 30 scores, 60 inner units"
    assert "spanscore baseline" not in "".join(lines[at : at + 4])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "{kind: tool, metrics: [], alerts: {exact_match: {threshold: 0.5}}}",
            "units.also has alerts on 'exact_match' for tool, but the entry's metrics lack it: none",
        ),
        (
            "{kind: tool, alerts: {exact_match: {evaluator_version: '1/none/1', threshold: 0.5}}}",
            "units.also (tool): alerts.exact_match.evaluator_version: '1/none/1' is of no configured metric",
        ),
        ("{kind: tool, metrics: [exact_mach]}", "units.also names 'exact_mach' for tool"),
    ],
)
def test_a_wrong_entry_is_an_error(tmp_path: Path, entry: str, message: str) -> None:
    done = check(tmp_path, entry)

    assert done.exit_code == 2
    assert message in done.output
