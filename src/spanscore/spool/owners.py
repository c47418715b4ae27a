"""Who holds leases, and whether it can still be there: boot, PID namespace, pid, and when that began.

A pid alone says little: it is used again, and two containers on one volume both have a pid 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["LeaseHolder", "LeaseOfOurs", "LeaseWatch", "boot_ns", "has_ended", "this_process"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_STATE, _STARTED = 0, 19
"""Fields of ``/proc/PID/stat`` behind the name, whose own blanks and brackets make the others hard to count."""


class LeaseHolder(NamedTuple):
    """One process with the file open.

    Attributes:
        id: drawn by lot, never used again.
        boot: of the machine; empty where it cannot be told.
        pid_namespace: in which the pid means something; likewise.
        started: of the process, in ticks since the boot; 0 likewise.
        until_ns: its leases hold until then, by ``boot_ns`` of that boot.
    """

    id: int
    boot: str
    pid_namespace: str
    pid: int
    started: int
    until_ns: int = 0


def boot_ns() -> int:
    """Return nanoseconds since the machine's boot, sleep included: no setting of a clock moves them."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


def this_process() -> LeaseHolder:
    """Return a new holder: a process may have the file open more than once."""
    boot, namespace = "", ""
    with suppress(OSError):
        boot = _BOOT_ID.read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    _, started = _stat(os.getpid()) or ("", 0)
    return LeaseHolder(int.from_bytes(os.urandom(7), "big"), boot, namespace, os.getpid(), started)


def has_ended(holder: LeaseHolder, me: LeaseHolder) -> bool:
    """Whether the holder's process is known to be gone. False also where it cannot be known from here."""
    if not _sees(me, holder):
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        return False
    found = _stat(holder.pid)
    # None: /proc hides the processes of others. A zombie has ended, however long its parent takes to notice.
    return found is not None and (found[1] != holder.started or found[0] in "ZX")


class LeaseOfOurs:
    """What this process has told others that it holds. It outlives a connection: a disk that fails takes nobody's rows.

    Args:
        length_ns: of a lease.
        clock: nanoseconds; ``boot_ns``.
    """

    def __init__(self, length_ns: int, clock: Callable[[], int] = boot_ns) -> None:
        self.holder = this_process()
        self._length_ns = length_ns
        self._clock = clock

    def is_young(self) -> bool:
        """Whether two thirds of the lease are left."""
        return self.holder.until_ns - self._clock() > self._length_ns * 2 / 3

    def renewed(self) -> LeaseHolder:
        """Return the holder with a whole lease from now on."""
        return self.holder._replace(until_ns=self._clock() + self._length_ns)

    def holds(self) -> bool:
        """Whether nobody can have taken what this process has."""
        return self._clock() <= self.holder.until_ns


class LeaseWatch:
    """Which leases of others are over. Of one that counts from another boot (another machine, or this one before it was started
    again) the clock says nothing: its lease is over when it was seen not to renew it for the length of one.

    Args:
        me: who looks.
        lease_ns: how long a lease is.
        clock: nanoseconds; ``boot_ns``.
    """

    def __init__(self, me: LeaseHolder, lease_ns: int, clock: Callable[[], int] = boot_ns) -> None:
        self._me = me
        self._lease_ns = lease_ns
        self._clock = clock
        self._seen: dict[int, tuple[int, int]] = {}

    def is_over(self, holder: LeaseHolder) -> bool:
        """Whether anybody may take what the holder has."""
        if has_ended(holder, self._me):
            return True
        if holder.boot and holder.boot == self._me.boot:
            return self._clock() > holder.until_ns
        until_ns, since_ns = self._seen.get(holder.id, (None, 0))
        if until_ns != holder.until_ns:
            self._seen[holder.id] = holder.until_ns, self._clock()
            return False
        return self._clock() > since_ns + self._lease_ns

    def survives(self, holder: LeaseHolder) -> bool:
        """Whether the holder's process is known to be there: what has let a lease go by is late, and has not crashed."""
        return _sees(self._me, holder) and not has_ended(holder, self._me)


def _sees(me: LeaseHolder, holder: LeaseHolder) -> bool:
    """Whether the holder's pid means here what it means there."""
    return bool(holder.started) and (holder.boot, holder.pid_namespace) == (me.boot, me.pid_namespace)


def _stat(pid: int) -> tuple[str, int] | None:
    """Return the state of a process and when it began; None where that cannot be told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[_STATE], int(fields[_STARTED])
