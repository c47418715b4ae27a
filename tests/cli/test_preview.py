"""``spanscore preview``: a configuration samples stored spans as it samples live ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stored.live_runs import FEW, LiveRuns, configuration, live_runs
from typer.testing import CliRunner

from spanscore.cli import _stored_traces as _preview_run
from spanscore.cli.main import app
from spanscore.stored.unit_reading import UnitReader

NO_RULES = "metrics: [faithfulness]\njudge: {model: lexical}\n"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return configuration(tmp_path_factory.mktemp("previewed"))


@pytest.fixture(scope="module")
def live(config: Path) -> LiveRuns:
    return live_runs(config, FEW)


@pytest.fixture
def scored(live: LiveRuns, tmp_path: Path) -> Path:
    return written(tmp_path / "scored.jsonl", live.lines(scores=True))


@pytest.fixture
def unscored(live: LiveRuns, tmp_path: Path) -> Path:
    return written(tmp_path / "unscored.jsonl", live.lines(scores=False))


def written(file: Path, lines: list[str] | str) -> Path:
    file.write_text("".join(lines))
    return file


def ran(*arguments: Any) -> Any:
    return CliRunner().invoke(app("preview"), ["preview", *map(str, arguments)])


def previewed(*arguments: Any) -> dict[str, Any]:
    done = ran(*arguments, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def named(of: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in of}


def test_what_it_takes_is_what_was_taken_live(config: Path, unscored: Path, live: LiveRuns) -> None:
    preview = previewed(config, unscored)

    units = {key[:2] for key in live.scored}
    assert (preview["units"], preview["taken"]) == (FEW, len(units))
    assert sum(metric["taken"] for metric in preview["metrics"]) == len(live.scored)
    assert {(int(one["trace_id"], 16), int(one["span_id"], 16)) for one in preview["named"]} <= units
    rules = named(preview["rules"])
    assert (rules["base"]["matched"], rules["gold"]["matched"]) == (FEW, FEW // 5)
    taken_by = {rule["name"]: rule["taken"] for rule in preview["rules"] if rule["taken"]}
    by = {(trace, span): one["spanscore.sampling.rule"] for (trace, span, _), one in live.scored.items()}
    assert taken_by == {rule: list(by.values()).count(rule) for rule in by.values()}


def test_a_changed_configuration_is_tried_whatever_was_decided_then(scored: Path, tmp_path: Path) -> None:
    none = written(tmp_path / "none.yaml", NO_RULES + "sampling: {rate: 0}\n")
    every = written(tmp_path / "every.yaml", NO_RULES)

    assert previewed(none, scored)["taken"] == 0
    assert previewed(every, scored)["taken"] == FEW


def test_ten_are_named_with_why_and_when_and_no_more(config: Path, scored: Path) -> None:
    preview = previewed(config, scored)

    assert len(preview["named"]) == 10
    assert {rule["name"] for rule in preview["rules"] if rule["taken"]} == {
        by["rule"] for one in preview["named"] for by in one["taken"].values()
    }
    for one in preview["named"]:
        assert one.keys() == {"trace_id", "span_id", "name", "began", "taken"}
        assert one["began"].endswith("Z")


def test_what_a_score_costs_is_by_the_table_of_prices(scored: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    asking = (
        "metrics: [faithfulness]\nsampling: {rate: 0.5}\njudge: {model: 'openai:gpt-x', budget: [{usd: 1, per: 1h}], "
    )
    priced = written(tmp_path / "priced.yaml", asking + "prices: {gpt-x: {input: 2, output: 8}}}\n")

    short, long = previewed(priced, scored), previewed(priced, scored, "--context-tokens", 4_000)

    (metric,) = short["metrics"]
    assert metric["calls"] >= metric["taken"] > 0
    assert short["rules"][0]["usd"] == pytest.approx(metric["usd"])
    assert long["metrics"][0]["usd"] > metric["usd"] > 0
    assert any("judge.budget lowers the rates" in note for note in short["notes"])
    assert any("4,000 tokens together" in note for note in long["notes"])


def test_no_judge_is_asked_and_no_key_is_needed(scored: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asking = written(tmp_path / "asking.yaml", "metrics: [faithfulness]\njudge: {model: 'openai:gpt-x'}\n")

    preview = previewed(asking, scored)

    assert preview["taken"] == FEW
    assert preview["metrics"][0]["usd"] is None
    assert any("OPENAI_API_KEY is not set" in note for note in preview["notes"])


def test_a_rule_on_a_score_looks_at_what_the_store_has(scored: Path, unscored: Path, tmp_path: Path) -> None:
    ruled = written(
        tmp_path / "ruled.yaml",
        "metrics: [{exact_match: {name: faithfulness}}, {exact_match: {name: dear}}]\n"
        "sampling: {rate: 0, rates: {faithfulness: 1}, rules: [{when: {score: {metric: faithfulness, below: 1}}, rate: 1}]}\n",
    )

    known, unknown = (named(previewed(ruled, spans)["rules"])["rule_1"] for spans in (scored, unscored))

    assert 0 < known["unknown"] < FEW
    assert (unknown["matched"], unknown["unknown"]) == (0, FEW)


def test_time_and_number_are_bounded(config: Path, unscored: Path, tmp_path: Path, live: LiveRuns) -> None:
    from datetime import UTC, datetime

    every = written(tmp_path / "every.yaml", NO_RULES)
    roots = sorted(span.start_time for span in live.spans if span.parent is None)
    since = datetime.fromtimestamp((roots[9] + roots[10]) / 2e9, UTC).isoformat()

    later, few = previewed(config, unscored, "--since", since), previewed(every, unscored, "--limit", 7)

    assert (later["units"], later["outside"]) == (FEW - 10, 10)
    assert few["taken"] == 7


def test_the_tables_fit_a_terminal_and_say_that_no_judge_was_asked(
    config: Path, scored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    result = ran(config, scored)

    assert result.exit_code == 0
    assert "would be scored; no judge was asked" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if "│" in line or "┃" in line)
    assert "loading libraries" in result.stderr
    assert "traces" in result.stderr


def test_nothing_of_content_or_metadata_is_shown(config: Path, scored: Path, tmp_path: Path) -> None:
    planted = "PLANTED-9914"
    text = scored.read_text()
    for held in ("What is the capital of France?", "Paris is the capital of France.", "since 987"):
        assert held in text
        text = text.replace(held, planted)
    spans = [json.loads(line) for line in text.splitlines()]
    for request in spans:
        for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            span["attributes"].append({"key": "spanscore.metadata.secret", "value": {"stringValue": planted}})
    source = written(tmp_path / "planted.jsonl", [f"{json.dumps(one)}\n" for one in spans])

    for result in (ran(config, source), ran(config, source, "--json")):
        assert result.exit_code == 0
        assert planted not in result.output


def test_what_a_name_holds_does_nothing_in_the_terminal(config: Path, unscored: Path, tmp_path: Path) -> None:
    hostile = unscored.read_text().replace("RunnableSequence", "\\u001b[2Jowned")

    result = ran(config, written(tmp_path / "hostile.jsonl", hostile))

    assert r"\x1b[2Jowned" in result.stdout
    assert "\x1b" not in result.stdout


def test_ctrl_c_tells_what_was_read_until_then(config: Path, scored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(UnitReader):
        """One that is interrupted at the eleventh trace."""

        read = 0

        def units(self, trace: Any) -> Any:
            self.read += 1
            if self.read > 10:
                raise KeyboardInterrupt
            return super().units(trace)

    monkeypatch.setattr(_preview_run, "UnitReader", Interrupted)

    result = ran(config, scored, "--json")

    assert result.exit_code == 130
    assert (json.loads(result.stdout)["units"], json.loads(result.stdout)["interrupted"]) == (10, True)
