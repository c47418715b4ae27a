"""``spanscore evaluate --batch``: the scores of the live path, by batches that may take a day, at half price."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.servers.batches import Batch, BatchServer
from tests.servers.openai_api import judged
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError
from spanscore.judges.batches import openai_batches, run

ROOT = Path(__file__).parents[2]
CRITIC = "{aspect_critic: {definition: Is it kind, name: kind}}"
FAST = {"SETTLE_S": 0.3, "POLL_S": 0.05}
"""Seconds in place of the true ones."""


def verdict(request: dict[str, Any]) -> str:
    """Answer a critic's question by the number in the sample that it is about; the other questions as ``judged``."""
    number = re.search(r"In Rome (\d+)", json.dumps(request))
    form = request.get("response_format", {}).get("json_schema", {}).get("name", "Critique")
    if form != "Critique" or number is None:
        return judged(request)
    return json.dumps({"reason": "it is so", "verdict": int(number[1]) % 2})


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in FAST.items():
        monkeypatch.setattr(run, name, seconds)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    file = tmp_path / "samples.jsonl"
    rows = ({"question": "Where?", "answer": f"In Rome {place}.", "contexts": [f"Rome {place}."]} for place in range(6))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def configured(
    folder: Path, server: BatchServer, metrics: str = CRITIC, more: str = "", provider: str = "openai"
) -> Path:
    address = server.openai_url if provider == "openai" else server.url
    file = folder / "spanscore.yaml"
    prices = "prices: {gpt-x: {input: 1, output: 1}, claude-x: {input: 1, output: 1, batch: 0.25}}"
    model = {"openai": "openai:gpt-x", "anthropic": "anthropic:claude-x"}[provider]
    file.write_text(f"metrics: [{metrics}]\njudge: {{model: '{model}', base_url: '{address}', {prices}{more}}}\n")
    return file


def evaluated(samples: Path, config: Path, *more: str) -> Any:
    command = ["evaluate", str(samples), "--config", str(config), "--out", str(out_of(samples)), *more]
    return CliRunner().invoke(app("evaluate"), command)


def out_of(samples: Path) -> Path:
    return samples.with_name("scores.jsonl")


def rows_in(file: Path) -> list[dict[str, Any]]:
    return sorted(map(json.loads, file.read_text().splitlines()), key=lambda row: (row["line"], row["metric"]))


def column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


@pytest.mark.parametrize(("provider", "share"), [("openai", 0.5), ("anthropic", 0.25)])
def test_each_answer_goes_to_its_question_at_the_price_of_batches(
    samples: Path, tmp_path: Path, provider: str, share: float
) -> None:
    with BatchServer(verdict) as server:
        done = evaluated(samples, configured(tmp_path, server, provider=provider), "--batch")

    rows = rows_in(out_of(samples))
    assert done.exit_code == 0, done.output
    assert column(rows, "value") == [0, 1, 0, 1, 0, 1]
    assert column(rows, "cost_usd") == pytest.approx([25e-6 * share] * 6)
    assert (server.questions(), server.sent_at_once) == ([6], [])
    assert not out_of(samples).with_name("scores.jsonl.batches").exists()


def test_scores_are_those_of_the_live_path(samples: Path, tmp_path: Path) -> None:
    with BatchServer(verdict) as server:
        config = configured(
            tmp_path, server, f"faithfulness, {{aspect_critic: {{definition: a, strictness: 3}}}}, {CRITIC}"
        )
        evaluated(samples, config)
        live = rows_in(out_of(samples))
        evaluated(samples, config, "--batch", "--no-resume")

    batched = rows_in(out_of(samples))
    same = ("key", "value", "outcome", "explanation", "input_tokens", "output_tokens", "judge_calls", "made_by")
    assert [column(batched, name) for name in same] == [column(live, name) for name in same]


def test_a_metric_of_two_steps_takes_two_rounds_and_a_vote_is_one_question(samples: Path, tmp_path: Path) -> None:
    metrics = f"faithfulness, {CRITIC}, {{aspect_critic: {{definition: a, strictness: 3}}}}"
    with BatchServer(verdict) as server:
        evaluated(samples, configured(tmp_path, server, metrics), "--batch")

    assert server.questions() == [18, 6]


def test_votes_for_a_provider_without_several_answers_are_questions_of_one_batch(samples: Path, tmp_path: Path) -> None:
    critic = "{aspect_critic: {definition: a, strictness: 3}}"
    with BatchServer(verdict) as server:
        evaluated(samples, configured(tmp_path, server, critic, provider="anthropic"), "--batch")

    assert server.questions() == [18]
    assert column(rows_in(out_of(samples)), "value") == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("fate", ["expired", "missing", 500, 429])
def test_a_question_without_an_answer_is_asked_again_in_the_next_batch(
    samples: Path, tmp_path: Path, provider: str, fate: str | int
) -> None:
    def first_time(batch: Batch, request: dict[str, Any]) -> str | int:
        return fate if batch.number == 1 and re.search(r"Rome [01]\.", json.dumps(request)) else "answered"

    with BatchServer(verdict, first_time) as server:
        evaluated(samples, configured(tmp_path, server, provider=provider), "--batch")

    assert server.questions() == [6, 2]
    assert column(rows_in(out_of(samples)), "value") == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("fate", "error", "batches"),
    [("expired", "batch_expired", 2), ("cancelled", "batch_cancelled", 1), (400, "http_400", 1), (500, "http_500", 2)],
)
def test_a_question_that_never_gets_an_answer_is_a_failed_score(
    samples: Path, tmp_path: Path, fate: str | int, error: str, batches: int
) -> None:
    with BatchServer(verdict, lambda *_: fate) as server:
        done = evaluated(samples, configured(tmp_path, server, more=", max_attempts: 2"), "--batch")

    rows = rows_in(out_of(samples))
    assert (done.exit_code, len(server.batches)) == (0, batches)
    assert Counter(column(rows, "outcome")) == {"judge_error": 6}
    assert {*column(rows, "error_type")} == {error}
    assert {*column(rows, "cost_usd")} == {None}


def test_each_juror_is_asked_by_batches_of_its_own(samples: Path, tmp_path: Path) -> None:
    critic = "{aspect_critic: {definition: Is it kind, judges: [openai:gpt-x, openai:gpt-y, openai:gpt-z]}}"
    with BatchServer(verdict) as server:
        evaluated(samples, configured(tmp_path, server, critic), "--batch")

    assert (server.questions(), server.sent_at_once) == ([6, 6, 6], [])
    assert column(rows_in(out_of(samples)), "value") == [0, 1, 0, 1, 0, 1]


def test_a_further_judge_is_asked_in_the_next_batch_if_the_jurors_differ(samples: Path, tmp_path: Path) -> None:
    """Two judges differ on the first two samples."""

    def split(request: dict[str, Any]) -> str:
        strict = request["model"] == "gpt-y" and re.search(r"Rome [01]\.", json.dumps(request))
        return json.dumps({"reason": "", "verdict": 0 if strict else 1})

    jury = "judges: [openai:gpt-x, openai:gpt-y], then: openai:gpt-z"
    with BatchServer(split) as server:
        evaluated(samples, configured(tmp_path, server, f"{{aspect_critic: {{definition: a, {jury}}}}}"), "--batch")

    assert (server.questions(), server.sent_at_once) == ([6, 6, 2], [])
    assert column(rows_in(out_of(samples)), "value") == [1] * 6


def bundled(jury: str = "") -> str:
    """Return the configuration of two critics in a bundle."""
    return ", ".join(
        f"{{aspect_critic: {{definition: a, name: {name}, bundle: true{jury}}}}}" for name in ("kind", "fair")
    )


def verdicts(request: dict[str, Any], *names: str) -> str:
    return json.dumps({name: json.loads(verdict({**request, "response_format": {}})) for name in names})


@pytest.mark.parametrize(
    ("provider", "jury", "batches"),
    [("openai", "", 1), ("anthropic", "", 1), ("openai", ", judges: [openai:gpt-x, openai:gpt-y, openai:gpt-z]", 3)],
    ids=["openai", "anthropic", "jury"],
)
def test_a_bundle_is_one_question_of_a_batch_for_each_judge(
    samples: Path, tmp_path: Path, provider: str, jury: str, batches: int
) -> None:
    with BatchServer(lambda request: verdicts(request, "kind", "fair")) as server:
        evaluated(samples, configured(tmp_path, server, bundled(jury), provider=provider), "--batch")

    rows = rows_in(out_of(samples))
    assert (server.questions(), server.sent_at_once) == ([6] * batches, [])
    assert column(rows, "value") == [0, 0, 1, 1] * 3
    assert {*column(rows, "judge_calls")} == {batches}


def test_a_criterion_without_a_verdict_in_a_bundle_is_asked_alone_in_the_next_batch(
    samples: Path, tmp_path: Path
) -> None:
    def without_fair(request: dict[str, Any]) -> str:
        return verdicts(request, "kind" if '"kind"' in json.dumps(request["response_format"]) else "fair")

    with BatchServer(without_fair) as server:
        evaluated(samples, configured(tmp_path, server, bundled()), "--batch")

    assert server.questions() == [6, 6]
    assert column(rows_in(out_of(samples)), "value") == [0, 0, 1, 1] * 3


def test_an_unreadable_answer_is_repaired_in_the_next_batch(samples: Path, tmp_path: Path) -> None:
    def torn(request: dict[str, Any]) -> str:
        return verdict(request) if "earlier answer" in json.dumps(request) else "It is kind"

    with BatchServer(torn) as server:
        evaluated(samples, configured(tmp_path, server), "--batch")

    assert server.questions() == [6, 6]
    assert column(rows_in(out_of(samples)), "outcome") == ["scored"] * 6


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_result_line_that_is_no_object_does_not_lose_the_answers(
    samples: Path, tmp_path: Path, provider: str
) -> None:
    class WithOtherLines(BatchServer):
        def _file(self, batch: Batch, *, errors: bool) -> bytes:
            return b"5\n[]\nno JSON\n" + super()._file(batch, errors=errors)

        def _results(self, batch: Batch) -> bytes:
            return b"5\n[]\n" + super()._results(batch)

    with WithOtherLines(verdict) as server:
        evaluated(samples, configured(tmp_path, server, provider=provider), "--batch")

    assert server.questions() == [6]
    assert column(rows_in(out_of(samples)), "value") == [0, 1] * 3


def test_a_refused_batch_is_named_by_its_code(samples: Path, tmp_path: Path) -> None:
    with BatchServer(verdict) as server:
        server.refuses = "token_limit_exceeded"
        done = evaluated(samples, configured(tmp_path, server), "--batch")

    assert "kind: judge_error ×6: batch: the provider refused the batch (token_limit_exceeded)" in done.stdout
    assert {*column(rows_in(out_of(samples)), "error_type")} == {"batch_failed"}


def test_an_address_without_batches_is_named_and_nothing_is_sent_at_once(samples: Path, tmp_path: Path) -> None:
    with BatchServer(verdict) as server:
        server.has_batches = False
        done = evaluated(samples, configured(tmp_path, server), "--batch")

    assert "the judge's address has no batch endpoint: leave --batch out" in done.stdout
    assert server.sent_at_once == []


def test_no_timeout_counts_while_a_batch_is_open(samples: Path, tmp_path: Path) -> None:
    with BatchServer(verdict, looks=30) as server:
        evaluated(samples, configured(tmp_path, server, "faithfulness", ", timeout: 1"), "--batch", "--timeout", "1")

    assert min(batch.looks for batch in server.batches) >= 30  # one in 0.05 s
    assert column(rows_in(out_of(samples)), "outcome") == ["scored"] * 6


def test_a_provider_that_is_away_for_a_while_loses_no_answer(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_batches, "RETRIES", 0)
    with BatchServer(verdict) as server:
        server.statuses = [500, 503, 429]
        evaluated(samples, configured(tmp_path, server), "--batch")

    assert column(rows_in(out_of(samples)), "value") == [0, 1, 0, 1, 0, 1]
    assert server.questions() == [6]


def test_a_batch_that_the_provider_has_deleted_is_sent_again(samples: Path, tmp_path: Path) -> None:
    with BatchServer(verdict) as server:
        server.statuses = [404]
        evaluated(samples, configured(tmp_path, server), "--batch")

    assert column(rows_in(out_of(samples)), "value") == [0, 1, 0, 1, 0, 1]
    assert server.questions() == [6, 6]


@pytest.mark.parametrize("budget", ["{calls: 4, per: 30d}", "{usd: 0.0028, per: 30d}"], ids=["calls", "usd"])
def test_a_budget_is_reserved_before_a_batch_is_sent(samples: Path, tmp_path: Path, budget: str) -> None:
    """A question is estimated at some 640 tokens, of which 500 are its answer: 0.00064 USD, and half of it in a batch."""
    with BatchServer(verdict) as server:
        evaluated(samples, configured(tmp_path, server, more=f", budget: [{budget}]"), "--batch")

    asked = 4 if "calls" in budget else 6
    assert server.questions() == [asked]
    assert Counter(column(rows_in(out_of(samples)), "outcome")).get("budget_exhausted", 0) == 6 - asked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--batch", "--out", "s.jsonl"],
            "the judge 'lexical-1' has no batch endpoint. Allowed are openai:MODEL, also with a",
        ),
        (["--batch-cancel", "--out", "s.jsonl"], "the judge 'lexical-1' has no batch endpoint"),
        (["--batch", "--judge", "openai:gpt-x"], "--batch needs --out FILE: a batch may take a day"),
        (["--batch", "--out", "nowhere/s.jsonl"], "nowhere does not exist"),
        (["--batch", "--out", "s.jsonl", "-m", "exact_match"], "no metric asks a judge; leave --batch out"),
    ],
)
def test_a_run_that_cannot_use_batches_is_refused_in_one_line(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    metrics = [] if "-m" in options else ["-m", "faithfulness"]

    done = CliRunner().invoke(app("evaluate"), ["evaluate", str(samples), *metrics, *options])

    assert isinstance(done.exception, ConfigurationError)
    assert words in str(done.exception)
    assert "\n" not in str(done.exception)


# --- interrupted -----------------------------------------------------------------------------------------------------


class Interrupted:
    """A run in a process of its own, whose first batch stays open until the process has ended."""

    def __init__(self, samples: Path, config: Path, server: BatchServer, by: signal.Signals) -> None:
        server.go_on.clear()
        patch = "; ".join(f"run.{name} = {seconds}" for name, seconds in FAST.items())
        code = f"from spanscore.judges.batches import run; {patch}; from spanscore.cli.main import main; main()"
        command = [sys.executable, "-c", code, "evaluate", str(samples), "--config", str(config)]
        process = subprocess.Popen(
            [*command, "--out", str(out_of(samples)), "--batch"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        server.wait_for(lambda: bool(server.batches) and server.batches[0].looks > 0)
        process.send_signal(by)
        _, self.notes = process.communicate(timeout=60)
        self.exit_code = process.returncode
        self.batches = out_of(samples).with_name("scores.jsonl.batches").read_text()
        server.go_on.set()


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer(verdict) as serving:
        yield serving


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_same_command_goes_on_and_sends_nothing_twice(
    samples: Path, tmp_path: Path, server: BatchServer, provider: str, by: signal.Signals
) -> None:
    config = configured(tmp_path, server, provider=provider)
    Interrupted(samples, config, server, by)

    done = evaluated(samples, config, "--batch")

    assert "1 batch of an earlier run: only questions without an answer are sent again" in done.stderr
    assert server.questions() == [6]
    assert column(rows_in(out_of(samples)), "value") == [0, 1, 0, 1, 0, 1]
    assert not out_of(samples).with_name("scores.jsonl.batches").exists()


def test_ctrl_c_tells_how_to_go_on_and_keeps_no_content(samples: Path, tmp_path: Path, server: BatchServer) -> None:
    ended = Interrupted(samples, configured(tmp_path, server), server, signal.SIGINT)

    assert ended.exit_code == 130, ended.notes
    assert "Traceback" not in ended.notes
    assert (
        "6 questions in open batches, which go on at the provider: the same command fetches the answers" in ended.notes
    )
    assert "Rome" not in ended.batches
    assert len(json.loads(ended.batches.splitlines()[0])["questions"]) == 6


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_cancelled_batches_are_asked_again_by_the_next_run(
    samples: Path, tmp_path: Path, server: BatchServer, provider: str
) -> None:
    config = configured(tmp_path, server, provider=provider)
    Interrupted(samples, config, server, signal.SIGINT)
    server.go_on.clear()
    cancelled, again = evaluated(samples, config, "--batch-cancel"), evaluated(samples, config, "--batch-cancel")
    server.go_on.set()

    evaluated(samples, config, "--batch")

    assert cancelled.stdout.startswith("1 of 1 batch cancelled")
    assert again.stdout.startswith("0 of 1 batch cancelled")
    assert server.batches[0].is_cancelled
    assert server.questions() == [6, 6]
    assert column(rows_in(out_of(samples)), "value") == [0, 1, 0, 1, 0, 1]


def test_a_batch_of_another_model_is_left_alone(samples: Path, tmp_path: Path, server: BatchServer) -> None:
    Interrupted(samples, configured(tmp_path, server), server, signal.SIGINT)

    done = evaluated(samples, configured(tmp_path, server, provider="anthropic"), "--batch")

    assert "of another judge, address or model: left alone" in done.stderr
    assert server.questions() == [6, 6]
    assert out_of(samples).with_name("scores.jsonl.batches").exists()
