"""Every receiver passes the contract, and the contract rejects faulty ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from tests.capture.otlp.builders import a_wire_span, taken
from tests.contracts.found import failing, implementations, never_failing
from tests.live import QUESTION, a_trace, rag

from spanscore import ScoringSpanProcessor, SingleTurnSample
from spanscore.capture.callback.handler import SpanCallbackHandler
from spanscore.capture.callback.recorder import Recorder
from spanscore.capture.intake import Intake
from spanscore.capture.otlp.claims import WireClaims
from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.capture.processor.external_spans import ExternalSpans
from spanscore.capture.scopes import Scopes
from spanscore.capture.whole_units import StoredUnits, SubmittedSamples
from spanscore.core.event_queue import EventQueue
from spanscore.core.sample import Samples
from spanscore.core.span import UnitKey
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.trace_index import Bounds
from spanscore.protocols import Receiver, UnitListener
from spanscore.samples.normalizers.registry import SpanNormalizers
from spanscore.semconv import OPERATION_NAME
from spanscore.testing import ReceiverContract, make_span, make_unit

Port = tuple[EventQueue[Receiver], UnitListener]


def _intake(event_queue: EventQueue[Receiver], recorded: UnitListener) -> Intake:
    return Intake(event_queue, recorded, RateSampler({"grounded": 1.0}), Ledger(["grounded"]))


def recorder(suite: Any, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
    tracer = partial(a_trace().provider.get_tracer, "spanscore.capture")
    handler = SpanCallbackHandler(_intake(event_queue, recorded), tracer=tracer, ready=lambda: None)
    suite.arrive = partial(rag().invoke, QUESTION, config={"callbacks": [handler]})
    suite.begin = lambda: handler.on_chain_start({}, {"question": QUESTION}, run_id=uuid4()) or True
    return Recorder(handler, recorded)


def submitted(suite: Any, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
    tracer = partial(a_trace().provider.get_tracer, "spanscore.capture")
    made = SubmittedSamples(_intake(event_queue, recorded), tracer=tracer)
    suite.arrive = lambda: made.submit(SingleTurnSample(user_input="q", response="a"), sampled=False)
    return made


class Scorer:
    """The part of a scorer that a processor uses."""

    def __init__(self, spans: ExternalSpans) -> None:
        self._external_spans = spans

    def export_held_spans(self, timeout: float) -> None:
        """Hold nothing."""


def external(suite: Any, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
    translator = SpanNormalizers()
    made = ExternalSpans(
        _intake(event_queue, recorded),
        scopes=Scopes(translator.names_scope),
        translator=translator,
        ready=lambda _: None,
    )
    trace = a_trace()
    trace.provider.add_span_processor(ScoringSpanProcessor(Scorer(made)))
    tracer = trace.provider.get_tracer("app")
    suite.begin = lambda: tracer.start_span("agent", attributes={OPERATION_NAME: "invoke_agent"}) is not None
    suite.arrive = lambda: tracer.start_span("agent", attributes={OPERATION_NAME: "invoke_agent"}).end()
    return made


def otlp(suite: Any, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
    translator = SpanNormalizers()
    made = OtlpSpans(
        _intake(event_queue, recorded),
        bounds=Bounds(),
        claims=WireClaims(translator),
        translator=translator,
        ready=lambda: None,
    )
    traces = count(1)
    suite.arrive = lambda: made.accept(taken([a_wire_span(trace=next(traces))]))
    return made


def stored(suite: Any, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
    made = StoredUnits(_intake(event_queue, recorded), metrics=[], open_units=lambda: 0, ready=lambda: None)
    numbers = count(1)
    suite.arrive = lambda: made.put(make_unit(make_span(trace_id=next(numbers))))
    return made


MADE: dict[type, Callable[..., Receiver]] = {
    Recorder: recorder,
    SubmittedSamples: submitted,
    ExternalSpans: external,
    OtlpSpans: otlp,
    StoredUnits: stored,
}
"""How each is made, and how a unit comes in by it."""


@pytest.mark.parametrize("kind", implementations("capture", Receiver))
class TestReceivers(ReceiverContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: type) -> None:
        assert kind in MADE, f"{kind.__name__} is to have a line in MADE"
        self.make = partial(MADE[kind], self)  # type: ignore[method-assign]


class Lines:
    """Units that begin and end with a line each."""

    def __init__(self, event_queue: EventQueue[Receiver], recorded: UnitListener) -> None:
        self.event_queue, self.recorded = event_queue, recorded
        self.closed = False
        self.came = self.read = 0
        self.running: dict[UnitKey, Any] = {}
        self.waiting: dict[UnitKey, Any] = {}

    def begin(self) -> Any:
        unit = make_unit(make_span())
        if not self.closed:
            self.came += 1
            self.put("begin", unit)
        return unit

    def arrive(self) -> None:
        unit = self.begin()
        if not self.closed:
            self.put("end", unit)

    def put(self, what: str, unit: Any) -> None:
        self.event_queue.put(self, (what, unit))

    def handle(self, event: Any, now_ns: int) -> None:
        what, unit = event
        if what == "begin":
            self.read += 1
            self.running[unit.key] = unit
            self.recorded.unit_opened(unit.key, now_ns)
        elif unit.key in self.running:
            self.waiting[unit.key] = self.running.pop(unit.key)

    def tick(self, now_ns: int) -> None:
        while self.waiting:
            self.hand_on(self.waiting.popitem()[1], now_ns)

    def hand_on(self, unit: Any, now_ns: int) -> None:
        self.recorded.sample_submitted(unit, Samples(), None, sampled=True, now_ns=now_ns)

    def next_due_ns(self) -> int | None:
        return 1 if self.waiting else None

    def in_flight(self) -> set[UnitKey]:
        return {*self.waiting}

    def open_keys(self) -> set[UnitKey]:
        return {*self.running, *self.waiting}

    def drain(self, now_ns: int) -> list[UnitKey]:
        self.tick(now_ns)
        running, self.running = self.running, {}
        for unit in running.values():
            self.hand_on(unit, now_ns)
        return [*running]

    def unread_count(self) -> int:
        return self.came - self.read

    def close(self) -> None:
        self.closed = True


class Anonymous(Lines):
    """Puts its events without a receiver."""

    def put(self, what: str, unit: Any) -> None:
        self.event_queue.put(None, (what, unit))  # type: ignore[arg-type]


class Twice(Lines):
    def hand_on(self, unit: Any, now_ns: int) -> None:
        for _ in range(2):
            super().hand_on(unit, now_ns)


class Timeless(Lines):
    """Gives no time for its waiting units."""

    def tick(self, now_ns: int) -> None:
        if now_ns == 1:
            super().tick(now_ns)

    def next_due_ns(self) -> int | None:
        return None


class Hasty(Lines):
    """Opens its units on the application's thread."""

    def put(self, what: str, unit: Any) -> None:
        if what == "begin":
            self.recorded.unit_opened(unit.key, 0)
        super().put(what, unit)


class Uncounted(Lines):
    def unread_count(self) -> int:
        return 0


class Forgetful(Lines):
    """Does not return its running units."""

    def open_keys(self) -> set[UnitKey]:
        return set()


class Keeping(Lines):
    """Lets go of nothing that runs."""

    def drain(self, now_ns: int) -> list[UnitKey]:
        return [*self.running]


class Open(Lines):
    def close(self) -> None:
        pass


class Restless(Lines):
    """Always asks for another tick."""

    def next_due_ns(self) -> int | None:
        return 1


BROKEN = [Restless, Anonymous, Twice, Timeless, Hasty, Uncounted, Forgetful, Keeping, Open]


def suite(kind: Any) -> type[ReceiverContract]:
    class Suite(ReceiverContract):
        def make(self, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
            self.made = kind() if kind is dict else kind(event_queue, recorded)
            made: Receiver = self.made
            return made

        def arrive(self) -> None:
            self.made.arrive()

        def begin(self) -> bool:
            return self.made.begin() is not None

    return Suite


def test_a_receiver_of_lines_keeps_the_contract() -> None:
    assert not failing(suite(Lines))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_receiver_that_breaks_a_promise_is_turned_away(kind: Any) -> None:
    assert failing(suite(kind))


def test_every_check_turns_one_of_them_away() -> None:
    assert never_failing(ReceiverContract, map(suite, BROKEN)) == {"test_it_is_a_receiver"}
    assert "test_it_is_a_receiver" in failing(suite(dict))
