"""Speed of one worker of a topic, compared with a consumer that only decodes: messages a second.

    python -m benchmarks.worker --markdown benchmarks/worker.md           # 15 minutes; --rounds 2 for a look

It uses a real broker on the same machine. Each message is a trace of ten spans, 20 kB; messages are as far apart as from an
application with a hundred requests a second. Each variant is a separate process that reads the backlog as a new group. The
variants take turns in random order, and are compared within a turn. The clock runs from the first message until all messages
are
processed: for a worker, until the unit of each has ended. A shorter interval would mislead, because scoring comes last: of
30,000 messages at 5 % nearly all scores come after the other units have ended. For two processes the clock starts when both
have partitions, because one has all of them until the other has joined. Exits with 1 if any variant misses the target.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from confluent_kafka import Consumer, Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from tests.servers import kafka

from benchmarks.otlp_load import SPANS_PER_TRACE, Requests
from spanscore import OnlineScorer
from spanscore.config.reading import read_settings
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.service.confluent_kafka_member import PREFETCH
from spanscore.service.kafka_source import KafkaSource
from spanscore.service.lifetime import spare_collections

__all__ = ["main"]

SEED = 23
MESSAGES, PARTITIONS = 120_000, 4
APART_MS = 10
TOPIC = "otlp_spans"
METRIC = "tests.service.metrics:Answered"
"""A metric that is computed at once, because a judge's time is not the worker's."""
DECODES, READS = "decodes", "reads"
VARIANTS = {
    DECODES: "decodes only",
    "again": "decodes only, repeated (A/A: the noise)",
    READS: "reads: decodes, and reads ids, name, times and attributes of each span",
    "0": "worker, nothing sampled",
    "0.01": "worker, 1 % scored",
    "0.05": "worker, 5 % scored",
    "1": "worker, all scored",
    "2 x 0": "two processes of one group, nothing sampled",
    "2 x 0.01": "two processes of one group, 1 % scored",
    "2 x 0.05": "two processes of one group, 5 % scored",
}
READ = {"1": 0.05, "2 x 0": 1, "2 x 0.01": 1, "2 x 0.05": 1}
"""Share of the messages that a variant reads, if it is not a quarter: all for two processes, few if all are scored."""
TARGET = 0.3
"""Target: messages a second as a share of those of the consumer that only decodes."""
AT_MOST_SOME_SCORED = ("0", "0.01", "0.05", "2 x 0", "2 x 0.01", "2 x 0.05")
"""Variants with this target: at 1 % as in `benchmarks.serve`, and on both sides of it."""
INTRODUCTION = f"""\
# Speed of one worker of a topic

This page compares `spanscore worker` on a Kafka topic with a consumer that only decodes the
messages. Use the page to estimate the number of processes for your traffic. The command that writes the page is
`python -m benchmarks.worker --markdown benchmarks/worker.md`.

The topic holds {{messages:,}} messages in {PARTITIONS} partitions. Each message is a trace of {SPANS_PER_TRACE} spans (20 kB).
One process reads a quarter of the messages, or a twentieth if all are scored. Two processes together read all of them. The
metric is computed in the process, without a judge. Kafka {{version}} runs on the same machine.

Each of {{rounds}} rounds measures every variant once, and the table shows medians. A ratio compares two variants of one round;
its 95 % interval (bootstrap) is in parentheses. A process has one GIL, and `--processes 2` starts two processes. The machine
has {{cores}} cores, and its load was {{load:.0f}}. If other programs use the cores, the CPU time is more reliable than the
messages per second.
"""
REMARK = f"""
The target is at least {TARGET} × the messages per second of *decodes only*, for variants that score at most 5 %. The decoder of
protobuf is written in C, and creates no Python values for unread fields. The consumer *reads* creates these values. A worker
does not decode the spans of unsampled units."""
LOOK_S = 0.02
STILL_S = 2.0
"""Seconds without a further ended unit after which several processes are done."""
_MET = {True: "met", False: "missed"}


class Run(NamedTuple):
    """The result of one turn of a variant: messages a second, and CPU time per message in µs, of all threads."""

    per_s: float
    cpu_us: float


class NoExporter(SpanExporter):
    """Accepts spans, and keeps none."""

    def export(self, spans: Sequence[object]) -> SpanExportResult:
        """Accept the spans."""
        return SpanExportResult.SUCCESS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--one", nargs=4, metavar=("VARIANT", "BROKERS", "GROUP", "MESSAGES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(_one(*arguments.one)))
        return
    runs = _measured(arguments.rounds, arguments.messages)
    page = "\n".join(_page(runs, arguments.rounds, arguments.messages))
    print(page)
    if arguments.markdown:
        arguments.markdown.write_text(page + "\n")
    sys.exit(0 if all(_are_met(runs).values()) else 1)


def _measured(rounds: int, messages: int) -> dict[str, list[Run]]:
    rng, runs = random.Random(SEED), dict[str, list[Run]]()
    with tempfile.TemporaryDirectory() as folder, kafka.running(Path(folder)) as broker:
        broker.create(TOPIC, PARTITIONS)
        _fill(broker.brokers, messages)
        for turn in range(-1, rounds):  # the first is not counted: after it the broker reads from memory
            for name in rng.sample(sorted(VARIANTS), len(VARIANTS)):
                asked = [name, broker.brokers, f"{name}-{turn}", str(int(messages * READ.get(name, 0.25)))]
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.worker", "--one", *asked], check=True, stdout=subprocess.PIPE
                )
                if turn >= 0:
                    runs.setdefault(name, []).append(Run(*json.loads(done.stdout)))
    return runs


def _fill(brokers: str, messages: int) -> None:
    producer = Producer({"bootstrap.servers": brokers, "partitioner": "fnv1a", "log_level": 0})
    first_ms = int(time.time() * 1e3) - messages * APART_MS
    for number, body in enumerate(islice(Requests(SPANS_PER_TRACE, is_gzip=False), messages)):
        trace_id = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans[0].trace_id
        producer.produce(TOPIC, body, trace_id.hex(), timestamp=first_ms + number * APART_MS)
        producer.poll(0)
    assert producer.flush(60) == 0


def _one(variant: str, brokers: str, group: str, result: str) -> Run:
    messages = int(result)
    if variant in {DECODES, "again", READS}:
        return _timed(_decoded(brokers, group, _values if variant == READS else _nothing), messages)
    with tempfile.TemporaryDirectory() as folder:
        number, _, rate = variant.rpartition(" x ")
        if number:
            return _together(int(number), Path(folder), brokers, group, float(rate))
        return _timed(_scored(Path(folder), brokers, group, float(variant)), messages)


def _timed(look: Iterator[tuple[int, int]], messages: int) -> Run:
    """Return the rate of all messages; ``look`` yields the numbers of read and of finished messages at intervals."""
    before, _ = next(looked for looked in look if looked[0])
    since_s, cpu_s = time.perf_counter(), time.process_time()
    _, after = next(looked for looked in look if looked[1] >= messages)
    number = after - before
    return Run(number / (time.perf_counter() - since_s), (time.process_time() - cpu_s) / number * 1e6)


def _together(number: int, folder: Path, brokers: str, group: str, rate: float) -> Run:
    """Return the rate of processes of one group, from the start of the last until all are done."""
    spawn = multiprocessing.get_context("spawn")
    shared = spawn.Array("d", 3 * number, lock=False)
    for place in range(number):
        spawn.Process(target=_tell, args=(shared, place, folder, brokers, group, rate), daemon=True).start()
    looks = list[tuple[float, list[float]]]()
    while not looks or _are_at_work(looks):
        time.sleep(LOOK_S)
        look = time.perf_counter(), list(shared)
        if looks or all(look[1][1::3]):
            looks.append(look)
    end_s = looks[-1][0] - STILL_S
    (first_s, first), (last_s, last) = looks[0], next(look for look in reversed(looks) if look[0] <= end_s)
    done, cpu_s = (sum(last[column::3]) - sum(first[column::3]) for column in (1, 2))
    return Run(done / (last_s - first_s), cpu_s / done * 1e6)


def _tell(shared: Any, place: int, folder: Path, brokers: str, group: str, rate: float) -> None:
    (own := folder / str(place)).mkdir()
    for read, done in _scored(own, brokers, group, rate):
        shared[3 * place : 3 * place + 3] = read, done, time.process_time()


def _are_at_work(looks: Sequence[tuple[float, list[float]]]) -> bool:
    now_s, now = looks[-1]
    before = next((look for at_s, look in reversed(looks) if at_s <= now_s - STILL_S), None)
    return before is None or any(done > then for done, then in zip(now[1::3], before[1::3], strict=True))


def _nothing(_: ExportTraceServiceRequest) -> None: ...


def _values(request: ExportTraceServiceRequest) -> None:
    for of_resource in request.resource_spans:
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                _ = span.trace_id, span.span_id, span.parent_span_id, span.name
                _ = span.start_time_unix_nano, span.end_time_unix_nano
                _ = {pair.key: pair.value.string_value for pair in span.attributes}


def _decoded(brokers: str, group: str, use: Callable[[ExportTraceServiceRequest], None]) -> Iterator[tuple[int, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **PREFETCH,  # otherwise it pauses after a full queue: README.md has the figures
        }
    )
    consumer.subscribe([TOPIC])
    done = 0
    while True:
        for message in consumer.consume(500, 1.0):
            use(ExportTraceServiceRequest.FromString(message.value() or b""))
            done += 1
        yield done, done


def _scored(folder: Path, brokers: str, group: str, rate: float) -> Iterator[tuple[int, int]]:
    (file := folder / "spanscore.yaml").write_text(
        yaml.safe_dump(
            {
                "metrics": [METRIC],
                "sampling": {"rate": rate},
                "units": {
                    "idle_timeout": "200ms"
                },  # units end soon after they are read, so that counted units are finished
                "kafka": {"brokers": [brokers], "topic": TOPIC, "group": group},
            }
        )
    )
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(NoExporter()))
    scorer = OnlineScorer.from_config(file, tracer_provider=provider)
    settings = read_settings(file).settings
    KafkaSource(scorer, settings).start(30.0)
    spare_collections()  # as `spanscore worker` does
    counts = receivers_of(scorer).otlp_spans(settings.units).counts
    ledger = pipeline_of(scorer).ledger
    while True:
        time.sleep(LOOK_S)
        yield counts.requests, sum(ledger.count_units().outcomes.values())


def _ratios(runs: dict[str, list[Run]], name: str, to: str = DECODES) -> list[float]:
    return [one.per_s / bare.per_s for one, bare in zip(runs[name], runs[to], strict=True)]


def _between(ratios: list[float]) -> str:
    rng = random.Random(SEED)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2_000))
    return f"{statistics.median(ratios):.2f} ({medians[50]:.2f}–{medians[-51]:.2f})"


def _page(runs: dict[str, list[Run]], rounds: int, messages: int) -> Iterator[str]:
    yield INTRODUCTION.format(
        messages=messages, rounds=rounds, version=kafka.VERSION, cores=os.cpu_count(), load=os.getloadavg()[1]
    )
    columns = "variant", "messages/s", "ratio to *decodes only*", "ratio to *reads*", "CPU per message, µs", "target"
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|"
    are_met = _are_met(runs)
    for name, text in VARIANTS.items():
        per_s, cpu_us = (statistics.median(column) for column in zip(*runs[name], strict=True))
        ratios = " | ".join(_between(_ratios(runs, name, to)) for to in (DECODES, READS))
        met = _MET[are_met[name]] if name in are_met else "–"
        yield f"| {text} | {per_s:,.0f} | {ratios} | {cpu_us:,.0f} | {met} |"
    yield REMARK


def _are_met(runs: dict[str, list[Run]]) -> dict[str, bool]:
    return {name: statistics.median(_ratios(runs, name)) >= TARGET for name in AT_MOST_SOME_SCORED}


if __name__ == "__main__":
    main()
