"""The points on a unit's way through application, spool and worker at which a process may end, and its journal."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from spanscore.durable.rows import PutResult, RowKey
from spanscore.durable.spool import SpoolFile
from spanscore.durable.spool_table import SpoolTable
from spanscore.durable.spool_writer import SpoolWriter
from spanscore.monitoring.prometheus_client_text import Exposition
from spanscore.pipeline.spool_queue import SpoolQueue

__all__ = ["OF_WORKERS", "OF_WRITERS", "POINTS", "End", "Journal", "named", "watch"]

POINTS: Final[dict[str, int]] = {
    "accept": 30,
    "commit": 6,
    "committed": 6,
    "lease": 2,
    "leased": 2,
    "score": 30,
    "write": 30,
    "emit": 30,
    "emitted": 30,
    "read": 20,
    "delete": 2,
    "deleted": 2,
}
"""Point of a unit's way → at which passing of it a life ends, at most. ``-ed``: when that is on the disk, or out."""
OF_WRITERS: Final = ("accept", "commit", "committed")
OF_WORKERS: Final = tuple(point for point in POINTS if point != "accept")


class End(NamedTuple):
    """The end of a process: at the n-th passing of a point; ``time`` = after n milliseconds; ``last`` = after all work."""

    point: str
    passing: int


class Journal:
    """The actions of a process, and its end."""

    def __init__(self, path: Path, end: End) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._left = {end.point: end.passing}
        self._lock = Lock()
        self.deleted: list[RowKey] = []  # rows deleted, or marked as exported, in the transaction that goes on

    def say(self, *words: object) -> None:
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())

    def passes(self, point: str) -> None:
        """End this life, if it is to end here."""
        with self._lock:
            left = self._left[point] = self._left.get(point, 0) - 1
            if left == 0:
                self.say("died", point)
                os.kill(os.getpid(), signal.SIGKILL)


def named(key: Any) -> str:
    """Return the name of a unit in the journal."""
    return f"{key.trace_id:032x}-{key.span_id:016x}"


def watch(journal: Journal) -> None:
    """Let this process's spool write to the journal when rows are on the disk, and end at the chosen point."""
    for owner, name, watched in (
        *((SpoolQueue, "put", _accepts), (SpoolFile, "put", _puts), (SpoolFile, "take", _takes)),
        *((SpoolFile, "keep_scores", _keeps), (SpoolTable, "take", _leases), (SpoolTable, "delete", _deletes)),
        *((SpoolTable, "mark_sent", _deletes), (SpoolWriter, "_execute", _executes), (Exposition, "text", _reads)),
    ):
        setattr(owner, name, watched(getattr(owner, name), journal))


def _accepts(put: Any, journal: Journal) -> Any:
    def accepts(*given: Any) -> None:
        journal.passes("accept")
        put(*given)

    return accepts


def _puts(put: Any, journal: Journal) -> Any:
    def puts(file: SpoolFile, key: RowKey, body: bytes, callback: Any, **how: Any) -> None:
        def tell(became: PutResult, reason: str | None) -> None:
            if became is PutResult.KEPT:
                journal.say("kept", named(key))
            callback(became, reason)

        put(file, key, body, tell, **how)

    return puts


def _keeps(keep: Any, journal: Journal) -> Any:
    def keeps(file: SpoolFile, key: RowKey, scores: bytes, callback: Any) -> None:
        def tell(kept: bool) -> None:
            journal.say("written" if kept else "refused", named(key))
            callback(kept)

        journal.passes("write")
        keep(file, key, scores, tell)

    return keeps


def _takes(take: Any, journal: Journal) -> Any:
    def takes(file: SpoolFile, most: int, kind: str, callback: Any, **how: Any) -> None:
        def tell(rows: Any) -> None:
            if rows:
                journal.passes("leased")
            callback(rows)

        take(file, most, kind, tell, **how)

    return takes


def _leases(take: Any, journal: Journal) -> Any:
    def leases(*given: Any, **how: Any) -> Any:
        if rows := take(*given, **how):
            journal.passes("lease")
        return rows

    return leases


def _deletes(delete: Any, journal: Journal) -> Any:
    def deletes(table: SpoolTable, keys: Iterable[RowKey]) -> None:
        journal.deleted += (keys := list(keys))
        delete(table, keys)
        journal.passes("delete")

    return deletes


def _reads(text: Any, journal: Journal) -> Any:
    def reads(*given: Any) -> Any:
        page = text(*given)
        counted = re.findall(r"^spanscore_scored_total\{.*\} ([0-9.]+)$", page[0].decode(), re.MULTILINE)
        journal.say("sums", os.getpid(), int(sum(map(float, counted))))
        journal.passes("read")
        return page

    return reads


def _executes(execute: Any, journal: Journal) -> Any:
    def executes(writer: SpoolWriter, statement: str) -> Any:
        if statement != "COMMIT":
            return execute(writer, statement)
        journal.passes("commit")
        done = execute(writer, statement)
        journal.passes("committed")
        for key in journal.deleted:
            journal.say("deleted", named(key))
        if journal.deleted:
            journal.passes("deleted")
        journal.deleted = []
        return done

    return executes
