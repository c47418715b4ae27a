"""``spanscore worker`` as an operator starts and ends it: a process, an application that fills its spool, and a backend."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from tests.live import a_trace
from tests.servers.kafka import Kafka
from tests.servers.otlp import OtlpReceiver, dead_endpoint
from tests.servers.server import free_port, poll
from tests.service.metrics import Answered
from tests.service.process import WITHOUT, Serving, a_run
from tests.service.test_serve import ANSWERED, HANGS, asked, ended_as, stopped
from typer.testing import CliRunner

from spanscore import OnlineScorer, semconv
from spanscore.cli.main import app
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import SourceUnavailable
from spanscore.service.worker import wait_for_disk

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too

Refused = Callable[..., tuple[int, str]]
SAMPLE = SingleTurnSample(user_input="Who wrote Faust?", response="Goethe")


def configured(folder: Path, **settings: Any) -> Path:
    """Write a configuration with a spool that capturing processes fill, and only a worker scores."""
    spool = {"path": str(folder / "spool.db"), "score_here": False}
    file = folder / "spanscore.yaml"
    file.write_text(yaml.safe_dump({"metrics": [ANSWERED], "spool": spool, **settings}))
    return file


def captured(config: Path, units: int = 1) -> dict[str, int]:
    """Be an application with the same configuration; return outcome → units there."""
    with OnlineScorer.from_config(config, tracer_provider=a_trace().provider) as application:
        for _ in range(units):
            application.submit(SAMPLE)
        assert application.flush(30)
        return dict(next(iter(application.status().outcomes.values())))


@contextmanager
def working(config: Path, endpoint: str, *arguments: str, **environment: str) -> Iterator[Serving]:
    """Yield a worker; its page is on a port of its own, as the application would have that of the file."""
    environment = {"SPANSCORE_SERVE_METRICS": str(free_port()), **environment}
    with Serving(config, *arguments, command="worker", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **environment) as running:
        yield running


def evaluations(backend: OtlpReceiver) -> list[Any]:
    return [span for span in backend.spans if span.scope == semconv.SCOPE]


class Ended(NamedTuple):
    """A worker that was stopped, with its answers before.

    Attributes:
        left: outcomes of the application that filled the spool.
        explained: the document of ``/explain`` of one unit.
        status: the text of ``/status``.
        ready: status and text of ``/readyz``.
    """

    running: Serving
    config: Path
    endpoint: str
    left: dict[str, int]
    evaluations: list[Any]
    explained: Any
    status: str
    ready: tuple[int, str]
    code: int


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Have a worker score three units that were left to it and one that is captured while it runs, and stop it.

    The worker finds none of the libraries that ``serve`` needs.
    """
    config = configured(tmp_path_factory.mktemp("worker"))
    left = captured(config, units=3)
    without = {WITHOUT: "uvicorn,httptools,uvloop"}
    with OtlpReceiver() as backend, working(config, backend.endpoint, **without) as running:
        poll(lambda: len(evaluations(backend)) == 3, deadline_s=60, what="that what was left is scored")
        captured(config)
        poll(lambda: len(evaluations(backend)) == 4, deadline_s=60, what="that what was captured then is scored")
        scored = evaluations(backend)
        (explained,) = json.loads(asked(running.page, f"/explain/{scored[-1].trace_id:032x}")[1])
        status, ready = asked(running.page, "/status")[1], asked(running.page, "/readyz")
        code = stopped(running)
    return Ended(running, config, backend.endpoint, left, scored, explained, status, ready, code)


def test_what_is_left_to_it_or_captured_while_it_runs_is_scored_and_a_drain_ends_it_with_0(ended: Ended) -> None:
    assert (ended.left, ended.code) == ({"delegated": 3}, 0)
    assert ended_as(ended.running, "answered") == (4, {"scored": 4})
    assert {span.attributes[semconv.EVALUATION_SCORE_VALUE] for span in ended.evaluations} == {1.0}


def test_it_says_what_it_reads_and_where_scores_go(ended: Ended) -> None:
    assert ended.running.lines[:4] == [
        f"spool: {ended.config.with_name('spool.db')}",
        f"evaluator version: answered {Answered().evaluator_version}",
        "scores: " + "; ".join(f"{it} to {ended.endpoint}/v1/{it}" for it in ("traces", "metrics", "logs")),
        f"metrics on http://{ended.running.page}/metrics, with /status, /explain/TRACE_ID, /healthz and /readyz",
    ]


def test_what_became_of_a_unit_can_be_asked_while_it_runs(ended: Ended) -> None:
    assert ended.explained["metrics"]["answered"]["outcome"] == "scored"
    assert re.search(r"answered .* scored 4", ended.status)
    assert f"evaluator version: answered {Answered().evaluator_version}" in ended.status
    assert ended.ready == (200, "ready\n")


@pytest.mark.server
def test_a_topic_and_a_spool_are_scored_by_one_worker(tmp_path: Path, backend: OtlpReceiver, kafka: Kafka) -> None:
    kafka.create("both", 2)
    config = configured(
        tmp_path, kafka={"brokers": [kafka.brokers], "topic": "both", "group": "both"}, units={"idle_timeout": "100ms"}
    )
    captured(config)
    with working(config, backend.endpoint) as running:
        running.until("^scores: ")
        produced(kafka, "both", a_run())
        poll(lambda: len(evaluations(backend)) == 2, deadline_s=60, what="that both are scored")
        assert stopped(running) == 0

    assert ended_as(running, "answered") == (2, {"scored": 2})
    assert [line.partition(":")[0] for line in running.lines[:2]] == ["spool", "kafka"]


@pytest.mark.server
def test_two_configurations_in_one_group_are_reported_once_with_the_series_of_each(
    tmp_path: Path, backend: OtlpReceiver, kafka: Kafka
) -> None:
    kafka.create("torn", 2)
    for number in range(4):
        produced(kafka, "torn", a_run(f"Who wrote Faust, part {number}?"))
    topic = {"spool": None, "kafka": {"brokers": [kafka.brokers], "topic": "torn", "group": "torn"}}
    evaluator_versions, reported = list[str](), list[str]()
    for number, metric in enumerate((ANSWERED, "tests.service.metrics:Recovered"), 1):
        config = configured(tmp_path, metrics=[metric], units={"idle_timeout": "100ms"}, **topic)
        with working(config, backend.endpoint) as running:
            evaluator_versions.append(running.until("^evaluator version: .*")[0])
            poll(lambda: len(evaluations(backend)) == 4, deadline_s=60, what="that all are scored")
            assert stopped(running) == 0
        reported += [f"{number}: {line}" for line in running.lines if "with other metrics" in line]

    assert len({*evaluator_versions}) == 2
    assert [line.partition(":")[0] for line in reported] == ["2"]


def produced(kafka: Kafka, topic: str, span: Any) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})
    key = f"{span.context.trace_id:032x}"
    producer.produce(topic, encode_spans([span]).SerializeToString(), key=key)
    producer.flush()


def test_while_its_disk_is_away_the_worker_is_not_ready_and_says_why(tmp_path: Path, backend: OtlpReceiver) -> None:
    disk, away = tmp_path / "disk", tmp_path / "away"
    disk.mkdir()
    config = configured(tmp_path, spool={"path": str(disk / "spool.db")})
    with working(config, backend.endpoint) as running:
        poll(lambda: asked(running.page, "/readyz")[0] == 200, deadline_s=60, what="that it is ready")
        disk.rename(away)
        poll(lambda: asked(running.page, "/readyz")[0] == 503, deadline_s=60, what="that it is not ready")
        response = asked(running.page, "/readyz")[1]
        away.rename(disk)
        poll(lambda: asked(running.page, "/readyz")[0] == 200, deadline_s=60, what="that it is ready again")
        assert stopped(running) == 0

    assert f"the spool {disk / 'spool.db'}" in response
    assert [line for line in running.lines if line.startswith("spool: 0 units on the disk")]


def test_while_it_drains_it_is_alive_and_not_ready_and_a_second_signal_ends_it(
    tmp_path: Path, backend: OtlpReceiver
) -> None:
    config = configured(tmp_path, metrics=[HANGS], worker={"drain": "100s"})
    captured(config)
    with working(config, backend.endpoint) as running:
        poll(lambda: "pending 1" in asked(running.page, "/status")[1], deadline_s=60, what="that it is at work")
        running.process.send_signal(signal.SIGTERM)
        running.until("draining: nothing more is read")

        assert asked(running.page, "/readyz") == (503, "draining\n")
        assert asked(running.page, "/healthz")[0] == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == -signal.SIGTERM


def test_what_a_drain_has_no_time_for_another_worker_scores(tmp_path: Path, backend: OtlpReceiver) -> None:
    config = configured(tmp_path, metrics=[HANGS], worker={"drain": "1s"})
    captured(config)
    with working(config, backend.endpoint) as running:
        running.until("^scores: ")
        assert stopped(running) == 0
    # the next one has another build of the metric
    config = configured(tmp_path, metrics=["tests.service.metrics:Recovered"])
    with working(config, backend.endpoint) as running:
        poll(lambda: evaluations(backend), deadline_s=60, what="that it is scored")
        assert stopped(running) == 0

    assert ended_as(running, "hangs") == (1, {"scored": 1})


def test_with_nothing_to_read_it_says_what_to_write_and_the_exit_code_is_2(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "spanscore.yaml").write_text("metrics: [exact_match]")

    code, text = refused("worker", str(tmp_path / "spanscore.yaml"))

    assert code == 2
    assert "spool: {path: " in text
    assert "kafka: {brokers: " in text


def test_a_disk_that_is_not_there_is_named_and_the_exit_code_is_3(tmp_path: Path, refused: Refused) -> None:
    config = configured(tmp_path, spool={"path": str(tmp_path / "gone" / "spool.db")})

    code, text = refused("worker", str(config), "--startup-timeout", "0.1s")

    assert code == 3
    assert f"the folder {tmp_path / 'gone'} is not there, 0.1 s after the start" in text


def test_a_broker_that_is_not_there_is_named_and_the_exit_code_is_3(tmp_path: Path, refused: Refused) -> None:
    broker = dead_endpoint().removeprefix("http://")
    (tmp_path / "spanscore.yaml").write_text(yaml.safe_dump({"metrics": [ANSWERED], "kafka": {"brokers": [broker]}}))

    code, text = refused("worker", str(tmp_path / "spanscore.yaml"), "--startup-timeout", "1s")

    assert code == 3
    assert f"kafka: {broker}: no broker answers, 1 s after the start" in text


def test_a_disk_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    late, waited = tmp_path / "late", list[float]()

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            late.mkdir()

    wait_for_disk(late, 30.0, clock=lambda: sum(waited), pause=pause)

    assert len(waited) == 3


def test_a_disk_that_may_not_be_written_to_is_reported_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere

    with pytest.raises(SourceUnavailable, match="may not be written to, 0 s after the start"):
        wait_for_disk(tmp_path, 0.0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spool": {"path": "spool.db"}}, ["spanscore worker: scores the units in the spool spool.db"]),
        (
            {"kafka": {"brokers": ["127.0.0.1:9092"], "group": "night"}},
            ["spanscore worker: reads the topic otlp_spans of 127.0.0.1:9092 (PLAINTEXT), in the group night"],
        ),
        (
            {"spool": {"path": "spool.db"}, "remote_scoring": {"kafka": {"brokers": ["127.0.0.1:9092"]}}},
            [
                "spanscore worker: scores the units in the spool spool.db",
                "spanscore worker: ignores remote_scoring: this process scores",
            ],
        ),
        ({}, []),
    ],
)
def test_check_says_what_a_worker_would_do(settings: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text(yaml.safe_dump({"metrics": ["exact_match"], **settings}))

    checked = CliRunner().invoke(app("check"), ["check", str(file), "--json"])

    assert (checked.exit_code, json.loads(checked.stdout)["worker"]) == (0, expected)


def test_check_says_that_the_library_of_a_topic_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text(yaml.safe_dump({"metrics": ["exact_match"], "kafka": {"brokers": ["127.0.0.1:9092"]}}))
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)

    checked = CliRunner().invoke(app("check"), ["check", str(file), "--ready", "--json"])

    assert checked.exit_code == 3
    assert "spanscore[kafka]" in checked.stdout
