"""SpoolTable: the rows of an open spool, their leases, and whether a lease's owner still exists."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from spanscore.durable.rows import PutResult, RowEnd, RowKey, SpoolRow, SpoolState

__all__ = [
    "ADDED",
    "SCHEMA",
    "LeaseHolder",
    "LeaseWatch",
    "OwnLease",
    "SpoolBounds",
    "SpoolTable",
    "boot_ns",
    "has_ended",
    "this_process",
]

# --- owners ---------------------------------------------------------------------------------------------------------

# Who holds leases, and whether it can still be there: boot, PID namespace, pid, and when that began.
#
# A pid alone says little: it is used again, and two containers on one volume both have a pid 1.

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


class OwnLease:
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


# --- table ----------------------------------------------------------------------------------------------------------

# SpoolTable: the rows of an open file, and who holds them. All of it within a transaction of the caller's.
#
# What is small and often changed (``rows``) is apart from what is large and never changed (``bodies``): to lease a row
# rewrites some hundred bytes, and the half of a large file that says what there is can be checked in no time.

SCHEMA: Final = (
    "CREATE TABLE owners (id INTEGER PRIMARY KEY, boot TEXT NOT NULL, pid_namespace TEXT NOT NULL, pid INTEGER NOT NULL,"
    " started INTEGER NOT NULL, until_ns INTEGER NOT NULL)",
    "CREATE TABLE rows (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, put_ns INTEGER NOT NULL,"
    " owner INTEGER, begun INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, aside INTEGER NOT NULL DEFAULT 0,"
    " scores BLOB)",
    "CREATE INDEX waiting ON rows (kind, put_ns) WHERE owner IS NULL",
    "CREATE INDEX put_aside ON rows (id) WHERE aside > 0",
    "CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
)
"""``owner`` NULL: nobody's. ``begun``: in work. ``aside``: 1 = a dead letter that nobody has counted yet, 2 = that was counted,
or cannot be read."""
ADDED: Final = (
    "CREATE TABLE IF NOT EXISTS done (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, done_ns INTEGER NOT NULL)",
    "ALTER TABLE rows ADD COLUMN metrics TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX due ON rows (kind, metrics, put_ns) WHERE owner IS NULL",
    "CREATE INDEX scored ON rows (kind, put_ns) WHERE owner IS NULL AND scores IS NOT NULL",
)
"""Added to a file of an earlier version, whose processes can go on with it. ``metrics``: names without a score yet.
``done``: keys of rows that are done, so that a unit that comes again is recognised."""
_SETS_OF_METRICS: Final = (
    "WITH RECURSIVE each(metrics) AS (SELECT min(metrics) FROM rows WHERE owner IS NULL AND kind = :kind UNION ALL"
    " SELECT (SELECT min(metrics) FROM rows WHERE owner IS NULL AND kind = :kind AND metrics > each.metrics) FROM each"
    " WHERE metrics IS NOT NULL) SELECT metrics FROM each WHERE metrics IS NOT NULL"
)
"""One seek in the index ``due`` for each set of metrics, not one step for each row."""
_MOST_DONE, _ROOM_OF_DONE = 1_000_000, 1_000
"""Keys that are remembered at most; and bytes of the file for which there is one: a key takes about 80."""
_FORGOTTEN: Final = 64
"""Keys that are forgotten at most when one is remembered, as they are older than ``max_age``."""
_MOST_CRASHES: Final = 3
_UNTOLD, _TOLD = 1, 2
_FREE: Final = "UPDATE rows SET owner = NULL, begun = 0"
_REMEMBER: Final = (
    "INSERT OR REPLACE INTO done (key, done_ns) SELECT key, ? FROM rows WHERE key = ? AND owner = ? AND NOT aside"
)
_FORGET: Final = (
    "DELETE FROM done WHERE id IN (SELECT id FROM (SELECT id, done_ns FROM done ORDER BY id LIMIT ?) WHERE done_ns < ?)"
)


class SpoolBounds(NamedTuple):
    """How much is kept, and for how long."""

    max_bytes: int
    max_age_ns: int
    lease_ns: int


class SpoolTable:
    """The rows, for one holder of leases.

    Args:
        connection: in no transaction but those of the caller.
        lease: of this process.
        bounds: of the file.
        watch: of the leases of others.
        wall_ns: nanoseconds since the epoch, by which rows age.
        anew: whether this file took the place of one that this process had rows in: a row that is not there was lost with it,
            and is nobody else's.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        lease: OwnLease,
        bounds: SpoolBounds,
        *,
        watch: LeaseWatch,
        wall_ns: Callable[[], int],
        anew: bool = False,
    ) -> None:
        self._run = connection.execute
        self._run_each = connection.executemany
        self._lease = lease
        self._me = lease.holder.id
        self._bounds = bounds
        self._watch = watch
        self._wall_ns = wall_ns
        self._anew = anew
        self._used_bytes: int | None = None

    def renew(self) -> LeaseHolder:
        """Begin a transaction: write down that the lease holds from now on, if it is time to; return what stands there.

        Whoever passed over this holder has struck it off: nothing may be held by one that is not listed.
        """
        self._used_bytes = None  # asked anew in each transaction: others write, too
        is_listed = self._run("SELECT 1 FROM owners WHERE id = ?", (self._me,)).fetchone() is not None
        if is_listed and self._lease.is_young():
            return self._lease.holder
        renewed = self._lease.renewed()
        self._run("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)", renewed)
        return renewed

    def put(self, key: RowKey, body: bytes, *, own: bool, metrics: str = "") -> PutResult:
        """Keep a row; ``FULL`` where that would be past ``max_bytes``."""
        if self._is_done(key.to_bytes()):
            return PutResult.DONE
        used = self.used_bytes() if self._used_bytes is None else self._used_bytes
        if used + len(body) > self._bounds.max_bytes:
            return PutResult.FULL
        self._used_bytes = used + len(body)
        row = key.to_bytes(), key.kind, self._wall_ns(), self._me if own else None, metrics
        kept = self._run("INSERT OR IGNORE INTO rows (key, kind, put_ns, owner, metrics) VALUES (?, ?, ?, ?, ?)", row)
        if not kept.rowcount:
            return PutResult.KNOWN
        self._run("INSERT INTO bodies VALUES (?, ?)", (kept.lastrowid, body))
        return PutResult.KEPT

    def take(self, most: int, kind: str, *, ended: bool, has: Callable[[str], bool]) -> list[SpoolRow]:
        """Lease rows that nobody holds, the oldest first: rows to be worked on, or rows that are only to be counted.

        Args:
            has: whether this process can work on rows with these ``metrics``; rows with kept scores are leased in any case.
        """
        self._release_of_others()
        oldest_ns = self._wall_ns() - self._bounds.max_age_ns
        if ended:
            dead_letters = self._waiting(f"aside > 0 AND aside = {_UNTOLD}", (), kind, most)
            expired = self._waiting("aside = 0 AND put_ns < ?", (oldest_ns,), kind, most - len(dead_letters))
            return [*self._leased(dead_letters, RowEnd.DEAD_LETTER), *self._leased(expired, RowEnd.EXPIRED)]
        young = "aside = 0 AND put_ns >= ?"
        sets = [metrics for (metrics,) in self._run(_SETS_OF_METRICS, {"kind": kind})]
        workable = [metrics for metrics in sets if has(metrics)]
        if workable == sets:
            return self._leased(self._waiting(young, (oldest_ns,), kind, most), None)
        rows = {*self._waiting(f"{young} AND scores IS NOT NULL", (oldest_ns,), kind, most)}
        for metrics in workable:
            rows.update(self._waiting(f"{young} AND metrics = ?", (oldest_ns, metrics), kind, most))
        return self._leased(sorted(rows)[:most], None)

    def begin(self, keys: Iterable[RowKey]) -> None:
        """Say that rows are in work from now on: a crash counts."""
        self._change("UPDATE rows SET begun = 1", keys)

    def keep_scores(self, key: RowKey, scores: bytes) -> bool:
        """Keep what a row was given; False: it is not this holder's any more. Crashes do not count from here on.

        Nothing is kept of a dead letter: that it was given no scores must not stand when it is tried again.
        """
        held = self._run(
            "UPDATE rows SET scores = CASE WHEN aside THEN scores ELSE ? END, begun = 0 WHERE key = ? AND owner = ?",
            (scores, key.to_bytes(), self._me),
        )
        return bool(held.rowcount) or (self._anew and not self._is_there(key))

    def delete(self, keys: Iterable[RowKey]) -> None:
        """Delete rows of this holder; a dead letter is put aside for good instead."""
        mine = [(key.to_bytes(), self._me) for key in keys]
        self._run_each(f"UPDATE rows SET aside = {_TOLD}, owner = NULL WHERE key = ? AND owner = ? AND aside", mine)
        self._run_each("DELETE FROM bodies WHERE id = (SELECT id FROM rows WHERE key = ? AND owner = ?)", mine)
        self._run_each("DELETE FROM rows WHERE key = ? AND owner = ?", mine)

    def leave(self, keys: Iterable[RowKey], metrics: str) -> None:
        """Let others have rows of this holder for the metrics that it did not score; its own scores have been exported."""
        values = [(metrics, key.to_bytes(), self._me) for key in keys]
        changed = "scores = NULL, attempts = 0, metrics = ?"
        self._run_each(f"{_FREE}, {changed} WHERE key = ? AND owner = ?", values)

    def delete_and_remember(self, keys: Iterable[RowKey]) -> None:
        """Delete rows of this holder, and know their keys again for ``max_age``."""
        keys = [*keys]
        self.remember(keys)
        self.delete(keys)

    def remember(self, keys: Iterable[RowKey]) -> None:
        """Know the keys of rows of this holder again for ``max_age``; rows that stay are counted (``SpoolRow.counted``)."""
        now_ns = self._wall_ns()
        self._run_each(_REMEMBER, [(now_ns, key.to_bytes(), self._me) for key in keys])
        most = min(_MOST_DONE, self._bounds.max_bytes // _ROOM_OF_DONE)
        self._run("DELETE FROM done WHERE id <= (SELECT max(id) FROM done) - ?", (most,))
        self._run(_FORGET, (_FORGOTTEN, now_ns - self._bounds.max_age_ns))

    def put_aside(self, keys: Iterable[RowKey]) -> None:
        """Put rows of this holder aside, as counted."""
        self._change(f"UPDATE rows SET aside = {_TOLD}, owner = NULL", keys)

    def give_back(self, keys: Iterable[RowKey]) -> None:
        """Let others have rows of this holder at once."""
        self._change(_FREE, keys)

    def resign(self) -> None:
        """Give everything back, and hold no leases any more."""
        self._run(f"{_FREE} WHERE owner = ?", (self._me,))
        self._run("DELETE FROM owners WHERE id = ?", (self._me,))

    def state(self) -> SpoolState:
        """Return what there is. Some microseconds, two milliseconds for 160,000 rows."""
        dead_letters = self._number("SELECT count(*) FROM rows WHERE aside > 0")
        oldest = self._run("SELECT put_ns FROM rows WHERE aside = 0 ORDER BY id LIMIT 1").fetchone()
        age_ns = 0 if oldest is None else max(0, self._wall_ns() - oldest[0])
        return SpoolState(
            depth=self._number("SELECT count(*) FROM rows") - dead_letters,
            bytes=self.used_bytes(),
            oldest_s=age_ns / 1e9,
            owners=self._number("SELECT count(*) FROM owners"),
            dead_letters=dead_letters,
            expired=self._expired() if age_ns > self._bounds.max_age_ns else 0,
        )

    def used_bytes(self) -> int:
        """Return the bytes of the file that hold something."""
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def holders(self) -> list[LeaseHolder]:
        """Return who holds leases, or held some that nobody has taken yet."""
        return [LeaseHolder(*row) for row in self._run("SELECT * FROM owners")]

    def waiting(self) -> list[tuple[str, int, int]]:
        """Return for each set of metrics how many rows wait that nobody holds, and when the oldest was put."""
        return self._run(
            "SELECT metrics, count(*), min(put_ns) FROM rows WHERE owner IS NULL AND aside = 0 GROUP BY metrics"
        ).fetchall()

    def _waiting(self, which: str, values: tuple[int | str, ...], kind: str, most: int) -> list[tuple[int, int]]:
        """Return when the oldest rows that nobody holds were put, and their ids."""
        return self._run(
            f"SELECT put_ns, id FROM rows WHERE owner IS NULL AND kind = ? AND {which} ORDER BY put_ns, id LIMIT ?",
            (kind, *values, most),
        ).fetchall()

    def _leased(self, waiting: Iterable[tuple[int, int]], end: RowEnd | None) -> list[SpoolRow]:
        query = "SELECT key, body, scores, attempts, put_ns, metrics FROM rows JOIN bodies USING (id) WHERE id = ?"
        rows = [row for _, one in waiting for row in self._run(query, (one,))]
        self._run_each("UPDATE rows SET owner = ? WHERE key = ?", [(self._me, row[0]) for row in rows])
        return [
            SpoolRow(RowKey.from_bytes(key), body, scores, attempts, put_ns, end, metrics, self._is_done(key))
            for key, body, scores, attempts, put_ns, metrics in rows
        ]

    def held_by(self, holder: int) -> tuple[int, int]:
        """Return how many rows a holder has, and how many of them are in work."""
        rows, in_work = self._run("SELECT count(*), total(begun) FROM rows WHERE owner = ?", (holder,)).fetchone()
        return int(rows), int(in_work)

    def dead_letters(self) -> Iterator[tuple[RowKey, int, int]]:
        """Yield the key, the crashes and the time of each row that was put aside."""
        for key, attempts, put_ns in self._run(
            "SELECT key, attempts, put_ns FROM rows WHERE aside > 0 ORDER BY put_ns"
        ):
            yield RowKey.from_bytes(key), attempts, put_ns

    def retry_dead_letters(self) -> int:
        """Let what was put aside be taken again; return how many rows."""
        return self._run("UPDATE rows SET aside = 0, attempts = 0, owner = NULL WHERE aside > 0").rowcount

    def drop_before(self, put_ns: int) -> int:
        """Delete what was put before, unless a holder whose lease is not over has it; return how many rows."""
        self._release_of_others()
        self._run("DELETE FROM bodies WHERE id IN (SELECT id FROM rows WHERE owner IS NULL AND put_ns < ?)", (put_ns,))
        return self._run("DELETE FROM rows WHERE owner IS NULL AND put_ns < ?", (put_ns,)).rowcount

    def _release_of_others(self) -> None:
        """Free what those held whose leases are over; of those that did not survive, what was in work has crashed once more."""
        over = [other for other in self.holders() if other.id != self._me and self._watch.is_over(other)]
        for other in over:
            crashed = int(not self._watch.survives(other))
            self._run("UPDATE rows SET attempts = attempts + ? WHERE owner = ? AND begun", (crashed, other.id))
            self._run(f"{_FREE} WHERE owner = ?", (other.id,))
            self._run("DELETE FROM owners WHERE id = ?", (other.id,))
        if over:
            self._run(
                f"UPDATE rows SET aside = {_UNTOLD} WHERE owner IS NULL AND aside = 0 AND attempts >= {_MOST_CRASHES}"
            )

    def _change(self, statement: str, keys: Iterable[RowKey]) -> None:
        self._run_each(f"{statement} WHERE key = ? AND owner = ?", [(key.to_bytes(), self._me) for key in keys])

    def _number(self, query: str) -> int:
        return int(self._run(query).fetchone()[0])

    def _expired(self) -> int:
        before_ns = self._wall_ns() - self._bounds.max_age_ns
        query = "SELECT count(*) FROM rows WHERE owner IS NULL AND aside = 0 AND put_ns < ?"
        return int(self._run(query, (before_ns,)).fetchone()[0])

    def _is_done(self, key: bytes) -> bool:
        oldest_ns = self._wall_ns() - self._bounds.max_age_ns
        query = "SELECT 1 FROM done WHERE key = ? AND done_ns >= ?"
        return self._run(query, (key, oldest_ns)).fetchone() is not None

    def _is_there(self, key: RowKey) -> bool:
        return self._run("SELECT 1 FROM rows WHERE key = ?", (key.to_bytes(),)).fetchone() is not None
