"""What is being read has a time, each its own, by one timer; and who is cancelled for another reason stays cancelled."""

from __future__ import annotations

import asyncio

import pytest

from spanscore.service.requests import ReadDeadline, TaskDeadline

SOON, NEVER = 0.01, 3_600.0


async def read(deadline: TaskDeadline, coming: asyncio.Future[bytes]) -> bytes | str:
    body = await deadline.within(coming)
    return "late" if body is None else body


async def reading(deadline: TaskDeadline, coming: asyncio.Future[bytes]) -> asyncio.Task[bytes | str]:
    """Return a task that reads by now."""
    task = asyncio.ensure_future(read(deadline, coming))
    await asyncio.sleep(0)
    return task


async def test_what_comes_in_time_is_returned_and_what_does_not_is_late() -> None:
    loop, deadline = asyncio.get_running_loop(), TaskDeadline(SOON)
    futures: list[asyncio.Future[bytes]] = [loop.create_future() for _ in range(3)]
    tasks = [await reading(deadline, future) for future in futures]

    futures[1].set_result(b"body")

    assert await asyncio.gather(*tasks) == ["late", b"body", "late"]
    assert [task.cancelling() for task in tasks] == [0, 0, 0]


async def test_one_that_begins_while_another_waits_has_a_time_of_its_own() -> None:
    loop, deadline = asyncio.get_running_loop(), TaskDeadline(SOON)
    first = await reading(deadline, loop.create_future())
    assert await first == "late"

    assert await (await reading(deadline, loop.create_future())) == "late"


async def test_whoever_is_cancelled_stays_cancelled() -> None:
    task = await reading(TaskDeadline(NEVER), asyncio.get_running_loop().create_future())

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_whoever_is_cancelled_when_it_is_late_is_cancelled() -> None:
    loop, deadline = asyncio.get_running_loop(), TaskDeadline(SOON)
    task = await reading(deadline, loop.create_future())
    (due,) = deadline._deadline._due.values()
    while loop.time() <= due:  # the loop cannot run its timer meanwhile
        pass

    deadline._deadline._let_go(loop)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_failure_to_read_is_its_own() -> None:
    deadline, coming = TaskDeadline(NEVER), asyncio.get_running_loop().create_future()
    task = await reading(deadline, coming)

    coming.set_exception(OSError("gone"))

    with pytest.raises(OSError, match="gone"):
        await task
    assert deadline._deadline._due == {}


async def test_who_has_ended_is_never_late_and_who_begins_again_meanwhile_gets_no_more_time() -> None:
    late: asyncio.Queue[str] = asyncio.Queue()
    deadline = ReadDeadline[str](SOON, late.put_nowait)
    deadline.begin("done")
    deadline.begin("slow")
    (*_, due) = deadline._due.values()

    deadline.end("done")
    deadline.begin("slow")

    assert deadline._due == {"slow": due}
    assert await late.get() == "slow"
    assert (deadline._due, late.empty()) == ({}, True)
