"""ReceiverContract: what every receiver promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from time import time_ns
from typing import Final

from spanscore.core.event_queue import EventQueue
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.protocols import PendingSpan, Receiver, UnitListener

__all__ = ["ReceiverContract"]

_TIMES: Final = 10
"""How often a receiver may ask to be looked at again before a unit is handed on."""


class ReceiverContract:
    """Subclass it in a test and say how your receiver is made, and how a unit comes in."""

    def make(self, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
        """Return a new receiver that puts its events into this event queue, and hands on to this port."""
        raise NotImplementedError

    def arrive(self) -> None:
        """Let one unit come in, from its beginning to its end."""
        raise NotImplementedError

    def begin(self) -> bool:
        """Let one unit begin that does not end. False: there is no such thing, as units come in whole."""
        return False

    def test_it_is_a_receiver(self) -> None:
        """It has what the span thread calls."""
        assert isinstance(self._made(), Receiver)

    def test_a_receiver_of_nothing_waits_for_nothing(self) -> None:
        """The span thread sleeps until something comes in."""
        receiver = self._made()

        receiver.tick(time_ns())

        waits = receiver.in_flight(), receiver.next_due_ns(), receiver.drain(time_ns()), receiver.unread_count()
        assert waits == (set(), None, [], 0), "nothing came in, and yet something is waited for"

    def test_every_event_says_whose_it_is(self) -> None:
        """Several receivers share one event queue."""
        receiver = self._made()

        self.arrive()

        whose = [entry[0] for entry in self._entries()]
        assert whose, "a unit that comes in is to put an event into the event queue"
        assert all(one is receiver for one in whose), "each event is to be put for the receiver itself"

    def test_a_unit_is_handed_on_once(self) -> None:
        """Once it begins, if it was seen to begin, and once it is whole; then it is out of the receiver's hands."""
        receiver = self._made()

        self.arrive()
        self._read(receiver)

        assert [*self.port.handed_on.values()] == [1], "one unit came in; one is to be handed on, once"
        assert self.port.opened_units in ([], [*self.port.handed_on]), "what is handed on is what was opened"
        assert not receiver.in_flight(), "in_flight is to be empty when all is handed on"

    def test_nothing_is_done_before_it_is_read(self) -> None:
        """The application's thread puts events, and the span thread does the rest."""
        self._made()

        self.arrive()

        assert not self.port.opened_units, "a unit was opened on the thread that brought it"
        assert not self.port.handed_on, "a unit was handed on by the thread that brought it"

    def test_units_that_were_never_read_are_told(self) -> None:
        """A span thread that is stuck leaves them behind; they are counted all the same."""
        receiver = self._made()

        self.arrive()
        self.arrive()
        with ThreadPoolExecutor(1) as thread:
            before = thread.submit(receiver.unread_count).result()
        self._read(receiver)

        assert (before, receiver.unread_count()) == (2, 0), (
            "unread_count is to count the units of which no event was read"
        )

    def test_a_unit_that_runs_is_handed_on_and_told_at_the_end(self) -> None:
        """``drain`` returns the unit, and the receiver waits for nothing more."""
        receiver = self._made()

        began = self.begin()
        self._read(receiver)
        running = receiver.drain(time_ns())

        assert len(running) == began, "drain is to return the units that had not ended"
        assert [*self.port.handed_on] == running, "drain is to hand on every unit as it is"
        assert (receiver.in_flight(), receiver.next_due_ns()) == (set(), None), "a unit that is handed on is waited for"

    def test_nothing_comes_in_once_it_is_closed(self) -> None:
        """What comes then is not even counted."""
        receiver = self._made()

        receiver.close()
        self.arrive()

        assert (self._entries(), receiver.unread_count()) == ([], 0), "a closed receiver took a unit"

    def test_after_a_fork_it_is_as_new(self) -> None:
        """What came in before is the parent's."""
        receiver = self._made()

        self.arrive()
        self.begin()
        self._read(receiver)
        self.arrive()
        self.event_queue.reset()
        receiver.reset()

        assert receiver.unread_count() == 0, "reset is to forget what was not read"
        assert receiver.drain(time_ns()) == [], "reset is to forget the units that run"
        assert (receiver.in_flight(), receiver.next_due_ns()) == (set(), None), "reset is to forget what waits"

    def _made(self) -> Receiver:
        self.event_queue: EventQueue[Receiver] = EventQueue(soft=1_000)
        self.port = _Port()
        return self.make(self.event_queue, self.port)

    def _entries(self) -> list[tuple[Receiver, object, int]]:
        return [entry for _ in range(len(self.event_queue)) if (entry := self.event_queue.take()) is not None]

    def _read(self, receiver: Receiver) -> None:
        """Do as the span thread does, and let time pass until what has ended is handed on."""
        now_ns = time_ns()
        for _, event, _ in self._entries():
            receiver.handle(event, now_ns)
        receiver.tick(now_ns)
        for _ in range(_TIMES):
            due_ns = receiver.next_due_ns()
            if not receiver.in_flight():
                return
            assert due_ns is not None, "a unit is in flight, and next_due_ns does not say when to look at it"
            receiver.tick(due_ns)


class _Port:
    """Implements ``UnitListener``: notes what is handed on, and ends every span."""

    def __init__(self) -> None:
        self.opened_units: list[UnitKey] = []
        self.handed_on: Counter[UnitKey] = Counter()

    def metrics_shared(self, key: UnitKey, metrics: Set[str]) -> None:
        pass

    def unit_opened(self, key: UnitKey, now_ns: int) -> None:
        self.opened_units.append(key)

    def span_started(self, key: UnitKey, span_id: int, now_ns: int) -> None:
        assert key in self.opened_units, "a span began in a unit that was not opened"

    def span_ended(
        self, key: UnitKey, span: SpanData, pending: PendingSpan | None, now_ns: int, *, size_bytes: int = 0
    ) -> None:
        self.handed_on[key] += span.span_id == key.span_id
        if pending is not None:
            pending.end()

    def unit_not_sampled(self, facts: SamplingContext, pending: PendingSpan, now_ns: int) -> None:
        self.handed_on[facts.key] += 1
        pending.end()

    def unit_excluded(self, facts: SamplingContext) -> None:
        self.handed_on[facts.key] += 1

    def events_lost(self, key: UnitKey, now_ns: int) -> None:
        assert key in self.opened_units, "a unit was broken that was not opened"

    def unit_complete(
        self,
        unit: Unit,
        pending: Mapping[int, PendingSpan],
        now_ns: int,
        *,
        lost: Outcome = Outcome.INCOMPLETE,
        reason: str | None = None,
    ) -> None:
        self.handed_on[unit.key] += 1
        for one in pending.values():
            one.end()

    def sample_submitted(
        self, unit: Unit, samples: Samples, pending: PendingSpan | None, *, sampled: bool, now_ns: int
    ) -> None:
        self.handed_on[unit.key] += 1
        if pending is not None:
            pending.end()
