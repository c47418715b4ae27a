"""The inbox's reader gathers: scores wait for its next batch, commands do not, and nothing is left lying."""

import threading

from spanscore.runtime.inbox import Inbox

LONG_S = 60.0
ANYONE = None


class Reader(threading.Thread):
    """Reads one batch."""

    def __init__(self, inbox, timeout_s=None):
        super().__init__(daemon=True)
        self.inbox, self.timeout_s, self.got = inbox, timeout_s, []
        self.start()

    def run(self):
        self.inbox.wait(self.timeout_s)
        while (item := self.inbox.take_posted()) is not None:
            self.got.append(item)

    def is_done(self, timeout_s=10.0):
        self.join(timeout_s)
        return not self.is_alive()


def test_what_is_left_waits_until_the_gathering_is_over():
    inbox = Inbox(soft=10, gather_s=LONG_S)
    reader = Reader(inbox)

    inbox.leave("a score")
    assert not reader.is_done(0.05)
    inbox.nudge()

    assert reader.is_done()
    assert reader.got == ["a score"]


def test_what_is_posted_is_read_at_once_and_takes_what_was_left_along():
    inbox = Inbox(soft=10, gather_s=LONG_S)
    reader = Reader(inbox)

    inbox.leave("a score")
    inbox.post("a command")

    assert reader.is_done()
    assert reader.got == ["a score", "a command"]


def test_what_is_abandoned_is_read_by_nobody_else():
    inbox = Inbox(soft=10)
    inbox.put(ANYONE, "first")

    inbox.abandon()

    assert (inbox.take(), len(inbox)) == (None, 0)


def test_an_event_carries_whom_it_is_for():
    inbox = Inbox(soft=10)
    inbox.put("one receiver", "an event", 5)
    inbox.put("another", "its event")

    assert [inbox.take(), inbox.take()] == [("one receiver", "an event", 5), ("another", "its event", 0)]


def test_what_is_left_wakes_a_reader_that_sleeps():
    inbox = Inbox(soft=10, gather_s=0.001)
    reader = Reader(inbox)
    asleep = threading.Event()
    threading.Thread(target=lambda: _until(lambda: inbox._asleep, asleep), daemon=True).start()
    assert asleep.wait(10)

    inbox.leave("a score")

    assert reader.is_done()
    assert reader.got == ["a score"]


def _until(holds, event):
    while not holds():
        pass
    event.set()


def test_new_units_are_refused_past_the_bytes_of_what_waits():
    inbox = Inbox(soft=10, soft_bytes=100)

    inbox.put(ANYONE, "an event", 60)
    assert inbox.admits()
    inbox.put(ANYONE, "another", 40)
    assert not inbox.admits()
    inbox.take()

    assert inbox.admits()


def test_events_are_dropped_past_four_times_the_bytes_but_not_those_of_a_root():
    inbox = Inbox(soft=10, soft_bytes=100)
    inbox.put(ANYONE, "heavy", 400)

    assert not inbox.put(ANYONE, "a child", 1)
    assert inbox.put(ANYONE, "a root", 1, must=True)
    assert (inbox.is_full(), len(inbox)) == (True, 2)


def test_an_empty_inbox_weighs_nothing_whatever_was_miscounted():
    inbox = Inbox(soft=10, soft_bytes=100)
    inbox.put(ANYONE, "an event", 60)
    inbox._bytes = 1_000  # as if threads had got into each other's way

    inbox.take()

    assert inbox.admits()


def test_it_is_full_for_its_reader_long_before_it_turns_anything_away():
    inbox = Inbox(soft=100, batch_bytes=1_000)
    for _ in range(25):
        inbox.put(ANYONE, "event", 10)
    assert inbox.fill() == 0.5

    inbox.put(ANYONE, "a heavy one", 2_000)

    assert inbox.fill() > 1
    assert inbox.admits()
