"""The spool: rows in an SQLite file that outlives the process and that processes share; and its inspection by a command."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, time_ns
from typing import Final, NamedTuple

from spanscore.core.files import check_disk
from spanscore.core.log import log_internal_error
from spanscore.core.threads import call_in_child, start_daemon
from spanscore.durable.rows import PutResult, RowKey, SpoolRow, SpoolState, metrics_of
from spanscore.durable.spool_table import Leases, SpoolBounds, SpoolTable, boot_ns, has_ended
from spanscore.durable.spool_writer import (
    CLOSED,
    DAMAGED,
    Answer,
    Operation,
    SpoolWriter,
    Sync,
    check_ours,
    fault_of,
    make_tables,
)
from spanscore.errors import ConfigurationError

_GROUP: Final = 64
"""Maximum number of operations in one transaction. More would hardly save time, and delay the first operation."""
_GATHER_S: Final = 0.01
"""Seconds for which the first operation of a transaction waits for further operations."""
_PORTION: Final = 8
"""Maximum number of rows that one operation of ``_change`` changes, because a transaction must fit on a nearly full disk."""
_TICK_S: Final = 1.0
"""Seconds between two checks of an idle file; at most a quarter of a lease, so that the lease never expires."""
_MOST_UNWRITTEN_BYTES: Final = 64_000_000
"""Limit of bytes in memory that wait for the disk."""
_BEHIND: Final = "spool: behind"
_NO_ROOM: Final = "spool: max_bytes"


class SpoolFile:
    """Rows in an SQLite file that outlives the process, and that several processes share.

    A method queues an operation and returns. No method but ``close`` blocks, and none raises, whatever happens to the file. A
    thread runs the queued operations in one transaction, and calls the callbacks after its commit; after ``close`` the caller's
    thread calls them.

    Args:
        path: name of the file; a missing file is created, readable only by its owner.
        sync: with ``full`` rows survive a power failure; with ``normal`` they survive the end of the process, even ``kill
            -9``.
        max_bytes: limit of the used bytes of the file. Messages of sinks may fill half of it.
        max_age_s: age in s after which waiting rows are not scored any more.
        lease_s: time in s after which other processes may take the rows of a stopped process; at once if it is known to have
            ended.
        allow_network_disk: whether the file may be on a disk that other machines also write.
        lock_wait_s: time in s for which an operation waits while another program holds the file's lock.
        tidy_s: time in s after which deleted rows cannot be read in any file, and unused space is returned to the disk.
        clock: clock of leases, in ns.
        wall_ns: wall clock for the age of rows, Unix ns.

    Raises:
        ConfigurationError: the file cannot be created, belongs to another program or a newer version, or is on a network
            disk.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        sync: Sync = "full",
        max_bytes: int = 1_000_000_000,
        max_age_s: float = 604_800.0,
        lease_s: float = 60.0,
        allow_network_disk: bool = False,
        lock_wait_s: float = 30.0,
        tidy_s: float = 10.0,
        clock: Callable[[], int] = boot_ns,
        wall_ns: Callable[[], int] = time_ns,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        if not allow_network_disk:
            check_disk(self.path)
        self._bounds = SpoolBounds(max_bytes, int(max_age_s * 1e9), int(lease_s * 1e9))
        self._make_writer = partial(
            SpoolWriter,
            path=self.path,
            sync=sync,
            bounds=self._bounds,
            lock_wait_s=lock_wait_s,
            tidy_s=tidy_s,
            clock=clock,
            wall_ns=wall_ns,
        )
        self._tick_s = min(_TICK_S, lease_s / 4)
        self._inherited: list[SpoolWriter] = []
        self._make_parts()
        self._writer.check_file()
        call_in_child(self, SpoolFile._begin_in_child)

    def _begin_in_child(self) -> None:
        self._inherited.append(self._writer)  # kept, because a child must not close the parent's connection
        self._make_parts()

    def _make_parts(self) -> None:
        self._writer = self._make_writer()
        self._waiting: deque[Operation] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._retries: list[Operation] = []  # failed operations that are run again
        self._retry_at_s = 0.0

    def put(
        self,
        key: RowKey,
        body: bytes,
        callback: Callable[[PutResult, str | None], None],
        *,
        own: bool,
        metrics: str = "",
    ) -> None:
        """Store a row.

        Args:
            callback: called after the commit, or after a failure, with the result; and with the reason if it is ``FULL`` or
                ``FAILED``, otherwise None.
            own: whether this process has the lease of the row from the start.
            metrics: names of the metrics that should score it, as one text (``text_of_metrics``); empty = not recorded.
        """

        def insert(table: SpoolTable) -> Answer:
            put = table.put(key, body, own=own, metrics=metrics)
            return lambda: callback(put, _NO_ROOM if put is PutResult.FULL else None)

        self._submit(Operation(insert, lambda fault, _: callback(fault.put, fault.reason), len(body), grows=True))

    def take(
        self,
        most: int,
        kind: str,
        callback: Callable[[list[SpoolRow]], None],
        *,
        ended_only: bool = False,
        has: Callable[[str], bool] = lambda metrics: True,
    ) -> None:
        """Lease rows that have no lease, or an expired lease, the oldest first.

        Args:
            callback: called with the rows; the list may be empty.
            ended_only: whether to lease only rows that will not be scored: expired rows, and dead letters that no process
                has counted. They have a ``SpoolRow.end``, and are counted and then ``done``.
            has: returns whether this process has one of the metrics in ``SpoolRow.metrics``; other rows are left to other
                processes, unless scores were stored for them. Called on the spool's thread.
        """

        def lease(table: SpoolTable) -> Answer:
            rows = table.take(most, kind, ended=ended_only, has=has)
            return lambda: callback(rows)

        self._submit(Operation(lease, lambda *_: callback([])))

    def begin(self, keys: Iterable[RowKey], callback: Callable[[], None]) -> None:
        """Record that rows of this process are being scored, so that a crash counts. Start scoring after the callback."""
        begun = tuple(keys)

        def mark(table: SpoolTable) -> Answer:
            table.begin(begun)
            return callback

        self._submit(Operation(mark, lambda *_: callback()))

    def keep_scores(self, key: RowKey, scores: bytes, callback: Callable[[bool], None]) -> None:
        """Store the scores of a row before they are emitted.

        If the disk fails, ``callback`` gets True for a row that no other process can have, because the scores were paid for.
        After a crash the judge is then called again, with the same score ids.

        Args:
            callback: called with True if the scores are to be emitted; with False if another process has the row, and emits
                scores.
        """

        def write(table: SpoolTable) -> Answer:
            kept = table.keep_scores(key, scores)
            return lambda: callback(kept)

        self._submit(Operation(write, lambda _, held: callback(held), len(scores)))

    def done(self, keys: Iterable[RowKey], *, remember: bool = False) -> None:
        """Delete rows with exported scores. A counted dead letter stays in the file.

        Args:
            remember: whether a later put of such a key, by any process within ``max_age``, returns ``DONE``.
        """
        self._change(SpoolTable.delete_and_remember if remember else SpoolTable.delete, keys)

    def remember(self, keys: Iterable[RowKey]) -> None:
        """Note that sums with the scores of these rows have been exported, so that no later process counts the scores again."""
        self._change(SpoolTable.remember, keys)

    def mark_sent(self, keys: Iterable[RowKey]) -> None:
        """Keep rows with exported scores until the sums with these scores are exported.

        If this process ends before, a later process adds the stored scores to its sums. A file that is half full keeps no such
        rows: then the sums of a process that is killed before its next export lack these scores.
        """
        self._change(SpoolTable.mark_sent, keys)

    def leave(self, key: RowKey, metrics: str) -> None:
        """Release a row, after the export of this process's scores, for processes that have the other metrics.

        Args:
            metrics: names of the metrics without a score, as one text (``text_of_metrics``).
        """
        self._change(lambda table, keys: table.leave(keys, metrics), [key])

    def put_aside(self, keys: Iterable[RowKey]) -> None:
        """Keep unreadable rows in the file as dead letters; ``retry_dead_letters`` makes them available again."""
        self._change(SpoolTable.put_aside, keys)

    def give_back(self, keys: Iterable[RowKey]) -> None:
        """Release rows, so that other processes may lease them immediately."""
        self._change(SpoolTable.give_back, keys)

    def room(self, size_bytes: int) -> str | None:
        """Return the reason why a unit's row of that size would not be stored; None if it would. Thread-safe; cheap."""
        refusing = CLOSED if self._closed else self._writer.refusing
        if refusing is not None:
            return refusing.reason
        if self._waiting_bytes + size_bytes > _MOST_UNWRITTEN_BYTES:
            return _BEHIND
        used = self._writer.state.bytes + self._waiting_bytes
        return _NO_ROOM if used + size_bytes > self._bounds.max_bytes else None

    def state(self) -> SpoolState:
        """Return the content of the file, by all processes. Thread-safe; cheap.

        The state was read in the last successful transaction, some seconds ago at most while the spool is used and works.
        """
        return self._writer.state._replace(fault=self._writer.fault_line())

    def close(self, timeout_s: float) -> None:
        """Run the waiting operations, return the rows of this process, and close the file, within ``timeout_s`` seconds."""
        with self._changed:
            self._closed = True
            self._writer.hurry_by = monotonic() + timeout_s
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _change(self, change: Callable[[SpoolTable, Sequence[RowKey]], None], keys: Iterable[RowKey]) -> None:
        remaining = iter(keys)
        while portion := list(islice(remaining, _PORTION)):
            self._submit_change(change, portion)

    def _submit_change(self, change: Callable[[SpoolTable, Sequence[RowKey]], None], keys: Sequence[RowKey]) -> None:
        self._submit(Operation(lambda table: change(table, keys), lasting=True))

    def _submit(self, operation: Operation) -> None:
        with self._changed:
            if not self._closed and self._thread is None:
                self._thread = start_daemon(self._work, "spanscore-spool")
            if not self._closed and self._thread is not None:
                self._waiting.append(operation)
                self._waiting_bytes += operation.size_bytes
                if len(self._waiting) in (1, _GROUP):
                    self._changed.notify_all()
                return
        if operation.fail is not None:
            operation.fail(CLOSED, False)

    def _work(self) -> None:
        while (group := self._next_group()) is not None:
            self._run_group(group)
        failed = len(self._retries) + 1
        while len(self._retries) < failed:  # as long as some of the failed operations succeed
            failed = len(self._retries)
            self._run_group([])
        self._writer.close()

    def _next_group(self) -> list[Operation] | None:
        """Wait for operations, at most for a tick, and return them; an empty group after a tick, None at the end."""
        until_tick_s = max(0.0, self._retry_at_s - monotonic()) if self._retries else self._tick_s
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, until_tick_s)
            if self._waiting:
                self._changed.wait_for(lambda: len(self._waiting) >= _GROUP or self._closed, _GATHER_S)
            elif self._closed:
                return None
            return [self._waiting.popleft() for _ in range(min(_GROUP, len(self._waiting)))]

    def _run_group(self, group: list[Operation]) -> None:
        """Run a group and earlier failed operations in one transaction. Failed operations wait for a second, because a disk may
        fail for hours.
        """
        now_s = monotonic()
        retried = self._retries[:_GROUP] if now_s >= self._retry_at_s or self._closed else []
        answers, failed = self._writer.run([*retried, *group], group[0].since_s if group else now_s)
        self._retries = [*failed, *self._retries[len(retried) :]]
        self._retry_at_s = now_s + _TICK_S if failed else now_s
        with self._changed:
            self._waiting_bytes -= sum(operation.size_bytes for operation in group)
        for answer in answers:
            try:
                answer()
            except Exception as error:  # noqa: BLE001  (an error of one callback must not stop the others)
                log_internal_error("report a result of the spool", error)
        self._writer.tidy()


# --- inspection for the command line, without content ------------------------------------------------------------

_LOCK_WAIT_S: Final = 30.0
_INSPECTION_BOUNDS: Final = SpoolBounds(
    max_bytes=2**62, max_age_ns=36_500 * 86_400 * 1_000_000_000, lease_ns=60_000_000_000
)
"""Bounds for inspection, because the file does not contain those of the configuration."""


class HeldRows(NamedTuple):
    """The rows of one process.

    Attributes:
        pid: id of the process.
        rows: number of its rows.
        in_work: number of its rows that are being scored.
        lease_s: seconds to the end of its lease, below 0 if expired; None if unknown, because the process is of another boot.
        has_ended: whether its process is known to have ended.
    """

    pid: int
    rows: int
    in_work: int
    lease_s: float | None
    has_ended: bool


class DeadLetter(NamedTuple):
    """A row that was put aside after three crashes, or earlier if it could not be read."""

    key: RowKey
    attempts: int
    age_s: float


class WaitingUnits(NamedTuple):
    """The units without a lease that one metric has not scored yet.

    Attributes:
        oldest_s: age of the oldest unit, in s.
    """

    metric: str
    units: int
    oldest_s: float


class SpoolInspection(NamedTuple):
    """The content of a spool.

    Attributes:
        state: numbers for the whole file; ``expired`` is 0, because the file does not contain ``max_age``.
        held: rows by process, the process with the most rows first.
        dead_letters: dead letters, the oldest first.
        waiting: waiting units by metric, the metric with the oldest unit first.
    """

    state: SpoolState
    held: list[HeldRows]
    dead_letters: list[DeadLetter]
    waiting: list[WaitingUnits]


def inspect_spool(path: Path) -> SpoolInspection:
    """Return the content of a spool. A file of an earlier version gets the tables and columns that it lacks.

    Raises:
        ConfigurationError: the file is not a spool, or cannot be read, or stays locked for 30 s.
    """
    with _open_table(path) as table:
        now_ns, me = time_ns(), table.leases.holder
        held = list[HeldRows]()
        for holder in table.holders():
            lease_s = (holder.until_ns - boot_ns()) / 1e9 if holder.boot == me.boot else None
            held.append(HeldRows(holder.pid, *table.count_held(holder.id), lease_s, has_ended(holder, me)))
        dead_letters = [
            DeadLetter(key, attempts, max(0, now_ns - put_ns) / 1e9) for key, attempts, put_ns in table.dead_letters()
        ]
        units: Counter[str] = Counter()
        oldest_ns: dict[str, int] = {}
        for metrics, number, put_ns in table.count_waiting():
            for name in metrics_of(metrics):
                units[name] += number
                oldest_ns[name] = min(put_ns, oldest_ns.get(name, put_ns))
        waiting = [
            WaitingUnits(name, units[name], max(0, now_ns - put_ns) / 1e9)
            for name, put_ns in sorted(oldest_ns.items(), key=lambda item: item[1])
        ]
        return SpoolInspection(table.state(), sorted(held, key=lambda rows: -rows.rows), dead_letters, waiting)


def retry_dead_letters(path: Path) -> int:
    """Make dead letters available again, as if they had never crashed; return their number.

    Raises:
        ConfigurationError: as for ``inspect_spool``.
    """
    with _open_table(path) as table:
        return table.retry_dead_letters()


def drop_older(path: Path, age_s: float) -> int:
    """Delete older rows, including dead letters; return their number.

    Rows of a process stay if its lease has not expired, or if its end is unknown here (another boot, machine or container).

    Raises:
        ConfigurationError: as for ``inspect_spool``.
    """
    with _open_table(path) as table:
        return table.drop_before(time_ns() - int(age_s * 1e9))


@contextmanager
def _open_table(path: Path) -> Iterator[SpoolTable]:
    """Yield the table of a spool in a transaction, which is committed at the end."""
    if not path.is_file():
        raise ConfigurationError(f"{path} is not a spool: there is no such file")
    uri = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S, isolation_level=None)) as connection:
            if not check_ours(connection, path):
                raise ConfigurationError(f"{path} is not a spool: it is empty")
            make_tables(connection)
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("BEGIN IMMEDIATE")
            yield SpoolTable(connection, Leases(_INSPECTION_BOUNDS.lease_ns), _INSPECTION_BOUNDS, wall_ns=time_ns)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        fault = fault_of(error)
        why = "it is not a spool, or it is damaged" if fault is DAMAGED else fault.line
        raise ConfigurationError(f"{path} cannot be read: {why}") from error
