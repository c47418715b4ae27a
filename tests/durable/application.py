"""An application with units that another process scores: both may have the same ids, run for run."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import IdGenerator, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.live import Trace, rag

from spanscore import OnlineScorer, Rule, judge
from spanscore.config import RemoteScoring, Sampling
from spanscore.metrics import Faithfulness, ResponseGroundedness

TOKEN = "t0ken-planted-remote_scoring"
RATE = 0.3
RULES: list[dict[str, Any]] = [
    {"when": {"metadata": {"tier": "gold"}}, "rate": 0.8, "name": "gold users"},
    {"when": {"status": "error"}, "rate": 1.0, "name": "errors"},
]
METRICS = ["faithfulness", "response_groundedness"]
SETTINGS = {"metrics": METRICS, "judge": {"model": "lexical"}, "sampling": {"rate": RATE, "rules": RULES}}


class SeededIds(IdGenerator):
    """The same ids in the same order for the application's thread, whatever other threads ask for in between."""

    def __init__(self, seed: int) -> None:
        self._thread = threading.get_ident()
        self._own, self._others = random.Random(seed), random.Random()

    def generate_span_id(self) -> int:
        return self._rng().getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._rng().getrandbits(128) or 1

    def _rng(self) -> random.Random:
        return self._own if threading.get_ident() == self._thread else self._others


def token_file(folder: Path) -> Path:
    """Return a file that holds the token."""
    file = folder / "token"
    file.write_text(TOKEN + "\n")
    return file


@contextmanager
def application(
    remote_scoring: RemoteScoring | None, *, seed: int = 23, **options: Any
) -> Iterator[tuple[OnlineScorer, Trace]]:
    """Yield a scorer that captures, and the data that the application's own backend gets."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}), id_generator=SeededIds(seed))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    asked = judge("lexical")
    given: dict[str, Any] = {
        "metrics": [Faithfulness(asked), ResponseGroundedness(asked)],
        "sampling": Sampling(rate=RATE, rules=[Rule(**rule) for rule in RULES]),
        **options,
    }
    scorer = OnlineScorer(**given, remote_scoring=remote_scoring, tracer_provider=provider)
    try:
        yield scorer, Trace(provider, exporter)
    finally:
        scorer.shutdown(1.0)
        provider.shutdown()


def run(scorer: OnlineScorer, runs: int) -> None:
    """Ask the chain so often, each third time for a user of gold."""
    for turn in range(runs):
        tier = "gold" if turn % 3 == 0 else "free"
        config: Any = {"callbacks": [scorer.handler], "metadata": {"tier": tier}}
        rag(f"Paris is the capital of France, asked {turn} times.").invoke(f"Where? ({turn})", config=config)
