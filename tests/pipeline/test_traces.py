"""Spans that come over the wire in any order become whole units."""

from tests.pipeline.wire_spans import wire_span as span

from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.pipeline.trace_index import Bounds
from spanscore.pipeline.traces import TraceTable

S = 1_000_000_000
HOUR = 3_600 * S


class Table(TraceTable):
    """A table with short functions that decide whether a span is claimed, is kept or may stand alone."""

    def __init__(self, *, unfollowed=(), alone=(), **bounds):
        super().__init__(
            Bounds(**bounds),
            follows=lambda root: int.from_bytes(root.span_id, "big") not in unfollowed,
            is_unit_root=lambda top: int.from_bytes(top.span_id, "big") in alone,
        )

    def take(self, *spans, at=0):
        for one in spans:
            self.add(one, claimed=True, now_ns=at)

    def note(self, *spans, at=0):
        for one in spans:
            self.add(one, claimed=False, now_ns=at)


def plain_units(closed):
    """Return of each unit its root's id, those of its spans, and how it ended."""
    return [(unit.key.span_id, [int.from_bytes(s.span_id, "big") for s in unit.spans], unit.outcome) for unit in closed]


# --- roots -----------------------------------------------------------------------------------------------------


def test_a_unit_closes_when_its_root_is_there_and_nothing_of_it_has_come_for_a_while():
    table = Table()
    table.take(span(3, 2), span(2, 1), span(1))

    assert table.due(2 * S - 1) == []
    (unit,) = table.due(2 * S)

    assert plain_units([unit]) == [(1, [3, 2, 1], None)]
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

    assert plain_units(table.due(2 * S)) == [(1, [2, 1], None)]


def test_what_is_below_spans_that_are_not_claimed_is_a_unit_of_its_own():
    table = Table()
    table.take(span(11, 10), span(10, 1), span(20, 2))
    table.note(span(2, 1), span(1))

    assert plain_units(table.due(2 * S)) == [(10, [11, 10], None), (20, [20], None)]


def test_a_claimed_span_below_an_unclaimed_one_belongs_to_the_claimed_one_on_top():
    for order in ([1, 2, 3], [3, 2, 1], [2, 3, 1], [3, 1, 2]):
        table = Table()
        for n in order:
            (table.note if n == 2 else table.take)(span(n, n - 1 or None))

        assert plain_units(table.due(2 * S)) == [(1, [n for n in order if n != 2], None)], order


def test_a_unit_closes_although_others_of_its_trace_go_on():
    table = Table()
    table.note(span(1))
    table.take(span(10, 1))
    table.take(span(20, 1), at=2 * S)

    assert plain_units(table.due(2 * S)) == [(10, [10], None)]
    assert plain_units(table.due(4 * S)) == [(20, [20], None)]


def test_a_unit_is_due_by_the_latest_span_of_its_own():
    table = Table()
    table.take(span(1, trace=1), span(1, trace=2))
    table.take(span(2, 1, trace=1), at=S)

    assert [unit.key.trace_id for unit in table.due(2 * S)] == [2]
    assert [unit.key.trace_id for unit in table.due(3 * S)] == [1]


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


# --- unkept spans ----------------------------------------------------------------------------------------------


def test_of_a_unit_that_is_not_followed_all_bytes_but_the_root_s_go_when_that_comes():
    table = Table(unfollowed=[1])
    table.take(span(2, 1, size=9_000))
    assert table.bytes > 9_000

    table.take(span(1, size=50), span(3, 1, size=9_000))

    assert 50 < table.bytes < 1_000
    assert plain_units(table.due(2 * S)) == [(1, [], Outcome.NOT_SAMPLED)]
    assert table.bytes == 0


def test_spans_that_are_not_claimed_refuse_nobody_and_are_forgotten():
    table = Table()
    table.note(*(span(n, n - 1 or None) for n in range(1, 1_000)))

    assert (table.open, table.bytes) == (0, 0)
    assert (table.due(60 * S), table.next_due_ns()) == ([], None)


# --- spans that wait in vain -----------------------------------------------------------------------------------


def test_the_top_most_of_spans_whose_parent_never_comes_is_a_unit_if_it_can_be():
    table = Table(alone=[1])
    table.take(span(2, 1), span(1, 99))

    assert table.due(60 * S - 1) == []
    assert plain_units(table.due(60 * S)) == [(1, [2, 1], None)]
    assert (table.orphans, table.open, table.bytes) == (0, 0, 0)


def test_other_spans_whose_parent_never_comes_are_orphans_and_hide_no_root_below_them():
    table = Table(alone=[2])
    table.take(span(3, 2), span(2, 1), span(1, 99), span(4, 1))

    assert plain_units(table.due(60 * S)) == [(2, [3, 2], None)]
    assert (table.orphans, table.open, table.bytes) == (2, 0, 0)


def test_below_a_top_most_span_that_is_not_claimed_the_claimed_ones_are_top_most():
    table = Table(alone=[10])
    table.note(span(1, 99), span(2, 1))
    table.take(span(10, 2), span(11, 10), span(20, 1))

    assert plain_units(table.due(60 * S)) == [(10, [10, 11], None)]
    assert table.orphans == 1


def test_any_span_of_a_trace_keeps_its_orphans_waiting():
    table = Table(alone=[1])
    table.take(span(1, 99))
    table.note(span(50, 99), at=59 * S)

    assert table.due(118 * S) == []
    assert len(table.due(119 * S)) == 1


def test_spans_in_a_circle_wait_like_orphans_and_are_no_unit():
    table = Table(alone=[1, 2, 3])
    table.take(span(1, 1), span(2, 3), span(3, 2), span(4, 3))

    assert table.due(60 * S) == []
    assert (table.orphans, table.open, table.bytes, table.waiting_for_root) == (4, 0, 0, 0)


def test_a_circle_of_spans_that_are_not_claimed_is_forgotten():
    table = Table()
    table.note(span(1, 1), span(2, 3), span(3, 2))

    assert (table.due(60 * S), table.next_due_ns(), table.orphans) == ([], None, 0)


def test_a_unit_whose_root_comes_when_its_spans_were_given_up_is_too_late():
    table = Table()
    table.take(span(2, 1), span(3, 2))
    table.due(60 * S)

    table.take(span(1), at=61 * S)

    assert plain_units(table.due(63 * S)) == [(1, [1], Outcome.INCOMPLETE)]


def test_a_unit_is_too_late_when_a_span_between_comes_after_what_is_below_it_was_given_up():
    table = Table()
    table.take(span(3, 2))
    table.due(60 * S)

    table.take(span(2, 1), span(1), at=61 * S)

    assert plain_units(table.due(63 * S)) == [(1, [2, 1], Outcome.INCOMPLETE)]


def test_a_unit_is_too_late_when_a_span_between_comes_late_that_is_not_claimed():
    table = Table()
    table.take(span(3, 2))
    table.due(60 * S)

    table.note(span(2, 1), at=61 * S)
    table.take(span(1), at=61 * S)

    assert plain_units(table.due(63 * S)) == [(1, [1], Outcome.INCOMPLETE)]


def test_a_unit_is_not_too_late_because_of_spans_that_are_not_claimed():
    table = Table()
    table.note(span(2, 1), span(4, 3))
    table.take(span(20, 10))
    table.due(60 * S)

    table.take(span(1), span(3), at=61 * S)

    assert plain_units(table.due(63 * S)) == [(1, [1], None), (3, [3], None)]


def test_a_span_that_is_not_claimed_is_never_too_late():
    table = Table(alone=[1, 2])
    table.take(span(1, 99))
    table.due(60 * S)

    table.note(span(99), at=61 * S)
    table.take(span(2, 99), at=61 * S)

    assert plain_units(table.due(63 * S)) == [(2, [2], None)]


def test_units_under_one_span_that_never_comes_are_units_whenever_they_come():
    table = Table(alone=[1, 2])
    table.take(span(1, 99))
    assert len(table.due(60 * S)) == 1

    table.take(span(2, 99), at=100 * S)

    assert plain_units(table.due(160 * S)) == [(2, [2], None)]


def test_orphans_are_due_by_the_latest_span_of_their_own_trace():
    table = Table(alone=[1])
    table.take(span(1, 99, trace=1), span(1, 99, trace=2))
    table.note(span(2, 99, trace=1), at=S)

    assert [unit.key.trace_id for unit in table.due(60 * S)] == [2]
    assert [unit.key.trace_id for unit in table.due(61 * S)] == [1]


def test_a_span_that_is_sent_again_when_its_parent_came_too_late_is_no_unit():
    table = Table(alone=[10, 20])
    table.take(span(10, 5))
    table.due(60 * S)
    table.take(span(20, 5), span(5, 1), span(1), at=61 * S)
    assert plain_units(table.due(63 * S)) == [(1, [20, 5, 1], Outcome.INCOMPLETE)]

    table.take(span(20, 5), span(10, 5), at=70 * S)

    assert (table.due(200 * S), table.late, table.duplicates) == ([], 1, 1)


# --- bounds ----------------------------------------------------------------------------------------------------


def test_a_unit_with_too_many_spans_closes_incomplete_at_once():
    table = Table(max_spans=2)
    table.take(span(1), span(2, 1))
    assert table.due(0) == []

    table.take(span(3, 1))

    assert plain_units(table.due(0)) == [(1, [1, 2, 3], Outcome.INCOMPLETE)]


def test_a_unit_with_too_many_bytes_closes_incomplete_at_once():
    table = Table(max_bytes=10_000)
    table.take(span(1), span(2, 1, size=10_000))

    assert plain_units(table.due(0)) == [(1, [1, 2], Outcome.INCOMPLETE)]
    assert table.bytes == 0


def test_a_unit_that_gets_spans_for_too_long_closes_incomplete():
    table = Table(max_age_ns=60 * S)
    table.take(span(1))
    for second in range(1, 60):
        table.take(span(100 + second, 1), at=second * S)
        assert table.due(second * S) == []

    table.take(span(200, 1), at=60 * S)

    assert [unit.outcome for unit in table.due(60 * S)] == [Outcome.INCOMPLETE]


def test_the_age_of_a_unit_begins_with_its_first_span_where_spans_of_its_trace_were_given_up():
    table = Table(max_age_ns=60 * S)
    table.take(span(3, 2))
    table.due(60 * S)
    table.take(span(2, 1), at=61 * S)
    table.take(span(1), at=120 * S)

    table.take(span(4, 1), at=121 * S)

    assert [unit.outcome for unit in table.due(121 * S)] == [Outcome.INCOMPLETE]


def test_orphans_that_are_too_many_for_a_unit_are_an_incomplete_one():
    table = Table(alone=[1], max_spans=2)
    table.take(span(3, 1), span(2, 1), span(1, 99))

    assert [unit.outcome for unit in table.due(60 * S)] == [Outcome.INCOMPLETE]


def test_the_age_of_a_unit_begins_with_its_first_span():
    table = Table(max_age_ns=60 * S)
    table.take(span(2, 1))
    table.take(span(1), at=59 * S)

    table.take(span(3, 1), at=60 * S)

    assert [unit.outcome for unit in table.due(60 * S)] == [Outcome.INCOMPLETE]


def test_spans_whose_trace_never_falls_silent_wait_no_longer_than_a_unit_may():
    table = Table(alone=[1], max_age_ns=600 * S)
    table.take(span(1, 99), span(2, 99))
    closed = []
    for second in range(30, 700, 30):
        table.take(span(1_000 + second, 99), at=second * S)
        closed += [(second, one) for one in plain_units(table.due(second * S))]

    assert closed == [(600, (1, [1], None))]


def test_the_oldest_traces_in_which_nothing_is_claimed_make_room():
    table = Table(traces=2)
    table.note(span(1, trace=1), span(1, trace=2))
    table.note(span(2, 1, trace=1), span(1, trace=3), at=S)

    table.take(*(span(9, 1, trace=trace) for trace in (1, 2, 3)), at=S)

    assert [unit.key.trace_id for unit in table.due(3 * S)] == [1, 3]
    assert table.waiting_for_root == 1


def test_a_closed_unit_leaves_no_ids():
    table = Table()
    table.note(span(3, 1))
    table.take(span(4, 3), span(1))
    table.note(span(5, 1))

    table.due(2 * S)

    assert table.next_due_ns() is None


def test_ids_that_were_forgotten_leave_room_for_others():
    table = Table(traces=2)  # and so 20 ids
    for trace in range(1, 100):
        table.note(span(1, trace=trace), at=trace * HOUR)
        table.take(span(2, 1, trace=trace), at=trace * HOUR)
        table.note(span(3, 2, trace=trace), at=trace * HOUR)
        table.take(span(4, 3, trace=trace), at=trace * HOUR)

        assert plain_units(table.due(trace * HOUR + 2 * S)) == [(2, [2, 4], None)]


def test_orphans_are_given_up_however_many_ids_their_trace_has():
    table = Table(alone=[40_000])
    table.take(span(1, 99), span(40_000, 98))
    table.note(*(span(n, 50_000 + n) for n in range(100, 10_100)))

    assert plain_units(table.due(60 * S)) == [(40_000, [40_000], None)]
    assert (table.orphans, table.next_due_ns()) == (1, None)


def test_ids_of_a_trace_that_goes_on_leave_room_for_others():
    table = Table(traces=2_000)  # and so 20,000 ids
    table.take(span(1, 99))
    table.note(*(span(n, 99) for n in range(100, 30_100)))

    table.note(span(1, trace=2))
    table.take(span(2, 1, trace=2))

    assert plain_units(table.due(2 * S)) == [(2, [2], None)]


def test_a_trace_whose_first_id_finds_no_room_is_not_open():
    table = Table(traces=1)
    table.take(span(1))
    table.note(*(span(n, 1) for n in range(2, 20)))

    table.note(span(30, 29, trace=2))

    assert (table.open, len(table.open_traces())) == (1, 1)


def test_one_trace_that_waits_for_a_root_cannot_take_all_the_room():
    table = Table(bytes=4_000_000, max_bytes=100_000)
    for n in range(2, 10_000):
        table.take(span(n, 1, size=1_000), at=n)
        assert table.bytes <= 1_002_000

    assert table.orphans > 5_000


def test_a_clock_that_is_set_back_stands_still():
    table = Table()
    table.take(span(1), at=HOUR)
    assert table.due(S) == []
    assert table.next_due_ns() == 3 * S

    assert len(table.due(3 * S)) == 1


# --- late ------------------------------------------------------------------------------------------------------


def test_a_late_span_is_counted_and_its_unit_stays_closed():
    table = Table(alone=[2, 3])
    table.take(span(1))
    table.due(2 * S)

    table.take(span(2, 1), span(3, 2), at=3 * S)
    table.note(span(4, 3), at=3 * S)

    assert (table.due(HOUR), table.late, table.open, table.bytes) == ([], 3, 0, 0)


def test_a_span_whose_parent_was_forgotten_with_its_unit_is_late_and_no_orphan():
    table = Table(alone=[3])
    table.take(span(1), span(2, 1))
    table.due(2 * S)

    table.take(span(3, 2), at=3 * S)

    assert (table.due(63 * S), table.late, table.orphans) == ([], 1, 0)


def test_an_orphan_that_was_there_before_a_unit_of_its_trace_closed_is_not_late():
    table = Table(alone=[10])
    table.take(span(1), span(10, 99), span(20, 98))

    assert plain_units(table.due(2 * S) + table.due(60 * S)) == [(1, [1], None), (10, [10], None)]
    assert (table.late, table.orphans) == (0, 1)


def test_another_root_of_the_trace_is_another_unit():
    table = Table()
    table.take(span(1))
    table.due(2 * S)

    table.take(span(2), span(3, 99, remote=True), at=3 * S)

    assert plain_units(table.due(5 * S)) == [(2, [2], None), (3, [3], None)]


def test_a_late_span_opens_its_unit_again_where_units_are_scored_again():
    table = Table(late="rescore")
    table.take(span(1), span(2, 1))
    table.due(2 * S)

    table.take(span(3, 2), at=10 * S)
    assert table.due(11 * S) == []
    (unit,) = table.due(12 * S)

    assert plain_units([unit]) == [(1, [1, 2, 3], None)]
    assert (unit.revision, table.late, table.revisions) == (1, 1, 1)


def test_a_span_that_is_not_claimed_or_was_there_opens_no_unit_again():
    table = Table(late="rescore")
    table.take(span(1), span(2, 1))
    table.due(2 * S)

    table.note(span(3, 2), at=3 * S)
    table.take(span(2, 1), at=3 * S)

    assert table.due(HOUR) == []
    assert (table.late, table.duplicates, table.revisions) == (1, 1, 0)


def test_what_is_forgotten_of_its_trace_leaves_a_unit_that_may_be_opened_again():
    table = Table(late="rescore", unfollowed=[10])
    table.take(span(1), span(2, 1), span(10, 99, remote=True))
    table.due(2 * S)

    table.take(span(3, 2), at=3 * S)

    assert plain_units(table.due(5 * S)) == [(1, [1, 2, 3], None)]


def test_a_unit_that_was_too_large_or_is_not_followed_is_not_opened_again():
    table = Table(late="rescore", max_spans=2, unfollowed=[10])
    table.take(span(1), span(2, 1), span(3, 1), span(10))
    assert len(table.due(2 * S)) == 2

    table.take(span(4, 1), span(11, 10), at=3 * S)

    assert (table.due(HOUR), table.late, table.revisions) == ([], 2, 0)


def test_the_spans_of_closed_units_are_kept_for_a_while_and_within_bounds():
    table = Table(late="rescore", bytes=40_000, max_bytes=10_000)
    for trace in range(1, 100):
        table.take(span(1, trace=trace, size=600))
    table.due(2 * S)
    table.take(*(span(2, 1, trace=trace) for trace in range(1, 100)), at=3 * S)
    assert (table.late, table.revisions) == (99, 10)

    table.due(6 * S)
    table.due(400 * S)
    table.take(*(span(3, 1, trace=trace) for trace in range(1, 100)), at=401 * S)

    assert (table.late, table.revisions) == (198, 10)


# --- the end ---------------------------------------------------------------------------------------------------


def test_at_the_end_units_with_a_root_are_whole_and_others_incomplete_or_orphans():
    table = Table(alone=[10])
    table.take(span(2, 1), span(1), span(10, 99), span(20, 98))

    assert plain_units(table.close_all(S)) == [(1, [2, 1], None), (10, [10], Outcome.INCOMPLETE)]
    assert (table.orphans, table.open, table.bytes, table.next_due_ns()) == (1, 0, 0, None)


def test_a_flush_waits_for_units_whose_root_has_come():
    table = Table()
    table.take(span(1), span(3, 2))

    assert table.unreturned_keys() == {UnitKey(1, 1)}
    table.due(2 * S)
    assert table.unreturned_keys() == set()


def test_it_says_when_something_is_due():
    table = Table(alone=[3])
    assert table.next_due_ns() is None
    table.take(span(1, trace=1), at=S)
    assert table.next_due_ns() == 3 * S
    table.due(3 * S)
    assert table.next_due_ns() is None

    table.take(span(3, 2, trace=2), at=5 * S)

    assert table.next_due_ns() == 65 * S


# --- complete units without kept spans -------------------------------------------------------------------------


def test_a_unit_that_nobody_follows_is_open_until_it_is_quiet():
    table = Table()

    assert table.add_brief(span(1), {b"1": b"", b"2": b"1"}, 5)

    assert (table.open, table.is_open(span(1).trace_id), table.unreturned_keys(), table.bytes) == (
        1,
        True,
        {UnitKey(1, 1)},
        500,
    )
    assert table.next_due_ns() == 2 * S + 5
    assert table.due(2 * S + 4) == []
    assert plain_units(table.due(2 * S + 5)) == [(1, [], Outcome.NOT_SAMPLED)]
    assert (table.open, table.is_open(span(1).trace_id), table.unreturned_keys(), table.bytes) == (0, False, set(), 0)


def test_a_unit_that_nobody_follows_is_open_for_longer_where_more_of_it_comes():
    table = Table(unfollowed={1})
    table.add_brief(span(1), {span(1).span_id: b"", span(2).span_id: span(1).span_id}, 0)
    table.take(span(2, 1), span(3, 2), at=S)

    assert (table.duplicates, table.due(3 * S - 1)) == (1, [])
    assert plain_units(table.due(3 * S)) == [(1, [], Outcome.NOT_SAMPLED)]


def test_a_unit_that_nobody_follows_is_no_second_one_when_it_is_sent_again():
    table = Table(unfollowed={1})
    table.add_brief(span(1), {span(1).span_id: b""}, 0)
    table.due(2 * S)

    assert not table.add_brief(span(1), {span(1).span_id: b""}, 3 * S)


def test_a_unit_that_nobody_follows_ends_with_the_table():
    table = Table()
    table.add_brief(span(1), {span(1).span_id: b""}, 0)

    assert plain_units(table.close_all(S)) == [(1, [], Outcome.NOT_SAMPLED)]
    assert (table.open, table.bytes) == (0, 0)
