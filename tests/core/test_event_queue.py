"""The event queue's reader gathers: scores wait for its next batch, commands do not, and no event is left behind."""

import threading

from spanscore.core.event_queue import EventQueue

LONG_S = 60.0
ANYONE = None


class Reader(threading.Thread):
    """Reads one batch."""

    def __init__(self, event_queue, timeout_s=None):
        super().__init__(daemon=True)
        self.event_queue, self.timeout_s, self.got = event_queue, timeout_s, []
        self.start()

    def run(self):
        self.event_queue.wait(self.timeout_s)
        while (item := self.event_queue.take_posted()) is not None:
            self.got.append(item)

    def is_done(self, timeout_s=10.0):
        self.join(timeout_s)
        return not self.is_alive()


def test_what_is_left_waits_until_the_gathering_is_over():
    event_queue = EventQueue(soft_events=10, gather_s=LONG_S)
    reader = Reader(event_queue)

    event_queue.post_with_batch("a score")
    assert not reader.is_done(0.05)
    event_queue.nudge()

    assert reader.is_done()
    assert reader.got == ["a score"]


def test_what_is_posted_is_read_at_once_and_takes_what_was_left_along():
    event_queue = EventQueue(soft_events=10, gather_s=LONG_S)
    reader = Reader(event_queue)

    event_queue.post_with_batch("a score")
    event_queue.post("a command")

    assert reader.is_done()
    assert reader.got == ["a score", "a command"]


def test_what_is_abandoned_is_read_by_nobody_else():
    event_queue = EventQueue(soft_events=10)
    event_queue.put(ANYONE, "first")

    event_queue.abandon()

    assert (event_queue.take(), len(event_queue)) == (None, 0)


def test_an_event_carries_whom_it_is_for():
    event_queue = EventQueue(soft_events=10)
    event_queue.put("one receiver", "an event", 5)
    event_queue.put("another", "its event")

    assert [event_queue.take(), event_queue.take()] == [("one receiver", "an event", 5), ("another", "its event", 0)]


def test_what_is_left_wakes_a_reader_that_sleeps():
    event_queue = EventQueue(soft_events=10, gather_s=0.001)
    reader = Reader(event_queue)
    asleep = threading.Event()
    threading.Thread(target=lambda: _until(lambda: event_queue.asleep, asleep), daemon=True).start()
    assert asleep.wait(10)

    event_queue.post_with_batch("a score")

    assert reader.is_done()
    assert reader.got == ["a score"]


def _until(holds, event):
    while not holds():
        pass
    event.set()


def test_new_units_are_refused_past_the_bytes_of_what_waits():
    event_queue = EventQueue(soft_events=10, soft_bytes=100)

    event_queue.put(ANYONE, "an event", 60)
    assert event_queue.admits()
    event_queue.put(ANYONE, "another", 40)
    assert not event_queue.admits()
    event_queue.take()

    assert event_queue.admits()


def test_events_are_dropped_past_four_times_the_bytes_but_not_those_of_a_root():
    event_queue = EventQueue(soft_events=10, soft_bytes=100)
    event_queue.put(ANYONE, "heavy", 400)

    assert not event_queue.put(ANYONE, "a child", 1)
    assert event_queue.put(ANYONE, "a root", 1, never_drop=True)
    assert (event_queue.is_full(), len(event_queue)) == (True, 2)


def test_an_empty_inbox_weighs_nothing_whatever_was_miscounted():
    event_queue = EventQueue(soft_events=10, soft_bytes=100)
    event_queue.put(ANYONE, "an event", 300)
    event_queue.abandon()  # drops the event, and counts its bytes still
    event_queue.put(ANYONE, "another", 60)
    assert not event_queue.admits()

    event_queue.take()

    assert event_queue.admits()


def test_it_is_full_for_its_reader_long_before_it_turns_anything_away():
    event_queue = EventQueue(soft_events=100, batch_bytes=1_000)
    for _ in range(25):
        event_queue.put(ANYONE, "event", 10)
    assert event_queue.fill() == 0.5

    event_queue.put(ANYONE, "a heavy one", 2_000)

    assert event_queue.fill() > 1
    assert event_queue.admits()
