"""The inbox's reader gathers: scores wait for its next batch, commands do not, and nothing is left lying."""

import threading

from spanscore.inbox import Inbox

LONG_S = 60.0


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
    inbox.put("first")
    inbox.put("second")

    left = inbox.abandon()

    assert (list(left), inbox.take(), len(inbox)) == (["first", "second"], None, 0)


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
