"""The tables of an open spool: rows and leases; and whether the process that holds a lease still runs."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from spanscore.core.files import number_of
from spanscore.durable.rows import COPY, JOB, PutResult, RowEnd, RowKey, SpoolRow, SpoolState

_STATE, _STARTED = 0, 19
"""Indexes into the fields of ``/proc/PID/stat`` after the name, which may itself contain blanks and brackets."""


class LeaseHolder(NamedTuple):
    """One process that has the file open. A pid alone does not identify it: pids are reused, and each container has a pid 1.

    Attributes:
        id: random number, never reused.
        boot: id of the machine's boot; empty = unknown.
        pid_namespace: namespace of the pid; empty = unknown.
        started: start of the process in ticks since the boot; 0 = unknown.
        until_ns: end of its leases, by ``boot_ns`` of that boot.
    """

    id: int
    boot: str
    pid_namespace: str
    pid: int
    started: int
    until_ns: int = 0


def boot_ns() -> int:
    """Return nanoseconds since the machine's boot, including sleep; setting the clock does not change them."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


def this_process() -> LeaseHolder:
    """Return a new holder, because a process may open the file more than once."""
    boot, namespace = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    _, started = _process_stat(os.getpid()) or ("", 0)
    return LeaseHolder(int.from_bytes(os.urandom(7), "big"), boot, namespace, os.getpid(), started)


def has_ended(holder: LeaseHolder, me: LeaseHolder) -> bool:
    """Return whether the holder's process is known to have ended; False if that is unknown here."""
    if not _is_comparable(me, holder):
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # a process of another user
        return False
    stat = _process_stat(holder.pid)
    # None: /proc hides processes of other users. A zombie has ended, even if its parent has not noticed yet.
    return stat is not None and (stat[1] != holder.started or stat[0] in "ZX")


class Leases:
    """The lease of this process, and the expiry of other leases.

    It outlives a connection, so that this process keeps its rows when the disk fails. The clock of another boot (another
    machine, or this machine before a restart) is not comparable: such a lease is over if it was not renewed for the length of
    a lease.

    Args:
        length_ns: length of a lease, in ns.
        clock: clock in ns; ``boot_ns``.

    Attributes:
        holder: this process, with the end of its lease as others can read it.
    """

    def __init__(self, length_ns: int, clock: Callable[[], int] = boot_ns) -> None:
        self.holder = this_process()
        self._length_ns = length_ns
        self._clock = clock
        self._seen: dict[int, tuple[int, int]] = {}  # holder → end of its lease, and the time at which it was read

    def is_young(self) -> bool:
        """Return whether two thirds of the lease are left."""
        return self.holder.until_ns - self._clock() > self._length_ns * 2 / 3

    def renewed_holder(self) -> LeaseHolder:
        """Return the holder with a full lease from now on."""
        return self.holder._replace(until_ns=self._clock() + self._length_ns)

    def holds(self) -> bool:
        """Return whether no other process can have leased the rows of this process."""
        return self._clock() <= self.holder.until_ns

    def is_over(self, holder: LeaseHolder) -> bool:
        """Return whether any process may lease the rows of another holder."""
        if has_ended(holder, self.holder):
            return True
        if holder.boot and holder.boot == self.holder.boot:
            return self._clock() > holder.until_ns
        until_ns, since_ns = self._seen.get(holder.id, (None, 0))
        if until_ns != holder.until_ns:
            self._seen[holder.id] = holder.until_ns, self._clock()
            return False
        return self._clock() > since_ns + self._length_ns

    def survives(self, holder: LeaseHolder) -> bool:
        """Return whether the holder's process is known to run, so that an expired lease is late, and not a crash."""
        return _is_comparable(self.holder, holder) and not has_ended(holder, self.holder)


def _is_comparable(me: LeaseHolder, holder: LeaseHolder) -> bool:
    """Return whether the holder's pid means the same process here: its boot and its namespace are those of this process."""
    return bool(holder.started) and (holder.boot, holder.pid_namespace) == (me.boot, me.pid_namespace)


def _process_stat(pid: int) -> tuple[str, int] | None:
    """Return the state and the start of a process; None = unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[_STATE], int(fields[_STARTED])


# Small data that change often (``rows``) are separate from large data that never change (``bodies``): leasing a row rewrites
# some hundred bytes, and the part of a large file with the list of rows is checked quickly.
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
"""``owner`` is NULL without a lease. ``begun`` is 1 while the row is scored. ``aside`` is 1 for a dead letter that is not
counted yet, 2 for a dead letter that is counted or cannot be read.
"""
_MESSAGES: Final = "WHERE message"
"""Condition of the index ``message``; SQLite uses the index for queries with the same condition."""
ADDED: Final = {
    "metrics": (
        "CREATE TABLE IF NOT EXISTS done (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, done_ns INTEGER NOT NULL)",
        "ALTER TABLE rows ADD COLUMN metrics TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX due ON rows (kind, metrics, put_ns) WHERE owner IS NULL",
        "CREATE INDEX scored ON rows (kind, put_ns) WHERE owner IS NULL AND scores IS NOT NULL",
    ),
    "sent": (
        "ALTER TABLE rows ADD COLUMN sent INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX sent ON rows (id) WHERE sent",
    ),
    "message": (
        "ALTER TABLE rows ADD COLUMN message INTEGER NOT NULL DEFAULT 0",
        f"CREATE INDEX message ON rows (kind) {_MESSAGES}",
    ),
}
"""Column → statements that add it to a file of an earlier version; processes of that version can still use the file.
``metrics``: names without a score yet. ``done``: keys of rows that are done, so that a unit that arrives again is recognised.
``sent``: the scores have been exported, but their sums have not. ``message``: the row is a message of a sink, and no unit."""
_SETS_OF_METRICS: Final = (
    "WITH RECURSIVE each(metrics) AS (SELECT min(metrics) FROM rows WHERE owner IS NULL AND kind = :kind UNION ALL"
    " SELECT (SELECT min(metrics) FROM rows WHERE owner IS NULL AND kind = :kind AND metrics > each.metrics) FROM each"
    " WHERE metrics IS NOT NULL) SELECT metrics FROM each WHERE metrics IS NOT NULL"
)
"""One seek in the index ``due`` for each set of metrics, instead of one step for each row."""
_MOST_REMEMBERED, _BYTES_PER_REMEMBERED = 1_000_000, 1_000
"""Highest number of remembered keys, and bytes of the file per key: a key takes about 80."""
_MOST_FORGOTTEN: Final = 64
"""Highest number of keys older than ``max_age`` that are deleted when one is remembered."""
MOST_CRASHES: Final = 3
_ASIDE_UNCOUNTED, _ASIDE_COUNTED = 1, 2
_MARK_COUNTED: Final = f"UPDATE rows SET aside = {_ASIDE_COUNTED}, owner = NULL WHERE key = ? AND owner = ? AND aside"
_RELEASE: Final = "UPDATE rows SET owner = NULL, begun = 0"
_REMEMBER: Final = (
    "INSERT OR REPLACE INTO done (key, done_ns) SELECT key, ? FROM rows WHERE key = ? AND owner = ? AND NOT aside"
)
_FORGET: Final = (
    "DELETE FROM done WHERE id IN (SELECT id FROM (SELECT id, done_ns FROM done ORDER BY id LIMIT ?) WHERE done_ns < ?)"
)


class SpoolBounds(NamedTuple):
    """Size of the file, age of a row, and length of a lease."""

    max_bytes: int
    max_age_ns: int
    lease_ns: int


class SpoolTable:
    """The rows of an open file, for one holder of leases. Every method runs within a transaction of the caller.

    Args:
        connection: connection without transactions except the caller's.
        wall_ns: wall clock for the age of rows, Unix ns.
        replaced: whether this file has replaced one in which this process had rows. A missing row was then lost with the
            replaced file, and no other process has it.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        leases: Leases,
        bounds: SpoolBounds,
        *,
        wall_ns: Callable[[], int],
        replaced: bool = False,
    ) -> None:
        self.leases = leases
        self._run = connection.execute
        self._run_each = connection.executemany
        self._number = partial(number_of, connection)
        self._holder_id = leases.holder.id
        self._bounds = bounds
        self._wall_ns = wall_ns
        self._replaced = replaced
        self._used_bytes: int | None = None

    def renew(self) -> LeaseHolder:
        """Begin a transaction: renew the lease in the file if it is due; return the stored lease.

        A process that leases the rows of this holder deletes the holder from the list. So an unlisted holder may have no rows.
        """
        self._used_bytes = None  # read again in each transaction, because others write too
        is_listed = self._run("SELECT 1 FROM owners WHERE id = ?", (self._holder_id,)).fetchone() is not None
        if is_listed and self.leases.is_young():
            return self.leases.holder
        holder = self.leases.renewed_holder()
        self._run("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)", holder)
        return holder

    def put(self, key: RowKey, body: bytes, *, own: bool, metrics: str = "") -> PutResult:
        """Store a row; ``FULL`` if the file would exceed ``max_bytes``. Messages may fill half of the file, so that units have
        room while a receiver is down.
        """
        if self._is_done(key.to_bytes()):
            return PutResult.DONE
        is_message = key.kind not in (JOB, COPY)
        used = self.used_bytes() if self._used_bytes is None else self._used_bytes
        if used + len(body) > self._bounds.max_bytes / (2 if is_message else 1):
            return PutResult.FULL
        self._used_bytes = used + len(body)
        row = key.to_bytes(), key.kind, self._wall_ns(), self._holder_id if own else None, metrics, is_message
        insert = "INSERT OR IGNORE INTO rows (key, kind, put_ns, owner, metrics, message) VALUES (?, ?, ?, ?, ?, ?)"
        kept = self._run(insert, row)
        if not kept.rowcount:
            return PutResult.KNOWN
        self._run("INSERT INTO bodies VALUES (?, ?)", (kept.lastrowid, body))
        return PutResult.KEPT

    def take(self, most: int, kind: str, *, ended: bool, has: Callable[[str], bool]) -> list[SpoolRow]:
        """Lease rows without a lease, the oldest first: rows to score, or rows that are only counted.

        Args:
            ended: whether to lease rows that are only counted.
            has: returns whether this process can score rows with these ``metrics``; rows with stored scores are always leased.
        """
        self._release_of_others()
        oldest_ns = self._wall_ns() - self._bounds.max_age_ns
        if ended:
            # ``aside > 0`` lets SQLite use the index ``put_aside``.
            dead_letters = self._find_unleased(f"aside > 0 AND aside = {_ASIDE_UNCOUNTED}", (), kind, most)
            expired = self._find_unleased("aside = 0 AND put_ns < ?", (oldest_ns,), kind, most - len(dead_letters))
            return [*self._lease(dead_letters, RowEnd.DEAD_LETTER), *self._lease(expired, RowEnd.EXPIRED)]
        young = "aside = 0 AND put_ns >= ?"
        sets = [metrics for (metrics,) in self._run(_SETS_OF_METRICS, {"kind": kind})]
        workable = [metrics for metrics in sets if has(metrics)]
        if workable == sets:
            return self._lease(self._find_unleased(young, (oldest_ns,), kind, most), None)
        rows = {*self._find_unleased(f"{young} AND scores IS NOT NULL", (oldest_ns,), kind, most)}
        for metrics in workable:
            rows.update(self._find_unleased(f"{young} AND metrics = ?", (oldest_ns, metrics), kind, most))
        return self._lease(sorted(rows)[:most], None)

    def begin(self, keys: Iterable[RowKey]) -> None:
        """Record that rows are being scored from now on, so that a crash counts."""
        self._change("UPDATE rows SET begun = 1", keys)

    def keep_scores(self, key: RowKey, scores: bytes) -> bool:
        """Store the scores of a row; returns False if this holder has lost its lease. Crashes do not count from here on.

        A dead letter stores no scores, because a retried row must be scored.
        """
        updated = self._run(
            "UPDATE rows SET scores = CASE WHEN aside THEN scores ELSE ? END, begun = 0 WHERE key = ? AND owner = ?",
            (scores, key.to_bytes(), self._holder_id),
        )
        if updated.rowcount or not self._replaced:
            return bool(updated.rowcount)
        return self._run("SELECT 1 FROM rows WHERE key = ?", (key.to_bytes(),)).fetchone() is None

    def delete(self, keys: Iterable[RowKey]) -> None:
        """Delete rows of this holder. A dead letter stays, marked as counted."""
        mine = [(key.to_bytes(), self._holder_id) for key in keys]
        self._run_each(_MARK_COUNTED, mine)
        self._run_each("DELETE FROM bodies WHERE id = (SELECT id FROM rows WHERE key = ? AND owner = ?)", mine)
        self._run_each("DELETE FROM rows WHERE key = ? AND owner = ?", mine)

    def leave(self, keys: Iterable[RowKey], metrics: str) -> None:
        """Release rows of this holder for metrics that the holder did not score. The holder's scores have been exported."""
        values = [(metrics, key.to_bytes(), self._holder_id) for key in keys]
        changed = "scores = NULL, attempts = 0, metrics = ?"
        self._run_each(f"{_RELEASE}, {changed} WHERE key = ? AND owner = ?", values)

    def delete_and_remember(self, keys: Sequence[RowKey]) -> None:
        """Delete rows of this holder, and remember their keys for ``max_age``."""
        self.remember(keys)
        self.delete(keys)

    def remember(self, keys: Iterable[RowKey]) -> None:
        """Remember the keys of rows of this holder for ``max_age``; remaining rows are then ``SpoolRow.counted``."""
        now_ns = self._wall_ns()
        self._run_each(_REMEMBER, [(now_ns, key.to_bytes(), self._holder_id) for key in keys])
        most = min(_MOST_REMEMBERED, self._bounds.max_bytes // _BYTES_PER_REMEMBERED)
        self._run("DELETE FROM done WHERE id <= (SELECT max(id) FROM done) - ?", (most,))
        self._run(_FORGET, (_MOST_FORGOTTEN, now_ns - self._bounds.max_age_ns))

    def mark_sent(self, keys: Sequence[RowKey]) -> None:
        """Keep rows of this holder until sums with their scores are exported; in a file that is half full, delete them."""
        if self.used_bytes() > self._bounds.max_bytes / 2:
            self.delete_and_remember(keys)
            return
        self._run_each(_MARK_COUNTED, [(key.to_bytes(), self._holder_id) for key in keys])
        self._change("UPDATE rows SET sent = 1", keys)

    def put_aside(self, keys: Iterable[RowKey]) -> None:
        """Make rows of this holder dead letters that are counted already."""
        self._change(f"UPDATE rows SET aside = {_ASIDE_COUNTED}, owner = NULL", keys)

    def give_back(self, keys: Iterable[RowKey]) -> None:
        """Release rows of this holder immediately."""
        self._change(_RELEASE, keys)

    def resign(self) -> None:
        """Release all rows and all leases of this holder."""
        self._run(f"{_RELEASE} WHERE owner = ?", (self._holder_id,))
        self._run("DELETE FROM owners WHERE id = ?", (self._holder_id,))

    def state(self) -> SpoolState:
        """Return the content of the file. This takes some microseconds, two milliseconds for 160,000 rows."""
        dead_letters = self._count("aside > 0")
        sent = self._count("sent")
        messages = dict(self._run(f"SELECT kind, count(*) FROM rows {_MESSAGES} GROUP BY kind").fetchall())
        age_ns, expired = self._oldest_ns(""), 0
        if age_ns > self._bounds.max_age_ns:
            oldest_ns = self._wall_ns() - self._bounds.max_age_ns
            expired = self._count("owner IS NULL AND aside = 0 AND put_ns < ?", oldest_ns)
        return SpoolState(
            depth=self._number("SELECT count(*) FROM rows") - dead_letters - sent - sum(messages.values()),
            bytes=self.used_bytes(),
            oldest_s=(self._oldest_ns(" AND NOT message") if messages else age_ns) / 1e9,
            owners=self._number("SELECT count(*) FROM owners"),
            dead_letters=dead_letters,
            expired=expired,
            messages=messages,
        )

    def _oldest_ns(self, which: str) -> int:
        """Return the age of the oldest row that is not a dead letter; 0 without such a row."""
        query = f"SELECT put_ns FROM rows WHERE aside = 0 AND NOT sent{which} ORDER BY id LIMIT 1"
        oldest = self._run(query).fetchone()
        return 0 if oldest is None else max(0, self._wall_ns() - oldest[0])

    def _count(self, which: str, *values: int) -> int:
        return self._number(f"SELECT count(*) FROM rows WHERE {which}", *values)

    def used_bytes(self) -> int:
        """Return the used bytes of the file."""
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def holders(self) -> list[LeaseHolder]:
        """Return the processes that hold leases, or whose rows no other process has leased yet."""
        return [LeaseHolder(*row) for row in self._run("SELECT * FROM owners")]

    def count_waiting(self) -> list[tuple[str, int, int]]:
        """Return the number of rows to score without a lease, and the time of the oldest, for each set of metrics."""
        return self._run(
            "SELECT metrics, count(*), min(put_ns) FROM rows WHERE owner IS NULL AND aside = 0 AND NOT sent GROUP BY metrics"
        ).fetchall()

    def _find_unleased(self, which: str, values: tuple[int | str, ...], kind: str, most: int) -> list[tuple[int, int]]:
        return self._run(
            f"SELECT put_ns, id FROM rows WHERE owner IS NULL AND kind = ? AND {which} ORDER BY put_ns, id LIMIT ?",
            (kind, *values, most),
        ).fetchall()

    def _lease(self, unleased: Iterable[tuple[int, int]], end: RowEnd | None) -> list[SpoolRow]:
        query = "SELECT key, body, scores, attempts, metrics, sent FROM rows JOIN bodies USING (id) WHERE id = ?"
        rows = [row for _, id_ in unleased for row in self._run(query, (id_,))]
        self._run_each("UPDATE rows SET owner = ? WHERE key = ?", [(self._holder_id, row[0]) for row in rows])
        return [
            SpoolRow(RowKey.from_bytes(key), body, scores, attempts, end, metrics, self._is_done(key), bool(sent))
            for key, body, scores, attempts, metrics, sent in rows
        ]

    def count_held(self, holder: int) -> tuple[int, int]:
        """Return the number of a holder's rows to score, and the number that is being scored."""
        query = "SELECT count(*), total(begun) FROM rows WHERE owner = ? AND NOT sent"
        rows, in_work = self._run(query, (holder,)).fetchone()
        return int(rows), int(in_work)

    def dead_letters(self) -> Iterator[tuple[RowKey, int, int]]:
        """Yield the key, the number of crashes and the time of each dead letter."""
        query = "SELECT key, attempts, put_ns FROM rows WHERE aside > 0 ORDER BY put_ns"
        return ((RowKey.from_bytes(key), attempts, put_ns) for key, attempts, put_ns in self._run(query))

    def retry_dead_letters(self) -> int:
        """Make dead letters available again; return their number."""
        return self._run("UPDATE rows SET aside = 0, attempts = 0, owner = NULL WHERE aside > 0").rowcount

    def drop_before(self, put_ns: int) -> int:
        """Delete rows stored before a time, except those with a valid lease; return their number."""
        self._release_of_others()
        self._run("DELETE FROM bodies WHERE id IN (SELECT id FROM rows WHERE owner IS NULL AND put_ns < ?)", (put_ns,))
        return self._run("DELETE FROM rows WHERE owner IS NULL AND put_ns < ?", (put_ns,)).rowcount

    def _release_of_others(self) -> None:
        """Release the rows of holders with expired leases; rows that an ended process was scoring get one more crash."""
        expired = [other for other in self.holders() if other.id != self._holder_id and self.leases.is_over(other)]
        for other in expired:
            crashed = int(not self.leases.survives(other))
            self._run("UPDATE rows SET attempts = attempts + ? WHERE owner = ? AND begun", (crashed, other.id))
            self._run(f"{_RELEASE} WHERE owner = ?", (other.id,))
            self._run("DELETE FROM owners WHERE id = ?", (other.id,))
        if expired:
            self._run(
                f"UPDATE rows SET aside = {_ASIDE_UNCOUNTED} WHERE owner IS NULL AND aside = 0 AND attempts >= {MOST_CRASHES}"
            )

    def _change(self, statement: str, keys: Iterable[RowKey]) -> None:
        self._run_each(f"{statement} WHERE key = ? AND owner = ?", [(key.to_bytes(), self._holder_id) for key in keys])

    def _is_done(self, key: bytes) -> bool:
        oldest_ns = self._wall_ns() - self._bounds.max_age_ns
        query = "SELECT 1 FROM done WHERE key = ? AND done_ns >= ?"
        return self._run(query, (key, oldest_ns)).fetchone() is not None
