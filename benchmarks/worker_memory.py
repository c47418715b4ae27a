"""Memory of a worker while it works off a topic with a large backlog.

    python -m benchmarks.worker_memory [--spans 1000000]

Five minutes; needs Kafka (``python -m tests.servers install``). All spans are on the topic before the worker starts, a trace
of ten per message, 2 kB each, so that it reads as fast as it can from the start. 1 % of the units are scored, by a metric that
answers at once. Target: from the first tenth of the spans to the last, the resident set grows by at most 32 MiB.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import yaml
from tests.servers import kafka
from tests.servers.server import free_port, poll

from benchmarks.otlp_load import SPANS_PER_TRACE, Requests
from benchmarks.otlp_servers import COMMAND, ENVIRONMENT, Contestant, sink

GROWTH_MIB = 32
TOPIC, PARTITIONS = "otlp_spans", 4
STEPS = 10
WRITTEN_OVER_S = 3_600.0
"""Time span of the messages' timestamps in s: the clock of a lagging worker follows the log."""


def main() -> int:
    """Fill, work off, print; return 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=1_000_000)
    spans = parser.parse_args().spans
    with tempfile.TemporaryDirectory() as folder, kafka.running(Path(folder)) as broker, sink() as scores:
        broker.create(TOPIC, PARTITIONS)
        _fill(broker.brokers, spans)
        with _worker(Path(folder), broker.brokers, scores.server_port) as worker:
            begun, seen = time.monotonic(), [*_watched(worker, spans)]
            taken = time.monotonic() - begun
            poll(lambda: " 0 messages not settled" in _status(worker), deadline_s=120, what="that all is settled")
    text = " ".join(f"{mib:.0f}" for mib in seen)
    print(
        f"{spans:,} spans, {spans / taken:,.0f} a second, {scores.scores:,} scores; resident MiB after each tenth: {text}"
    )
    grown = max(seen[1:]) - seen[0]
    met = grown <= GROWTH_MIB
    print(
        f"{'met   ' if met else 'MISSED'}  memory grows by {grown:.0f} MiB after the first tenth (at most {GROWTH_MIB})"
    )
    return 0 if met else 1


def _fill(brokers: str, spans: int) -> None:
    """Write the spans with timestamps over ``WRITTEN_OVER_S``, until now."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "compression.type": "lz4", "linger.ms": 50, "log_level": 0})
    requests, messages = iter(Requests(SPANS_PER_TRACE, is_gzip=False)), spans // SPANS_PER_TRACE
    begun_s = time.time() - WRITTEN_OVER_S
    for number in range(messages):
        when_ms = int((begun_s + WRITTEN_OVER_S * number / messages) * 1e3)
        while True:
            try:
                producer.produce(TOPIC, next(requests), key=os.urandom(16).hex(), timestamp=when_ms)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


@contextmanager
def _worker(folder: Path, brokers: str, sink_port: int) -> Iterator[Contestant]:
    page = free_port()
    values = {
        "metrics": ["benchmarks.variants:Instant"],
        "sampling": {"rate": 0.01},
        "kafka": {"brokers": [brokers], "topic": TOPIC},
        "serve_metrics": page,
    }
    (folder / "worker.yaml").write_text(yaml.safe_dump(values))
    environment = {**os.environ, **ENVIRONMENT, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink_port}"}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "worker", str(folder / "worker.yaml")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("metrics on"))
        yield Contestant("worker", page, 0, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        print(process.communicate(timeout=120)[0].rstrip())  # the last lines have the outcomes


def _watched(worker: Contestant, spans: int) -> Iterator[float]:
    """Yield the resident set after each further tenth of the spans was read."""
    for step in range(1, STEPS + 1):
        while _read(worker) < spans * step // STEPS:
            time.sleep(0.2)
        yield worker.resident_mib()


def _read(worker: Contestant) -> int:
    found = re.search(r"([\d,]+) spans?\b", _status(worker))
    return int(found[1].replace(",", "")) if found else 0


def _status(worker: Contestant) -> str:
    with urlopen(f"http://127.0.0.1:{worker.http}/status", timeout=60) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    sys.exit(main())
