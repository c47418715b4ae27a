"""Units that this process takes and a real ``spanscore serve`` scores."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.capture.otlp.test_copies import copy_of, make_unit
from tests.durable.application import METRICS, SETTINGS, TOKEN, application, run, token_file
from tests.live import identity_holds
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port
from tests.service.process import ROOT, Serving, serving
from tests.service.test_serve import asked, ended_as

from spanscore import ScoringSpanProcessor, semconv
from spanscore.config import Capture, RemoteScoring, Sampling

pytestmark = pytest.mark.timeout(300)  # a process that imports much, on a machine that others use too


ALL: dict[str, Any] = {"sampling": Sampling()}


@pytest.fixture
def backend() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


def scorer_process(folder: Path, backend: OtlpReceiver, **serve: Any) -> Any:
    return serving(folder, backend.endpoint, serve={"token_file": str(token_file(folder)), **serve}, **SETTINGS)


def at(running: Serving, folder: Path, **more: Any) -> RemoteScoring:
    return RemoteScoring(endpoint=f"http://{running.http}", token_file=folder / "token", **more)


COMPARED = (
    semconv.SCORE_ID,
    semconv.EVALUATION_NAME,
    semconv.EVALUATION_SCORE_VALUE,
    semconv.EVALUATION_EXPLANATION,
    *(semconv.PROBABILITY + metric for metric in METRICS),
    semconv.SAMPLING_THRESHOLD,
    semconv.SAMPLING_RULE,
)


def test_scores_are_those_that_this_process_would_have_made(tmp_path: Path, backend: OtlpReceiver) -> None:
    with application(None) as (scorer, here):
        run(scorer, 60)
        assert scorer.flush(30)
        status = scorer.status()
    with scorer_process(tmp_path, backend) as running, application(at(running, tmp_path)) as (scorer, _):
        run(scorer, 60)
        assert scorer.flush(30)
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0
        away = scorer.status()

    made = {
        span.attributes[semconv.SCORE_ID]: span
        for span in here.spans
        if span.instrumentation_scope.name == semconv.SCOPE
    }
    came = {span.attributes[semconv.SCORE_ID]: span for span in backend.spans if span.scope == semconv.SCOPE}
    assert {i: {n: s.attributes.get(n) for n in COMPARED} for i, s in came.items()} == {
        i: {n: s.attributes.get(n) for n in COMPARED} for i, s in made.items()
    }
    assert identity_holds(scorer)
    for metric in METRICS:
        assert away.outcomes[metric]["delegated"] == status.outcomes[metric]["scored"]
        assert away.outcomes[metric]["not_sampled"] == status.outcomes[metric]["not_sampled"]


def ended(running: Serving) -> dict[str, dict[str, int]]:
    """Have it drain; return metric → outcome → units, with ``eligible``."""
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == 0
    return {
        metric: {"eligible": total, **outcomes} for metric in METRICS for total, outcomes in [ended_as(running, metric)]
    }


def score_ids(backend: OtlpReceiver) -> list[Any]:
    return [span.attributes[semconv.SCORE_ID] for span in backend.spans if span.scope == semconv.SCOPE]


def test_a_function_that_is_frozen_after_its_answer_is_scored_once(tmp_path: Path, backend: OtlpReceiver) -> None:
    with scorer_process(tmp_path, backend) as running:
        arguments = ["-m", "tests.durable.function", f"http://{running.http}", str(tmp_path / "token")]
        with subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as function:
            first = called(function, 3)
            function.send_signal(signal.SIGSTOP)
            assert backend.wait_for(lambda: len(score_ids(backend)) == 6, 60)
            function.send_signal(signal.SIGCONT)
            second = called(function, 2)
            function.stdin.close()  # type: ignore[union-attr]
            function.wait(60)
        there = ended(running)

    for metric in METRICS:
        assert (first["flushed"], first["outcomes"][metric]) == (True, {"delegated": 3})
        assert (second["flushed"], second["outcomes"][metric]) == (True, {"delegated": 5})
        assert there[metric] == {"eligible": 5, "scored": 5}
    assert len(score_ids(backend)) == len({*score_ids(backend)}) == 10


@pytest.mark.parametrize(("has_spool", "again"), [(True, "delegated"), (False, "scored")])
def test_a_copy_that_is_sent_again_after_a_restart_is_scored_once_only_with_a_spool(
    tmp_path: Path, backend: OtlpReceiver, has_spool: bool, again: str
) -> None:
    copies = [copy_of(make_unit(), *METRICS) for _ in range(10)]
    spool = {"spool": {"path": str(tmp_path / "spool.db")}} if has_spool else {}
    serve = {"token_file": str(token_file(tmp_path))}
    sent = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {TOKEN}"}
    lives = list[dict[str, dict[str, int]]]()
    for life in (1, 2):
        with serving(tmp_path, backend.endpoint, serve=serve, **SETTINGS, **spool) as running:
            for copy in copies:
                assert asked(running.http, "/v1/traces", copy, **sent)[0] == 200
            assert backend.wait_for(lambda life=life: len(score_ids(backend)) >= 20 * (1 if has_spool else life), 60)
            lives.append(ended(running))

    assert lives[0] == {metric: {"eligible": 10, "scored": 10} for metric in METRICS}
    assert lives[1] == {metric: {"eligible": 10, again: 10} for metric in METRICS}
    assert len({*score_ids(backend)}) == 20


def called(function: subprocess.Popen[str], runs: int) -> Any:
    """Call the application several times; return its answers."""
    assert function.stdin is not None
    assert function.stdout is not None
    function.stdin.write(f"{runs}\n")
    function.stdin.flush()
    return json.loads(function.stdout.readline())


def test_units_wait_for_a_scorer_that_was_killed(tmp_path: Path, backend: OtlpReceiver) -> None:
    port = free_port()
    with scorer_process(tmp_path, backend, http=f"127.0.0.1:{port}") as running:
        where = at(running, tmp_path, timeout=1.0)
        running.until("scores: ")
        with application(where, **ALL) as (scorer, _):
            run(scorer, 2)
            assert scorer.flush(30)
            assert backend.wait_for(lambda: len(score_ids(backend)) == 4, 60)
            running.process.kill()
            running.process.wait(60)
            run(scorer, 3)
            while_down = scorer.flush(0.5)
            with scorer_process(tmp_path, backend, http=f"127.0.0.1:{port}") as again:
                assert scorer.flush(60)
                there = ended(again)
            here = scorer.status()

    assert not while_down
    for metric in METRICS:
        assert here.outcomes[metric] == {"delegated": 5}
        assert there[metric] == {"eligible": 3, "scored": 3}
    assert len(score_ids(backend)) == len({*score_ids(backend)}) == 10


def test_a_serve_without_a_token_samples_by_itself(tmp_path: Path, backend: OtlpReceiver) -> None:
    settings = {**SETTINGS, "sampling": {"rate": 0.0}}
    with serving(tmp_path, backend.endpoint, **settings) as running:
        token_file(tmp_path)
        with application(at(running, tmp_path), **ALL) as (scorer, _):
            run(scorer, 2)
            assert scorer.flush(30)
        there = ended(running)

    assert there[METRICS[0]] == {"eligible": 2, "not_sampled": 2}
    assert any("copies of units came without a token" in line for line in running.lines)


def test_spans_that_another_library_made_are_handed_over_too(tmp_path: Path, backend: OtlpReceiver) -> None:
    with scorer_process(tmp_path, backend) as running:
        with application(at(running, tmp_path), capture=Capture(enabled=False), **ALL) as (scorer, trace):
            trace.provider.add_span_processor(ScoringSpanProcessor(scorer))
            for _ in range(2):
                emit_a_chat(trace.provider)
            assert scorer.flush(30)
            here = scorer.status()
        there = ended(running)

    assert here.outcomes["faithfulness"] == {"delegated": 2}
    assert there["faithfulness"]["eligible"] == 2


def emit_a_chat(provider: Any) -> None:
    """Make the span of a chat as OpenTelemetry's own instrumentation does."""
    said = [("gen_ai.input.messages", "user", "Who wrote Faust?"), ("gen_ai.output.messages", "assistant", "Goethe")]
    attributes = {
        key: json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}]) for key, role, text in said
    }
    tracer = provider.get_tracer("opentelemetry.instrumentation.openai_v2")
    tracer.start_span("chat m", attributes={"gen_ai.operation.name": "chat", **attributes}).end()
