"""The rounds of a run: the time at which questions are sent, the number of batches, and the progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from spanscore.errors import JudgeError
from spanscore.judges.batches import run
from spanscore.judges.batches.api import BatchAnswers, BatchProgress, BatchQuestion
from spanscore.judges.batches.run import BatchAccount, BatchRun, read_batches
from spanscore.judges.effects.account import Account
from spanscore.judges.langchain.message import BatchAnswer, UnsentRequest

ACCOUNT = Account("openai", "gpt-x", "example.com/v1")
CHAT = "/v1/chat/completions"


class Endpoint:
    """A batch endpoint in memory, which answers each question with its own request."""

    def __init__(self, most: int = 100) -> None:
        self.max_questions = most
        self.sent: list[list[BatchQuestion]] = []
        self.cancelled: list[str] = []
        self.ends = True
        self.was_looked_at = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def submit(self, questions: Sequence[BatchQuestion]) -> str:
        self.sent.append([*questions])
        return str(len(self.sent) - 1)

    def progress(self, batch_id: str) -> BatchProgress:
        self._loop.call_soon_threadsafe(self.was_looked_at.set)
        return BatchProgress("completed" if self.ends else "in_progress", self.ends, int(self.ends))

    def answers(self, batch_id: str) -> BatchAnswers:
        return ((one.id, BatchAnswer(200, one.request.body)) for one in reversed(self.sent[int(batch_id)]))

    def cancel(self, batch_id: str) -> None:
        self.cancelled.append(batch_id)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETTLE_S", 0.05)
    monkeypatch.setattr(run, "POLL_S", 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scores.jsonl.batches"


def question(number: int, path: str = CHAT) -> tuple[bytes, UnsentRequest]:
    """Return the key and the request of a question."""
    body = str(number).encode()
    return body.ljust(32), UnsentRequest(path, body)


async def answered(
    path: Path, endpoint: Endpoint, ask: Callable[[BatchRun, BatchAccount], Awaitable[Sequence[BatchAnswer]]]
) -> list[bytes]:
    """Return the bodies of the answers that a whole run got."""
    asked = BatchRun(path)
    account = asked.add(ACCOUNT, endpoint)
    await asked.begin()
    answers = await ask(asked, account)
    await asked.close(whole=True)
    return [answer.body for answer in answers]


async def test_waiting_questions_are_one_batch_and_each_gets_its_answer(path: Path) -> None:
    endpoint = Endpoint()

    bodies = await answered(
        path, endpoint, lambda asked, account: asyncio.gather(*(asked.answer(account, *question(n)) for n in range(5)))
    )

    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert [len(batch) for batch in endpoint.sent] == [5]


async def test_questions_beyond_the_endpoints_limit_and_of_another_path_are_batches_of_their_own(path: Path) -> None:
    endpoint = Endpoint(most=2)
    asked = [question(0), question(1), question(2), question(3, "/v1/responses")]

    await answered(path, endpoint, lambda run, account: asyncio.gather(*(run.answer(account, *one) for one in asked)))

    assert [[one.request.body for one in batch] for batch in endpoint.sent] == [[b"0", b"1"], [b"2"], [b"3"]]


async def test_equal_questions_are_drawn_independently(path: Path) -> None:
    endpoint = Endpoint()

    await answered(
        path, endpoint, lambda run, account: asyncio.gather(*(run.answer(account, *question(0)) for _ in "ab"))
    )

    assert len({one.id for one in endpoint.sent[0]}) == 2


async def test_no_batch_is_sent_while_a_question_is_being_made(path: Path) -> None:
    endpoint, made = Endpoint(), asyncio.Event()

    async def late(asked: BatchRun, account: BatchAccount) -> BatchAnswer:
        async with asked.preparation_slot():
            await made.wait()
        return await asked.answer(account, *question(1))

    async def ask(asked: BatchRun, account: BatchAccount) -> Sequence[BatchAnswer]:
        asyncio.get_running_loop().call_later(0.3, made.set)
        return await asyncio.gather(asked.answer(account, *question(0)), late(asked, account))

    await answered(path, endpoint, ask)

    assert [len(batch) for batch in endpoint.sent] == [2]


async def test_a_batch_that_no_question_waits_for_at_the_end_is_cancelled(path: Path) -> None:
    endpoint = Endpoint()
    endpoint.ends = False

    async def give_up(asked: BatchRun, account: BatchAccount) -> Sequence[BatchAnswer]:
        waiting = asyncio.ensure_future(asked.answer(account, *question(0)))
        await endpoint.was_looked_at.wait()
        waiting.cancel()
        return []

    await answered(path, endpoint, give_up)

    assert endpoint.cancelled == ["0"]
    assert read_batches(path) == {}


async def test_a_question_that_is_given_up_before_its_batch_is_not_sent(path: Path) -> None:
    endpoint = Endpoint()

    async def give_one_up(asked: BatchRun, account: BatchAccount) -> Sequence[BatchAnswer]:
        first = asyncio.ensure_future(asked.answer(account, *question(0)))
        await asyncio.sleep(0)
        first.cancel()
        return [await asked.answer(account, *question(1))]

    assert await answered(path, endpoint, give_one_up) == [b"1"]
    assert [len(batch) for batch in endpoint.sent] == [1]


async def test_progress_names_batches_answers_and_waiting_questions(path: Path) -> None:
    endpoint = Endpoint()
    endpoint.ends = False
    asked = BatchRun(path)
    account = asked.add(ACCOUNT, endpoint)
    waiting = [asyncio.ensure_future(asked.answer(account, *question(n))) for n in range(2)]
    await asyncio.sleep(0)
    before = str(asked)
    await endpoint.was_looked_at.wait()
    endpoint.was_looked_at.clear()
    await endpoint.was_looked_at.wait()  # so the first look is shown
    after = str(asked)
    for one in waiting:
        one.cancel()
    await asked.close(whole=True)

    assert before == "2 questions to be sent"
    assert after == "1 batch open (in_progress): 0 of 2 questions answered"


async def test_a_lost_batch_fails_its_questions_and_stays_in_the_file(path: Path) -> None:
    class Locked(Endpoint):
        def progress(self, batch_id: str) -> BatchProgress:
            raise ValueError("no")

    async def ask(asked: BatchRun, account: BatchAccount) -> Sequence[BatchAnswer]:
        with pytest.raises(JudgeError, match="batch: the judge raised ValueError"):
            await asked.answer(account, *question(0))
        return []

    await answered(path, Locked(), ask)

    assert len(read_batches(path)) == 1
