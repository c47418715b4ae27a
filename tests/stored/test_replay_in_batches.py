"""``spanscore replay --batch``: units are scored by a provider's batches, as live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.batches import BatchServer
from tests.servers.openai_api import judged
from tests.stored.live_runs import LiveRuns, asking, replayed, scored_in
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError
from spanscore.judges.batches import run
from spanscore.stored import trace_stores
from spanscore.stored.replay import Journal
from spanscore.stored.traces import OtlpFiles, StoredTrace, Unread

PRICES = ", prices: {gpt-x: {input: 1, output: 1}}}"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETTLE_S", 1.0)
    monkeypatch.setattr(run, "POLL_S", 0.05)


@pytest.fixture
def unscored(few: LiveRuns, tmp_path: Path) -> str:
    file = tmp_path / "unscored.jsonl"
    file.write_text("".join(few.lines(scores=False)))
    return str(file)


def priced(folder: Path, server: BatchServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = asking(folder, server.openai_url, monkeypatch)
    config.write_text(config.read_text().replace("}\nmetrics", f"{PRICES}\nmetrics", 1))
    return config


def test_scores_are_those_of_a_replay_without_batches_at_half_the_price(
    unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BatchServer(judged) as server:
        config = priced(tmp_path, server, monkeypatch)
        live = replayed(config, unscored, "--out", str(tmp_path / "live"))
        sent = len(server.sent_at_once)
        batched = replayed(config, unscored, "--out", str(tmp_path / "batched"), "--batch")

    scores = [scored_in(Journal.spans(tmp_path / folder / "scores.jsonl")) for folder in ("live", "batched")]
    assert scores[0] == scores[1]
    assert batched["usd"] == pytest.approx(live["usd"] / 2)
    assert (batched["outcomes"], batched["judge_calls"]) == (live["outcomes"], live["judge_calls"])
    assert len(server.sent_at_once) == sent
    assert len(server.batches) == 2  # faithfulness has two steps
    assert [*(tmp_path / "batched").glob("*.batches")] == []


def test_ctrl_c_leaves_the_batches_and_the_next_run_fetches_their_answers(
    unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out" / "scores.jsonl"
    with BatchServer(judged) as server:
        server.go_on.clear()
        config = priced(tmp_path, server, monkeypatch)
        with monkeypatch.context() as patched:
            patched.setattr(trace_stores, "store_of", lambda source, **_: impatient(server)(Path(source)))
            command = ["replay", str(config), unscored, "--out", str(file.parent), "--batch"]
            done = CliRunner().invoke(app("replay"), command)
        server.go_on.set()
        replay = replayed(config, unscored, "--resume", str(file), "--batch")

    assert (done.exit_code, len(server.batches)) == (130, 2)
    assert f"the command with --resume {file} fetches the answers" in " ".join(done.stderr.split())
    assert replay["outcomes"]["faithfulness"]["scored"] > 0
    assert [*file.parent.glob("*.batches")] == []


def impatient(server: BatchServer) -> type[OtlpFiles]:
    """Return a source at whose end somebody presses Ctrl-C, when the first batch is open."""

    class Impatient(OtlpFiles):
        def traces(self) -> Iterator[StoredTrace | Unread]:
            yield from super().traces()
            server.wait_for(lambda: bool(server.batches))
            raise KeyboardInterrupt

    return Impatient


def test_a_dry_run_shows_the_price_of_batches(unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BatchServer(judged) as server:
        config = priced(tmp_path, server, monkeypatch)
        full, half = (replayed(config, unscored, "--dry-run", *more)["cost"] for more in ([], ["--batch"]))

    assert half[0]["usd"] == pytest.approx(full[0]["usd"] / 2)
    assert server.batches == []


def test_cancelling_needs_no_source_that_is_read_and_counts_the_batches(
    unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BatchServer(judged) as server:
        config = asking(tmp_path, server.openai_url, monkeypatch)
        command = ["replay", str(config), unscored, "--out", str(tmp_path), "--batch-cancel"]
        done = CliRunner().invoke(app("replay"), command, catch_exceptions=False)

    assert done.stdout == f"{tmp_path / 'scores.jsonl.batches'} has no open batch\n"


def test_an_export_in_batches_needs_a_file_for_them(
    unscored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BatchServer(judged) as server:
        config = asking(tmp_path, server.openai_url, monkeypatch)
        done: Any = CliRunner().invoke(app("replay"), ["replay", str(config), unscored, "--export", "--batch"])

    assert isinstance(done.exception, ConfigurationError)
    assert "--batch needs --resume FILE" in str(done.exception)
    assert server.batches == []
