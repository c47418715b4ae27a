"""Beginnings and ends of a process: exit without shutdown, the application's own shutdown.

Exits with a dead collector and forks are in ``tests/safety``.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from tests.live import QUESTION, Grounded, a_line, a_trace, rag, run_rag

from spanscore.config import Outputs

pytestmark = pytest.mark.flaky(reruns=2)  # whole processes, on a machine that others may use too

LINE = """
    import sys, time
    from tests.live import QUESTION, Grounded, Slow, a_trace, rag
    from spanscore import OnlineScorer
"""


def run(code, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LINE) + textwrap.dedent(code)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_exit_without_shutdown_exports_what_is_held():
    done = run("""
        import atexit
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
        scorer = OnlineScorer([Slow(30)], tracer_provider=provider)
        print(rag().invoke(QUESTION, config={"callbacks": [scorer.handler]}))
        time.sleep(0.3)
    """)

    assert done.returncode == 0
    assert '"spanscore.status": "pending"' in done.stdout
    assert [line.partition(":")[2][:12] for line in done.stderr.splitlines()] == [" no metrics,"]


def test_a_scorer_that_is_never_used_keeps_no_thread_but_the_one_that_imports():
    done = run("""
        import threading
        scorer = OnlineScorer([Grounded()], tracer_provider=a_trace().provider)
        print([t.name for t in threading.enumerate() if "spanscore" in t.name])
    """)

    assert done.stdout.strip() in ("[]", "['spanscore-warm-up']")
    assert done.stderr == ""


def test_what_is_held_when_the_application_shuts_its_provider_down_is_counted_as_lost():
    trace = a_trace()
    with a_line(Grounded(), trace=trace, outputs=Outputs(hold=5)) as (scorer, _):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        trace.provider.shutdown()
        scorer.flush(5)

        assert scorer.status().hold["lost"] > 0


def test_scorers_share_a_process():
    first, second = a_trace(), a_trace()
    with a_line(trace=first) as (one, _), a_line(trace=second) as (two, _):
        for scorer in (one, two):
            run_rag(scorer)

    assert [r.attributes["spanscore.status"] for r in (*first.roots, *second.roots)] == ["scored", "scored"]
