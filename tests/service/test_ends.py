"""Ends of ``serve`` that leave no time: each unit that was answered 200 is accounted for."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from tests.live import Grounded, a_trace
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.service.process import Serving, a_run, send, serving

from spanscore import OnlineScorer, semconv
from spanscore.capture.otlp import spans as otlp_spans
from spanscore.config.serving import ServeSettings
from spanscore.config.units import Units
from spanscore.service.otlp_endpoint import TRACES, ExportRequest
from spanscore.service.run import handler_of

pytestmark = pytest.mark.timeout(300)  # processes that import much, on a machine that others use too

ANSWERED, HANGS, RECOVERED = (f"tests.service.metrics:{name}" for name in ("Answered", "Hangs", "Recovered"))
UNITS = 300


@pytest.mark.parametrize("quiet", [0.0, 100.0], ids=["read as they come", "open at the end"])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_units_that_are_not_read_when_a_drain_ends_are_shut_down(
    quiet: float, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = otlp_spans.units_of

    def read_slowly(*arguments: Any) -> Any:
        time.sleep(0.01)
        return read(*arguments)

    monkeypatch.setattr(otlp_spans, "units_of", read_slowly)
    scorer = OnlineScorer([Grounded()], sample_rate=rate, tracer_provider=a_trace().provider)
    handler, _ = handler_of(scorer, ServeSettings(), Units(idle_timeout=quiet))
    bodies = [encode_spans([a_run()]).SerializeToString() for _ in range(UNITS)]
    assert {handler.answer(ExportRequest(TRACES, body)).status for body in bodies} == {200}

    whole = scorer.shutdown(0.3)

    status = scorer.status()
    (outcomes,) = status.outcomes.values()
    assert (whole, {*status.eligible.values()}, sum(outcomes.values())) == (False, {UNITS}, UNITS)
    assert outcomes["shutdown"] > 0
    time.sleep(0.5)  # a thread that is late counts nothing once more
    assert (scorer.status().eligible, scorer.status().outcomes) == (status.eligible, status.outcomes)


def killed(running: Serving) -> None:
    running.process.kill()
    running.process.wait(60)


def times_scored(backend: OtlpReceiver) -> Counter[int]:
    """Return trace id → evaluation spans that came."""
    return Counter(span.trace_id for span in backend.spans if span.scope == semconv.SCOPE)


def test_a_process_that_is_killed_leaves_its_units_in_the_spool(tmp_path: Path, backend: OtlpReceiver) -> None:
    settings = {"spool": {"path": str(tmp_path / "spool.db")}, "units": {"idle_timeout": 0}}
    runs = [a_run() for _ in range(20)]
    with serving(tmp_path, backend.endpoint, metrics=[HANGS], **settings) as running:
        taken = [send(running, run) for run in runs]
        killed(running)

    with serving(tmp_path, backend.endpoint, metrics=[RECOVERED], **settings):
        poll(lambda: len(times_scored(backend)) >= len(runs), deadline_s=60, what="every unit to be scored")

    assert {*taken} == {True}
    assert times_scored(backend) == dict.fromkeys((run.context.trace_id for run in runs), 1)


def test_a_process_that_is_killed_without_a_spool_is_followed_by_one_that_begins_anew(
    tmp_path: Path, backend: OtlpReceiver
) -> None:
    """Acknowledged and unscored units are lost with the memory; a spool would keep them."""
    first, second = a_run(), a_run()
    with serving(tmp_path, backend.endpoint, metrics=[ANSWERED]) as running:
        assert send(running, first)
        poll(lambda: len(times_scored(backend)) == 1, deadline_s=60, what="the first unit to be scored")
        taken = [send(running, a_run()) for _ in range(20)]
        address = running.http
        killed(running)

    with serving(tmp_path, backend.endpoint, metrics=[ANSWERED], serve={"http": address}) as running:
        assert send(running, second)
        poll(lambda: second.context.trace_id in times_scored(backend), deadline_s=60, what="the second one")

    assert {*taken} == {True}
    assert {*times_scored(backend).values()} == {1}
