"""StreamClock: the time by which the units of one stream grow old, such as a partition; never ahead of what was read.

A stream is read in bursts and stands still while others wait, so by the wall clock its units would close before the rest of
them is read. Its own clock runs as fast as ours at most, and only while the stream is read:

    read to its end           runs
    behind: more is there     runs, but not further than the times that its log has given what was read
    not read (paused, away)   stands

No two clocks are compared, only times of one log with each other: one that is wrong closes nothing early.
"""

from __future__ import annotations

__all__ = ["StreamClock"]


class StreamClock:
    """One stream's. Every method takes the steady time, nanoseconds; owned by one thread."""

    def __init__(self, steady_ns: int) -> None:
        self._base_ns = self._since_ns = steady_ns
        self._ran_ns = 0
        self._stands = False
        self._at_end = True
        self._first_ns = self._last_ns = 0

    def now_ns(self, steady_ns: int) -> int:
        """Return the stream's time; never less than before."""
        ran, most = self._ran(steady_ns), self._last_ns - self._first_ns
        return self._base_ns + (ran if self._at_end or ran < most else most)

    def steady_ns(self, stream_ns: int) -> int | None:
        """Return when, if nothing more is read, it will be that time here; None = never."""
        ahead_ns = stream_ns - self._base_ns
        if ahead_ns <= self._ran_ns and self._stands:
            return self._since_ns
        if self._stands or not (self._at_end or ahead_ns <= self._last_ns - self._first_ns):
            return None
        return self._since_ns + ahead_ns - self._ran_ns

    def read(self, log_ns: int, steady_ns: int) -> None:
        """Note that something was read to which the log has given that time."""
        self.go(steady_ns)
        if self._at_end:
            self._begin(steady_ns)
            self._at_end, self._first_ns, self._last_ns = False, log_ns, log_ns
        self._last_ns = max(self._last_ns, log_ns)

    def reach_end(self, steady_ns: int) -> None:
        """Note that there is nothing more to be read."""
        self.go(steady_ns)
        if not self._at_end:
            self._begin(steady_ns)
            self._at_end = True

    def stand(self, steady_ns: int) -> None:
        """Note that it is not read until further notice."""
        self._ran_ns, self._since_ns, self._stands = self._ran(steady_ns), steady_ns, True

    def go(self, steady_ns: int) -> None:
        """Note that it is read again."""
        if self._stands:
            self._since_ns, self._stands = steady_ns, False

    def _ran(self, steady_ns: int) -> int:
        if self._stands or steady_ns < self._since_ns:
            return self._ran_ns
        return self._ran_ns + steady_ns - self._since_ns

    def _begin(self, steady_ns: int) -> None:
        self._base_ns, self._ran_ns, self._since_ns = self.now_ns(steady_ns), 0, steady_ns
