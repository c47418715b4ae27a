"""``spanscore evaluate`` as a gate of a CI: the drops, case by case, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError
from spanscore.testing import ScriptedJudge


def cases(path: Path, *, broken: int = 0) -> Path:
    fact = "The ferry to Oslo sails at nine."
    records = [
        {
            "id": f"case-{place}",
            "user_input": "When does the ferry to Oslo sail?",
            "retrieved_contexts": [fact],
            "response": "It sank in 1912." if place < broken else fact,
        }
        for place in range(20)
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def ran(*arguments: Any) -> Any:
    return CliRunner().invoke(app("evaluate"), ["evaluate", *map(str, arguments), "-m", "faithfulness"])


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    path = tmp_path / "base.jsonl"
    assert ran(cases(tmp_path / "good.jsonl"), "--baseline", path, "--update-baseline").exit_code == 0
    return path


def test_a_broken_retriever_fails_with_the_cases_that_fell(tmp_path: Path, baseline: Path) -> None:
    junit = tmp_path / "out.xml"
    broken = cases(tmp_path / "bad.jsonl", broken=6)

    result = ran(broken, "--baseline", baseline, "--max-drop", "faithfulness=0.03", "--junit", junit)

    assert result.exit_code == 1
    assert result.stdout.index("case-0") < result.stdout.index("At the gate")
    assert "faithfulness fell by 0.300" in result.stdout
    failure = ElementTree.parse(junit).find(".//failure")
    assert failure is not None
    assert "fell by 0.300" in failure.get("message", "")


def test_a_mended_one_passes(tmp_path: Path, baseline: Path) -> None:
    result = ran(cases(tmp_path / "mended.jsonl"), "--baseline", baseline, "--max-drop", "faithfulness=0.03")

    assert result.exit_code == 0, result.output


def test_the_gate_is_in_the_json(tmp_path: Path, baseline: Path) -> None:
    result = ran(cases(tmp_path / "bad.jsonl", broken=6), "--baseline", baseline, "--json")

    gate = json.loads(result.stdout)["gate"]
    assert (gate["passed"], len(gate["changes"])) == (True, 6)  # nothing was asked of it
    assert gate["metrics"]["faithfulness"]["change"]["mean"] == pytest.approx(-0.3)


def test_a_baseline_that_is_replaced_is_shown_and_not_held(tmp_path: Path, baseline: Path) -> None:
    bad = cases(tmp_path / "bad.jsonl", broken=6)
    bounds = ("--baseline", baseline, "--max-drop", "faithfulness=0.03")

    assert ran(bad, *bounds, "--update-baseline").exit_code == 0
    assert ran(bad, *bounds).exit_code == 0


def test_too_many_cases_without_a_score_are_no_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanscore.cli._evaluate_run.make_judge", lambda named: ScriptedJudge())

    result = ran(cases(tmp_path / "good.jsonl"), "--min", "faithfulness=0.9")

    assert result.exit_code == 3
    assert "have no score" in result.stdout


def without_answers(path: Path, count: int) -> Path:
    lines = cases(path).read_text().splitlines()
    records = [json.loads(line) | ({"response": None} if place < count else {}) for place, line in enumerate(lines)]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def torn(path: Path, count: int) -> Path:
    lines = cases(path).read_text().splitlines()
    path.write_text("".join(f"{line[: 30 if place < count else None]}\n" for place, line in enumerate(lines)))
    return path


def shortened(path: Path, count: int) -> Path:
    path.write_text("".join(cases(path).read_text().splitlines(keepends=True)[count:]))
    return path


@pytest.mark.parametrize(
    ("changed", "reason"),
    [(without_answers, "missing_field 19"), (torn, "not read 19"), (shortened, "not in this run 19")],
)
def test_cases_that_lost_their_score_make_the_gate_incomplete(
    tmp_path: Path, baseline: Path, changed: Callable[[Path, int], Path], reason: str
) -> None:
    bounds = ("--baseline", baseline, "--max-drop", "faithfulness=0.03", "--min", "faithfulness=0.7")

    ended = ran(changed(tmp_path / "less.jsonl", 19), *bounds)

    assert ended.exit_code == 3
    assert f"19 cases (95%) have no score: {reason}; 19 of them had a score in the baseline" in ended.stdout
    assert "applies_when to exclude cases" in ended.stdout
    assert "│ not known │" in ended.stdout


def test_one_lost_case_within_the_share_is_named(tmp_path: Path, baseline: Path) -> None:
    ended = ran(shortened(tmp_path / "less.jsonl", 1), "--baseline", baseline, "--max-drop", "faithfulness=0.03")

    assert ended.exit_code == 0
    assert "1 case (5%) has no score: not in this run 1; 1 of them had a score in the baseline" in ended.stdout


def test_a_baseline_that_is_replaced_may_have_had_more_cases(tmp_path: Path, baseline: Path) -> None:
    assert ran(shortened(tmp_path / "less.jsonl", 9), "--baseline", baseline, "--update-baseline").exit_code == 0


@pytest.mark.parametrize(
    ("renamed", "expected"),
    [("other-{}", "no case of this run is in the baseline"), ("case-1", "several cases have the id")],
)
def test_cases_that_cannot_be_compared_are_refused_before_a_judge_is_paid(
    tmp_path: Path, baseline: Path, monkeypatch: pytest.MonkeyPatch, renamed: str, expected: str
) -> None:
    judge = ScriptedJudge()
    monkeypatch.setattr("spanscore.cli._evaluate_run.make_judge", lambda named: judge)
    file = cases(tmp_path / "other.jsonl")
    records = [json.loads(line) | {"id": renamed.format(place)} for place, line in enumerate(file.open())]
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))

    refused = ran(file, "--baseline", baseline)

    assert expected in str(refused.exception)
    assert judge.calls == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--baseline", "none.jsonl"], "none.jsonl is not there; --update-baseline writes it"),
        (["--update-baseline"], "name one"),
        (["--max-drop", "faithfulness=0.1"], "needs a baseline"),
        (["--min", "faithfulness"], "write a metric and a number"),
        (["--min", "faithfulness=90"], "write a metric and a number"),
        (["--min", "truth=0.9"], "which is not scored"),
        (["--max-unscored", "5"], "from 0 to 1"),
    ],
)
def test_an_option_that_holds_nothing_is_refused_before_anything_is_paid_for(
    tmp_path: Path, options: list[str], expected: str
) -> None:
    refused = ran(cases(tmp_path / "good.jsonl"), *options)

    assert isinstance(refused.exception, ConfigurationError)
    assert expected in str(refused.exception)
    assert "At the gate" not in refused.stdout
