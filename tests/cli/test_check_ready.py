"""A library or file that the machine lacks is a warning; the rest of the plan is shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app


def test_a_metric_that_lacks_its_library_here_keeps_none_of_the_others_from_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    file = tmp_path / "spanscore.yaml"
    file.write_text("metrics: [non_llm_string_similarity, {faithfulness: {name: loyal}}]")

    result = CliRunner().invoke(app(), ["check", str(file), "--requests-per-day", "1000"], catch_exceptions=False)

    assert (result.exit_code, "spanscore[text]" in result.output, "loyal" in result.output) == (0, True, True)
