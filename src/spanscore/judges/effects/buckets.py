"""Buckets: what an account may still be asked, by what its provider tells, or by what the user says.

x-ratelimit-limit-requests: 60                       OpenAI and those like it: of so many
x-ratelimit-remaining-requests: 59                   so many are left
x-ratelimit-reset-requests: 1s                       and in so long all are back
anthropic-ratelimit-tokens-remaining: 80000          Anthropic: the same, but when all are back
anthropic-ratelimit-tokens-reset: 2026-01-01T00:00:30Z
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from math import inf
from typing import Literal, get_args

__all__ = ["Buckets", "TokenBucket"]

Kind = Literal["requests", "tokens"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S = (86_400, 3_600, 60, 1, 0.001)
_MINUTE_S = 60.0
"""Limits of providers that do not say in how long all is back are per minute."""
_BURST_S = 1.0
"""Of a limit that the user gives: so much of it may leave at once. Providers check a limit per minute per second, too."""
_LONGEST_RESET_S = 86_400.0
"""Some gateways tell a date in (milli)seconds since 1970; taken for a duration, an account would be full for decades."""
_ROUNDING = 1e-6


class TokenBucket:
    """Holds up to ``most`` and begins full; so many per second run in, and each question takes out what it comes to.

    Args:
        per_s: that run in.
        most: that it holds.
    """

    def __init__(self, per_s: float, most: float, now_s: float) -> None:
        self.per_s, self.most = per_s, most
        self._level, self._at_s = most, now_s

    def change(self, per_s: float, most: float, now_s: float) -> None:
        """Have it be of another size from now on; what it holds, or owes, it keeps as far as there is room."""
        self._level, self._at_s = min(most, self.level(now_s)), now_s
        self.per_s, self.most = per_s, most

    def level(self, now_s: float) -> float:
        """Return what it holds; below 0 it is in debt."""
        return min(self.most, self._level + self.per_s * (now_s - self._at_s))

    def take(self, amount: float, now_s: float) -> None:
        """Take out so much; give back what is negative."""
        self._level, self._at_s = self.level(now_s) - amount, now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return in how many seconds it holds so much, or is full."""
        missing = min(amount, self.most) - self.level(now_s)
        if missing <= _ROUNDING:
            return 0.0
        return missing / self.per_s if self.per_s > 0 else inf


class Buckets:
    """Requests and tokens, those that the provider tells of and those that the user gave; and until when nothing may leave.

    What a provider tells is as of when it took the question whose answer tells it: what was sent since is taken off.

    Args:
        utc_s: the wall clock, for reset times that are dates.
    """

    def __init__(self, utc_s: Callable[[], float]) -> None:
        self._utc_s = utc_s
        self._allowed_per_s: dict[Kind, float] = {}
        self._share = 1.0
        self._given: dict[Kind, TokenBucket] = {}
        self._told: dict[Kind, TokenBucket] = {}
        self._sent: deque[tuple[int, float]] = deque()
        self._serial = self._as_of = 0
        self.stopped_until_s = -inf

    @property
    def count_tokens(self) -> bool:
        """Whether it matters what a question comes to."""
        return "tokens" in self._given or "tokens" in self._told

    def allow(self, kind: Kind, per_minute: float) -> None:
        """Have no more than so many leave in a minute; the strictest word holds."""
        per_s = per_minute / _MINUTE_S
        if per_s < self._allowed_per_s.get(kind, inf):
            self._allowed_per_s[kind] = per_s
            self._given[kind] = TokenBucket(*self._size(kind), -inf)

    def share(self, fraction: float, now_s: float) -> None:
        """Have such a part of what the user gave run in from now on: the rest is other processes'. None is full by it."""
        self._share = fraction
        for kind, bucket in self._given.items():
            bucket.change(*self._size(kind), now_s)

    def stop(self, seconds: float, now_s: float) -> None:
        """Have nothing leave for so long: the provider said ``Retry-After``."""
        self.stopped_until_s = max(self.stopped_until_s, now_s + seconds)

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Return in how many seconds a question that comes to so many tokens may leave."""
        wait_s = max(0.0, self.stopped_until_s - now_s)
        for buckets in (self._given, self._told):
            for kind, bucket in buckets.items():
                wait_s = max(wait_s, bucket.wait_s(1.0 if kind == "requests" else tokens, now_s))
        return wait_s

    def sent(self, tokens: float, now_s: float) -> int:
        """Tell that a question leaves; return its number."""
        self._serial += 1
        self._take(self._given, 1.0, tokens, now_s)
        self._take(self._told, 1.0, tokens, now_s)
        if self._told:
            self._sent.append((self._serial, tokens))
        return self._serial

    def told(self, headers: Mapping[str, str], serial: int, sent_s: float, now_s: float) -> None:
        """Read what is left by the headers of what came back, be it an answer or a refusal.

        Args:
            serial: the number of the question.
            sent_s: when it left.
        """
        if serial < self._as_of:  # a newer one has told
            return
        told = {kind: bucket for kind in KINDS if (bucket := self._read(headers, kind, sent_s))}
        if not told:
            return
        self._told, self._as_of = told, serial
        while self._sent and self._sent[0][0] <= serial:
            self._sent.popleft()
        self._take(self._told, len(self._sent), sum(tokens for _, tokens in self._sent), now_s)

    def _size(self, kind: Kind) -> tuple[float, float]:
        per_s = self._allowed_per_s[kind] * self._share
        return per_s, max(1.0, per_s * _BURST_S)

    @staticmethod
    def _take(buckets: dict[Kind, TokenBucket], requests: float, tokens: float, now_s: float) -> None:
        for kind, bucket in buckets.items():
            bucket.take(requests if kind == "requests" else tokens, now_s)

    def _read(self, headers: Mapping[str, str], kind: Kind, now_s: float) -> TokenBucket | None:
        left = _number(headers, f"x-ratelimit-remaining-{kind}", f"anthropic-ratelimit-{kind}-remaining")
        if left is None:
            return None
        most = _number(headers, f"x-ratelimit-limit-{kind}", f"anthropic-ratelimit-{kind}-limit")
        reset_s = self._reset_s(headers, kind)
        most = max(most or 0.0, left, 1.0)
        used = most - left
        per_s = used / reset_s if reset_s and used else most / _MINUTE_S
        bucket = TokenBucket(per_s, most, now_s)
        bucket.take(used, now_s)
        return bucket

    def _reset_s(self, headers: Mapping[str, str], kind: Kind) -> float | None:
        if text := headers.get(f"x-ratelimit-reset-{kind}"):
            return _until_reset_s(_duration_s(text), self._utc_s())
        try:
            back_s = datetime.fromisoformat(headers.get(f"anthropic-ratelimit-{kind}-reset", "")).timestamp()
        except (ValueError, OverflowError):
            return None
        left_s = max(0.0, back_s - self._utc_s())
        return left_s if left_s <= _LONGEST_RESET_S else None


def _until_reset_s(told: float | None, utc_s: float) -> float | None:
    """Return for how long to wait, where a duration is told or a date; None where it can be neither."""
    if told is None:
        return None
    meant = (told, told - utc_s, told / 1000 - utc_s)
    return next((seconds for seconds in meant if 0 <= seconds <= _LONGEST_RESET_S), None)


def _number(headers: Mapping[str, str], *names: str) -> float | None:
    for name in names:
        try:
            number = float(headers.get(name, ""))
        except ValueError:
            continue
        if 0 <= number < inf:
            return number
    return None


def _duration_s(text: str) -> float | None:
    """Read ``6m0s``, ``1.5s``, ``120ms``, and a bare number of seconds; None for anything else."""
    if seconds := _number({"": text}, ""):
        return seconds
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True))
