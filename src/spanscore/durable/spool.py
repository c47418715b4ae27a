"""SpoolFile: rows in an SQLite file that outlives the process and is shared; and a view of it from outside."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import monotonic, time_ns
from typing import Final, NamedTuple, TypeVar

from spanscore.core.files import check_disk
from spanscore.core.log import log_internal_error
from spanscore.core.threads import reset_in_child, start_daemon
from spanscore.durable.rows import PutResult, RowKey, SpoolRow, SpoolState, metrics_of
from spanscore.durable.spool_table import (
    LeaseHolder,
    LeaseWatch,
    OwnLease,
    SpoolBounds,
    SpoolTable,
    boot_ns,
    has_ended,
)
from spanscore.durable.spool_writer import (
    CLOSED,
    DAMAGED,
    NO_ROOM,
    Answer,
    Operation,
    SpoolWriter,
    Sync,
    begin_rows,
    change_rows,
    check_ours,
    fault_of,
    keep_scores,
    make_tables,
    put_row,
    take_rows,
)
from spanscore.errors import ConfigurationError

__all__ = [
    "DeadLetter",
    "HeldRows",
    "SpoolFile",
    "SpoolInspection",
    "WaitingUnits",
    "drop_older",
    "inspected",
    "retry_dead_letters",
]

# --- spool file -----------------------------------------------------------------------------------------------------

# SpoolFile: rows in an SQLite file that outlives the process, and that several processes share.
#
# Whoever calls it leaves an operation and goes on; one thread, ``spanscore-spool``, takes what has come together, does it
# in one transaction, and answers when that is on the disk.

_GROUP: Final = 64
"""Operations in one transaction: with more, the disk gains little, and the first one waits."""
_GATHER_S: Final = 0.01
"""How long the first one waits for others."""
_PORTION: Final = 8
"""Rows that one operation deletes: what a transaction writes must fit into what a disk has left that is all but full."""
_TICK_S: Final = 1.0
"""Between two looks at the file while nothing is asked; of a short lease it is a quarter, so that it never goes by."""
_MOST_UNWRITTEN_BYTES: Final = 64_000_000
"""In memory, on their way to the disk."""
_BEHIND: Final = "spool: behind"


class _Waiting(NamedTuple):
    since: float
    operation: Operation


class SpoolFile:
    """A spool. Nothing that is called blocks or raises, whatever becomes of the file; answers come on the spool's thread.

    Args:
        path: made where it is not there, for its owner alone.
        sync: ``full``: what is kept survives the loss of power; ``normal``: the end of the process, ``kill -9`` too.
        max_bytes: of the file, bytes.
        max_age_s: rows that wait for longer are not worked on any more, seconds.
        lease_s: what a process has that no longer runs, or is stopped, is others' after this, seconds; where it is seen that it
            has ended, at once.
        allow_network_disk: whether the file may lie where other machines write, too.
        patience_s: how long what is put waits while another program holds the file's lock, seconds.
        tidy_s: seconds after which what is done can be read in no file any more, and unused room is the disk's again.
        clock: nanoseconds by which leases run.
        wall_ns: nanoseconds since the epoch, by which rows age.

    Raises:
        ConfigurationError: it cannot be made, is another program's or of a newer version, or lies on a network disk.
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
        patience_s: float = 30.0,
        tidy_s: float = 10.0,
        clock: Callable[[], int] = boot_ns,
        wall_ns: Callable[[], int] = time_ns,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        if not allow_network_disk:
            check_disk(self.path)
        self._sync = sync
        self._bounds = SpoolBounds(max_bytes, int(max_age_s * 1e9), int(lease_s * 1e9))
        self._patience_s = patience_s
        self._tidy_s = tidy_s
        self._tick_s = min(_TICK_S, lease_s / 4)
        self._clock = clock
        self._wall_ns = wall_ns
        self._inherited: list[SpoolWriter] = []
        self._begin_anew()
        self._writer.look()
        reset_in_child(self, SpoolFile.reset)

    def reset(self) -> None:
        """Be as new, in a forked child: what waits and what is leased is its parent's, and so is the connection."""
        self._inherited.append(self._writer)  # kept: to close its connection is not the child's to do
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._writer = SpoolWriter(
            path=self.path,
            sync=self._sync,
            bounds=self._bounds,
            lease=OwnLease(self._bounds.lease_ns, self._clock),
            clock=self._clock,
            wall_ns=self._wall_ns,
            patience_s=self._patience_s,
            tidy_s=self._tidy_s,
        )
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._again: list[Operation] = []
        self._again_at = 0.0

    def put(
        self, key: RowKey, body: bytes, told: Callable[[PutResult, str | None], None], *, own: bool, metrics: str = ""
    ) -> None:
        """Keep a row.

        Args:
            told: called after the commit with what became of it, and why where it was not kept.
            own: whether this process has its lease from the start.
            metrics: names of the metrics that are to score it, as one text (``text_of_metrics``); empty = none is noted.
        """
        self._submit(put_row(key, body, told, own=own, metrics=metrics))

    def take(
        self,
        most: int,
        kind: str,
        told: Callable[[list[SpoolRow]], None],
        *,
        ended_only: bool = False,
        has: Callable[[str], bool] = lambda metrics: True,
    ) -> None:
        """Lease rows that nobody holds, or whose holder is dead or late, the oldest first.

        Args:
            told: called with at most ``most`` of them; with none, too.
            ended_only: those that are only to be counted (``SpoolRow.end``) and then ``done``, not those to be worked on.
            has: whether this process has one of the metrics in ``SpoolRow.metrics``; rows without one are left to others,
                unless scores were kept for them. Called on the spool's thread.
        """
        self._submit(take_rows(most, kind, told, ended=ended_only, has=has))

    def begin(self, keys: Iterable[RowKey], told: Callable[[], None]) -> None:
        """Say that rows of this process are in work: a crash counts from then on. Work begins when it is told."""
        self._submit(begin_rows(tuple(keys), told))

    def keep_scores(self, key: RowKey, scores: bytes, told: Callable[[bool], None]) -> None:
        """Keep what a row was given, before it is emitted.

        Args:
            told: called with True: emit it; with False: the row is another's by now, who does.
        """
        self._submit(keep_scores(key, scores, told))

    def done(self, keys: Iterable[RowKey], *, remember: bool = False) -> None:
        """Delete rows: what they were given has arrived. Poison that was counted is put aside for good instead.

        Args:
            keys: of rows of this process.
            remember: whether a row of such a key that is put within ``max_age`` is ``DONE``, by any process.
        """
        for some in _portions(keys):
            self._submit(change_rows(SpoolTable.delete_and_remember if remember else SpoolTable.delete, some))

    def remember(self, keys: Iterable[RowKey]) -> None:
        """Note that sums with the scores of these rows have been exported: who takes one again adds them to none."""
        for some in _portions(keys):
            self._submit(change_rows(SpoolTable.remember, some))

    def leave(self, key: RowKey, metrics: str) -> None:
        """Let others have a row for the metrics that this process lacks, when its own scores have arrived."""
        self._submit(change_rows(lambda table, keys: table.leave(keys, metrics), [key]))

    def put_aside(self, keys: Iterable[RowKey]) -> None:
        """Leave rows in the file that nobody can read: whoever can has them tried again (``inspection.py``)."""
        for some in _portions(keys):
            self._submit(change_rows(SpoolTable.put_aside, some))

    def give_back(self, keys: Iterable[RowKey]) -> None:
        """Let others have rows at once, as a drain does."""
        for some in _portions(keys):
            self._submit(change_rows(SpoolTable.give_back, some))

    def room(self, size_bytes: int) -> str | None:
        """Return why a row of that size would not be kept; None: it would, as far as is known. Cheap, any thread."""
        refusing = CLOSED if self._closed else self._writer.refusing
        if refusing is not None:
            return refusing.reason
        if self._waiting_bytes + size_bytes > _MOST_UNWRITTEN_BYTES:
            return _BEHIND
        used = self._writer.state.bytes + self._waiting_bytes
        return NO_ROOM if used + size_bytes > self._bounds.max_bytes else None

    def state(self) -> SpoolState:
        """Return what is in the file, by all processes, as it was a second ago at most. Cheap, any thread."""
        return self._writer.state._replace(fault=self._writer.said())

    def close(self, timeout_s: float) -> None:
        """Do what waits, give back what this process holds, and close the file; wait for it for so long at most, seconds."""
        with self._changed:
            self._closed = True
            self._writer.hurry_by = monotonic() + timeout_s
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _submit(self, operation: Operation) -> None:
        with self._changed:
            if not self._closed and self._runs():
                self._waiting.append(_Waiting(monotonic(), operation))
                self._waiting_bytes += operation.size_bytes
                if len(self._waiting) in (1, _GROUP):
                    self._changed.notify_all()
                return
        operation.fail(CLOSED, False)

    def _runs(self) -> bool:
        if self._thread is None:
            self._thread = start_daemon(self._work, "spanscore-spool")
        return self._thread is not None

    def _work(self) -> None:
        while (group := self._next_group()) is not None:
            self._do(group)
        self._do([])
        self._writer.leave()

    def _next_group(self) -> list[_Waiting] | None:
        """Wait for operations, or for a tick: an empty group. None: all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, self._until_tick_s())
            if self._waiting:
                self._changed.wait_for(lambda: len(self._waiting) >= _GROUP or self._closed, _GATHER_S)
            elif self._closed:
                return None
            return [self._waiting.popleft() for _ in range(min(_GROUP, len(self._waiting)))]

    def _until_tick_s(self) -> float:
        return max(0.0, self._again_at - monotonic()) if self._again else self._tick_s

    def _do(self, group: list[_Waiting]) -> None:
        """Do a group in one transaction, with what could not be done before: after a pause, as a disk may fail for hours."""
        now = monotonic()
        before = self._again[:_GROUP] if now >= self._again_at or self._closed else []
        since = group[0].since if group else now
        answers, again = self._writer.do([*before, *(waiting.operation for waiting in group)], since)
        self._again = [*again, *self._again[len(before) :]]
        self._again_at = now + _TICK_S if again else now
        with self._changed:
            self._waiting_bytes -= sum(one.operation.size_bytes for one in group)
        for answer in answers:
            _give(answer)
        self._writer.tidy()


def _portions(keys: Iterable[RowKey]) -> Iterator[list[RowKey]]:
    left = iter(keys)
    while some := list(islice(left, _PORTION)):
        yield some


def _give(answer: Answer) -> None:
    try:
        answer()
    except Exception as error:  # noqa: BLE001  (one that is told must not keep others from it)
        log_internal_error("answer for what was put into the spool", error)


# --- inspection -----------------------------------------------------------------------------------------------------

# A spool seen from outside: what waits, who holds it, what was put aside; no content. For the command line.

_WAITS_S: Final = 30.0
_DAY_NS: Final = 86_400 * 1_000_000_000
_ANY: Final = SpoolBounds(max_bytes=2**62, max_age_ns=36_500 * _DAY_NS, lease_ns=60_000_000_000)
"""What a spool is bounded by is in the configuration, not in the file."""

T = TypeVar("T")


class HeldRows(NamedTuple):
    """What one process holds.

    Attributes:
        rows: that it holds.
        in_work: of these.
        lease_s: seconds that its lease holds for, below 0: it is late. None = it counts from another boot: nobody can tell.
        has_ended: whether its process is known to be gone.
    """

    pid: int
    rows: int
    in_work: int
    lease_s: float | None
    has_ended: bool


class DeadLetter(NamedTuple):
    """A row that was put aside: after three crashes; with fewer, as it could not be read."""

    key: RowKey
    attempts: int
    age_s: float


class WaitingUnits(NamedTuple):
    """The units that nobody holds and that one metric is still to score.

    Attributes:
        metric: its name.
        units: their number.
        oldest_s: age of the oldest one, seconds.
    """

    metric: str
    units: int
    oldest_s: float


class SpoolInspection(NamedTuple):
    """What is in a spool.

    Attributes:
        held: by process, the one with most rows first.
        dead_letters: the oldest first.
        waiting: by metric, the one with the oldest unit first.
    """

    state: SpoolState
    held: list[HeldRows]
    dead_letters: list[DeadLetter]
    waiting: list[WaitingUnits]


def inspected(path: Path) -> SpoolInspection:
    """Return what is in a spool.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    return _asked(path, _inspection)


def retry_dead_letters(path: Path) -> int:
    """Let rows that were put aside be taken again, as if they had never crashed; return how many.

    Raises:
        ConfigurationError: as ``inspected``.
    """
    return _asked(path, lambda connection: _table(connection).retry_dead_letters())


def drop_older(path: Path, age_s: float) -> int:
    """Delete rows that are older, dead letters too; not what a process that runs holds. Return how many.

    Raises:
        ConfigurationError: as ``inspected``.
    """
    before_ns = time_ns() - int(age_s * 1e9)
    return _asked(path, lambda connection: _table(connection).drop_before(before_ns))


def _asked(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
    try:
        with _spool(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            answer = ask(connection)
            connection.execute("COMMIT")
            return answer
    except sqlite3.Error as error:
        fault = fault_of(error)
        why = "it is no spool, or it is damaged" if fault is DAMAGED else fault.line
        raise ConfigurationError(f"{path} cannot be read: {why}") from error


@contextmanager
def _spool(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise ConfigurationError(f"{path} is no spool: there is no such file")
    where = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(where, uri=True, timeout=_WAITS_S, isolation_level=None)
    try:
        if not check_ours(connection, path):
            raise ConfigurationError(f"{path} is no spool: it is empty")
        make_tables(connection)
        connection.execute("PRAGMA secure_delete=ON")
        yield connection
    finally:
        connection.close()


def _table(connection: sqlite3.Connection) -> SpoolTable:
    lease = OwnLease(_ANY.lease_ns)
    return SpoolTable(connection, lease, _ANY, watch=LeaseWatch(lease.holder, _ANY.lease_ns), wall_ns=time_ns)


def _inspection(connection: sqlite3.Connection) -> SpoolInspection:
    table, now = _table(connection), time_ns()
    me = OwnLease(_ANY.lease_ns).holder
    held = [_held(holder, me, table.held_by(holder.id)) for holder in table.holders()]
    dead_letters = [
        DeadLetter(key, attempts, max(0, now - put_ns) / 1e9) for key, attempts, put_ns in table.dead_letters()
    ]
    return SpoolInspection(table.state(), sorted(held, key=lambda one: -one.rows), dead_letters, _waiting(table, now))


def _waiting(table: SpoolTable, now_ns: int) -> list[WaitingUnits]:
    units: Counter[str] = Counter()
    oldest_ns: dict[str, int] = {}
    for metrics, number, put_ns in table.waiting():
        for name in metrics_of(metrics):
            units[name] += number
            oldest_ns[name] = min(put_ns, oldest_ns.get(name, put_ns))
    return [
        WaitingUnits(name, units[name], max(0, now_ns - put_ns) / 1e9)
        for name, put_ns in sorted(oldest_ns.items(), key=lambda item: item[1])
    ]


def _held(holder: LeaseHolder, me: LeaseHolder, counts: tuple[int, int]) -> HeldRows:
    left_s = (holder.until_ns - boot_ns()) / 1e9 if holder.boot == me.boot else None
    return HeldRows(holder.pid, *counts, left_s, has_ended(holder, me))
