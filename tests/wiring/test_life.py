"""Beginnings and ends of a process: exit without shutdown, a dead collector, fork, the application's own shutdown."""

import os
import subprocess
import sys
import textwrap

import pytest
from tests.live import QUESTION, Grounded, a_line, a_trace, rag

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


def test_with_a_dead_collector_one_line_is_logged_and_the_exit_is_bounded():
    done = run(
        """
        scorer = OnlineScorer([Grounded()], service_name="app")
        print(rag().invoke(QUESTION, config={"callbacks": [scorer.handler]}))
        began = time.monotonic()
        scorer.shutdown()
        print(time.monotonic() - began < 6)
        """,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
    )

    assert done.stdout.splitlines() == ["Paris is the capital of France.", "True"]
    (line,) = done.stderr.splitlines()
    assert line.startswith("spanscore: nothing can be exported to http://127.0.0.1:9 (connection refused): is")


def test_a_scorer_that_is_never_used_keeps_no_thread_but_the_one_that_imports():
    done = run("""
        import threading
        scorer = OnlineScorer([Grounded()], tracer_provider=a_trace().provider)
        print([t.name for t in threading.enumerate() if "spanscore" in t.name])
    """)

    assert done.stdout.strip() in ("[]", "['spanscore-warm-up']")
    assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_counts_and_exports_its_own_only():
    done = run("""
        import os
        trace = a_trace()
        scorer = OnlineScorer([Grounded()], tracer_provider=trace.provider)
        config = {"callbacks": [scorer.handler]}
        rag().invoke(QUESTION, config=config)
        assert scorer.flush(5)
        rag().invoke(QUESTION, config=config)
        child = os.fork()
        if child == 0:
            before = len(trace.roots)
            for _ in range(3):
                rag().invoke(QUESTION, config=config)
            flushed = scorer.flush(10)
            status = scorer.status()
            ok = flushed and len(trace.roots) - before == 3 and status.outcomes["grounded"] == {"scored": 3}
            ok = ok and status.units == 3
            print("child", ok, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        assert scorer.flush(5)
        print("parent", scorer.status().outcomes["grounded"], len(trace.roots))
    """)

    assert done.stdout.splitlines() == ["child True", "parent {'scored': 2} 2"], done.stderr


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
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
            assert scorer.flush(5)

    assert [r.attributes["spanscore.status"] for r in (*first.roots, *second.roots)] == ["scored", "scored"]
