"""Long-lasting faults: a broker that is down, a storm of rebalances, a judge that refuses; each for any time.

The tests of this folder play them for seconds, ``benchmarks/topic.py`` for as long as they last out there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

from confluent_kafka import Producer
from tests.kafka.applications import committed, send, traces
from tests.kafka.worker import Worker, configured, working
from tests.servers.kafka import Kafka
from tests.servers.openai_api import OpenAIServer, judged
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.service.process import Serving

__all__ = ["CRITIC", "Came", "Held", "Load", "broker_away", "judge_away", "limited", "most_within", "storm"]

CRITIC = {"aspect_critic": {"name": "polite", "definition": "Is the answer polite?"}}
"""Asks the judge once a unit."""
_WITHIN_S = 120.0


class Load:
    """An application that writes traces, one a message, at a pace; until it is ended."""

    def __init__(self, kafka: Kafka, topic: str, *, per_s: float, most: int) -> None:
        self._messages = traces(most)
        self._producer = Producer({"bootstrap.servers": kafka.brokers, "partitioner": "fnv1a", "log_level": 0})
        self._topic, self._pause_s = topic, 1 / per_s
        self._over = Event()
        self._thread = Thread(target=self._write, daemon=True)
        self.sent: list[str] = []

    def _write(self) -> None:
        for message in self._messages:
            if self._over.wait(self._pause_s):
                return
            self._producer.produce(self._topic, message.body, message.trace)
            self._producer.poll(0)
            self.sent.append(message.trace)

    def end(self) -> None:
        """Write no more; return when all is on the topic."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(_WITHIN_S) == 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()


class Came(NamedTuple):
    """The results of a scene.

    Attributes:
        sent: traces that were written.
        scored: traces by their scores, as they were emitted.
        outcomes: of each worker.
        unequal: workers in which eligible is not the sum of outcomes.
        dropped: open traces that were left to other workers.
    """

    sent: Sequence[str]
    scored: Sequence[str]
    outcomes: Sequence[dict[str, int]]
    unequal: int
    dropped: int

    @property
    def lost(self) -> set[str]:
        """Traces without a score."""
        return {*self.sent} - {*self.scored}

    @property
    def twice(self) -> int:
        """Scores that were emitted again, by the same id."""
        return len(self.scored) - len({*self.scored})


def broker_away(kafka: Kafka, folder: Path, *, for_s: float, per_s: float = 40.0) -> Came:
    """Stop the broker while it is written to and read from, and start it again."""
    topic = _created(kafka, "away", 4)
    with working(configured(folder, kafka, topic)) as worker:
        with Load(kafka, topic, per_s=per_s, most=int(per_s * (for_s + _WITHIN_S))) as load:
            worker.until(lambda: len(worker.scored) > per_s, "scores")
            kafka.stop()
            worker.until(lambda: "no broker" in worker.source.unready(), "it to notice", _WITHIN_S)
            Event().wait(for_s)
            kafka.start()
            behind = len(load.sent)
            worker.until(lambda: len({*worker.scored}) > behind, "what was written meanwhile", _WITHIN_S)
            load.end()
        _until_committed(kafka, topic, 4, len(load.sent))
    return _came(load, [worker])


def storm(kafka: Kafka, folder: Path, *, members: int, every_s: float, per_s: float = 40.0) -> Came:
    """Have a member join every so often while the topic is written to and read from."""
    topic = _created(kafka, "storm", 12)
    file = configured(folder, kafka, topic)
    workers = [Worker(file)]
    try:
        workers[0].source.start(30)
        with Load(kafka, topic, per_s=per_s, most=int(per_s * (members * every_s + _WITHIN_S))) as load:
            for _ in range(members):
                workers.append(Worker(file))
                Thread(target=workers[-1].source.start, args=(30.0,), daemon=True).start()
                Event().wait(every_s)
            workers[0].until(
                lambda: sum(len(one.source.state().partitions) for one in workers) == 12, "calm", _WITHIN_S
            )
            load.end()
        _until_committed(kafka, topic, 12, len(load.sent))
    finally:
        with ThreadPoolExecutor(len(workers)) as ending:
            list(ending.map(Worker.end, workers))
    return _came(load, workers)


class Held(NamedTuple):
    """Measurements while a judge refused: unsettled messages at the start and at the end, read messages, resident bytes."""

    lag: Sequence[int]
    read: Sequence[int]
    resident: Sequence[int]


def judge_away(
    kafka: Kafka, folder: Path, *, for_s: float, max_wait_s: float, per_s: float, queue: int
) -> tuple[Came, Held]:
    """Have the judge answer 429 for less than ``judge.queue_timeout``, which is longer than a metric may work."""
    topic = _created(kafka, "held", 2)
    refuses, seen = Event(), Held([], [], [])
    refuses.set()
    with OpenAIServer(lambda body: (429, {}) if refuses.is_set() else judged(body)) as model:
        judge = {"model": "openai:gpt-x", "base_url": model.url, "queue_timeout": f"{max_wait_s:g}s"}
        limits = {"queue_size": queue, "timeout": f"{for_s * 180 / 480:g}s"}  # the default of eight minutes
        with working(configured(folder, kafka, topic, metrics=[CRITIC], judge=judge, limits=limits)) as worker:
            with Load(kafka, topic, per_s=per_s, most=int(per_s * (for_s + _WITHIN_S))) as load:
                worker.until(lambda: worker.source.pressure, "pressure", _WITHIN_S)
                until = monotonic() + for_s
                while monotonic() < until:
                    seen.lag.append(worker.source.state().lag)
                    seen.read.append(worker.scorer.status().received.requests)
                    seen.resident.append(_resident())
                    Event().wait(for_s / 20)
                refuses.clear()
                load.end()
            worker.until(lambda: sum(worker.outcomes.values()) == len(load.sent), "scores", for_s + _WITHIN_S)
            _until_committed(kafka, topic, 2, len(load.sent))
    return _came(load, [worker]), seen


def limited(kafka: Kafka, folder: Path, *, per_s: float, for_s: float) -> Sequence[float]:
    """Let three workers share a judge's limit, kill one, add one; return the times of the questions, ascending.

    There is more to be asked about than the limit lets through, from the first moment on.
    """
    topic = _created(kafka, "limited", 12)
    asked_s = list[float]()

    def answer(body: dict[str, Any]) -> str:
        asked_s.append(monotonic())
        return judged(body)

    def until(share: float) -> None:
        poll(lambda: len(asked_s) >= share * per_s * for_s, deadline_s=_WITHIN_S + 2 * for_s, what="judge calls")

    with OpenAIServer(answer) as model, OtlpReceiver() as backend, ExitStack() as stack:
        judge = {"model": "openai:gpt-x", "base_url": model.url, "requests_per_minute": per_s * 60}
        file = configured(folder, kafka, topic, metrics=[CRITIC], judge=judge)

        def begin() -> Serving:
            return stack.enter_context(
                Serving(file, command="worker", OTEL_EXPORTER_OTLP_ENDPOINT=backend.endpoint, OPENAI_API_KEY="none")
            )

        workers = [begin() for _ in range(3)]
        for worker in workers:
            worker.until("kafka: topic limited")
        send(kafka, topic, traces(int(2 * per_s * for_s)))
        until(0.25)
        workers[0].process.kill()
        until(0.5)
        added = begin()
        until(1.0)
        added.until("kafka: topic limited")
    return sorted(asked_s)


def most_within(times_s: Sequence[float], window_s: float) -> int:
    """Return the largest number of ascending times within any window of that length."""
    most = first = 0
    for last, until_s in enumerate(times_s):
        while times_s[first] <= until_s - window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def _came(load: Load, workers: Sequence[Worker]) -> Came:
    outcomes = [worker.outcomes for worker in workers]
    return Came(
        load.sent,
        [*chain.from_iterable(worker.scored for worker in workers)],
        outcomes,
        sum(worker.eligible != sum(counts.values()) for worker, counts in zip(workers, outcomes, strict=True)),
        sum(worker.source.state().dropped for worker in workers),
    )


def _until_committed(kafka: Kafka, topic: str, partitions: int, messages: int) -> None:
    asked: Callable[[], bool] = lambda: committed(kafka, topic, partitions, f"{topic}-workers") == messages  # noqa: E731
    poll(asked, deadline_s=_WITHIN_S, what=f"{messages:,} commits")


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4_096


def _created(kafka: Kafka, scene: str, partitions: int) -> str:
    """Return a topic of a scene that is played now: it may be played again."""
    topic = f"{scene}-{uuid4().hex[:8]}"
    kafka.create(topic, partitions)
    return topic
