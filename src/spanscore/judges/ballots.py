"""The ballots of a vote, asked in the same turn of the loop → one request for several answers (``n`` of OpenAI's API).

A vote, or the guesses of ResponseRelevancy, is one question asked k times. It gets k answers, drawn independently by the
model; the question is sent, and paid for, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from spanscore.judges.render import render
from spanscore.model.prompt import Prompt, Reply

__all__ = ["BallotGatherer"]

One: TypeAlias = Callable[[Prompt], Awaitable[Reply]]
Several: TypeAlias = Callable[[Prompt, int], Awaitable[list[Reply]]]


@dataclass(slots=True)
class _Round:
    """Those who wait for answers to one question, each with a ballot of its own."""

    prompt: Prompt
    one: One
    several: Several
    ballots: set[int] = field(default_factory=set)
    waiting: list[asyncio.Future[Reply]] = field(default_factory=list)
    request: asyncio.Task[None] | None = None


class BallotGatherer:
    """Gathers questions that differ in their ballot only. Loop thread."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Round] = {}

    async def ask(self, prompt: Prompt, one: One, several: Several) -> Reply:
        """Answer a question, together with its other ballots that are asked in this turn of the loop.

        Cancelled, it leaves the others their answers. The last that waits gives the request up, and ends when that has.

        Args:
            one: answers one question.
            several: answers one so many times with one request; answers that it does not give are asked for one by one.
        """
        loop = asyncio.get_running_loop()
        key = (id(loop), prompt.step, *render(prompt))  # ballots of one vote differ in nothing that a model is sent
        asking = self._open.get(key)
        if asking is None:
            asking = self._open[key] = _Round(prompt, one, several)
            loop.call_soon(self._send, key)
        elif prompt.ballot in asking.ballots:  # no vote, but another sample that is the same
            return await one(prompt)
        asking.ballots.add(prompt.ballot)
        mine: asyncio.Future[Reply] = loop.create_future()
        asking.waiting.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if asking.request is not None and all(future.done() for future in asking.waiting):
                asking.request.cancel()  # does nothing to one that is done
                await asyncio.wait({asking.request})
            raise

    def _send(self, key: Hashable) -> None:
        asking = self._open.pop(key)
        asking.request = asyncio.ensure_future(_answer(asking))


async def _answer(asking: _Round) -> None:
    waiting = [future for future in asking.waiting if not future.done()]
    try:
        replies = await asking.several(asking.prompt, len(waiting)) if len(waiting) > 1 else []
    except Exception as error:  # noqa: BLE001  (handed to each of those who wait: they know what may pass)
        _fail(waiting, error)
        return
    for future, reply in zip(waiting, replies, strict=False):
        if not future.done():
            future.set_result(reply)
    await asyncio.gather(*(_alone(asking, future) for future in waiting[len(replies) :]))


async def _alone(asking: _Round, future: asyncio.Future[Reply]) -> None:
    try:
        reply = await asking.one(asking.prompt)
    except Exception as error:  # noqa: BLE001  (likewise)
        _fail([future], error)
        return
    if not future.done():
        future.set_result(reply)


def _fail(waiting: list[asyncio.Future[Reply]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)
