"""Our threads use a tenth of a busy application's time while the queues have room, and all of it in an idle process."""

from collections import Counter

import pytest

from spanscore.core import event_queue as duty_cycle
from spanscore.core.event_queue import DutyCycle, Turns

MS = 1_000_000


class Machine:
    """The clocks of a process with an application that uses a given share of a core while our threads rest.

    ``thread`` is the working thread; each has a clock of its own.
    """

    def __init__(self, monkeypatch, application):
        self.application, self.now_ns, self.cpu_ns = application, 10**12, 10**9
        self.thread, self.ours_ns = None, Counter()
        monkeypatch.setattr(duty_cycle, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(duty_cycle, "process_time_ns", lambda: self.cpu_ns)
        monkeypatch.setattr(duty_cycle, "thread_time_ns", lambda: self.ours_ns[self.thread])

    def work(self, ns):
        self.now_ns += ns
        self.cpu_ns += ns
        self.ours_ns[self.thread] += ns

    def rest(self, seconds):
        self.now_ns += int(seconds * 1e9)
        self.cpu_ns += int(seconds * 1e9 * self.application)


def a_cycle(yields_cpu=True):
    cycle = DutyCycle()
    cycle.yields_cpu = yields_cpu
    return cycle


def part_worked(machine, cycle, fill=0.0, turns=200):
    """Return which part of the time a thread works that has always more to do, when it has found its pace."""
    mine = Turns(cycle, lambda: fill)
    for turn in range(2 * turns):
        if turn == turns:
            began_ns, before_ns = machine.now_ns, machine.ours_ns.total()
        machine.work(2 * MS)
        machine.rest(mine.rest_s() or 0.000_1)
    return (machine.ours_ns.total() - before_ns) / (machine.now_ns - began_ns)


def begun_turns(machine, cycle):
    """Return the turns of a thread of its own that has read its clock."""
    machine.thread = mine = Turns(cycle, lambda: 0.0)
    mine.rest_s()
    return mine


def rest_after_a_turn(machine, mine):
    """Return the rest of a thread of its own after a turn of work."""
    machine.thread = mine
    machine.work(2 * MS)
    return mine.rest_s()


def test_a_saturated_application_leaves_us_a_tenth(monkeypatch):
    machine = Machine(monkeypatch, application=1.0)

    assert part_worked(machine, a_cycle()) == pytest.approx(0.1, abs=0.02)


def test_two_threads_of_ours_share_the_tenth(monkeypatch):
    machine, cycle = Machine(monkeypatch, application=1.0), a_cycle()
    one, other = begun_turns(machine, cycle), begun_turns(machine, cycle)

    def rested(mine):
        rest_s = rest_after_a_turn(machine, mine)
        machine.rest(rest_s or 0.000_1)
        return rest_s

    for _ in range(100):
        rests = rested(one), rested(other)
    assert rests == pytest.approx((0.038, 0.038), abs=0.002)  # the other works on: 2 of 40 ms each


def test_beside_an_idle_one_nothing_rests(monkeypatch):
    machine = Machine(monkeypatch, application=0.0)

    assert part_worked(machine, a_cycle()) > 0.9


def test_beside_one_that_is_somewhat_busy_we_work_for_some_of_the_time(monkeypatch):
    machine = Machine(monkeypatch, application=0.3)

    assert part_worked(machine, a_cycle()) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    ("fill", "least", "most"), [(0.5, 0.08, 0.12), (0.7, 0.4, 0.7), (0.9, 0.9, 1.0), (5.0, 0.9, 1.0)]
)
def test_the_fuller_it_is_the_more_is_done(monkeypatch, fill, least, most):
    machine = Machine(monkeypatch, application=1.0)

    assert least <= part_worked(machine, a_cycle(), fill) <= most


def test_while_somebody_waits_nothing_rests(monkeypatch):
    machine, cycle = Machine(monkeypatch, application=1.0), a_cycle()

    with cycle.suspend_rests(), cycle.suspend_rests():
        assert part_worked(machine, cycle) > 0.9
    assert part_worked(machine, cycle) < 0.2


def test_a_process_that_only_scores_gives_way_to_nobody(monkeypatch):
    machine = Machine(monkeypatch, application=1.0)

    assert part_worked(machine, a_cycle(yields_cpu=False)) > 0.9


def test_two_threads_of_ours_do_not_take_each_other_for_the_application(monkeypatch):
    machine, cycle = Machine(monkeypatch, application=0.0), a_cycle()
    one, other = begun_turns(machine, cycle), begun_turns(machine, cycle)

    for _ in range(100):
        assert rest_after_a_turn(machine, one) == pytest.approx(0.0, abs=0.000_5)
        assert rest_after_a_turn(machine, other) == pytest.approx(0.0, abs=0.000_5)


def test_less_than_a_turn_needs_no_rest_and_adds_up(monkeypatch):
    machine = Machine(monkeypatch, application=1.0)
    mine = Turns(a_cycle(), lambda: 0.0)
    mine.rest_s()
    machine.work(MS)
    machine.rest(1.0)

    assert mine.rest_s() == 0.0
    machine.work(MS)
    assert mine.rest_s() == pytest.approx(0.018, abs=0.001)


def test_a_long_turn_is_not_paid_for_with_seconds(monkeypatch):
    machine = Machine(monkeypatch, application=1.0)
    mine = Turns(a_cycle(), lambda: 0.0)
    mine.rest_s()
    machine.rest(1.0)
    machine.work(500 * MS)

    assert mine.rest_s() == 0.1


def test_a_thread_that_takes_another_s_place_begins_with_its_own_clock(monkeypatch):
    machine = Machine(monkeypatch, application=1.0)
    mine = Turns(a_cycle(), lambda: 0.0)
    machine.work(10**12)
    mine.rest_s()

    machine.thread = "its successor"
    assert mine.rest_s() == 0.0
    machine.rest(1.0)
    machine.work(2 * MS)
    assert mine.rest_s() > 0
