"""``spanscore collect`` gets the same cases from a store's API as from a file of its spans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stored.live_runs import UNITS, LiveRuns
from tests.stored.stores import StoreDouble, served
from typer.testing import CliRunner

from spanscore.cli.main import app


def collected(source: str, out: Path, *options: str) -> tuple[Any, list[dict[str, Any]]]:
    done = CliRunner().invoke(app("collect"), ["collect", source, "--out", str(out), *options])
    lines = out.read_text().splitlines() if out.exists() else []
    return done, sorted(map(json.loads, lines), key=lambda case: str(case["id"]))


def with_a_question_of_its_own(line: str) -> str:
    """Return a line of spans with a question that no other trace has, so that each unit is a case."""
    trace_id = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    return line.replace("capital of France?", f"capital of France, asks {trace_id}?")


@pytest.mark.parametrize(("kind", "otlp"), [("jaeger", True), ("tempo", True), ("tempo", False)])
def test_a_store_gives_the_cases_of_the_file(kind: str, otlp: bool, live: LiveRuns, tmp_path: Path) -> None:
    lines = [*map(with_a_question_of_its_own, live.lines(scores=True))]
    (tmp_path / "spans.jsonl").write_text("".join(f"{line.rstrip()}\n" for line in lines))
    output, of_file = collected(str(tmp_path / "spans.jsonl"), tmp_path / "of_file.jsonl")
    assert output.exit_code == 0, output.output

    with served(StoreDouble(lines, otlp=otlp)) as url:
        query = "service=bot" if kind == "jaeger" else "q={}"
        output, of_store = collected(f"{kind}:{url}?{query}", tmp_path / "of_store.jsonl", "--since", "7d")

    assert output.exit_code == 0, output.output
    assert of_store == of_file
    assert 0.9 * UNITS <= len(of_store) < UNITS  # the others failed, and have no answer
    assert any(case["scores"] for case in of_store)


def test_traces_that_a_store_does_not_give_are_reported(live: LiveRuns, tmp_path: Path) -> None:
    store = StoreDouble(live.lines(scores=True))
    missing = next(iter(store.traces))
    store.faults[f"/api/v3/traces/{missing}"] = [404]

    with served(store) as url:
        output, cases = collected(f"jaeger:{url}?service=bot", tmp_path / "cases.jsonl", "--since", "7d")

    assert output.exit_code == 0, output.output
    assert missing not in {case["trace_id"] for case in cases}
    assert missing in output.stdout


def test_a_store_that_is_away_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    with served(StoreDouble([])) as url:
        pass
    output, _ = collected(f"jaeger:{url}?service=bot", tmp_path / "cases.jsonl", "--since", "1h")

    assert output.exit_code != 0
    assert not (tmp_path / "cases.jsonl").exists()
