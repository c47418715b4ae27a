"""The same spans make the same units in this process, over the wire in any order, and from a store; at any rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from tests.capture.otlp.test_units import Served
from tests.capture.processor.traced import SCOPE, TURN, Exported, scoring

from spanscore import semconv
from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.otlp_request import WireSpan, parse_request
from spanscore.stored.traces import StoredTrace
from spanscore.stored.unit_reading import UnitReader

OPERATIONS = ["invoke_agent", "chat", "chat", "execute_tool", "retrieval", "embeddings", "create_agent", None]
OWN = "my.app"
"""A scope that no translation names: its spans are claimed by their attributes."""
WEB = "opentelemetry.instrumentation.fastapi"


def run_tree(provider: Any, rng: Random, depth: int = 0) -> None:
    """Run a span with others in it; its kind is visible at its start, right after that, or at its end."""
    scope = rng.choice([SCOPE, SCOPE, OWN, OWN, WEB])
    operation = None if scope == WEB else rng.choice(OPERATIONS)
    named = {} if operation is None else {semconv.OPERATION_NAME: operation}
    shows = rng.choice(["at its start", "before its children", "at its end"])
    tracer = provider.get_tracer(scope)
    with tracer.start_as_current_span(str(operation), attributes=named if shows == "at its start" else None) as span:
        if shows == "before its children":
            span.set_attributes(named)
        for _ in range(rng.choice([0, 0, 1, 2]) if depth < 4 else 0):
            run_tree(provider, rng, depth + 1)
        if shows == "at its end":
            span.set_attributes(named)
        if operation in {"chat", "invoke_agent"}:
            span.set_attributes(TURN)


def in_process(seed: int, rate: float) -> tuple[set[str], set[str], Exported]:
    """Return the units of a hundred trees by their roots, the sampled ones, and the spans."""
    rng = Random(seed)
    with scoring(sample_rate=rate) as (scorer, exported, provider):
        for _ in range(100):
            run_tree(provider, rng)
        assert scorer.flush(20)
        traces = {span.context.trace_id for span in exported.spans}
        units = [unit for trace_id in sorted(traces) for unit in scorer.explain(trace_id)]
        assert scorer.status().eligible == {"answered": len(units)}
    taken = {unit["span_id"] for unit in units if unit["metrics"]["answered"]["outcome"] != "not_sampled"}
    return {unit["span_id"] for unit in units}, taken, exported


def on_the_wire(exported: Exported) -> list[WireSpan]:
    return parse_request(encode_spans(exported.spans).SerializeToString()).spans


def from_a_store(spans: Sequence[WireSpan]) -> Iterator[str]:
    reader = UnitReader(ScorerSettings())
    for trace_id in dict.fromkeys(span.trace_id for span in spans):
        stored = StoredTrace(trace_id, [span for span in spans if span.trace_id == trace_id])
        yield from (f"{one.unit.key.span_id:016x}" for one in reader.units(stored))


@pytest.mark.parametrize("seed", range(4))
def test_spans_make_the_same_units_in_process_over_the_wire_and_from_a_store(seed: int) -> None:
    units, _, exported = in_process(seed, 1.0)
    spans = on_the_wire(exported)
    served = Served()
    for span in Random(seed).sample(spans, len(spans)):
        served.send(span)
    served.pass_time(2)

    assert len(units) > 50
    assert {f"{unit.key.span_id:016x}" for unit, _ in served.units} == units
    assert {*from_a_store(spans)} == units


@pytest.mark.parametrize("seed", range(4))
def test_at_a_rate_as_many_units_count_and_the_same_ones_are_taken(seed: int) -> None:
    rate = 0.4
    units, taken, exported = in_process(seed, rate)
    whole, _, _ = in_process(seed, 1.0)
    served = Served(rate)
    for span in on_the_wire(exported):
        served.send(span)
    served.pass_time(2)

    assert len(units) == len(whole)
    assert served.receiver.units == len(units)
    followed = {f"{unit.key.span_id:016x}" for unit, _ in served.units}
    sampled = {key for unit, _ in served.units if served.takes(unit) for key in [f"{unit.key.span_id:016x}"]}
    assert sampled <= followed
    assert sampled == taken
