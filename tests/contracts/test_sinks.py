"""Every built-in sink: harms nobody, whatever unit and scores it is given."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from tests.sinks.builders import KEY, failed, score, undefined, unit
from tests.sinks.memory import Memory, telemetry_of

from spanscore.model.score import Scale, Score
from spanscore.model.span import Unit
from spanscore.protocols import Sink
from spanscore.sinks.evaluation_span import EvaluationSpans
from spanscore.sinks.event import Events
from spanscore.sinks.instruments import Instruments

BUILT_IN: dict[str, Callable[[Memory], Sink]] = {
    "evaluation_span": lambda memory: EvaluationSpans(memory.providers, content=True),
    "event": lambda memory: Events(memory.providers, content=True),
    "instruments": lambda memory: Instruments(telemetry_of(memory)),
}
SCORES: dict[str, list[Score]] = {
    "none": [],
    "scored": [score()],
    "several": [score(), score("response_relevancy"), failed("harmless")],
    "failed": [failed()],
    "undefined": [undefined()],
    "a negative value with a quality": [score(value=-0.4, scale=Scale(range=(-1.0, 1.0), negatives_are_zero=True))],
    "an open scale": [score(value=17.0, scale=Scale(kind="ordinal", range=None))],
    "outside sampling": [replace(score(), probability=None, threshold=None, rule=None, id=None)],
}
UNITS = {
    "sampled": unit(),
    "unsampled": unit(flags=0),
    "foreign": unit(resource={"service.name": "shop"}),
    "without its root": Unit(KEY, (), complete=False),
}


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(params=BUILT_IN.values(), ids=BUILT_IN.keys())
def sink(request: pytest.FixtureRequest, memory: Memory) -> Sink:
    made: Sink = request.param(memory)
    return made


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES.keys())
@pytest.mark.parametrize("of", UNITS.values(), ids=UNITS.keys())
def test_any_unit_with_any_scores_is_taken(
    sink: Sink, of: Unit, scores: list[Score], caplog: pytest.LogCaptureFixture, memory: Memory
) -> None:
    with caplog.at_level(logging.WARNING):
        sink.emit(of, scores)
        memory.reader.get_metrics_data()

    assert caplog.messages == []


def test_shutdown_twice_is_as_good_as_once(sink: Sink) -> None:
    sink.shutdown()
    sink.shutdown()


def test_nothing_is_published_after_shutdown(sink: Sink, memory: Memory) -> None:
    sink.shutdown()
    sink.emit(unit(), [score()])

    assert (memory.spans, memory.events, memory.values("spanscore.scored")) == ((), [], {})


def test_a_failing_provider_harms_nobody_and_is_said_once(caplog: pytest.LogCaptureFixture, sink: Sink) -> None:
    for name in ("_providers", "_telemetry"):
        if hasattr(sink, name):
            setattr(sink, name, object())

    sink.emit(unit(), [score()])
    sink.emit(unit(), [score()])

    assert len(caplog.messages) == 1


class _Watching(SpanProcessor):
    def __init__(self) -> None:
        self.suppressed: list[object] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.suppressed.append(get_value(_SUPPRESS_INSTRUMENTATION_KEY))


@pytest.mark.parametrize("of", [unit(), unit(resource={"service.name": "shop"})], ids=["own", "foreign"])
def test_instrumented_exporters_make_no_spans_of_our_emission(memory: Memory, of: Unit) -> None:
    watching = _Watching()
    memory.tracer_provider.add_span_processor(watching)

    EvaluationSpans(memory.providers).emit(of, [score()])

    assert watching.suppressed == [True]
    assert get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None
