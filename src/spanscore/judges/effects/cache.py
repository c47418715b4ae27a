"""Cache of judge answers: equal open requests are shared, and answers are kept in memory or in an SQLite file."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from spanscore.core.context import set_inside
from spanscore.core.files import check_database, make_database_file, make_database_private
from spanscore.core.log import log_once, type_name
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall
from spanscore.core.threads import SerialThread, call_in_child
from spanscore.errors import ConfigurationError, JudgeBudgetSpent, JudgeRateLimited
from spanscore.judges.ask import REPAIR_STEP, read
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.limited import limiters_of
from spanscore.judges.effects.middleware import JudgeMiddleware, layers, unwrapped
from spanscore.judges.records import record, recorded_by
from spanscore.judges.rendering import render, schema_of
from spanscore.judges.score_context import SharedRequest, SharedWait, asked_by
from spanscore.protocols import Judge

if TYPE_CHECKING:
    import sqlite3

Ask: TypeAlias = Callable[[], Awaitable[Reply]]
_PAYER_ERRORS = (JudgeRateLimited, JudgeBudgetSpent)
"""Errors that only concern the caller that pays: its waiting time or its budget is used up."""


def as_cached(reply: Reply) -> Reply:
    """Return an answer for a caller whose question was not sent. The cost is 0, or None if the original cost is not known."""
    return Reply(
        text=reply.text,
        model=reply.model,
        duration_s=0.0,
        cost_usd=None if reply.cost_usd is None else 0.0,
        cached=True,
        finish=reply.finish,
    )


class SingleFlight:
    """The open questions, by key; equal questions share one request. Used on the loop thread."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Flight] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def share(self, key: Hashable, ask: Ask) -> Reply:
        """Wait for the open question under this key, or ask it if it is not open."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # in a forked child, the open questions are the parent's
            self._open, self._loop = {}, loop
        flight = self._open.get(key)
        if flight is None or flight.has_ended:
            flight = self._open[key] = _Flight(ask)
        try:
            return await flight.answer()
        finally:
            if flight.has_ended and self._open.get(key) is flight:
                del self._open[key]


class _Flight(SharedRequest[int, Reply]):
    """One request for equal questions, and the callers that wait for it, by number.

    No caller's task owns the request, which is cancelled once all callers have left. The caller that has waited longest pays:
    its score records the request and failed attempts. If its budget or waiting time is used up, only this caller fails, and the
    request is sent again for the next caller.
    """

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask
        self._numbers = count()
        self._payer: SharedWait[Reply] | None = None

    async def answer(self) -> Reply:
        """Wait for the answer. The caller that pays gets it unchanged; the others get it as a cached answer."""
        number = next(self._numbers)
        wait = self.join(number)
        if self._payer is None:
            self._send(wait)
        wait.set_waiting(self.score.is_waiting)
        try:
            return await wait.answer
        finally:
            self.drop(number)
            if wait is self._payer and self.waits:
                self._payer = next(iter(self.waits.values()))

    def _send(self, payer: SharedWait[Reply]) -> None:
        self._payer = payer
        self.begin(payer, self._answer())

    async def _answer(self) -> None:
        score = self.score
        try:
            with recorded_by(self._charge), asked_by(score), score.asks():
                reply = await self._ask()
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task ends the loop; the waiting callers get it)
            waiting = self.pending()
            if isinstance(error, _PAYER_ERRORS) and len(waiting) > 1:
                waiting[0].fail(error, pays=True)
                self._send(waiting[1])
            else:
                self.fail(error)
        else:
            for position, wait in enumerate(self.pending()):
                wait.answer.set_result(as_cached(reply) if position else reply)

    def _charge(self, call: JudgeCall) -> None:
        assert self._payer is not None  # there is no request without a payer
        self._payer.context.run(record, call)


@runtime_checkable
class AnswerStore(Protocol):
    """A bounded store of answers, by the key of the question. Called on the loop thread. No method raises: a store that fails
    loses answers.

    Attributes:
        flights: the open questions whose answers will be kept.
    """

    flights: SingleFlight

    async def find(self, key: bytes) -> Reply | None:
        """Return the answer to a question as a cached answer; None if the store has no answer. Must not block."""

    def keep(self, key: bytes, reply: Reply) -> Awaitable[object] | None:
        """Keep an answer. Must not block.

        Returns:
            An awaitable that ends when the answer is on the disk; None for a store in memory.
        """


@dataclass(eq=False, repr=False)
class MemoryAnswers:
    """Answers in memory; the least recently used answer is dropped first.

    Attributes:
        max_answers: most answers kept at once.
        max_bytes: most bytes of their texts, approximately.
        max_age_s: seconds after which an answer expires.
        clock: returns the present time in seconds; monotonic.
    """

    _: KW_ONLY
    max_answers: int = 10_000
    max_bytes: int = 64_000_000
    max_age_s: float = 3600.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.flights = SingleFlight()
        self._answers: OrderedDict[bytes, tuple[float, Reply]] = OrderedDict()
        self._bytes = 0

    async def find(self, key: bytes) -> Reply | None:
        """Return the answer, if it has not expired."""
        since_s, reply = self._answers.get(key, (0.0, None))
        if reply is None:
            return None
        if self.clock() - since_s >= self.max_age_s:
            self._drop(key)
            return None
        self._answers.move_to_end(key)
        return reply

    def keep(self, key: bytes, reply: Reply) -> None:
        """Keep an answer, and drop the least recently used answers beyond the bounds."""
        self._drop(key)
        self._answers[key] = self.clock(), as_cached(reply)
        self._bytes += _size(reply)
        while len(self._answers) > self.max_answers or self._bytes > self.max_bytes:
            self._drop(next(iter(self._answers)))

    def _drop(self, key: bytes) -> None:
        _, reply = self._answers.pop(key, (0.0, None))
        self._bytes -= 0 if reply is None else _size(reply)


def _size(reply: Reply) -> int:
    return sys.getsizeof(reply.text)


_VERSION = 1
"""Version of the file's schema."""
_APPLICATION_ID = 0x73707363
"""SQLite ``application_id`` of spanscore's files, ``spsc``; databases of other programs have another id."""
_MOST_ANSWERS = 1_000_000
"""Maximum number of answers in the file (short answers take about 1 GB); beyond it the oldest are deleted."""
_MOST_UNWRITTEN = 1_000
"""Maximum number of answers that wait to be written; beyond it the oldest are not kept."""
_LOCKED_S = 5.0
"""Longest wait for a locked file at the start, in seconds, while other processes create the same file."""
_BUSY_S = 0.25
"""Longest wait for another process's write lock later, in seconds."""
_LOOKUP_S = 0.5
"""Longest wait for a look-up, in seconds. After a late look-up no other is begun until it has ended."""


_PendingKey: TypeAlias = tuple[bytes, "asyncio.Future[Reply | None]"]
"""A key with the future of its look-up (the answer, or None), or of its write (None)."""


class FileAnswers:
    """Answers in a file that several processes share, under a hash of their question. A failure of the file costs no score.

    A separate thread uses SQLite, in WAL mode, in which readers do not wait for writers. The questions of one turn of the loop
    are looked up together, so the votes of a sample stay concurrent.

    Args:
        path: path of the file; created if it is missing, readable by its owner alone.
        looking_s: seconds after which a look-up counts as a miss.

    Raises:
        ConfigurationError: the file cannot be written, or belongs to another program or version.
    """

    def __init__(self, path: Path, *, looking_s: float = _LOOKUP_S) -> None:
        self.flights = SingleFlight()
        self._path = path
        self._looking_s = looking_s
        _open_file(path, _LOCKED_S).close()
        self._inherited: list[sqlite3.Connection | None] = []
        self._thread = SerialThread("spanscore-answers")
        self._make_parts()
        call_in_child(self, FileAnswers._begin_in_child)

    def _begin_in_child(self) -> None:
        self._inherited.append(self._connection)  # kept open: a child must not close its parent's connection
        self._make_parts()

    def _make_parts(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._lookups: deque[_PendingKey] = deque()
        self._unwritten: deque[tuple[bytes, str]] = deque(maxlen=_MOST_UNWRITTEN)  # key, answer as JSON
        self._writes: deque[_PendingKey] = deque()
        self._scheduled_on: asyncio.AbstractEventLoop | None = None  # loop that will call ``_start_work``
        self._late_lookup: asyncio.Future[Reply | None] | None = None

    async def find(self, key: bytes) -> Reply | None:
        """Return the answer; None if the file has no answer, or if the disk takes longer than ``looking_s``."""
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        late = self._late_lookup
        if late is not None and not late.done() and late.get_loop() is answer.get_loop():  # the disk still hangs
            return None
        self._lookups.append((key, answer))
        self._schedule()
        done, _ = await asyncio.wait({answer}, timeout=self._looking_s)
        if done:
            return answer.result()
        self._late_lookup = answer
        return None

    def keep(self, key: bytes, reply: Reply) -> Awaitable[object]:
        """Write an answer soon. The returned future ends when the answer is written, and after ``looking_s`` at the latest."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[Reply | None] = loop.create_future()
        loop.call_later(self._looking_s, _resolve, [(key, written)], {})
        fields = {
            "text": reply.text,
            "model": reply.model,
            "finish": reply.finish,
            "priced": reply.cost_usd is not None,
        }
        self._unwritten.append((key, json.dumps(fields)))
        self._writes.append((key, written))
        self._schedule()
        return written

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        if self._scheduled_on is not loop:
            self._scheduled_on = loop
            loop.call_soon(self._start_work)

    def _start_work(self) -> None:
        self._scheduled_on = None
        work = self._thread.do(self._work)
        if work.done() and not work.result():  # no thread can be started: the interpreter is exiting
            _resolve(_drain(self._lookups) + _drain(self._writes), {})

    def _work(self) -> bool:
        lookups, writes = _drain(self._lookups), _drain(self._writes)
        answers: dict[bytes, Reply] = {}
        try:
            answers = _read_answers(self._open(), [key for key, _ in lookups])
            # Look-ups are answered before the write, which may take long.
            _resolve_on_loops(lookups, answers)
            lookups = []
            _write(self._open(), _drain(self._unwritten))
        except Exception as error:  # noqa: BLE001  (sqlite3's errors, and the operating system's for a disk)
            self._disconnect(error)
            _resolve_on_loops(lookups, answers)
        _resolve_on_loops(writes, {})
        return True

    def _open(self) -> sqlite3.Connection:
        self._connection = self._connection or _open_file(self._path, _BUSY_S)
        return self._connection

    def _disconnect(self, error: Exception) -> None:
        with suppress(Exception):
            if self._connection is not None:
                self._connection.close()
        self._connection = None
        log_once(
            f"cache {self._path}",
            f"the cache {self._path} cannot be used ({type_name(error)}): its questions are asked again. Is the disk full, "
            "the file damaged or held by another program?",
        )


_files: dict[Path, FileAnswers] = {}


def file_answers(path: str | Path) -> FileAnswers:
    """Return the store of a file, the same object for the same path, so that judges with one file also share open questions.

    Raises:
        ConfigurationError: the file cannot be written, or belongs to another program or version.
    """
    whole = Path(path).expanduser().absolute()
    if whole not in _files:
        _files[whole] = FileAnswers(whole)
    return _files[whole]


def _open_file(path: Path, lock_wait_s: float) -> sqlite3.Connection:
    """Return a connection to a writable answer file; the file and its table are created if they are missing."""
    import sqlite3

    until = time.monotonic() + lock_wait_s
    while True:
        try:
            return _connect(path)
        except sqlite3.Error as error:
            # Other processes may create the file now: SQLite does not wait for a lock to change the journal mode.
            if "locked" not in str(error) or time.monotonic() > until:
                raise ConfigurationError(f"cache: {path} cannot be written: {error}") from error
            time.sleep(_BUSY_S / 10)


def _connect(path: Path) -> sqlite3.Connection:
    import sqlite3

    make_database_file(path, "cache")
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    check_database(connection, path, "cache", application_id=_APPLICATION_ID, version=_VERSION)
    make_database_private(path, "cache")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")  # a crash of the machine may lose the last answers
    connection.execute("BEGIN IMMEDIATE")  # fails if the file cannot be written
    connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={_VERSION}")
    connection.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT NOT NULL)")
    connection.execute("COMMIT")


def _read_answers(connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, Reply]:
    answers = {}
    for key in keys:
        row = connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        if row is not None:
            fields: dict[str, Any] = json.loads(row[0])
            cost_usd = 0.0 if fields["priced"] else None
            reply = Reply(text=fields["text"], model=fields["model"], cost_usd=cost_usd, finish=fields["finish"])
            answers[key] = as_cached(reply)
    return answers


def _write(connection: sqlite3.Connection, answers: Sequence[tuple[bytes, str]]) -> None:
    if not answers:
        return
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", answers)
    connection.execute("DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?", (_MOST_ANSWERS,))
    connection.execute("COMMIT")


def _drain(queue: deque[Any]) -> list[Any]:
    """Remove and return all items of a queue; other threads may add to it meanwhile."""
    items = []
    with suppress(IndexError):
        while True:
            items.append(queue.popleft())
    return items


def _resolve_on_loops(pending: Sequence[_PendingKey], answers: Mapping[bytes, Reply]) -> None:
    """Resolve futures, each on the thread of its loop."""
    for loop in {future.get_loop() for _, future in pending}:
        own = [(key, future) for key, future in pending if future.get_loop() is loop]
        with suppress(RuntimeError):  # the loop has been closed, and its tasks have ended
            loop.call_soon_threadsafe(_resolve, own, answers)


def _resolve(pending: Sequence[_PendingKey], answers: Mapping[bytes, Reply]) -> None:
    for key, future in pending:
        if not future.done():
            future.set_result(answers.get(key))


CacheSetting: TypeAlias = AnswerStore | str | Path | None
"""``memory``, the path of a file, or a store that several judges share; None = only the store of a run, if it has one."""

_of_run: ContextVar[AnswerStore | Literal[False] | None] = ContextVar("spanscore_answers_of_run", default=None)


def answers_kept(store: AnswerStore | None) -> AbstractContextManager[None]:
    """Use a store for the answers of the judges that are asked inside the block, and in tasks started there.

    Args:
        store: store for judges without a cache of their own. None = no judge uses a cache, not even its own.
    """
    return set_inside(_of_run, store or False)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Cached(JudgeMiddleware):
    """A judge whose answers are kept. Equal questions, at the same time or later, get the same answer while it is kept.

    Only answers in the requested form are kept, and a repair is always asked. A kept answer is no further sample of the judge's
    answers: calls that were not sent are marked ``cached``, and a score has the number of its cached calls.

    Args:
        cache: ``memory``, the path of a file, or a store. None = no cache, unless the run has a store (``evaluate``).

    Raises:
        ConfigurationError: the file cannot be written, or the judge has fallbacks, of which each needs its own cache.
    """

    judge: Judge
    cache: CacheSetting = None
    _store: AnswerStore | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if any(len(layer.judges) > 1 for layer in layers(self.judge) if isinstance(layer, JudgeMiddleware)):
            raise ConfigurationError("cache is given around a fallback, whose answers are another's: give both at once")
        if self.cache == "":
            raise ConfigurationError("cache is empty; it must be 'memory' or the path of a file")
        store: AnswerStore | None = None
        if self.cache == "memory":
            store = MemoryAnswers()
        elif self.cache is not None:
            store = file_answers(self.cache) if isinstance(self.cache, str | Path) else self.cache
        object.__setattr__(self, "_store", store)  # frozen

    async def ask(self, prompt: Prompt) -> Reply:
        """Return the kept answer to an equal question, or ask."""
        of_run = _of_run.get()
        store = None if of_run is False else self._store or of_run
        if store is None or prompt.step == REPAIR_STEP:
            return await self.judge.ask(prompt)
        key = key_of(self.judge, prompt)
        reply = await store.flights.share(key, lambda: self._answer(store, key, prompt))
        if reply.cached:
            for limiter in limiters_of(self.judge):
                limiter.cached += 1
        return reply

    async def _answer(self, store: AnswerStore, key: bytes, prompt: Prompt) -> Reply:
        cached = await store.find(key)
        if cached is not None:
            return cached
        reply = await self.judge.ask(prompt)
        if read(reply.text, prompt.output, prompt.evidence) is not None:  # an unreadable answer would stay unreadable
            write = store.keep(key, reply)
            if write is not None:  # it is on the disk before it is used, so a restarted process does not ask again
                await write
        return reply


def key_of(judge: Judge, prompt: Prompt) -> bytes:
    """Return the key of a question, equal in every process: a hash of model, question, and sampling parameters.

    The account's API key is not in the hash, because the same model answers with a new key.
    """
    inner = unwrapped(judge)
    account: object = getattr(inner, "account", None)
    identity: tuple[str, ...] = type(inner).__qualname__, judge.model
    if isinstance(account, Account):
        identity = account._replace(key="")
    images = [[number, *image.model_dump().values()] for number, image in prompt.images.items()]
    parts = [prompt.step, *render(prompt), schema_of(prompt.output), prompt.vote_index, *images]
    text = json.dumps([identity, parts, getattr(inner, "drawing", None)], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=32).digest()
