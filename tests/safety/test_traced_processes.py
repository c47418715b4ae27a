"""Ends of whole processes that another instrumentation traces: held spans are exported, each once."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest
from tests.safety.host import run
from tests.servers.otlp import OtlpReceiver

pytestmark = pytest.mark.flaky(reruns=2)  # whole processes, on a machine that others may use too

EXIT_S = 5.5
TRACED = """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from spanscore import ScoringSpanProcessor
    from tests.capture.processor import traced
    class Takes(traced.Answered):
        async def measure(self, sample):
            import asyncio
            await asyncio.sleep({seconds})
            return await super().measure(sample)
    provider = TracerProvider()
    scorer = OnlineScorer([Takes()])
    provider.add_span_processor(ScoringSpanProcessor(scorer, BatchSpanProcessor(OTLPSpanExporter())))
    tracer = provider.get_tracer(traced.SCOPE)
    def ask(name="agent"):
        traced.ask(tracer, name)
"""


def ended(code: str, *, seconds: float = 0.0, **more: Any) -> tuple[Any, list[Any]]:
    """Run a program that is traced; return how it went and the spans of its own that arrived."""
    with OtlpReceiver() as collector:
        program = TRACED.format(seconds=seconds) + code
        went = run(program, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, **more)
        return went, [span for span in collector.spans if span.scope != "spanscore"]


def test_what_waits_at_an_exit_goes_out() -> None:
    went, spans = ended("    ask(); ask(); judging(scorer); leaving()", seconds=60)

    assert (went.code, went.err) == (0, "")
    assert Counter(span.name for span in spans) == {"agent": 2, "agent chat 0": 2}
    assert {s.attributes["spanscore.status"] for s in spans if s.name == "agent"} == {"pending"}
    assert went.exit_s < EXIT_S


def test_what_waits_at_a_sigterm_that_the_host_turns_into_an_exit_goes_out() -> None:
    code = """
    def leave(*_):
        leaving()
        sys.exit(7)
    signal.signal(signal.SIGTERM, leave)
    ask(); judging(scorer)
    print("ready")
    time.sleep(20)
    """
    went, spans = ended(code, seconds=60, signal_at=signal.SIGTERM)

    assert (went.code, went.out, went.err) == (7, ["ready", "leaving"], "")
    assert sorted(span.name for span in spans) == ["agent", "agent chat 0"]
    assert went.exit_s < EXIT_S


def test_a_shutdown_under_load_loses_no_span_and_counts_every_unit() -> None:
    code = """
    asked, stop = [], threading.Event()
    def traffic():
        while not stop.wait(0.005):
            ask(); asked.append(1)
    threads = [threading.Thread(target=traffic) for _ in range(4)]
    [t.start() for t in threads]
    time.sleep(0.5)
    scorer.shutdown()
    stop.set()
    [t.join() for t in threads]
    provider.shutdown()
    status = scorer.status()
    assert not any(status.pending.values()), status
    assert sum(status.outcomes["answered"].values()) == status.eligible["answered"]
    print(len(asked))
    leaving()
    """
    went, spans = ended(code)

    assert went.err == ""
    assert Counter(span.name for span in spans) == dict.fromkeys(["agent", "agent chat 0"], int(went.out[0]))
