"""Cost of a unit if many units share one trace id, as in a batch job, compared with units in separate traces.

    python -m benchmarks.one_trace                                # two minutes; no broker

A unit is a model call of 1 kB below the span of the job, which comes last. Requests have 50 spans. ``serve`` gets them as from
its listeners, and ``worker`` as messages of one partition; neither uses a network. A metric with immediate answers scores all
units, or none is scored. Each figure comes from a separate process: the CPU time of all threads from the first request until
every unit has ended, and the growth of the highest resident set.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from spanscore import OnlineScorer
from spanscore.config.reading import read_settings
from spanscore.core.codecs.otlp_request import parse_request
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.service.kafka_topic import Topic

UNITS = (1_000, 2_000, 4_000, 8_000)
SPANS = 50
SAID = '[{"role": "%s", "parts": [{"type": "text", "content": "%s"}]}]'
METRIC = "tests.service.metrics:Answered"


def main() -> None:
    """Print a row for each command, rate and number of units."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=4, metavar=("COMMAND", "RATE", "UNITS", "TRACES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        command, rate, units, traces = arguments.one
        print(json.dumps(_measured(command, float(rate), int(units), int(traces))))
        return
    print("| | units | one trace, µs a unit | traces of their own, µs a unit | one trace, MB | of their own, MB |")
    print("|---|---|---|---|---|---|")
    for command in ("serve", "worker"):
        for rate in ("0", "1"):
            for units in UNITS:
                (one_us, one_mb), (own_us, own_mb) = (_run(command, rate, units, traces) for traces in (1, units))
                what = f"{command}, {'all scored' if rate == '1' else 'none sampled'}"
                print(
                    f"| {what} | {units:,} | {one_us:,.0f} | {own_us:,.0f} | {one_mb:,.0f} | {own_mb:,.0f} |",
                    flush=True,
                )


def _run(command: str, rate: str, units: int, traces: int) -> tuple[float, float]:
    asked = [sys.executable, "-m", "benchmarks.one_trace", "--one", command, rate, str(units), str(traces)]
    us, mb = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    return us, mb


def _measured(command: str, rate: float, units: int, traces: int) -> tuple[float, float]:
    bodies = [*_requests(units, traces)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spanscore.yaml"
        room = {"queue": 2 * units}  # all units close within a second
        asked = {"metrics": [METRIC], "sampling": {"rate": rate}, "units": {"idle_timeout": "300ms"}, "limits": room}
        file.write_text(yaml.safe_dump(asked))
        scorer = OnlineScorer.from_config(file, tracer_provider=TracerProvider(shutdown_on_exit=False))
        spans = receivers_of(scorer).otlp_spans(read_settings(file).settings.units)
    topic = Topic(pipeline_of(scorer), spans, most_bytes=64_000_000, max_open_age_s=600.0)
    if command == "worker":
        topic.begin(0)
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for number, body in enumerate(bodies):
        while topic.pressure():
            time.sleep(0.005)
        if command == "serve":
            spans.accept(parse_request(body))
        else:
            topic.take(0, number, time.time_ns(), body)
    if command == "worker":
        topic.set_clock(0, "reach_end")
    while _ended(scorer) < units:
        topic.settled_offsets()  # as a worker does once a second, which wakes the span thread
        time.sleep(0.1)
    assert scorer.status().outcomes == {"answered": {"scored" if rate else "not_sampled": units}}, scorer.status()
    taken_s, after = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scorer.shutdown(10)
    return taken_s / units * 1e6, (after - before) / 1e3


def _ended(scorer: OnlineScorer) -> int:
    return sum(units for counts in scorer.status().outcomes.values() for units in counts.values())


def _requests(units: int, traces: int) -> Iterator[bytes]:
    jobs = [os.urandom(8) for _ in range(traces)]
    ids = [os.urandom(16) for _ in range(traces)]
    for first in range(0, units, SPANS):
        yield _request([(ids[n % traces], os.urandom(8), jobs[n % traces]) for n in range(first, first + SPANS)])
    for first in range(0, traces, SPANS):
        yield _request([(ids[n], jobs[n], b"") for n in range(first, min(first + SPANS, traces))], is_job=True)


def _request(spans: Sequence[tuple[bytes, bytes, bytes]], *, is_job: bool = False) -> bytes:
    request = ExportTraceServiceRequest()
    of = request.resource_spans.add()
    of.resource.attributes.add(key="service.name").value.string_value = "batch"
    within, now_ns = of.scope_spans.add(), time.time_ns()
    within.scope.name = "job" if is_job else "opentelemetry.instrumentation.openai_v2"
    for trace_id, span_id, parent_id in spans:
        span = within.spans.add(trace_id=trace_id, span_id=span_id, parent_span_id=parent_id, name="chat m")
        span.start_time_unix_nano, span.end_time_unix_nano = now_ns - 1_000_000, now_ns
        if not is_job:
            attributes = {"operation.name": "chat", "input.messages": SAID % ("user", "why " * 120)}
            for name, value in {**attributes, "output.messages": SAID % ("assistant", "so " * 120)}.items():
                span.attributes.add(key=f"gen_ai.{name}").value.string_value = value
    return request.SerializeToString()


if __name__ == "__main__":
    main()
