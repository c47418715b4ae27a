"""The five programs, scored in one of three ways, in a process of its own: an instrumentation is for ever.

    python -m tests.entry_points.application openinference [served]

With ``served`` its spans are sent to a scorer that gets no other data from the application. Prints one JSON object: the samples
of each program's requests, their scores and ids, and the units that a metric with rate 0.5 sampled of many requests.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.applications.application import Judged, Witness, seen_of
from tests.entry_points.ways import OURS, InOrder, Instrumented, scored_roots, served
from tests.live import Trace
from tests.servers.openai_api import OpenAIServer
from tests.traces.langchain_app import PROGRAMS, chain, model_at
from tests.traces.said import answer

from spanscore import OnlineScorer, semconv
from spanscore.config import Capture, Outputs
from spanscore.metrics import Faithfulness, ResponseRelevancy
from spanscore.testing import MemorySink

MANY = 40
Scored = Callable[..., AbstractContextManager[tuple[OnlineScorer, Trace]]]
"""Metrics and options → a scorer that is attached inside the block, and its exports."""


def main(way: str, place: str = "scored") -> None:
    ids, scored = _ours(place) if way == OURS else _theirs(way, place)
    with OpenAIServer(answer) as server:
        model = model_at(server.url)
        programs = {name: partial(program, model, {}) for name, program in PROGRAMS.items()}
        seen = {name: seen_of_program(scored, run) for name, run in programs.items()}
        ids.start_over()
        taken = _taken_at_half(scored, lambda: [chain(model, {}) for _ in range(MANY)])
    print(json.dumps({"seen": seen, "taken": taken}))


def _theirs(way: str, place: str) -> tuple[InOrder, Scored]:
    instrumented = Instrumented(way)
    return instrumented.ids, getattr(instrumented, place)


def _ours(place: str) -> tuple[InOrder, Scored]:
    ids = InOrder()

    @contextmanager
    def scored(*metrics: Any, **options: Any) -> Iterator[tuple[OnlineScorer, Trace]]:
        exporter, provider = InMemorySpanExporter(), TracerProvider(id_generator=ids)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with OnlineScorer(list(metrics), tracer_provider=provider, **options) as scorer:
            scorer.install()
            yield scorer, Trace(provider, exporter)

    @contextmanager
    def sent(*metrics: Any, **options: Any) -> Iterator[tuple[OnlineScorer, Trace]]:
        events_alone = Outputs(span=False, evaluation_span=False, instruments=False)
        captured = {"sample_rate": 0.0, "outputs": events_alone, "capture": Capture(content=True)}
        with (
            scored(Witness("single_turn"), **captured) as (capturing, trace),
            served(trace.exporter, capturing.flush, *metrics, **options) as both,
        ):
            yield both

    return ids, scored if place == "scored" else sent


def seen_of_program(scored: Scored, run: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the samples and scores of each request of a program, in the order of their start."""
    sink, witnesses = MemorySink(), (Witness("single_turn"), Witness("multi_turn"))
    judges = Faithfulness("lexical"), ResponseRelevancy("lexical", embeddings="lexical")
    with scored(*witnesses, *judges, outputs=Outputs(sinks=[sink])) as (scorer, trace):
        run()
        assert scorer.flush(20)
        seen = seen_of(scored_roots(trace), sink, witnesses, scorer.status().reasons)
    ids = defaultdict[int, dict[str, str | None]](dict)
    for unit, scores in sink.emitted:
        ids[unit.key.span_id] |= {score.metric: score.id for score in scores}
    return [
        {
            **_written(one),
            **{judge.name: _score(root, judge.name) for judge in judges},
            "ids": ids[root.context.span_id],
        }
        for one, root in zip(seen, scored_roots(trace), strict=True)
    ]


def _taken_at_half(scored: Scored, run: Callable[[], object]) -> list[int]:
    """Return which requests, counted from 1, were taken by a metric that takes half of them."""
    with scored(Witness("single_turn"), sample_rate=0.5) as (scorer, trace):
        run()
        assert scorer.flush(20)
    return sorted(
        {root.context.trace_id >> 64 for root in scored_roots(trace) if _score(root, "single_turn") is not None}
    )


def _written(seen: Judged) -> dict[str, Any]:
    samples = {"single": seen.single_turn, "multi": seen.multi_turn}
    return {
        "outcome": seen.outcome,
        "reason": seen.reason,
        **{kind: None if sample is None else sample.model_dump(exclude_none=True) for kind, sample in samples.items()},
    }


def _score(root: Any, metric: str) -> Any:
    return root.attributes.get(semconv.SCORE + metric)


if __name__ == "__main__":
    main(*sys.argv[1:])
