"""Exchange: one call of a client as its HTTP transport sees it: how long and how much it may take, and what it heard."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from spanscore.judges.langchain.usage import UNKNOWN, Tokens, tokens_in

__all__ = ["Exchange", "exchange", "exchanging", "limits_in"]

_LIMITS = ("x-ratelimit-", "ratelimit-", "anthropic-ratelimit-", "retry-after")
_LONGEST_VALUE = 100
_FIRST_REDIRECT, _FIRST_REFUSAL = 300, 400
_SHORTEST_S = 0.001
"""Of a timeout that is set on a socket: 0 would mean not to wait at all."""


@dataclass(slots=True)
class Exchange:
    """What a call may take, and what came of it. On the call's thread.

    Attributes:
        ends_s: when the whole answer has to be there; ``time.monotonic``.
        max_bytes: of one answer, inflated.
        max_parts: values in its JSON; a judge's has some 30.
        origin: scheme, host and port of the last request; None before the first one.
        status: of the last answer; None where none began.
        headers: what the last answer said of the account's limits, names in lower case.
        body: of the last answer, inflated.
        is_whole: whether all of it came.
        said: the body as JSON; empty where it is none.
        tokens: of all answers of the call, as they say themselves.
        answers: of each that is no refusal and no redirect.
        is_counted: whether each of them says it.
    """

    ends_s: float
    max_bytes: int
    max_parts: float
    origin: tuple[str, str, int | None] | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False
    said: Mapping[str, Any] = field(default_factory=dict)
    tokens: Tokens = UNKNOWN
    answers: list[Tokens] = field(default_factory=list)
    is_counted: bool = True

    def is_led_away(self, origin: tuple[str, str, int | None]) -> bool:
        """Whether the last answer is a redirect, and the request that follows it has another origin."""
        is_redirect = self.status is not None and _FIRST_REDIRECT <= self.status < _FIRST_REFUSAL
        return is_redirect and origin != self.origin

    def sent(self, origin: tuple[str, str, int | None]) -> None:
        """Forget what was heard: a request goes out, the first one or where the last answer pointed."""
        self.origin = origin
        self.status, self.headers, self.body, self.is_whole, self.said = None, {}, b"", False, {}

    def answered(self, body: bytes, said: Mapping[str, Any]) -> None:
        """Keep an answer that came whole."""
        self.body, self.said, self.is_whole = body, said, True
        tokens = tokens_in(said.get("usage"))
        self.tokens = Tokens(*(sum(both) for both in zip(self.tokens, tokens, strict=True)))
        self.is_counted &= any(tokens)
        if self.status is not None and self.status < _FIRST_REDIRECT:
            self.answers.append(tokens)

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self.ends_s

    def left_s(self, timeout_s: float | None) -> float:
        """Return how long a step of it may take, which would wait for so long itself."""
        left_s = max(_SHORTEST_S, self.ends_s - time.monotonic())
        return left_s if timeout_s is None else min(timeout_s, left_s)


_exchange: ContextVar[Exchange | None] = ContextVar("spanscore_exchange", default=None)


def exchange() -> Exchange | None:
    """Return the call on whose behalf this is sent; None where a client is used by somebody else."""
    return _exchange.get()


@contextmanager
def exchanging(mine: Exchange) -> Iterator[None]:
    """Make a call inside the block."""
    token = _exchange.set(mine)
    try:
        yield
    finally:
        _exchange.reset(token)


def limits_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what headers say of an account's limits, names in lower case; nothing else of them is kept."""
    named = ((str(name).lower(), str(value)) for name, value in headers.items())
    return {name: value for name, value in named if name.startswith(_LIMITS) and len(value) <= _LONGEST_VALUE}
