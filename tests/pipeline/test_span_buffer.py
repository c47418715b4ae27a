"""The waiting room: bounds, deadlines, pace."""

from concurrent.futures import Future

from spanscore.core.span import UnitKey
from spanscore.pipeline.span_buffer import ExportPace, SpanBuffer

S = 1_000_000_000


class Leaves:
    """A pending span that records the time and the attributes of its end."""

    def __init__(self, name, log, size=10):
        self.name, self.log, self.size = name, log, size

    def end(self, attributes=None):
        self.log.append((self.name, dict(attributes or {})))


def key(n):
    return UnitKey(n, n)


def at_once():
    done = Future()
    done.set_result(True)
    return done


def hold(**bounds):
    return SpanBuffer(ExportPace(at_once), **bounds)


def test_children_wait_for_their_root_and_leave_before_it():
    log, room = [], hold()
    room.hold_child(key(1), Leaves("child", log), 0)
    room.hold_root(key(1), Leaves("root", log), 10 * S)
    room.flush_ready(S)
    assert log == []

    assert room.release(key(1), {"spanscore.status": "scored"})
    room.flush_ready(S)

    assert log == [("child", {}), ("root", {"spanscore.status": "scored"})]


def test_a_unit_past_its_deadline_is_to_leave_and_its_scores_are_late():
    log, room = [], hold()
    room.hold_root(key(1), Leaves("root", log), 4 * S)

    assert (room.overdue(3 * S), room.overdue(5 * S)) == ([], [key(1)])
    assert room.release(key(1), {"spanscore.status": "pending"}, "deadline")
    room.flush_ready(5 * S)

    assert log == [("root", {"spanscore.status": "pending"})]
    assert dict(room.released) == {"deadline": 1}
    assert not room.release(key(1), {})


def test_on_overflow_the_oldest_is_the_first_to_leave():
    room = hold(max_units=2)
    for n in range(1, 3):
        room.hold_root(key(n), Leaves(n, []), 10 * S)
    assert room.oldest_over_bound() is None

    room.hold_root(key(3), Leaves(3, []), 10 * S)

    assert room.oldest_over_bound() == key(1)


def test_bytes_are_bounded():
    room = hold(max_bytes=100)
    room.hold_root(key(1), Leaves("a", [], size=80), 10 * S)
    room.hold_root(key(2), Leaves("b", [], size=80), 10 * S)

    assert room.oldest_over_bound() == key(1)


def test_a_unit_that_runs_long_lets_its_finished_children_go():
    log, room = [], hold()
    room.hold_child(key(1), Leaves("child", log), 0)

    room.release_early(6 * S)
    room.hold_child(key(1), Leaves("later child", log), 6 * S)
    room.flush_ready(6 * S)

    assert [name for name, _ in log] == ["child", "later child"]


def test_children_are_due_beside_a_longer_unit_that_holds_none():
    room = hold()
    room.hold_child(key(1), Leaves("child", []), 0)
    room.release_early(6 * S)
    room.flush_ready(6 * S)
    room.hold_child(key(2), Leaves("child of another", []), 7 * S)

    assert room.next_due_ns() == 12 * S


def test_what_leaves_waits_for_the_flush_after_each_batch():
    log, flushes = [], []

    def flush():
        flushes.append(Future())
        return flushes[-1]

    room = SpanBuffer(ExportPace(flush, batch=3))
    for n in range(8):
        room.enqueue(Leaves(n, log), 1)

    room.flush_ready(2 * S)
    assert len(log) == 3
    room.flush_ready(2 * S + 1)
    assert len(log) == 3
    flushes[0].set_result(True)
    room.flush_ready(2 * S + 2)
    assert len(log) == 6
    room.flush_ready(5 * S)  # the second flush hangs: its wait is two seconds

    assert len(log) == 8


def test_what_leaves_after_the_provider_has_gone_is_counted_as_lost():
    log, room = [], hold()
    room.hold_root(key(1), Leaves("root", log), 10 * S)
    room.provider_closed = True

    room.release(key(1), {})
    room.flush_ready(S)

    assert room.lost == 1
