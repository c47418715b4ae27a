"""Prompt cache: the first question of a unit fills the provider's cache, and questions with the same beginning wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from math import isfinite
from weakref import WeakKeyDictionary

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.middleware import JudgeMiddleware, account_of, is_batched, unwrapped
from spanscore.judges.rendering import bytes_of, render
from spanscore.judges.score_context import current_score
from spanscore.protocols import Judge

PROMPT_CACHE_WAIT_S = 2.0
CACHED_FROM = 1_024
"""Minimum tokens of a beginning that providers cache; some models have a higher minimum."""
_BYTES_PER_TOKEN = 4
_MOST_REMEMBERED = 1_000
"""Number of beginnings that one loop remembers, the latest; a provider drops a beginning within minutes."""


def shared_beginning(prompt: Prompt, least_tokens: int) -> str:
    """Return the beginning of a question's user text that another question of its unit shares.

    Args:
        least_tokens: minimum length that the provider caches, system text included. Four bytes count as a token.

    Returns:
        The beginning; empty if it is shorter, or if no other question of the unit shares it.
    """
    score = current_score()
    if score.questions_alike <= 1:
        return ""
    texts = render(prompt)
    beginning = texts.user[: prompt.beginning_chars]
    if not beginning.startswith(f'<evidence>{{"{score.first_field}":'):
        return ""
    size = bytes_of(texts.system) + bytes_of(beginning)
    return beginning if size >= _BYTES_PER_TOKEN * least_tokens else ""


_firsts: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, asyncio.Future[None] | None]] = WeakKeyDictionary()
"""Loop → account and beginning → future of the first question with that beginning. Used on the loop thread.

None = the question is answered: a future would keep its loop alive.
"""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CacheFilled(JudgeMiddleware):
    """A judge whose first question of a unit fills the provider's cache, before questions with the same beginning are sent.

    Without the wait, each of these questions would be billed in full. The wait is outside of a metric's ``timeout``. A judge
    without ``cached_from`` (the provider's minimum tokens of a cached beginning) is asked at once, as is a judge in batches.

    Args:
        wait_s: longest wait for the answer to the first question, in seconds; 0 = all are sent at once.

    Raises:
        ConfigurationError: ``wait_s`` is negative or not a finite number.
    """

    judge: Judge
    wait_s: float = PROMPT_CACHE_WAIT_S

    def __post_init__(self) -> None:
        if not (isfinite(self.wait_s) and self.wait_s >= 0):
            raise ConfigurationError(f"prompt_cache_wait is {self.wait_s}; it must be a number of seconds, 0 or more")

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask, after the answer to the first question with the same beginning."""
        least_tokens: int | None = getattr(unwrapped(self.judge), "cached_from", None)
        if least_tokens is None or not self.wait_s or is_batched(self.judge):
            return await self.judge.ask(prompt)
        beginning = shared_beginning(prompt, least_tokens)
        if not beginning:
            return await self.judge.ask(prompt)
        loop = asyncio.get_running_loop()
        firsts = _firsts.setdefault(loop, {})
        key = account_of(self.judge), hash(beginning)
        if key not in firsts:
            if len(firsts) >= _MOST_REMEMBERED:
                del firsts[next(iter(firsts))]
            first = firsts[key] = loop.create_future()
            try:
                return await self.judge.ask(prompt)
            finally:
                firsts[key] = None
                if not loop.is_closed():  # a closed loop has no waiters and takes no callbacks
                    first.set_result(None)
        if (pending := firsts[key]) is not None:
            with current_score().waits():
                await asyncio.wait({pending}, timeout=self.wait_s)
        return await self.judge.ask(prompt)
