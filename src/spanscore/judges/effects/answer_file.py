"""Answers in a file that outlives the process, and that several processes share. It holds answers, and of questions a hash.

SQLite, in its write-ahead mode: who reads waits for nobody who writes. All of it is done on a thread of its own; the questions
of one turn of the loop are looked up together, so that the votes of a sample go on side by side, as they came.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanscore.core.log import log_once, type_name
from spanscore.core.prompt import Reply
from spanscore.core.threads import SerialThread, reset_in_child
from spanscore.errors import ConfigurationError, writing
from spanscore.judges.effects.single_flight import SingleFlight, as_cached

if TYPE_CHECKING:
    import sqlite3

__all__ = ["FileAnswers", "file_answers"]

_VERSION = 1
"""Of what is in the file."""
_OURS = 0x73707363
"""``spsc``: by it SQLite's ``application_id`` tells the file from other databases."""
_MOST_ANSWERS = 1_000_000
"""About 1 GB of short answers; of more, the oldest go."""
_MOST_UNWRITTEN = 1_000
"""Answers that wait for the disk; of more, the oldest are not kept."""
_OPENING_S = 5.0
"""At the start, while other processes make the same file."""
_BUSY_S = 0.25
"""Later: as long as another process may hold up what this one writes."""
_LOOKING_S = 0.5
"""A disk that takes longer to find an answer is not asked again before it has answered."""


class FileAnswers:
    """Answers in a file. Never raises once it is made, whatever becomes of the file: that costs what it held, and no score.

    Args:
        path: made where it is not there, for its owner alone.
        looking_s: seconds after which an answer that is looked for counts as not there.

    Raises:
        ConfigurationError: it cannot be written, or is another's.
    """

    def __init__(self, path: Path, *, looking_s: float = _LOOKING_S) -> None:
        self.flights = SingleFlight()
        self._path = path
        self._looking_s = looking_s
        _opened(path, _OPENING_S).close()
        self.reset()
        reset_in_child(self, FileAnswers.reset)

    def reset(self) -> None:
        """Be as new: in a forked child, which may not touch the connection of its parent, nor close it."""
        self._inherited = getattr(self, "_inherited", None), getattr(self, "_connection", None)
        self._connection: sqlite3.Connection | None = None
        self._thread = SerialThread("spanscore-answers")
        self._looked_for: deque[tuple[bytes, asyncio.Future[Reply | None]]] = deque()
        self._unwritten: deque[tuple[bytes, str]] = deque(maxlen=_MOST_UNWRITTEN)
        self._written: deque[tuple[bytes, asyncio.Future[Reply | None]]] = deque()
        self._due_on: asyncio.AbstractEventLoop | None = None
        self._overdue: asyncio.Future[Reply | None] | None = None

    async def find(self, key: bytes) -> Reply | None:
        """Return the answer, None also where the disk does not tell in time."""
        found: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        late = self._overdue
        if late is not None and not late.done() and late.get_loop() is found.get_loop():
            return None
        self._looked_for.append((key, found))
        self._be_due()
        done, _ = await asyncio.wait({found}, timeout=self._looking_s)
        if done:
            return found.result()
        self._overdue = found
        return None

    def keep(self, key: bytes, reply: Reply) -> Awaitable[object]:
        """Have an answer written soon; what is returned ends then, or after ``looking_s``: a slow disk delays no score more."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[Reply | None] = loop.create_future()
        loop.call_later(self._looking_s, _tell, [(key, written)], {})
        self._unwritten.append((key, _text_of(reply)))
        self._written.append((key, written))
        self._be_due()
        return written

    def _be_due(self) -> None:
        loop = asyncio.get_running_loop()
        if self._due_on is not loop:
            self._due_on = loop
            loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._due_on = None
        handed = self._thread.do(self._work)
        if handed.done() and not handed.result():  # no thread any more: the interpreter is exiting
            _tell(_all_of(self._looked_for) + _all_of(self._written), {})

    def _work(self) -> bool:
        looked_for, written = _all_of(self._looked_for), _all_of(self._written)
        found: dict[bytes, Reply] = {}
        try:
            found = _found(self._open(), [key for key, _ in looked_for])
            # Told before the writing, for which the disk may take its time.
            _tell_loops(looked_for, found)
            looked_for = []
            _write(self._open(), _all_of(self._unwritten))
        except Exception as error:  # noqa: BLE001  (sqlite3's, and what the system raises of a disk)
            self._let_go(error)
            _tell_loops(looked_for, found)
        _tell_loops(written, {})
        return True

    def _open(self) -> sqlite3.Connection:
        self._connection = self._connection or _opened(self._path, _BUSY_S)
        return self._connection

    def _let_go(self, error: Exception) -> None:
        with suppress(Exception):
            if self._connection is not None:
                self._connection.close()
        self._connection = None
        log_once(
            f"cache {self._path}",
            f"the cache {self._path} cannot be used ({type_name(error)}): judges are asked what it may hold. Is the disk full, "
            "the file damaged or held by another program?",
        )


_files: dict[Path, FileAnswers] = {}


def file_answers(path: str | Path) -> FileAnswers:
    """Return the answers in a file, the same for the same file: judges that share it share what is out, too.

    Raises:
        ConfigurationError: the file cannot be written, or is another's.
    """
    whole = Path(path).expanduser().absolute()
    known = _files.get(whole)
    if known is None:
        known = _files[whole] = FileAnswers(whole)
    return known


def _opened(path: Path, patience_s: float) -> sqlite3.Connection:
    """Return a connection to a file that is ours and can be written; made with its table where there is none.

    Raises:
        ConfigurationError: there is no such file.
    """
    import sqlite3

    until = time.monotonic() + patience_s
    while True:
        try:
            return _connected(path)
        except sqlite3.Error as error:
            # Several processes that make the same file at once: SQLite does not wait for its turn to change the mode.
            if "locked" not in str(error) or time.monotonic() > until:
                raise ConfigurationError(f"cache: {path} cannot be written: {error}") from error
            time.sleep(_BUSY_S / 10)


def _connected(path: Path) -> sqlite3.Connection:
    import sqlite3

    if path.exists() and not path.is_file():  # /dev/null would be closed to everybody but us
        raise ConfigurationError(f"cache: {path} cannot be written: it is no file")
    with writing(f"cache: {path}"), suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    def told(pragma: str) -> int:
        return int(connection.execute(pragma).fetchone()[0])

    tables, owner = told("SELECT count(*) FROM sqlite_master"), told("PRAGMA application_id")
    if tables and owner != _OURS:
        raise ConfigurationError(f"cache: {path} is a database of another program; choose another file")
    if tables and told("PRAGMA user_version") != _VERSION:
        raise ConfigurationError(f"cache: {path} is of another version of spanscore; choose another file, or remove it")
    for ending in ("", "-wal", "-shm"):  # the others are made like the first; here from a time when it was not so
        with writing(f"cache: {path}"), suppress(FileNotFoundError):
            path.with_name(path.name + ending).chmod(0o600)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")  # after a crash of the machine the last answers may be missing
    connection.execute("BEGIN IMMEDIATE")  # shows that it can be written
    connection.execute(f"PRAGMA application_id={_OURS}")
    connection.execute(f"PRAGMA user_version={_VERSION}")
    connection.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT NOT NULL)")
    connection.execute("COMMIT")


def _found(connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, Reply]:
    found = {}
    for key in keys:
        row = connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        if row is not None:
            found[key] = _reply_of(row[0])
    return found


def _write(connection: sqlite3.Connection, answers: Sequence[tuple[bytes, str]]) -> None:
    if not answers:
        return
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", answers)
    connection.execute("DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?", (_MOST_ANSWERS,))
    connection.execute("COMMIT")


def _text_of(reply: Reply) -> str:
    held = {"text": reply.text, "model": reply.model, "finish": reply.finish, "priced": reply.cost_usd is not None}
    return json.dumps(held)


def _reply_of(text: str) -> Reply:
    held: dict[str, Any] = json.loads(text)
    cost_usd = 0.0 if held["priced"] else None
    return as_cached(Reply(text=held["text"], model=held["model"], cost_usd=cost_usd, finish=held["finish"]))


def _all_of(waiting: deque[Any]) -> list[Any]:
    """Take what is there; others may add to it meanwhile."""
    taken = []
    with suppress(IndexError):
        while True:
            taken.append(waiting.popleft())
    return taken


def _tell_loops(looked_for: Sequence[tuple[bytes, asyncio.Future[Reply | None]]], found: Mapping[bytes, Reply]) -> None:
    for loop in {waiting.get_loop() for _, waiting in looked_for}:
        with suppress(RuntimeError):  # the loop has ended, and who waited on it
            loop.call_soon_threadsafe(_tell, [one for one in looked_for if one[1].get_loop() is loop], found)


def _tell(looked_for: Sequence[tuple[bytes, asyncio.Future[Reply | None]]], found: Mapping[bytes, Reply]) -> None:
    for key, waiting in looked_for:
        if not waiting.done():
            waiting.set_result(found.get(key))
