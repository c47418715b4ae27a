"""All sinks of a scorer as one: an exception of one ends here, and no instrumentation traces their work."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import get_current_span
from tests.outputs.builders import SPAN_ID, TRACE_ID, score, unit
from tests.outputs.memory import Memory

from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.outputs.score_spans import EvaluationSpans, context_of
from spanscore.outputs.sinks import CompositeSink
from spanscore.testing import MemorySink


class Failing:
    """Raises whatever it is asked."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        raise self.error

    def shutdown(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("SECRET"), SystemExit(1)], ids=["error", "exit"])
def test_a_failing_sink_keeps_no_other_from_its_scores_and_is_said_once(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    memory = MemorySink()
    sinks = CompositeSink([Failing(error), memory])

    for _ in range(2):
        sinks.emit(unit(), [score()])

    assert len(memory.scores) == 2
    assert len([line for line in caplog.messages if "publish scores through Failing" in line]) == 1
    assert "SECRET" not in caplog.text


def test_a_sink_that_cannot_be_closed_keeps_no_other_open() -> None:
    memory = MemorySink()

    CompositeSink([Failing(SystemExit(1)), memory]).shutdown()

    assert memory.closed


def test_nothing_is_published_after_shutdown() -> None:
    memory = MemorySink()
    sinks = CompositeSink([memory])

    sinks.shutdown()
    sinks.emit(unit(), [score()])

    assert memory.scores == []


class _Watching(SpanProcessor):
    def __init__(self) -> None:
        self.suppressed: list[object] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.suppressed.append(get_value(_SUPPRESS_INSTRUMENTATION_KEY))


@pytest.mark.parametrize("of", [unit(), unit(resource={"service.name": "shop"})], ids=["own", "external"])
def test_instrumented_exporters_make_no_spans_of_our_emission(of: Unit) -> None:
    memory, watching = Memory(), _Watching()
    memory.tracer_provider.add_span_processor(watching)

    CompositeSink([EvaluationSpans(memory.providers)]).emit(of, [score()])

    assert watching.suppressed == [True]
    assert get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


def test_every_sink_of_a_unit_has_the_same_context_and_no_other_unit_has_it() -> None:
    sampled, unsampled = unit().spans[0], unit(flags=0).spans[0]
    first, again, other = context_of(sampled), context_of(sampled), context_of(unsampled)
    rows = [get_current_span(context).get_span_context() for context in (first, other, context_of(sampled))]

    assert first is again
    assert [(ids.trace_id, ids.span_id, int(ids.trace_flags)) for ids in rows] == [
        (TRACE_ID, SPAN_ID, flags) for flags in (1, 0, 1)
    ]
