"""A row is one process's at a time: until that gives it back, has ended, or lets its lease go by."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import time_ns

import pytest
from tests.durable.asked import Asked
from tests.durable.other import other

from spanscore.durable.rows import RowEnd
from spanscore.durable.spool_table import Leases, boot_ns, has_ended, this_process

SECOND = 1_000_000_000


def late(seconds: float):
    """A clock that is ahead of everybody's."""
    return lambda: boot_ns() + int(seconds * SECOND)


def test_what_a_killed_process_held_is_free_at_once(spool, path):
    with other(path) as killed:
        killed.ask("put", 1, own=True)
        before = spool().taken()

        killed.kill()

        assert (before, spool().taken()) == ([], [1])


def test_a_late_owners_write_is_refused(spool, path):
    with other(path) as stopped:
        stopped.ask("put", 1, own=True)
        stopped.stop()
        in_time, after = spool().taken(), spool(clock=late(61))
        taken = after.taken()

        stopped.go_on()

        assert (in_time, taken) == ([], [1])
        assert stopped.ask("keep", 1) is False
        assert after.keep(1) is True


def test_what_a_late_owner_has_done_is_not_deleted_for_the_next_one(spool, path):
    with other(path) as stopped:
        stopped.ask("put", 1, own=True)
        stopped.stop()
        after = spool(clock=late(61))
        after.taken()

        stopped.go_on()
        stopped.ask("done", 1)

        after.give_back(1)
        assert after.taken() == [1]


def test_a_late_owner_whose_rows_nobody_took_goes_on(spool, path):
    with other(path) as stopped:
        stopped.ask("put", 1, own=True)
        stopped.stop()
        stopped.go_on()

        assert stopped.ask("keep", 1) is True


def test_a_late_owner_holds_what_it_puts_after_it_was_passed_over(spool, path):
    with other(path) as stopped:
        stopped.ask("put", 1, own=True)
        stopped.stop()
        spool(clock=late(61)).taken()
        stopped.go_on()

        stopped.ask("put", 2, own=True)

        assert spool().taken() == []
        stopped.kill()
        assert spool().taken() == [2]


def test_a_lease_goes_on_while_its_holder_runs(spool):
    now = [boot_ns()]
    one, two = spool(clock=lambda: now[0]), spool(clock=lambda: now[0])
    one.put(1, own=True)

    for _ in range(10):
        now[0] += 30 * SECOND
        one.begin()

    assert two.taken() == []


def test_a_holder_of_another_boot_is_late_when_it_was_seen_not_to_renew():
    now = [0]
    watch = Leases(60 * SECOND, lambda: now[0])
    before = watch.holder._replace(id=1, boot="an earlier one", until_ns=10**18)

    seen = [watch.is_over(before)]
    now[0] = 61 * SECOND
    seen += [watch.is_over(before._replace(until_ns=10**18 + 1)), watch.is_over(before)]
    now[0] = 200 * SECOND
    seen += [watch.is_over(before)]

    assert seen == [False, False, False, True]


@pytest.mark.parametrize("differs", [{"boot": "another"}, {"pid_namespace": "pid:[1]"}, {"started": 0}])
def test_of_a_pid_that_means_something_else_here_nothing_is_known(differs):
    me = this_process()

    assert not has_ended(me._replace(pid=2**22 + 1, **differs), me)
    assert has_ended(me._replace(pid=2**22 + 1), me)


def test_a_pid_that_is_used_again_is_another_process():
    me = this_process()

    assert has_ended(me._replace(started=me.started + 1), me)
    assert not has_ended(me, me)
    assert me.pid == os.getpid()


def test_a_row_that_was_in_work_at_three_crashes_is_put_aside_and_counted_once(spool, path):
    spool().put(1)
    for _ in range(3):
        with other(path) as crashing:
            assert crashing.ask("taken") == [1]
            crashing.ask("begin", 1)
    one = spool()

    assert one.taken() == []
    assert [(row.key.trace_id, row.attempts, row.end) for row in one.take(ended_only=True)] == [
        (1, 3, RowEnd.DEAD_LETTER)
    ]
    one.done(1)
    assert spool().take(ended_only=True) == []


def test_a_row_that_only_waited_survives_any_number_of_crashes(spool, path):
    spool().put(1)
    for _ in range(4):
        with other(path) as crashing:
            assert crashing.ask("taken") == [1]

    assert [(row.key.trace_id, row.attempts) for row in spool().take()] == [(1, 0)]


def test_a_crash_after_the_scores_were_kept_is_no_attempt(spool, path):
    spool().put(1)
    with other(path) as crashing:
        crashing.ask("taken")
        crashing.ask("begin", 1)
        crashing.ask("keep", 1, b"0.5")

    assert [(row.attempts, row.scores) for row in spool().take()] == [(0, b"0.5")]


def test_who_is_late_has_not_crashed(spool, path):
    spool().put(1)
    with other(path) as stopped:
        stopped.ask("taken")
        stopped.ask("begin", 1)
        stopped.stop()

        assert [row.attempts for row in spool(clock=late(61)).take()] == [0]


def test_a_row_past_its_age_is_counted_and_not_worked_on(spool):
    now = [1_000 * SECOND]
    one = spool(max_age_s=60, wall_ns=lambda: now[0])
    one.put(1)
    now[0] += 61 * SECOND
    one.put(2)

    assert one.taken() == [2]
    assert [(row.key.trace_id, row.end) for row in one.take(ended_only=True)] == [(1, RowEnd.EXPIRED)]
    one.done(1)
    assert one.take(ended_only=True) == []


def test_a_clock_that_was_set_back_ages_nothing(spool):
    now = [10_000 * SECOND]
    one = spool(max_age_s=60, wall_ns=lambda: now[0])
    one.put(1)

    now[0] -= 3_600 * SECOND

    assert one.take(ended_only=True) == []
    assert one.taken() == [1]


MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS


@pytest.mark.parametrize("ahead_ns", [5 * MINUTE_NS, -5 * MINUTE_NS])
def test_workers_whose_clocks_are_five_minutes_apart_have_each_row_once(
    spool: Callable[..., Asked], ahead_ns: int
) -> None:
    one, other = spool(lease_s=60.0), spool(lease_s=60.0, wall_ns=lambda: time_ns() + ahead_ns)
    for number in range(4):
        one.put(number)

    taken = [one.taken(2), other.taken(100), one.taken(100)]

    assert taken == [[0, 1], [2, 3], []]
    assert [one.keep(0), other.keep(2)] == [True, True]


def test_a_row_from_a_clock_that_is_ahead_is_neither_old_nor_negative(spool: Callable[..., Asked]) -> None:
    ahead, here = spool(wall_ns=lambda: time_ns() + 5 * MINUTE_NS), spool(max_age_s=60.0)
    ahead.put(1)

    assert here.file.state().oldest_s == 0.0
    assert here.taken() == [1]


def test_a_clock_that_goes_back_an_hour_takes_no_lease_and_ages_no_row(spool: Callable[..., Asked]) -> None:
    back = [0]
    holder, other = (spool(lease_s=60.0, max_age_s=600.0, wall_ns=lambda: time_ns() - back[0]) for _ in range(2))
    for number in range(2):
        holder.put(number)
    assert holder.taken(1) == [0]

    back[0] = HOUR_NS

    assert [other.taken(), other.take(ended_only=True)] == [[1], []]
    assert holder.keep(0)
