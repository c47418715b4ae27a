"""Batch run: collect the questions of one run, send them to providers in batches, and return the answers of ended batches."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from spanscore.core.files import ProcessLock
from spanscore.core.printable import format_count
from spanscore.errors import ConfigurationError, JudgeError, JudgeTimeout, JudgeUnavailable, writing
from spanscore.judges.batches.api import EXPIRED, MOST_BYTES, BatchApi, BatchQuestion, Unanswered
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.langchain.client import BlockingCalls
from spanscore.judges.langchain.errors import judge_error
from spanscore.judges.langchain.message import BatchAnswer, UnsentRequest
from spanscore.judges.score_context import suppressed_context
from spanscore.protocols import Judge

SETTLE_S: Final = 2.0
"""Quiet time, without a new question, after which the waiting questions are sent."""
POLL_S: Final = 30.0
"""Seconds between two polls of an open batch."""
_MOST_PREPARED: Final = 4
"""Maximum number of requests that are prepared, and answers that are parsed, at the same time: each takes a thread."""
_END_S: Final = 4.0
"""Longest wait at the end of a run for batches that are being sent. Without the wait, their ids would be lost."""
_KEY_CHARS: Final = 32
"""Characters of a question's key in its id, which Anthropic limit to 64."""
_NOT_FOUND: Final = "http_404"
_STEP: Final = "batch"
"""Name of the step in errors of the endpoint."""

_Result: TypeAlias = "asyncio.Future[BatchAnswer | JudgeError]"


def batch_api(account: Account, model: Any) -> BatchApi | None:
    """Return the batch endpoint of a chat model's provider; None without one in OpenAI's or Anthropic's form."""
    client = getattr(model, "root_client", None)
    if account.provider == "openai" and client is not None:
        from spanscore.judges.batches.openai_batches import OpenAIBatches

        return OpenAIBatches(client)
    if account.provider == "anthropic":
        from spanscore.judges.batches.anthropic_batches import AnthropicBatches

        key, headers = model.anthropic_api_key.get_secret_value(), model.default_headers
        return AnthropicBatches(api_key=key, base_url=model.anthropic_api_url, headers=headers)
    return None


@dataclass(slots=True, frozen=True)
class BatchAccount:
    """A judge's account in a run.

    Attributes:
        name: provider, address and model, without a key.
    """

    name: str
    api: BatchApi
    run: BatchRun


@dataclass(slots=True)
class SentBatch:
    """A batch that is being sent or was sent.

    Attributes:
        account: provider, address and model of the judge, without a key.
        questions: ids of its questions.
        id: the provider's id; empty until the provider has returned it.
    """

    account: str
    questions: Sequence[str]
    id: str = ""


class BatchFile:
    """A JSONL file with one line per event of a batch: before it is sent, when the provider has returned its id, and its end.

    Use it from one thread. The file has hashes of questions, and neither questions nor answers. Answers can be fetched from the
    provider for at least 29 days.

    Args:
        path: path of the file; created if it is missing, readable by its owner alone, locked against other processes.

    Attributes:
        batches: number → batch, for all batches that have not ended.

    Raises:
        ConfigurationError: the file cannot be written, another run has it open, or it is not a batch file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = ProcessLock(path)
        with writing(path):
            if not self._lock.take():
                raise ConfigurationError(f"another run has {path} open: wait for it, or end it with Ctrl-C")
            path.touch(0o600)
            path.chmod(0o600)  # the file may have existed, readable by other users
            self.batches = read_batches(path)
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # a line that a killed process has not finished
        self._next = max(self.batches, default=0) + 1

    def add(self, batch: SentBatch) -> int:
        """Write the line of a batch before it is sent; return its number."""
        number, self._next = self._next, self._next + 1
        self.batches[number] = batch
        self._append_line({"batch": number, "account": batch.account, "questions": batch.questions})
        return number

    def name(self, number: int, batch_id: str) -> None:
        """Write the provider's id of a batch."""
        self.batches[number].id = batch_id
        self._append_line({"batch": number, "id": batch_id})

    def end(self, number: int) -> None:
        """Remove a batch that has ended."""
        del self.batches[number]
        self._append_line({"batch": number, "over": True})

    def close(self) -> None:
        """Unlock the file; without a batch it is removed."""
        if not self.batches:
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def _append_line(self, line: dict[str, Any]) -> None:
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_batches(path: Path) -> dict[int, SentBatch]:
    """Return number → batch, for the batches of a file that have not ended; empty without a file.

    Raises:
        ConfigurationError: the file cannot be read, or is not a batch file.
    """
    batches: dict[int, SentBatch] = {}
    lines: list[Any] = []
    try:
        with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
            # A killed process has not finished its last line.
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        for line in lines:
            number = line["batch"]
            if "questions" in line:
                batches[number] = SentBatch(line["account"], line["questions"])
            elif "id" in line:
                batches[number].id = line["id"]
            else:
                del batches[number]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{path} is no file of a run with --batch: name another --out, or move it") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    return batches


@dataclass(slots=True)
class _OpenBatch:
    """A batch whose answers are awaited.

    Attributes:
        number: number of the batch in the file.
        answered: number of its questions that have ended.
        status: the provider's name of its state; empty before the first poll.
        trouble: reason why it cannot be read for now, or at all; empty if it can be read.
        is_lost: whether it cannot be read at all.
    """

    number: int
    sent: SentBatch
    is_of_earlier_run: bool = False
    answered: int = 0
    status: str = ""
    trouble: str = ""
    is_lost: bool = False


class BatchRun:
    """The questions of one run that go to batch endpoints. Create it on any thread; all methods run on spanscore's loop.

    A question waits until no further question has come for ``SETTLE_S``. The waiting questions of an account then become a
    batch. Answers resume the metrics, whose further questions make further batches. Batches are independent of each other.

    A question's id is its key (as in a judge's cache) and the number of its use. A run that is continued asks the same
    questions, and finds the answers in open and ended batches by these ids. It sends only questions without an answer.

    Args:
        path: file of the batches (``BatchFile``).

    Raises:
        ConfigurationError: another run has the file open, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = BatchFile(path)
        self._accounts: dict[str, BatchAccount] = {}
        self._preparing_slots = asyncio.Semaphore(_MOST_PREPARED)
        self._room_lock = asyncio.Lock()
        self._calls = BlockingCalls()
        self._preparing = 0  # number of questions inside ``preparation_slot``
        self._uses: Counter[str] = Counter()
        self._answers_by_id: dict[str, _Result] = {}
        self._waiting: dict[str, tuple[BatchAccount, UnsentRequest]] = {}
        self._last_question_s = 0.0  # time at which the last question was added
        self._settle_timer: asyncio.TimerHandle | None = None
        self._open_batches: dict[int, _OpenBatch] = {}
        self._sending_tasks: set[asyncio.Task[None]] = set()
        self._polling_tasks: set[asyncio.Task[None]] = set()

    def add(self, account: Account, api: BatchApi) -> BatchAccount:
        """Add an account, before ``begin``; return it, the same for the same account."""
        name = _name(account)
        return self._accounts.setdefault(name, BatchAccount(name, api, self))

    async def begin(self) -> None:
        """Await the batches of earlier runs."""
        for number, sent in list(self._file.batches.items()):
            if sent.account in self._accounts and sent.id:
                self._await_batch(_OpenBatch(number, sent, is_of_earlier_run=True))

    def notes(self) -> Iterator[str]:
        """Yield a sentence on the batches of earlier runs that this run uses, and on other batches in the file. Call before
        ``begin``.
        """
        batches = self._file.batches.values()
        if usable := sum(bool(sent.id) and sent.account in self._accounts for sent in batches):
            yield f"{format_count(usable, 'batch')} of an earlier run: only questions without an answer are sent again"
        if others := sum(bool(sent.id) and sent.account not in self._accounts for sent in batches):
            yield f"{format_count(others, 'batch')} in {self._file.path} of another judge, address or model: left alone"
        if unnamed := sum(not sent.id for sent in batches):
            yield (
                f"{format_count(unnamed, 'batch')} may have been sent when an earlier run was killed, before the id came "
                "back: look for it at the provider, and cancel it there; its questions are sent again"
            )

    @asynccontextmanager
    async def preparation_slot(self) -> AsyncIterator[None]:
        """Wait for one of four slots, in which the block prepares a request or parses an answer. No batch is sent meanwhile."""
        self._preparing += 1
        try:
            async with self._preparing_slots:
                yield
        finally:
            self._preparing -= 1

    async def room(self) -> None:
        """Wait until a slot of ``preparation_slot`` is free, so that the questions of a further sample may be prepared."""
        async with self._room_lock, self._preparing_slots:
            pass

    async def answer(self, account: BatchAccount, key: bytes, request: UnsentRequest) -> BatchAnswer:
        """Return the answer to a question. This may take a day.

        Args:
            key: key of the question, the same in every process (``key_of``). Each use of an equal question is a question of its
                own.

        Raises:
            JudgeUnavailable: the batch expired, or the endpoint cannot be reached; asking again may succeed.
            JudgeError: the endpoint refused the batch, or it was cancelled.
        """
        name = key.hex()[:_KEY_CHARS]
        self._uses[name] += 1
        question = f"{name}-{self._uses[name]}"
        result = self._answers_by_id.get(question)
        if result is None:
            loop = asyncio.get_running_loop()
            result = self._answers_by_id[question] = loop.create_future()
            self._waiting[question] = account, request
            self._last_question_s = loop.time()
            if self._settle_timer is None:
                self._settle_timer = loop.call_later(SETTLE_S, self._settle)
        try:
            answer = await asyncio.shield(result)
        except asyncio.CancelledError:
            self._waiting.pop(question, None)
            raise
        finally:
            self._answers_by_id.pop(question, None)
        if isinstance(answer, JudgeError):
            raise answer
        return answer

    def _settle(self) -> None:
        """Send the waiting questions, if no question was added for ``SETTLE_S`` and no question is being prepared."""
        loop = asyncio.get_running_loop()
        if self._preparing or loop.time() - self._last_question_s < SETTLE_S:
            self._settle_timer = loop.call_later(SETTLE_S, self._settle)
            return
        self._settle_timer = None
        waiting, self._waiting = self._waiting, {}
        for account, questions in _make_batches(waiting):
            self._start_task(self._sending_tasks, self._send(account, questions))

    async def _send(self, account: BatchAccount, questions: Sequence[BatchQuestion]) -> None:
        number: int | None = None
        try:
            number = self._file.add(SentBatch(account.name, [question.id for question in questions]))
            batch = await self._calls.on_a_thread(partial(account.api.submit, questions))
        except Exception as error:  # noqa: BLE001  (whatever the provider's SDK or the disk raises)
            failure = judge_error(error, _STEP)
            if _is_not_found(error):
                why = "the judge's address has no batch endpoint: leave --batch out"
                failure = JudgeError(f"{_STEP}: {why}", error_type=_NOT_FOUND)
            for question in questions:
                self._resolve(question.id, failure.without_request())
            if number is not None:
                self._file.end(number)
            return
        try:
            self._file.name(number, batch)
        finally:
            self._await_batch(_OpenBatch(number, self._file.batches[number]))

    def _await_batch(self, batch: _OpenBatch) -> None:
        self._open_batches[batch.number] = batch
        for question in batch.sent.questions:
            self._answers_by_id.setdefault(question, asyncio.get_running_loop().create_future())
        self._start_task(self._polling_tasks, self._await_answers(batch, self._accounts[batch.sent.account].api))

    async def _await_answers(self, batch: _OpenBatch, api: BatchApi) -> None:
        """Poll a batch until it has ended, and pass its answers to their questions."""
        answers: Mapping[str, BatchAnswer | Unanswered] = {}
        wait_s = 0.0 if batch.is_of_earlier_run else POLL_S
        while True:
            await asyncio.sleep(wait_s)
            wait_s = POLL_S
            try:
                progress = await self._calls.on_a_thread(partial(api.progress, batch.sent.id))
                batch.status, batch.answered, batch.trouble = progress.status, progress.answered, ""
                if progress.ended:
                    answers = await self._calls.on_a_thread(lambda: dict(api.answers(batch.sent.id)))
                    break
            except Exception as error:  # noqa: BLE001  (whatever the provider's SDK raises)
                if _is_not_found(error):  # the provider has deleted it
                    break
                failure = judge_error(error, _STEP)
                batch.trouble = str(failure)
                if not isinstance(failure, JudgeUnavailable | JudgeTimeout):
                    batch.is_lost = True  # it stays in the file, for a run that may read it
                    for question in batch.sent.questions:
                        self._resolve(question, failure.without_request())
                    return
        del self._open_batches[batch.number]
        self._resolve_answers(batch, answers)

    def _resolve_answers(self, batch: _OpenBatch, answers: Mapping[str, BatchAnswer | Unanswered]) -> None:
        missing = answers.get("", EXPIRED)
        for question in batch.sent.questions:
            answer = answers.get(question, missing)
            if isinstance(answer, Unanswered):
                # The questions of an expired batch are asked again, and of any batch of an earlier run: the user may have
                # cancelled it, so that this run need not wait for it.
                is_retried = answer.error_type == EXPIRED.error_type or batch.is_of_earlier_run
                kind = JudgeUnavailable if is_retried else JudgeError
                self._resolve(question, kind(f"{_STEP}: {answer.reason}", error_type=answer.error_type))
            else:
                self._resolve(question, answer)

    def _resolve(self, question: str, answer: BatchAnswer | JudgeError) -> None:
        result = self._answers_by_id.get(question)
        if result is not None and not result.done():
            result.set_result(answer)

    async def close(self, *, whole: bool) -> None:
        """End the run; a second call has no effect.

        Args:
            whole: whether every sample was scored. Then ended batches are removed from the file, and open batches of this run
                are cancelled, because no question waits for their answers. Otherwise all batches stay in the file for a later
                run.
        """
        self._waiting.clear()
        if self._settle_timer is not None:
            self._settle_timer.cancel()
        if self._sending_tasks:
            await asyncio.wait(self._sending_tasks, timeout=_END_S)
        for task in self._polling_tasks:
            task.cancel()
        if whole:
            await self._remove_ended()
        self._file.close()

    async def _remove_ended(self) -> None:
        remaining = {n for n, batch in self._open_batches.items() if batch.is_lost or batch.is_of_earlier_run}
        for number, sent in list(self._file.batches.items()):
            if number in remaining or (sent.id and sent.account not in self._accounts):
                continue
            if number in self._open_batches:
                with suppress(Exception):  # an uncancelled batch ends within a day
                    await self._calls.on_a_thread(partial(self._accounts[sent.account].api.cancel, sent.id))
            self._file.end(number)

    def open_questions(self) -> int:
        """Return the number of questions in open batches. Thread-safe."""
        return sum(len(batch.sent.questions) for batch in list(self._open_batches.values()))

    def __str__(self) -> str:
        """Return the progress in words. Thread-safe."""
        batches = list(self._open_batches.values())
        parts = []
        if batches:
            answered, questions = sum(batch.answered for batch in batches), self.open_questions()
            states = ", ".join(sorted({batch.status or "sent" for batch in batches}))
            parts.append(
                f"{format_count(len(batches), 'batch')} open ({states}): {answered:,} of {questions:,} questions answered"
            )
            parts += sorted({batch.trouble for batch in batches if batch.trouble})
        if waiting := len(self._waiting):
            parts.append(f"{format_count(waiting, 'question')} to be sent")
        return "; ".join(parts)

    def _start_task(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=suppressed_context())
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _make_batches(
    waiting: Mapping[str, tuple[BatchAccount, UnsentRequest]],
) -> Iterator[tuple[BatchAccount, list[BatchQuestion]]]:
    """Yield batches of questions to one account and path, within the limits of the endpoint."""
    groups: dict[tuple[str, str, str], tuple[BatchAccount, list[BatchQuestion]]] = {}
    for id_, (account, request) in waiting.items():
        kind = (account.name, request.path, request.betas)
        groups.setdefault(kind, (account, []))[1].append(BatchQuestion(id_, request))
    for account, questions in groups.values():
        batch: list[BatchQuestion] = []
        size = 0
        for question in questions:
            if batch and (len(batch) >= account.api.max_questions or size + len(question.request.body) > MOST_BYTES):
                yield account, batch
                batch, size = [], 0
            batch.append(question)
            size += len(question.request.body)
        yield account, batch


def _is_not_found(error: Exception) -> bool:
    return getattr(error, "status_code", None) == 404  # noqa: PLR2004  (HTTP)


def batch_run(judges: Iterable[Judge], path: Path) -> BatchRun:
    """Return a run whose batches contain all further questions to these judges.

    Args:
        judges: judges of chat models. Fallbacks of these judges are not asked, because no breaker opens.

    Raises:
        ConfigurationError: a judge has no batch endpoint, no judge is given, or the file cannot be used.
    """
    pairs = _apis_of(judges)
    run = BatchRun(path)
    for judge, api in pairs:
        judge.batch = run.add(judge.account, api)
    return run


def cancel_batches(judges: Iterable[Judge], path: Path) -> tuple[int, int]:
    """Cancel the open batches of a file at their providers, blocking; return the numbers of cancelled and of all batches.

    Raises:
        ConfigurationError: a judge has no batch endpoint, no judge is given, the file has no batches, or a provider refused.
    """
    apis = {_name(judge.account): api for judge, api in _apis_of(judges)}
    sent = [batch for batch in read_batches(path).values() if batch.id]
    cancelled = 0
    for batch in sent:
        api = apis.get(batch.account)
        try:
            if api is not None and not api.progress(batch.id).ended:
                api.cancel(batch.id)
                cancelled += 1
        except Exception as error:
            raise ConfigurationError(f"{batch.id} cannot be cancelled: {judge_error(error, _STEP)}") from error
    return cancelled, len(sent)


def _apis_of(judges: Iterable[Judge]) -> list[tuple[Any, BatchApi]]:
    pairs = []
    for judge in judges:
        inner = unwrapped(judge)
        find = getattr(inner, "batch_api", None)
        api = None if find is None else find()
        if api is None:
            raise ConfigurationError(
                f"--batch: the judge {judge.model!r} has no batch endpoint. Allowed are openai:MODEL, also with a base_url "
                "that has OpenAI's batches, and anthropic:MODEL; or leave --batch out"
            )
        pairs.append((inner, api))
    if not pairs:
        raise ConfigurationError("--batch: no metric asks a judge; leave --batch out")
    return pairs


def _name(account: Account) -> str:
    return f"{account.provider} {account.address} {account.model}"
