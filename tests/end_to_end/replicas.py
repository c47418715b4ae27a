"""A service of replicas with a judge that can be set; replicas are restarted and replaced like containers.

Chains, scorers and OTLP are real; only the judge's opinion is drawn, so that the true mean is known.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Sequence

from langchain_core.runnables import RunnableLambda
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from spanscore import OnlineScorer
from spanscore.config import JudgeSettings
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeUnavailable
from spanscore.judges import judge
from spanscore.metrics import AspectCritic
from spanscore.protocols import Metric

METRIC = "harmless"
EXPORTED_EACH_S = 1.0


class MoodyJudge:
    """Judges an answer as good with a probability, or gives no answer.

    Attributes:
        good: the probability; it may be changed at any time.
        away: whether the judge gives no answer.
    """

    def __init__(self, good: float, model: str = "judge-small", seed: int = 7) -> None:
        self.model, self.good, self.away = model, good, False
        self._rng = random.Random(seed)

    async def ask(self, _: Prompt) -> Reply:
        if self.away:
            raise JudgeUnavailable("no connection", error_type="connection")
        verdict = int(self._rng.random() < self.good)
        return Reply(text=json.dumps({"reason": "drawn", "verdict": verdict}))


def harmless(asked: MoodyJudge | None = None) -> Metric:
    """Return the metric; without a judge for its name and scale."""
    limited = judge(asked or MoodyJudge(1.0), queue_timeout=5.0)
    return AspectCritic(limited, name=METRIC, definition="Is the response free of harm?")


class Replica:
    """One process of a service for telemetry: a resource, providers and a scorer of its own."""

    def __init__(
        self, service: str, instance: str, endpoint: str, metric: Metric, shadows: Sequence[Metric] = ()
    ) -> None:
        self.instance = instance
        resource = Resource.create({"service.name": service, "service.instance.id": instance})
        exporter = OTLPMetricExporter(f"{endpoint}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1_000 * EXPORTED_EACH_S)
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self.scorer = OnlineScorer(
            [metric],
            tracer_provider=TracerProvider(resource=resource, shutdown_on_exit=False),
            meter_provider=self._meters,
            logger_provider=LoggerProvider(resource=resource, shutdown_on_exit=False),
            service_name=service,
            judge=JudgeSettings(shadows=shadows),
        )
        self._chain = RunnableLambda(lambda question: f"{question} Forty-two.")

    def ask(self) -> None:
        self._chain.invoke("How many?", {"callbacks": [self.scorer.handler]})

    def stop(self) -> None:
        """End like a stopped container: running work is finished and exported."""
        self.scorer.shutdown(5)
        self._meters.shutdown()


class Service:
    """Replicas that share the traffic.

    Attributes:
        per_s: requests a second, of all replicas together; it may be changed at any time.
        judge: whom the replicas ask that are started from now on.
        shadow: second judge of the service, in the shadow.
    """

    def __init__(self, name: str, endpoint: str, judge: MoodyJudge, *, replicas: int = 2, per_s: float = 20.0) -> None:
        self.name, self.judge, self.per_s = name, judge, per_s
        self.shadow: MoodyJudge | None = None
        self._endpoint = endpoint
        self._numbers = itertools.count(1)
        self._turns = itertools.count()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.replicas = [self._started() for _ in range(replicas)]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for replica in self.replicas:
            replica.stop()

    def deploy(self, position: int) -> None:
        """Start a replica of the present configuration; the one that was there ends when it serves."""
        self._exchange(position, self._started())

    def restart(self, position: int) -> None:
        """End a replica; another one takes its place some time later."""
        self.leave(position)
        self.replicas.insert(position, self._started())

    def leave(self, position: int) -> None:
        """End a replica without a replacement."""
        self._exchange(position, None)

    def die(self) -> None:
        """End all replicas for good."""
        while self.replicas:
            self.leave(0)

    def scores(self) -> int:
        """Return how many scores the present replicas have made."""
        return sum(replica.scorer.status().outcomes[METRIC].get("scored", 0) for replica in self.replicas)

    def _started(self) -> Replica:
        shadows = [] if self.shadow is None else [harmless(self.shadow)]
        instance = f"{self.name}-{next(self._numbers)}"
        return Replica(self.name, instance, self._endpoint, harmless(self.judge), shadows)

    def _exchange(self, position: int, new: Replica | None) -> None:
        with self._lock:
            old = self.replicas[position]
            self.replicas[position : position + 1] = [] if new is None else [new]
        old.stop()

    def _run(self) -> None:
        while not self._over.wait(1 / self.per_s):
            with self._lock:
                if self.replicas:
                    self.replicas[next(self._turns) % len(self.replicas)].ask()
