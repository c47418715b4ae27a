from __future__ import annotations

import pytest
from opentelemetry import trace
from tests.outputs.builders import KEY, SPAN_ID, TRACE_ID, score, unit
from tests.outputs.memory import Memory, telemetry_of

from spanscore.core.span import Unit
from spanscore.outputs.score_events import Instruments


@pytest.fixture
def memory() -> Memory:
    return Memory()


def test_the_exemplar_points_at_the_scored_span_also_inside_another_one(memory: Memory) -> None:
    sink = Instruments(telemetry_of(memory))

    with memory.tracer_provider.get_tracer("judge").start_as_current_span("chat judge"):
        sink.emit(unit(), [score()])

    (point,) = memory.points("spanscore.quality").values()
    assert [(exemplar.trace_id, exemplar.span_id) for exemplar in point.exemplars] == [(TRACE_ID, SPAN_ID)]


@pytest.mark.parametrize("of", [unit(flags=0), Unit(KEY, (), complete=False)], ids=["unsampled", "rootless"])
def test_a_trace_nobody_can_open_is_no_exemplar(memory: Memory, of: Unit) -> None:
    Instruments(telemetry_of(memory)).emit(of, [score()])

    (point,) = memory.points("spanscore.quality").values()
    assert (point.count, list(point.exemplars)) == (1, [])
    assert not trace.get_current_span().get_span_context().is_valid


def test_telemetry_outlives_its_sink(memory: Memory) -> None:
    sink = Instruments(telemetry_of(memory))
    sink.emit(unit(), [score()])

    sink.shutdown()

    assert list(memory.values("spanscore.scored").values()) == [1]
