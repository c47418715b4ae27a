"""Single flight: the same question, asked by many at once → one request, for which all wait.

The request belongs to nobody's task: it is given up when nobody waits for it any more, and not before. Who waits longest pays:
the request goes out in that one's name, and the calls that came to nothing are recorded there. Whoever pays for a request that
ends because its own budget is spent, or because it has waited too long itself, ends alone: the next in the line then asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from spanscore.core.prompt import Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeBudgetSpent, JudgeError, JudgeRateLimited
from spanscore.judges.asker import Asker, Follower, asked_by
from spanscore.judges.record import record, recorded_by

__all__ = ["SingleFlight", "as_cached"]

Ask: TypeAlias = Callable[[], Awaitable[Reply]]
_OF_THE_PAYER = (JudgeRateLimited, JudgeBudgetSpent)
"""Ends that tell of who asked, and nothing of the question."""


def as_cached(reply: Reply) -> Reply:
    """Return an answer as those get it for whom nobody was asked: it costs nothing, where it is known what it cost at all."""
    return Reply(
        text=reply.text,
        model=reply.model,
        duration_s=0.0,
        cost_usd=None if reply.cost_usd is None else 0.0,
        cached=True,
        finish=reply.finish,
    )


class SingleFlight:
    """The questions that are out, by key. Loop thread."""

    def __init__(self) -> None:
        self._out: dict[Hashable, _Flight] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def share(self, key: Hashable, ask: Ask) -> Reply:
        """Wait for the question that is out under this key; ask, where there is none."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # in a forked child, what is out is the parent's
            self._out, self._loop = {}, loop
        flight = self._out.get(key)
        if flight is None or flight.has_ended:
            flight = self._out[key] = _Flight(ask)
        try:
            return await flight.answer()
        finally:
            if flight.has_ended and self._out.get(key) is flight:
                del self._out[key]


@dataclass(slots=True, eq=False)
class _Sharer:
    """One who waits for an answer, and whose clock goes as that of the request."""

    answer: asyncio.Future[Reply]
    clock: Follower = field(default_factory=Follower)
    context: Context = field(default_factory=copy_context)


class _Flight:
    """One request, and who waits for it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._line: dict[_Sharer, None] = {}
        self._payer: _Sharer | None = None
        self._asker = Asker()
        self._task: asyncio.Task[Reply | BaseException] | None = None
        self.has_ended = False

    async def answer(self) -> Reply:
        """Wait for the answer: as it came to the one who pays, as a cached one to the others."""
        one = _Sharer(asyncio.get_running_loop().create_future())
        self._line[one] = None
        if self._task is None:
            self._send(one)
        one.clock.stand(self._asker.is_waiting)
        try:
            return await one.answer
        finally:
            self._leave(one)

    def _send(self, payer: _Sharer) -> None:
        self._payer = payer
        self._asker = replace(payer.clock.asker, on_change=self._clock)
        # In the payer's context: traces are suppressed there, and what else stands around the question holds for it.
        self._task = payer.context.run(asyncio.ensure_future, self._request(self._asker))
        self._task.add_done_callback(self._land)

    async def _request(self, name: Asker) -> Reply | BaseException:
        try:
            with recorded_by(self._charge), asked_by(name), name.asks():
                return await self._ask()
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task ends the loop; those who wait get it)
            return error

    def _charge(self, call: JudgeCall) -> None:
        assert self._payer is not None  # there is no request without one
        self._payer.context.run(record, call)

    def _clock(self) -> None:
        for one in self._line:
            one.clock.stand(self._asker.is_waiting)

    def _leave(self, one: _Sharer) -> None:
        one.clock.stand(False)
        self._line.pop(one, None)
        if one.answer.done() and not one.answer.cancelled():
            one.answer.exception()  # fetched: who is cancelled just now does not, and asyncio would report it
        if not self.has_ended and not self._line and self._task is not None:
            self.has_ended = True
            self._task.cancel()
        elif one is self._payer and self._line:
            self._payer = next(iter(self._line))

    def _land(self, task: asyncio.Task[Reply | BaseException]) -> None:
        line = [one for one in self._line if not one.answer.done()]  # those who are cancelled have not all left yet
        if self.has_ended or task.cancelled() or not line:
            self.has_ended = True
            return
        ended, (first, *others) = task.result(), line
        if isinstance(ended, _OF_THE_PAYER) and others:
            self._leave(first)
            first.answer.set_exception(ended)
            self._send(others[0])
            return
        self.has_ended = True
        for one in line:
            _tell(one.answer, ended, pays=one is first)


def _tell(answer: asyncio.Future[Reply], ended: Reply | BaseException, *, pays: bool) -> None:
    """End a wait as the request ended: charged to one alone, whatever came of it."""
    if isinstance(ended, Reply):
        answer.set_result(ended if pays else as_cached(ended))
    else:
        answer.set_exception(ended if pays or not isinstance(ended, JudgeError) else ended.without_request())
