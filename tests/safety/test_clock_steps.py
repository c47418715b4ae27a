"""The wall clock of the machine is set back or forth while units wait: they wait no longer for it."""

from __future__ import annotations

import subprocess
import sys

STEPPING = """
import threading, time
real, shift = time.time_ns, [0]
time.time_ns = lambda: real() + shift[0]  # before anything has imported it

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.live import QUESTION, Held, rag
from tests.servers.server import poll
from spanscore import OnlineScorer

for step_s in (-3_600, 3_600):
    exporter, provider, go_on = InMemorySpanExporter(), TracerProvider(), threading.Event()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    scorer = OnlineScorer([Held(go_on)], outputs={"hold": 1}, tracer_provider=provider)
    rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
    poll(lambda: scorer.status().hold["parked"], deadline_s=10, what="the root to wait for its scores")
    shift[0] += step_s * 1_000_000_000
    left = lambda: any(span.name.startswith("invoke_workflow") for span in exporter.get_finished_spans())
    poll(left, deadline_s=20, what="the root to leave at the end of its hold")
    rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
    go_on.set()
    assert scorer.flush(20)
    print(step_s, scorer.status().outcomes)
    scorer.shutdown()
"""


def test_a_step_of_the_clock_back_or_forth_lets_nothing_wait_longer_than_its_hold() -> None:
    done = subprocess.run([sys.executable, "-c", STEPPING], capture_output=True, text=True, timeout=90, check=False)

    assert done.stdout == "".join(f"{step_s} {{'held': {{'scored': 2}}}}\n" for step_s in (-3_600, 3_600)), done.stderr
