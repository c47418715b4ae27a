"""Every sink passes the contract, and the contract rejects faulty ones."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.contracts.found import failing, implementations, never_failing
from tests.outputs.memory import Memory, telemetry_of

from spanscore.core.score import Score
from spanscore.core.span import Unit, UnitKey
from spanscore.outputs.langfuse import LangfuseSink
from spanscore.outputs.phoenix import PhoenixSink
from spanscore.outputs.score_events import EvaluationEvents, Instruments
from spanscore.outputs.score_spans import EvaluationSpans, JudgeSpans
from spanscore.outputs.sinks import CompositeSink
from spanscore.outputs.webhook import WebhookSink
from spanscore.protocols import Sink
from spanscore.testing import MemorySink, SinkContract

MADE: dict[type, Callable[[Memory], Sink]] = {
    CompositeSink: lambda memory: CompositeSink(
        [EvaluationEvents(memory.providers), EvaluationSpans(memory.providers)]
    ),
    EvaluationSpans: lambda memory: EvaluationSpans(memory.providers),
    EvaluationEvents: lambda memory: EvaluationEvents(memory.providers),
    Instruments: lambda memory: Instruments(telemetry_of(memory)),
    JudgeSpans: lambda memory: JudgeSpans(memory.providers),
    WebhookSink: lambda memory: WebhookSink(memory.open_outbox, url="https://a/b", when=["faithfulness<2"]),
    PhoenixSink: lambda memory: PhoenixSink(memory.open_outbox),
    LangfuseSink: lambda memory: LangfuseSink(memory.open_outbox, public_key="pk", secret_key="sk"),
}
"""A function that makes each sink, so that the memory, or ``read_output``, has its output."""


@pytest.mark.parametrize("kind", implementations("outputs", Sink))
class TestSinks(SinkContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: Any) -> None:
        assert kind in MADE, f"{kind.__name__} is to have a line in MADE"
        self.kind = kind

    def make(self) -> Sink:
        self.memory = Memory()
        return MADE[self.kind](self.memory)

    def read_output(self) -> str | None:
        if self.kind in (JudgeSpans, WebhookSink):  # they write the calls of scores, which have none, and ended units
            return None
        spans = [span.to_json() for span in self.memory.spans]
        events = [f"{event.body} {event.attributes}" for event in self.memory.events]
        messages = [message.body.decode() for message in self.memory.messages]
        return "".join([*spans, *events, *messages, str(self.memory.values("spanscore.scored"))])

    def test_no_score_makes_the_sdk_complain(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            self.test_any_unit_with_any_scores_is_taken()
            self.memory.reader.get_metrics_data()

        assert caplog.messages == []


class TestMemorySink(SinkContract):
    quotes = True

    def make(self) -> MemorySink:
        self.made = MemorySink()
        return self.made

    def read_output(self) -> str:
        return str(self.made.emitted)


class Lines:
    """Writes a line per score."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        self.lines.extend(self.line(unit, score) for score in scores)

    def line(self, unit: Unit, score: Score) -> str:
        return f"{unit.key} {score.metric} {score.value}"

    def shutdown(self) -> None:
        pass


class Rounding(Lines):
    """Takes it for granted that there is a value."""

    def line(self, unit: Unit, score: Score) -> str:
        return f"{super().line(unit, score)} {round(score.value, 2)}"  # type: ignore[arg-type]


class Last(Lines):
    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        super().emit(unit, scores[-1:])


class FirstOnly(Lines):
    """Takes a unit that it has seen for one that comes again."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.seen: set[UnitKey] = set()

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        if unit.key not in self.seen:
            self.seen.add(unit.key)
            super().emit(unit, scores)


class Quoting(Lines):
    def line(self, unit: Unit, score: Score) -> str:
        return f"{super().line(unit, score)} {score.explanation}"


class Sorting(Lines):
    """Sorts the scores in place."""

    def emit(self, unit: Unit, scores: Any) -> None:
        scores.sort(key=lambda score: score.metric, reverse=True)
        super().emit(unit, scores)


class OneThread(Lines):
    """A database that is its maker's thread's alone."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.database = sqlite3.connect(":memory:")

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        self.database.execute("SELECT 1")
        super().emit(unit, scores)


class Once(Lines):
    """Opens at the first score, and closes once."""

    file: Any = None

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        self.file = self.file or object()
        super().emit(unit, scores)

    def shutdown(self) -> None:
        if self.file is None:
            raise ValueError("nothing is open")
        self.file = None


BROKEN = [Rounding, Last, FirstOnly, Quoting, Sorting, OneThread, Once]


def suite(kind: Any) -> type[SinkContract]:
    class Suite(SinkContract):
        def make(self) -> Sink:
            self.lines: list[str] = []
            made: Sink = kind() if kind is dict else kind(self.lines)
            return made

        def read_output(self) -> str:
            return "\n".join(self.lines)

    return Suite


def test_a_sink_of_lines_keeps_the_contract() -> None:
    assert not failing(suite(Lines))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_sink_that_breaks_a_promise_is_turned_away(kind: Any) -> None:
    assert failing(suite(kind))


def test_every_check_turns_one_of_them_away() -> None:
    assert never_failing(SinkContract, map(suite, BROKEN)) == {"test_it_is_a_sink"}
    assert "test_it_is_a_sink" in failing(suite(dict))
