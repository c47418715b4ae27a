"""Units are handed over at the pace that is asked for, and while few are under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from tests.core.codecs.requests import make_span, sent
from tests.live import Grounded

from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.otlp_request import parse_request
from spanscore.core.job import Decision
from spanscore.core.span import Unit
from spanscore.stored.replay import Replay, ReplayTally
from spanscore.stored.trace_stores import TraceSource
from spanscore.stored.traces import StoredTrace
from spanscore.stored.unit_reading import UnitReader


class Store:
    """Holds so many traces of one unit each."""

    lost: Sequence[str] = ()

    def __init__(self, traces: int) -> None:
        self._traces = traces

    def traces(self) -> Iterator[StoredTrace]:
        for number in range(1, self._traces + 1):
            trace_id = number.to_bytes(16)
            root = make_span(trace_id=trace_id, parent_span_id=b"")
            yield StoredTrace(trace_id, parse_request(sent(root.SerializeToString())).spans)


class PacedReceiver:
    """Takes every unit; each is settled when somebody waits."""

    def __init__(self) -> None:
        self.metrics = [Grounded()]
        self.under_way = self.most = 0
        self.came: list[Unit] = []

    def decisions(self, unit: Unit) -> Mapping[str, Decision]:
        return {"grounded": Decision(True, 1.0, 0)}

    def put(self, unit: Unit) -> None:
        self.came.append(unit)
        self.under_way += 1
        self.most = max(self.most, self.under_way)


def replay(receiver: PacedReceiver, units: int, *, settled_from_s: float = 0.0, **bounds: Any) -> list[float]:
    """Hand so many units over; return how long was waited each time, by a clock that only waiting moves.

    From ``settled_from_s`` on, a unit is settled in each wait.
    """
    now_s, waited = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now_s[0] += seconds
        if now_s[0] >= settled_from_s:
            receiver.under_way = max(0, receiver.under_way - 1)

    reader, tally = UnitReader(ScorerSettings()), ReplayTally(TraceSource("store", Store(units)))
    made: Any = receiver
    Replay(tally=tally, reader=reader, receiver=made, clock=lambda: now_s[0], sleep=sleep, **bounds).run()
    return waited


def test_so_many_a_second_and_no_more() -> None:
    receiver = PacedReceiver()

    waited = replay(receiver, 21, per_second=10.0)

    assert len(receiver.came) == 21
    assert sum(wait for wait in waited if wait > 0.05) == pytest.approx(2.0)


def test_who_hands_over_waits_while_many_are_under_way() -> None:
    receiver = PacedReceiver()

    replay(receiver, 300)

    assert (len(receiver.came), receiver.under_way) == (300, 0)
    assert 0 < receiver.most <= 129


def test_a_wait_for_hours_looks_once_a_second_and_ends_within_one() -> None:
    waited = replay(PacedReceiver(), 1, settled_from_s=7_200.0)

    assert (min(waited), max(waited)) == (0.01, 1.0)
    assert len(waited) == pytest.approx(7_200, abs=50)
    assert sum(waited) < 7_202


def test_a_short_wait_takes_a_quarter_longer_at_most() -> None:
    waited = replay(PacedReceiver(), 1, settled_from_s=2.0)

    assert sum(waited) <= 2.0 * 1.25
