"""Inside the servers people run: FastAPI with a lifespan, gunicorn with preload, Celery's prefork pool."""

import os
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.live import ANSWER
from tests.safety.host import stop
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port, poll

pytestmark = pytest.mark.flaky(reruns=2)  # whole processes, on a machine that others may use too


@contextmanager
def serving(*command, folder, **environment):
    """Run a server during the block, then end it like a process manager. Yields its output, available after the block."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    printed = []
    with (folder / "server.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], env={**clean, **environment}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield printed
            printed.append(stop(process))
        finally:
            process.kill()
            log.seek(0)
            printed.append(log.read())


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def is_up(url):
    try:
        return bool(get(url))
    except OSError:
        return False


def roots(collector):
    return [span for span in collector.spans if span.name.startswith("invoke_workflow") and span.parent_id == 0]


def test_fastapi_with_a_lifespan(tmp_path):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ["uvicorn", "tests.safety.web:asgi", "--factory", "--port", str(port), "--log-level", "warning"]

    with (
        OtlpReceiver() as collector,
        serving(*command, folder=tmp_path, SCORED="1", OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint) as printed,
    ):
        poll(lambda: is_up(f"{url}/docs"), deadline_s=30, what="the application to answer")
        paths = [f"{url}/{kind}/q{n}" for n in range(15) for kind in ("awaited", "threaded")]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(get, paths))

    assert answers == [f'"{ANSWER}"'] * 30
    assert printed[-1] == ""
    assert {root.attributes["spanscore.status"] for root in roots(collector)} == {"scored"}
    assert len(roots(collector)) == 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="gunicorn forks")
@pytest.mark.parametrize("kind", ["--preload", "--worker-class=gevent"])
def test_gunicorn(kind, tmp_path):
    """The host's own ``asyncio.run`` works too, also on gevent's one thread."""
    pytest.importorskip("gunicorn")
    port = free_port()
    command = ["gunicorn", "tests.safety.web:wsgi()", kind, "-w", "2", "-b", f"127.0.0.1:{port}"]

    with (
        OtlpReceiver() as collector,
        serving(
            *command,
            *("--log-level", "warning", "--max-requests", "10"),
            folder=tmp_path,
            SCORED="1",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        ) as printed,
    ):
        poll(lambda: is_up(f"http://127.0.0.1:{port}/up"), deadline_s=30, what="the application to answer")
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(get, [f"http://127.0.0.1:{port}/q{n}" for n in range(40)]))
        answers += [get(f"http://127.0.0.1:{port}/awaited{n}") for n in range(8)]

    assert {answer.partition(" ")[2] for answer in answers} == {ANSWER}
    if "gevent" not in kind:  # there one worker may take all
        assert len({answer.partition(" ")[0] for answer in answers}) > 1
    assert printed[-1] == ""
    assert len(roots(collector)) == 49
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A folder that is Celery's broker; its application is imported once, and so has one broker only."""
    folder = tmp_path_factory.mktemp("broker")
    for name in ("queue", "done", "control", "results"):
        (folder / name).mkdir()
    return folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="prefork")
@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_celery(pool, broker, monkeypatch):
    pytest.importorskip("celery")
    monkeypatch.setenv("TASKS_FOLDER", str(broker))
    monkeypatch.setenv("SCORED", "0")
    from tests.safety import tasks

    alone, seen = (celery(tasks, broker, pool, scored=scored) for scored in (False, True))

    assert alone[0] == seen[0] == [ANSWER] * 10
    assert alone[1] == seen[1]
    assert "Traceback" not in seen[1]
    assert (len(alone[2]), len(seen[2])) == (0, 10)
    assert {root.attributes["spanscore.status"] for root in seen[2]} <= {"scored", "pending"}


def celery(tasks, folder, pool, *, scored):
    """Run a worker for ten tasks; return their results, its output without times and addresses, and the roots."""
    command = ["celery", "-A", "tests.safety.tasks", "worker", "-P", pool, "-c", "2", "--loglevel", "ERROR"]
    with (
        OtlpReceiver() as collector,
        serving(
            *command,
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            folder=folder,
            SCORED=str(int(scored)),
            TASKS_FOLDER=str(folder),
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        ) as printed,
    ):
        asked = [tasks.answer.delay() for _ in range(10)]
        answers = [result.get(timeout=40) for result in asked]
    return answers, re.sub(r"0x[0-9a-f]+|[\d-]+ \d\d:\d\d:\d\d", "", printed[-1]), roots(collector)
