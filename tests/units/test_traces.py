"""Spans that come over the wire in any order become whole units."""

from spanscore.codec.wire import Origin, WireSpan
from spanscore.model.score import Outcome
from spanscore.model.span import UnitKey
from spanscore.units.traces import Bounds, TraceTable

S = 1_000_000_000
HOUR = 3_600 * S
ORIGIN = Origin(b"resource", b"scope", "some.library")


def span(span_id, parent=None, *, trace=1, remote=False, size=100):
    parent_id = b"" if parent is None else parent.to_bytes(8, "big")
    return WireSpan(trace.to_bytes(16, "big"), span_id.to_bytes(8, "big"), parent_id, remote, bytes(size), ORIGIN)


class Table(TraceTable):
    """One that is told in short whether a span is claimed, and by its id whether it is followed or may stand alone."""

    def __init__(self, *, unfollowed=(), alone=(), **bounds):
        super().__init__(
            Bounds(**bounds),
            follows=lambda root: int.from_bytes(root.span_id, "big") not in unfollowed,
            stands_alone=lambda top: int.from_bytes(top.span_id, "big") in alone,
        )

    def take(self, *spans, at=0):
        for one in spans:
            self.add(one, claimed=True, now_ns=at)

    def note(self, *spans, at=0):
        for one in spans:
            self.add(one, claimed=False, now_ns=at)


def told(closed):
    """Return of each unit its root's id, those of its spans, and how it ended."""
    return [(unit.key.span_id, [int.from_bytes(s.span_id, "big") for s in unit.spans], unit.outcome) for unit in closed]


# --- roots -----------------------------------------------------------------------------------------------------


def test_a_unit_closes_when_its_root_is_there_and_nothing_of_it_has_come_for_a_while():
    table = Table()
    table.take(span(3, 2), span(2, 1), span(1))

    assert table.due(2 * S - 1) == []
    (unit,) = table.due(2 * S)

    assert told([unit]) == [(1, [3, 2, 1], None)]
    assert (unit.key, unit.root, unit.revision) == (UnitKey(1, 1), span(1), 0)


def test_spans_that_come_before_the_root_wait_for_it_however_long_it_takes():
    table = Table()
    for second in range(0, 600, 5):
        table.take(span(100 + second, 1), at=second * S)
        assert table.due(second * S) == []

    table.take(span(1), at=600 * S)

    assert len(table.due(602 * S)[0].spans) == 121


def test_a_span_with_a_remote_parent_is_a_root():
    table = Table()
    table.take(span(2, 1), span(1, 99, remote=True))

    assert told(table.due(2 * S)) == [(1, [2, 1], None)]


def test_what_is_below_spans_that_are_not_claimed_is_a_unit_of_its_own():
    table = Table()
    table.take(span(11, 10), span(10, 1), span(20, 2))
    table.note(span(2, 1), span(1))

    assert told(table.due(2 * S)) == [(10, [11, 10], None), (20, [20], None)]


def test_a_claimed_span_below_an_unclaimed_one_belongs_to_the_claimed_one_on_top():
    for order in ([1, 2, 3], [3, 2, 1], [2, 3, 1], [3, 1, 2]):
        table = Table()
        for n in order:
            (table.note if n == 2 else table.take)(span(n, n - 1 or None))

        assert told(table.due(2 * S)) == [(1, [n for n in order if n != 2], None)], order


def test_a_unit_closes_although_others_of_its_trace_go_on():
    table = Table()
    table.note(span(1))
    table.take(span(10, 1))
    table.take(span(20, 1), at=2 * S)

    assert told(table.due(2 * S)) == [(10, [10], None)]
    assert told(table.due(4 * S)) == [(20, [20], None)]


def test_a_span_that_is_sent_twice_is_counted_and_the_first_one_stays():
    table = Table()
    table.take(span(1), span(2, 1), span(2, 1, size=999), span(1))

    (unit,) = table.due(2 * S)

    assert ([len(s.raw) for s in unit.spans], table.duplicates) == ([100, 100], 2)


def test_a_unit_that_is_sent_again_is_not_closed_again():
    table = Table()
    table.take(span(1))
    table.due(2 * S)

    table.take(span(1), at=9 * S)

    assert table.due(HOUR) == []
    assert (table.duplicates, table.open) == (1, 0)


# --- what is not followed --------------------------------------------------------------------------------------


def test_the_bytes_of_a_unit_that_is_not_followed_go_when_its_root_comes():
    table = Table(unfollowed=[1])
    table.take(span(2, 1))
    assert table.bytes > 100

    table.take(span(1), span(3, 1))

    assert table.bytes == 0
    assert told(table.due(2 * S)) == [(1, [], Outcome.NOT_SAMPLED)]


def test_spans_that_are_not_claimed_refuse_nobody_and_are_forgotten():
    table = Table()
    table.note(*(span(n, n - 1 or None) for n in range(1, 1_000)))

    assert (table.open, table.bytes) == (0, 0)
    assert (table.due(60 * S), table.next_due_ns()) == ([], None)
