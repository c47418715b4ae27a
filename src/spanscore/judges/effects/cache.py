"""What was asked is not asked again: one request for equal questions, and its answer kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError
from spanscore.judges.ask import REPAIR_STEP
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.answer_file import file_answers
from spanscore.judges.effects.answers import AnswerStore, MemoryAnswers
from spanscore.judges.effects.effect import Effect, layers, unwrapped
from spanscore.judges.effects.gated import gates_of
from spanscore.judges.reader import read
from spanscore.judges.render import render
from spanscore.protocols import Judge

__all__ = ["CacheSetting", "Cached", "answers_kept", "key_of"]

CacheSetting: TypeAlias = AnswerStore | str | Path | None
"""``memory``, the path of a file, a store that several judges share; None: only what a run brings."""

_of_run: ContextVar[AnswerStore | Literal[False] | None] = ContextVar("spanscore_answers_of_run", default=None)


@contextmanager
def answers_kept(store: AnswerStore | None) -> Iterator[None]:
    """Have the judges asked inside the block, and in tasks started there, keep their answers.

    Args:
        store: for the judges that have no cache of their own; None = every question is asked, whatever is configured.
    """
    token = _of_run.set(store or False)
    try:
        yield
    finally:
        _of_run.reset(token)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Cached(Effect):
    """A judge that is asked each question once; equal ones that come later, or meanwhile, get the same answer.

    Only answers in the asked form are kept, and a repair is always asked. The same answer twice is one draw of the judge:
    the calls it did not get are ``cached`` ones, and a score says how many of its own are.

    Args:
        cache: where the answers are kept. Nowhere when None, unless the run brings a place (``evaluate``).

    Raises:
        ConfigurationError: the file cannot be written, or others stand in for the judge: each of them needs its own.
    """

    judge: Judge
    cache: CacheSetting = None
    _store: AnswerStore | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if any(len(layer.judges) > 1 for layer in layers(self.judge) if isinstance(layer, Effect)):
            raise ConfigurationError("cache is given around a fallback, whose answers are another's: give both at once")
        object.__setattr__(self, "_store", _store_of(self.cache))  # frozen

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer from what was answered before, else ask."""
        of_run = _of_run.get()
        store = None if of_run is False else self._store or of_run
        if store is None or prompt.step == REPAIR_STEP:
            return await self.judge.ask(prompt)
        key = key_of(self.judge, prompt)
        reply = await store.flights.share(key, lambda: self._answer(store, key, prompt))
        if reply.cached:
            for gate in gates_of(self.judge):
                gate.cached += 1
        return reply

    async def _answer(self, store: AnswerStore, key: bytes, prompt: Prompt) -> Reply:
        known = await store.find(key)
        if known is not None:
            return known
        reply = await self.judge.ask(prompt)
        if read(reply.text, prompt.output, prompt.evidence) is not None:  # else it could not be read for ever
            written = store.keep(key, reply)
            if written is not None:  # before it is used: what a process that is killed has asked, nobody asks again
                await written
        return reply


def key_of(judge: Judge, prompt: Prompt) -> bytes:
    """Return what tells a question from every other, in any process: who is asked, what, and how the answer is drawn.

    The account's key is no part of it: with a new one the same model answers.
    """
    inner = unwrapped(judge)
    account: object = getattr(inner, "account", None)
    who: tuple[str, ...] = type(inner).__qualname__, judge.model
    if isinstance(account, Account):
        who = account._replace(key="")
    asked = [prompt.step, *render(prompt), _schema(prompt.output), prompt.vote_index]
    text = json.dumps([who, asked, getattr(inner, "drawing", None)], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=32).digest()


@lru_cache(maxsize=256)
def _schema(output: type[BaseModel]) -> dict[str, Any]:
    return output.model_json_schema()


def _store_of(setting: CacheSetting) -> AnswerStore | None:
    if setting == "memory":
        return MemoryAnswers()
    if setting == "":
        raise ConfigurationError("cache is empty; it must be 'memory' or the path of a file")
    return file_answers(setting) if isinstance(setting, str | Path) else setting
