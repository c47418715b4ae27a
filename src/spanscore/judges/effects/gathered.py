"""The ballots of a vote, asked in the same turn of the loop → one question for several answers (``n`` of OpenAI's API)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeError
from spanscore.judges.asker import Asker, Follower, asked_by, asker
from spanscore.judges.effects.effect import Effect, layers, unwrapped
from spanscore.judges.render import render
from spanscore.protocols import Judge

__all__ = ["Gathered", "gathered"]


def gathered(judge: Judge) -> Judge:
    """Return a judge to which a vote is one question: itself, where it is so or where it never gives several answers to one."""
    inside = [*layers(judge)]
    is_so = any(isinstance(layer, Gathered) for layer in inside)
    return judge if is_so or not hasattr(inside[-1], "answers_several") else Gathered(judge)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gathered(Effect):
    """A judge that is asked once for all ballots of a vote, where it gives several answers to one question.

    A vote, or the guesses of ResponseRelevancy, is one question asked k times. It gets k answers, drawn independently by the
    model. Outside of budget and gate: it waits for one place, is paid for once, and is asked again as a whole. Answers that
    the judge did not give are asked for one by one. Loop thread.
    """

    judge: Judge
    _open: dict[Hashable, _Vote] = field(default_factory=dict, init=False, repr=False)

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer a question, together with its other ballots that are asked in this turn of the loop.

        Cancelled, it leaves the others their answers. The last that waits gives the request up, and ends when that has.
        """
        if not getattr(unwrapped(self.judge), "answers_several", False):
            return await self.judge.ask(prompt)
        reply = await self._vote(prompt).reply(prompt.vote_index)
        return await self.judge.ask(prompt) if reply is None else reply

    def _vote(self, prompt: Prompt) -> _Vote:
        """Return the vote that a ballot is part of: another one, where it is cast already, as then the samples are the same."""
        loop, score = asyncio.get_running_loop(), asker()
        # Ballots of one vote differ in nothing that a model is sent.
        key = (id(loop), score.metric, id(score.purse), prompt.step, *render(prompt))
        vote = self._open.get(key)
        if vote is None or prompt.vote_index in vote.votes:
            vote = self._open[key] = _Vote(prompt, self.judge.ask)
            loop.call_soon(self._send, key, vote)
        return vote

    def _send(self, key: Hashable, vote: _Vote) -> None:
        if self._open.get(key) is vote:
            del self._open[key]
        vote.send()


@dataclass(slots=True, eq=False)
class _Ballot:
    """One who waits for an answer; None: it has to ask alone."""

    answer: asyncio.Future[Reply | None]
    clock: Follower = field(default_factory=Follower)
    context: Context = field(default_factory=copy_context)


class _Vote:
    """Those who wait for answers to one question, each with a ballot of its own.

    Attributes:
        votes: by their numbers.
    """

    def __init__(self, prompt: Prompt, ask: Callable[[Prompt], Awaitable[Reply]]) -> None:
        self.votes: dict[int, _Ballot] = {}
        self._prompt = prompt
        self._ask = ask
        self._asker = Asker()
        self._request: asyncio.Task[None] | None = None

    async def reply(self, number: int) -> Reply | None:
        """Wait for the answer to a ballot; None where there is none among those that came."""
        one = self.votes[number] = _Ballot(asyncio.get_running_loop().create_future())
        try:
            return await one.answer
        finally:
            one.clock.stand(False)
            del self.votes[number]
            if not self.votes and self._request is not None and not self._request.done():
                self._request.cancel()
                await asyncio.wait({self._request})

    def send(self) -> None:
        """Ask once for all who are here by now; in the name of the first, and in that one's context."""
        waiting = self._waiting()
        if len(waiting) == 1:
            waiting[0].answer.set_result(None)
        elif waiting:
            first = waiting[0]
            self._asker = replace(first.clock.asker, on_change=self._clock)
            self._request = first.context.run(asyncio.ensure_future, self._answer(len(waiting)))

    async def _answer(self, number: int) -> None:
        try:
            with asked_by(self._asker), self._asker.asks():
                reply = await self._ask(replace(self._prompt, n=number))
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task ends the loop; those who wait get it)
            for place, one in enumerate(self._waiting()):  # the first alone is charged for the request
                one.answer.set_exception(error.without_request() if place and isinstance(error, JudgeError) else error)
        else:
            replies, waiting = [replace(reply, other_completions=()), *reply.other_completions], self._waiting()
            for one, each in zip_longest(waiting, replies[: len(waiting)]):
                one.answer.set_result(each)

    def _clock(self) -> None:
        for one in self.votes.values():
            one.clock.stand(self._asker.is_waiting)

    def _waiting(self) -> list[_Ballot]:
        return [one for one in self.votes.values() if not one.answer.done()]
