"""Every judge, and every effect around one, passes the contract, and the contract rejects faulty ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from tests.contracts.found import failing, implementations, never_failing

from spanscore.core.prompt import Prompt, Reply
from spanscore.judges import FallingBack, Jury, LangChainJudge, Priced
from spanscore.judges.effects.limited import Windowed
from spanscore.protocols import Judge
from spanscore.testing import JudgeContract


class Answering:
    """A judge that thinks for a moment."""

    model = "answering"

    async def ask(self, prompt: Prompt) -> Reply:
        await asyncio.sleep(0.001)
        return Reply(text='{"verdict": 1}', model=self.model)


class AnsweringToo(Answering):
    """Another model."""

    model = "answering too"


MADE: dict[type, Callable[[], Judge]] = {
    FallingBack: lambda: FallingBack(Answering(), [Answering()]),
    Jury: lambda: Jury([Answering(), AnsweringToo()]),
    LangChainJudge: lambda: LangChainJudge(FakeListChatModel(responses=['{"verdict": 1}'])),
    Windowed: lambda: Windowed(Answering(), 1_000),
    Priced: lambda: Priced(Answering(), {"answering": (1.0, 2.0)}),
}
"""How each is made; one that is not here is made of nothing, or around another judge."""


@pytest.mark.parametrize("kind", [*implementations("judges", Judge), *implementations("testing", Judge)])
class TestJudges(JudgeContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: Any) -> None:
        around = [Answering()] if "judge" in signature(kind).parameters else []
        self.make = MADE.get(kind, lambda: kind(*around))  # type: ignore[method-assign]


class Nameless(Answering):
    model = ""


class Moody(Answering):
    """Is sure of every other answer."""

    asked = 0

    async def ask(self, prompt: Prompt) -> Any:
        self.asked += 1
        return await super().ask(prompt) if self.asked % 2 else None


class Blurting(Answering):
    """Raises the exceptions of its client."""

    async def ask(self, prompt: Prompt) -> Reply:
        raise KeyError(prompt.evidence["question"])


class Choosy(Answering):
    """Takes no text that is not UTF-8."""

    async def ask(self, prompt: Prompt) -> Reply:
        str(prompt.evidence).encode()
        prompt.evidence["question"].encode()
        return await super().ask(prompt)


class Loyal(Answering):
    """Stays with the loop on which it was first asked."""

    queue: Any = None

    async def ask(self, prompt: Prompt) -> Reply:
        loop = asyncio.get_running_loop()
        self.queue = self.queue or loop
        if self.queue is not loop:
            raise RuntimeError("attached to a different loop")
        return await super().ask(prompt)


class Stubborn(Answering):
    """Swallows its cancellation."""

    async def ask(self, prompt: Prompt) -> Reply:
        try:
            return await super().ask(prompt)
        except asyncio.CancelledError:
            return Reply(text="")


BROKEN = [Nameless, Moody, Blurting, Choosy, Loyal, Stubborn]


def broken(kind: Any) -> type[JudgeContract]:
    class Suite(JudgeContract):
        timeout_s = 0.05

        def make(self) -> Judge:
            made: Judge = kind()
            return made

    return Suite


@pytest.mark.parametrize("kind", BROKEN)
def test_a_judge_that_breaks_a_promise_is_turned_away(kind: Any) -> None:
    assert failing(broken(kind))


def test_every_check_turns_one_of_them_away() -> None:
    assert never_failing(JudgeContract, map(broken, BROKEN)) == {"test_it_is_a_judge"}
    assert "test_it_is_a_judge" in failing(broken(dict))


def test_a_judge_that_does_all_right_is_not_turned_away() -> None:
    assert not failing(broken(Answering))
