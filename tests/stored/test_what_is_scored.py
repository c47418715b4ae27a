"""The scored part of a store: by time, by number, once, again, and failed units."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.servers.openai_api import OpenAIServer, judged
from tests.servers.server import free_port
from tests.stored.live_runs import FEW, LiveRuns, asking, configuration, replayed, scored_in
from typer.testing import CliRunner

from spanscore.cli import _stored_traces as _replay_run
from spanscore.cli.main import app
from spanscore.core.codecs.otlp import json_line
from spanscore.core.job import ReplayState
from spanscore.errors import ConfigurationError
from spanscore.scorer import receivers_of
from spanscore.stored.replay import Journal, Replay, ReplayTally, replay_scorer
from spanscore.stored.trace_stores import TraceSource
from spanscore.stored.unit_reading import UnitReader


@pytest.fixture
def unscored(few: LiveRuns, tmp_path: Path) -> str:
    """A file of the runs without their scores."""
    return written(tmp_path / "unscored.jsonl", few.lines(scores=False))


@pytest.fixture
def scored(few: LiveRuns, tmp_path: Path) -> str:
    return written(tmp_path / "scored.jsonl", few.lines(scores=True))


def written(file: Path, lines: list[str]) -> str:
    file.write_text("".join(lines))
    return str(file)


def scores_in(out: Path) -> dict[Any, Any]:
    return scored_in(Journal.spans(out / "scores.jsonl"))


def test_so_many_units_are_scored_at_most(config: Path, unscored: str, tmp_path: Path) -> None:
    replay = replayed(config, unscored, "--limit", "7", "--out", str(tmp_path / "out"))

    assert max(replay["taken"].values()) == 7
    assert len({key[:2] for key in scores_in(tmp_path / "out")}) == 7


def test_the_spans_beside_the_scores_are_said_to_be_not_redacted(config: Path, unscored: str, tmp_path: Path) -> None:
    redacted = written(tmp_path / "redacted.yaml", [config.read_text(), "\nredactor: string:capwords\n"])

    done = CliRunner().invoke(app("replay"), ["replay", redacted, unscored, "--limit", "2", "--out", str(tmp_path)])

    assert "with the spans of their units: the texts of the source, not redacted\n" in done.stderr


def test_at_a_budget_the_rest_is_not_asked_no_rate_is_lowered_and_resume_goes_on(
    config: Path, unscored: str, tmp_path: Path
) -> None:
    paid = tmp_path / "paid.yaml"
    budget = "budget: [{calls: 12, per: 30d}]"
    paid.write_text(config.read_text().replace("{model: lexical}", f"{{model: lexical, {budget}}}"))
    out = tmp_path / "out"

    free = replayed(config, unscored, "--out", str(tmp_path / "free"))
    first = CliRunner().invoke(app("replay"), ["replay", str(paid), unscored, "--json", "--out", str(out)])
    paid.write_text(paid.read_text().replace("12", "1000"))
    second = replayed(paid, unscored, "--resume", str(out / "scores.jsonl"))

    document = json.loads(first.stdout)
    assert document["taken"] == free["taken"]
    assert document["judge_calls"] == 12
    not_attempted = sum(found.get("budget_exhausted", 0) for found in document["outcomes"].values())
    assert f"{not_attempted} scores ended as budget_exhausted" in first.stderr
    assert f"--resume {out / 'scores.jsonl'}" in first.stderr
    assert sum(second["taken"].values()) == not_attempted


def test_units_that_began_outside_the_time_are_left_alone(config: Path, unscored: str, few: LiveRuns) -> None:
    roots = sorted(span.start_time for span in few.spans if span.parent is None)
    since = (roots[FEW // 2 - 1] + roots[FEW // 2]) / 2e9

    replay = replayed(config, unscored, "--dry-run", "--since", _iso(since), "--until", "0s")

    assert replay["outside"] == FEW // 2
    assert replay["units"] == FEW - FEW // 2


def test_a_dry_run_tells_what_would_be_scored_and_does_nothing(
    config: Path, unscored: str, few: LiveRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    replay = replayed(config, unscored, "--dry-run")

    assert replay["dialects"] == {"genai": FEW}
    assert sum(one["units"] for one in replay["cost"]) == sum(replay["taken"].values()) == len(few.scored)
    assert (replay["outcomes"], (tmp_path / "replay").exists()) == ({}, False)


def test_a_dry_run_prices_the_calls_by_the_table(config: Path, unscored: str, tmp_path: Path) -> None:
    asking = (
        configuration(tmp_path).read_text().replace("lexical", "openai:gpt-x, prices: {gpt-x: {input: 2, output: 8}}")
    )
    priced = tmp_path / "priced.yaml"
    priced.write_text(asking + "embeddings: lexical\n")

    replay = replayed(priced, unscored, "--dry-run")

    assert all(one["calls"] >= one["units"] > 0 and one["tokens"] > 0 and one["usd"] > 0 for one in replay["cost"])


def test_what_was_scored_is_scored_again_as_a_further_revision_where_that_is_asked_for(
    config: Path, scored: str, few: LiveRuns, tmp_path: Path
) -> None:
    replay = replayed(config, scored, "--rescore", "--out", str(tmp_path / "out"))

    again = scores_in(tmp_path / "out")
    assert again.keys() == few.scored.keys()
    assert {one["spanscore.score.revision"] for one in again.values()} == {1}
    assert {key: one["spanscore.sampling.threshold"] for key, one in again.items()} == {
        key: one["spanscore.sampling.threshold"] for key, one in few.scored.items()
    }
    assert replay["decisions"] == {"recorded": len(few.scored), "new": 0}
    assert not {one["spanscore.score.id"] for one in again.values()} & {
        one["spanscore.score.id"] for one in few.scored.values()
    }


def test_metadata_that_a_store_has_lost_are_reported_once_by_key(config: Path, few: LiveRuns, tmp_path: Path) -> None:
    lines = [line.replace("spanscore.metadata.user_tier", "lost") for line in few.lines(scores=False)]

    replay = replayed(config, written(tmp_path / "lost.jsonl", lines), "--dry-run")

    assert replay["lacking_metadata"] == {"user_tier": FEW}


def test_an_evaluation_that_failed_is_tried_again_and_no_other(config: Path, few: LiveRuns, tmp_path: Path) -> None:
    lines = few.lines(scores=True)
    spans = [json.loads(line) for line in lines]
    evaluations = [one for one in spans if _span(one)["name"].startswith("evaluation")]
    for one in evaluations[:3]:
        _fail(_span(one))
    source = written(tmp_path / "failed.jsonl", [json.dumps(one) + "\n" for one in spans])

    replay = replayed(config, source, "--out", str(tmp_path / "out"))

    again = scores_in(tmp_path / "out")
    assert (len(again), sum(replay["skipped"].values())) == (3, len(few.scored) - 3)
    assert {one["spanscore.score.revision"] for one in again.values()} == {1}


def test_another_version_of_a_metric_scores_the_units_that_the_one_before_took(
    scored: str, few: LiveRuns, tmp_path: Path
) -> None:
    """The rate has changed since; the earlier decision counts."""
    changed = configuration(tmp_path).read_text().replace("faithfulness,", "{faithfulness: {pass_at: 0.9}},")
    config = tmp_path / "changed.yaml"
    config.write_text(changed.replace("rate: 0.3", "rate: 0.0"))

    replayed(config, scored, "--out", str(tmp_path / "out"))

    found, before = (
        scores_in(tmp_path / "out"),
        {key: one for key, one in few.scored.items() if key[2] == "faithfulness"},
    )
    assert found.keys() == before.keys()
    assert [found[key]["spanscore.sampling.rule"] for key in before] == [
        one["spanscore.sampling.rule"] for one in before.values()
    ]


def test_nothing_leaves_unless_it_is_asked_for(
    config: Path, unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as backend:
        threading.Thread(target=lambda: came.append(backend.accept()), daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{backend.getsockname()[1]}")

        replayed(config, unscored, "--out", str(tmp_path / "out"))

        assert came == []


def test_scores_that_could_not_be_sent_are_an_error_and_count_as_not_scored(
    config: Path, unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(_replay_run, "END_S", 2.0)
    file = tmp_path / "sent.jsonl"

    done = CliRunner().invoke(
        app("replay"), ["replay", str(config), unscored, "--export", "--limit", "2", "--resume", str(file)]
    )

    assert "some scores were not delivered" in str(done.exception)
    assert "not scored again" not in str(done.exception), "the file knows none of them: all are scored and sent again"
    assert file.read_text() == ""


def test_a_queue_that_is_short_for_live_traffic_loses_nothing(unscored: str, few: LiveRuns, tmp_path: Path) -> None:
    replay = replayed(
        configuration(tmp_path, "limits: {queue_size: 4, workers: 1}\n"), unscored, "--out", str(tmp_path / "out")
    )

    assert sum(found["scored"] for found in replay["outcomes"].values()) == len(few.scored)


SCORED_ELSEWHERE = {
    "spooled": "spool: {{path: {folder}/spool.db, score_here: false}}",
    "sent": "remote_scoring: {{endpoint: 'http://127.0.0.1:9', token_file: {folder}/token}}",
}


@pytest.mark.parametrize("where", SCORED_ELSEWHERE)
def test_units_that_are_scored_elsewhere_when_live_are_scored_here(
    where: str, unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("a token of some length\n")
    with OpenAIServer(judged) as server:
        config = asking(tmp_path, server.url, monkeypatch, SCORED_ELSEWHERE[where].format(folder=tmp_path))

        replay = replayed(config, unscored, "--limit", "2", "--out", str(tmp_path / "out"))

    assert replay["outcomes"] == {"faithfulness": {"scored": 2}}
    assert len(server.requests) == replay["judge_calls"] > 0
    assert not (tmp_path / "spool.db").exists()


def test_the_folder_is_for_its_owner_and_holds_a_page(config: Path, unscored: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").touch(0o644)

    replayed(config, unscored, "--limit", "3", "--out", str(tmp_path / "out"))

    held = {file.name: file.stat().st_mode & 0o077 for file in (tmp_path / "out").iterdir()}
    assert held.keys() == {"scores.jsonl", "report.html"}
    assert held["scores.jsonl"] == held["report.html"] == 0
    assert "3 units of work" in (tmp_path / "out" / "report.html").read_text()


def test_status_tells_how_far_a_replay_is(config: Path, unscored: str, few: LiveRuns) -> None:
    tally, seen = ReplayTally(TraceSource.of(unscored, "", "")), list[int]()
    made = replay_scorer(config, sinks=[tally])
    scorer, reader = made.scorer, UnitReader(made.settings)
    before = scorer.status().replay

    def look() -> None:
        now = scorer.status().replay
        seen.append(0 if now is None else now.traces)

    Replay(tally=tally, reader=reader, receiver=receivers_of(scorer).stored_units(), on_progress=look).run()
    scorer.shutdown(5)

    assert before is None
    assert sorted({*seen}) == [*range(1, FEW + 1)], "while it goes on"
    assert scorer.status().replay == ReplayState(FEW, FEW, 0, len(few.scored), None)
    assert f"replay: {FEW} units of {FEW} read; 0 scores exist already, {len(few.scored)} made" in str(scorer.status())


def test_status_tells_what_a_replay_has_made_and_what_it_cost() -> None:
    result = ReplayState(1_200, 1, 3, 4, 0.0123)

    assert str(result) == "replay: 1 unit of 1,200 read; 3 scores exist already, 4 made; 0.012 USD so far"


REFUSED = {
    ("--out", "a", "--export"): "choose one of them",
    ("--max-rate", "fast"): "--max-rate: 'fast' is not a rate",
    ("--max-rate", "50"): "--max-rate: '50' has no unit of time; write 50/s",
    ("--since", "1h", "--until", "7d"): "--until 7d is not after --since 1h",
    ("--since", "monday"): "'monday' is not a time",
    ("--out", "a", "--resume", "b/scores.jsonl"): "remove --out",
}


@pytest.mark.parametrize("options", REFUSED)
def test_options_that_cannot_be_are_refused(options: tuple[str, ...], config: Path, unscored: str) -> None:
    done = CliRunner().invoke(app("replay"), ["replay", str(config), unscored, *options])

    assert REFUSED[options] in str(done.exception)


@pytest.mark.parametrize(
    "lacking", ["judge: openai:gpt-x\nembeddings: lexical", "judge: lexical\nembeddings: openai:text-x"]
)
@pytest.mark.parametrize("option", ["--out", "--resume"])
def test_without_a_key_nothing_is_written(
    lacking: str, option: str, unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config, out = tmp_path / "lacking.yaml", tmp_path / "out"
    config.write_text(f"{lacking}\nmetrics: [faithfulness, response_relevancy]\n")
    before = {*tmp_path.iterdir()}

    done = CliRunner().invoke(
        app("replay"),
        ["replay", str(config), unscored, option, str(out if option == "--out" else out / "scores.jsonl")],
    )

    assert isinstance(done.exception, ConfigurationError)
    assert "OPENAI_API_KEY" in str(done.exception)
    assert {*tmp_path.iterdir()} == before


def test_a_folder_that_has_scores_is_not_written_over(config: Path, unscored: str, tmp_path: Path) -> None:
    (tmp_path / "scores.jsonl").write_text(json_line([]))

    done = CliRunner().invoke(app("replay"), ["replay", str(config), unscored, "--out", str(tmp_path)])

    assert f"--resume {tmp_path / 'scores.jsonl'} continues it" in str(done.exception)


def _iso(time_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_s, UTC).isoformat()


def _span(request: Any) -> Any:
    return request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]


def _fail(span: Any) -> None:
    """Turn an evaluation span into one of a failed judge."""
    span["attributes"] = [one for one in span["attributes"] if one["key"] != "gen_ai.evaluation.score.value"]
    span["attributes"].append({"key": "spanscore.evaluation.outcome", "value": {"stringValue": "judge_error"}})
