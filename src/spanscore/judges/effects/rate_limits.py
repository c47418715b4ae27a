"""Rate limits of an account: token buckets, a concurrency limit learned from refusals, and the backoff after refusals."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from math import ceil, floor, inf
from typing import Literal, get_args

from spanscore.judges.effects.account import RequestSlot

# Rate-limit headers. OpenAI and compatible providers send the reset as a duration, Anthropic sends it as a date:
#
#     x-ratelimit-limit-requests: 60          x-ratelimit-remaining-requests: 59     x-ratelimit-reset-requests: 1s
#     anthropic-ratelimit-tokens-limit: 100   anthropic-ratelimit-tokens-remaining   anthropic-ratelimit-tokens-reset: 2026-…

Kind = Literal["requests", "tokens"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S = (86_400, 3_600, 60, 1, 0.001)
_MINUTE_S = 60.0
"""Period of a limit if the provider sends no reset time, because such limits are per minute."""
_BURST_S = 1.0
"""Seconds of a user's limit that may be used at once: providers also check a limit per minute within each second."""
_LONGEST_RESET_S = 86_400.0
"""Some gateways send a date in (milli)seconds since 1970; taken for a duration, it would block an account for decades."""
_ROUNDING = 1e-6


class TokenBucket:
    """A token bucket. A new bucket is full. It is refilled at a constant rate, and each question removes an amount.

    Args:
        per_s: amount refilled per second.
        most: capacity.
        now_s: the present time, in seconds of the caller's clock.
    """

    def __init__(self, per_s: float, most: float, now_s: float) -> None:
        self.per_s, self.most = per_s, most
        self._level, self._at_s = most, now_s

    def change(self, per_s: float, most: float, now_s: float) -> None:
        """Change rate and capacity from now on; the level, or debt, is kept up to the new capacity."""
        self._level, self._at_s = min(most, self.level(now_s)), now_s
        self.per_s, self.most = per_s, most

    def level(self, now_s: float) -> float:
        """Return the present level; below 0 is a debt."""
        return min(self.most, self._level + self.per_s * (now_s - self._at_s))

    def take(self, amount: float, now_s: float) -> None:
        """Take out an amount; a negative amount is put back."""
        self._level, self._at_s = self.level(now_s) - amount, now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return the seconds until the bucket holds an amount, or is full."""
        missing = min(amount, self.most) - self.level(now_s)
        if missing <= _ROUNDING:
            return 0.0
        return missing / self.per_s if self.per_s > 0 else inf


class Buckets:
    """Buckets for requests and tokens, from the user's limits and the provider's headers, and a time until which all wait.

    A header describes the time at which its question was sent: requests sent later are subtracted.

    Args:
        utc_s: the wall clock, for reset times that are dates.
    """

    def __init__(self, utc_s: Callable[[], float]) -> None:
        self._utc_s = utc_s
        self._allowed_per_s: dict[Kind, float] = {}
        self._share = 1.0
        self._of_settings: dict[Kind, TokenBucket] = {}
        self._of_provider: dict[Kind, TokenBucket] = {}
        self._sent: deque[tuple[int, float]] = deque()
        self._serial = self._as_of = 0
        self.stopped_until_s = -inf

    @property
    def count_tokens(self) -> bool:
        """Whether a bucket counts tokens, so that the tokens of a question must be estimated."""
        return "tokens" in self._of_settings or "tokens" in self._of_provider

    def allow(self, kind: Kind, per_minute: float) -> None:
        """Limit requests or tokens per minute; the strictest limit applies."""
        per_s = per_minute / _MINUTE_S
        if per_s < self._allowed_per_s.get(kind, inf):
            self._allowed_per_s[kind] = per_s
            self._of_settings[kind] = TokenBucket(*self._size(kind), -inf)

    def share(self, fraction: float, now_s: float) -> None:
        """Refill the user's buckets at a fraction of their rates, because other processes share the limits. No level rises."""
        self._share = fraction
        for kind, bucket in self._of_settings.items():
            bucket.change(*self._size(kind), now_s)

    def stop(self, seconds: float, now_s: float) -> None:
        """Send nothing for some seconds, as the provider requests by ``Retry-After``."""
        self.stopped_until_s = max(self.stopped_until_s, now_s + seconds)

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Return the seconds until a question of so many tokens may be sent."""
        wait_s = max(0.0, self.stopped_until_s - now_s)
        for buckets in (self._of_settings, self._of_provider):
            for kind, bucket in buckets.items():
                wait_s = max(wait_s, bucket.wait_s(1.0 if kind == "requests" else tokens, now_s))
        return wait_s

    def count_request(self, tokens: float, now_s: float) -> int:
        """Count a question that is sent; return its serial number."""
        self._serial += 1
        self._take(self._of_settings, 1.0, tokens, now_s)
        self._take(self._of_provider, 1.0, tokens, now_s)
        if self._of_provider:
            self._sent.append((self._serial, tokens))
        return self._serial

    def update(self, headers: Mapping[str, str], serial: int, sent_s: float, now_s: float) -> None:
        """Update the provider's buckets from the headers of an answer or a refusal.

        Args:
            headers: the response headers, with lower-case names.
            serial: serial number of the question.
            sent_s: time at which the question was sent.
            now_s: the present time.
        """
        if serial < self._as_of:  # the headers of a newer question were read already
            return
        buckets = {kind: bucket for kind in KINDS if (bucket := self._read(headers, kind, sent_s))}
        if not buckets:
            return
        self._of_provider, self._as_of = buckets, serial
        while self._sent and self._sent[0][0] <= serial:
            self._sent.popleft()
        self._take(self._of_provider, len(self._sent), sum(tokens for _, tokens in self._sent), now_s)

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
            reset_s, utc_s = _duration_s(text), self._utc_s()
            # A duration, or a date in seconds or milliseconds.
            meant = () if reset_s is None else (reset_s, reset_s - utc_s, reset_s / 1000 - utc_s)
            return next((seconds for seconds in meant if 0 <= seconds <= _LONGEST_RESET_S), None)
        try:
            back_s = datetime.fromisoformat(headers.get(f"anthropic-ratelimit-{kind}-reset", "")).timestamp()
        except (ValueError, OverflowError):
            return None
        left_s = max(0.0, back_s - self._utc_s())
        return left_s if left_s <= _LONGEST_RESET_S else None


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


_START = 4.0
_LEAST = 0.01
_KEPT = 0.9
"""Fraction of the refused level that becomes the new level."""
_NEAR = 0.96
"""Fraction of the refused rate to which the pace returns before it exceeds that rate again."""
_STEP, _LONGEST_STEP = 0.04, 0.64
"""Fraction by which a probe exceeds the known rate: first and highest value. The fraction doubles while probes pass."""
_PROBE_S, _RAREST_PROBE_S, _CHANGED_S = 1.0, 8.0, 4.0
_PASSED_S = 1.0
"""Seconds without a refusal after which a rate above the known one counts as passed."""
_PROVED_S = 30.0
"""Seconds for which an answered number of concurrent questions counts as evidence."""
_PROOFS = 3
_PEACE = 4
"""Answers in a row after which a further refusal belongs to a new episode."""
_DOUBTS = 2
"""Refusals in a row that indicate a concurrency limit, after which a pace is abandoned."""
_SMOOTHING = 0.1


class AdaptiveConcurrency:
    """The number of questions that may be open at once with one account, learned from its refusals.

    It starts at 4, doubles per round trip until the first refusal, and then stays a tenth below the level of the last refusal.

    Providers limit open requests, or requests per second, and do not publish which. If a k-th concurrent question was answered
    lately, the refusal of a k-th means a rate limit, or a place that is freed a moment after its answer (``ReleaseLag``).
    Otherwise the refusal means a concurrency limit. The answer to a rate limit is a pace, one call per (round trip ÷ level);
    the answer to a concurrency limit is ``level`` places. ``benchmarks/judges.py`` shows that both are needed: a learned rate
    uses too little of a provider that limits concurrency, and a bucket is refused again and again for concurrency.

    Calls that were sent before a refusal arrived, and are refused as well, belong to the same episode and change nothing.
    The level is exceeded on trial after 1 s, and half as often after each failed trial, down to every 8 s. A passed trial is
    followed by longer trials, every second. Only a refusal lowers the level, and only use raises it.

    Args:
        ceiling: highest level; below 1 it is a pace, for a process that has a fraction of a place.

    Attributes:
        level: number of places; a pace if it is below 1, or if ``paced``.
        paced: whether the level is a pace, because the provider limits the rate.
    """

    def __init__(self, ceiling: float) -> None:
        self.ceiling = ceiling
        self.level = min(_START, self._highest)
        self.paced = False
        self._wall = inf
        self._round_trip_s = self._unit_s = 0.5
        self._last_sent_s = self._sent_before_s = self._one_by_one_until_s = -inf
        self._last_serial = self._cut_serial = 0
        self._proved: dict[int, deque[float]] = {}
        self._suspects_rate: bool | None = None
        self._doubts = self._refused_at = 0
        self._probe_every_s = _PROBE_S
        self._grow_at_s = inf
        self._passed = 0
        self._calm = 0
        self._in_trouble = False
        self._trials = ProbeBackoff()
        self._goodput = Goodput()
        self._lag = ReleaseLag()

    def bound(self, ceiling: float) -> None:
        """Change the ceiling."""
        self.ceiling = ceiling
        self.level = min(self.level if self._last_serial else _START, self._highest)

    def wait_s(self, out: int, now_s: float) -> float:
        """Return the seconds until one more may be sent when ``out`` are open; infinite until one of them ends."""
        if self._trials.on:
            return self._trials.wait_s(now_s)
        place_s = self._lag.wait_s(self._most() - out, now_s)
        level = min(self.level, self.ceiling)
        if level >= 1 and not self.paced and now_s >= self._one_by_one_until_s:
            return place_s
        unit_s = self._unit_s if self.paced else self._round_trip_s
        return max(place_s, self._last_sent_s + unit_s / level - now_s)

    def count_request(self, slot: RequestSlot, now_s: float) -> None:
        """Count a request that is sent."""
        self._sent_before_s, self._last_sent_s, self._last_serial = self._last_sent_s, now_s, slot.serial
        self._goodput.offered += 1
        self._trials.count_request(slot)
        self._lag.count_request(slot)

    def count_end(self, slot: RequestSlot) -> None:
        """Count a request that has ended, with or without an answer."""
        self._trials.count_end(slot)

    def count_answer(self, slot: RequestSlot, now_s: float, *, in_use: bool) -> None:
        """Count a request that was answered.

        Args:
            in_use: whether other questions wait for a place.
        """
        self._round_trip_s += _SMOOTHING * (now_s - slot.sent_s - self._round_trip_s)
        self._lag.count_answer(now_s, self._round_trip_s)
        self._proved.setdefault(slot.out, deque(maxlen=_PROOFS)).append(now_s)
        if slot.serial > self._cut_serial:
            if self._trials.on:
                self._resume(slot, now_s)
            self._trials.count_answer()
            self._settle()
            self._calm += 1
            self._in_trouble = self._in_trouble and self._calm <= _PEACE
        self._trials.last_admitted_s = max(self._trials.last_admitted_s, slot.sent_s)
        if in_use:
            self._grow(slot, now_s)

    def count_refusal(self, slot: RequestSlot, now_s: float, out: Iterable[RequestSlot] = ()) -> None:
        """Count a request that was refused for load.

        Args:
            out: open requests. Each one sent later had one concurrent request fewer than its ``out`` counted.
        """
        later = [other for other in out if other.serial > slot.serial]
        for other in later:
            other.out -= 1
        slot.out += slot.held
        self._goodput.not_attempted += 1
        if slot.serial == self._last_serial and self.level < 1:  # a refused request used nothing of a rate limit
            self._last_sent_s = self._sent_before_s
        if slot.serial <= self._cut_serial:
            return
        self._cut_serial = self._last_serial
        if not self.paced and self._is_proved(slot.out, now_s) and self._lag.explains(slot, self.level):
            return
        if not self._trials.count_refusal(now_s):
            self._cut(slot, len(later), now_s)

    def halve(self) -> None:
        """Halve the level, because the judge is back and its capacity is unknown."""
        self.level = max(min(self.level, 1.0), self.level / 2)

    def pace(self, from_s: float) -> None:
        """Spread the questions that wait for ``from_s`` over one round trip from that time on."""
        self._one_by_one_until_s = from_s + self._round_trip_s

    def _most(self) -> int:
        most = ceil(1.5 * self.level) + 1 if self.paced else max(1, floor(self.level))
        return min(floor(self._highest), most)

    @property
    def _highest(self) -> float:
        """The highest level to learn: at least one place, as a later ceiling may be higher."""
        return max(1.0, self.ceiling)

    def _cut(self, slot: RequestSlot, later: int, now_s: float) -> None:
        self._calm = self._passed = 0
        if not self._in_trouble:
            self._goodput.begin(now_s)
        self._rest(slot)
        self._in_trouble = True
        self._grow_at_s = now_s + self._probe_every_s
        self._refused_at = slot.out
        self._suspects_rate = slot.out == 1 or self._is_proved(slot.out, now_s)
        if not self._suspects_rate:
            self._proved = {out: proofs for out, proofs in self._proved.items() if out < slot.out}
        if not self._suspects_rate and not self.paced:
            self._wall = float(slot.out)
            self.level = max(1.0, min(self._wall - 1, _KEPT * self._wall))
            return
        self.level = max(_LEAST, _KEPT * self.level)
        goodput = self._goodput.per_s(slot, later)
        if goodput is not None and self.level >= 1:
            known = goodput * (self._unit_s if self.paced else self._round_trip_s)
            self.level = min(self.level, max(_NEAR * known, self.level / 4))
        self._wall = self.level / _KEPT

    def _is_proved(self, out: int, now_s: float) -> bool:
        """Whether ``out`` concurrent questions were answered lately, three times or more, because one time may be luck.

        A provider may free a place before its answer arrives here.
        """
        proofs = (proof for known, proofs in self._proved.items() if known >= out for proof in proofs)
        return sum(proof > now_s - _PROVED_S for proof in proofs) >= _PROOFS

    def _rest(self, slot: RequestSlot) -> None:
        """Probe half as often if a probe was refused; more often if the provider allows less than before."""
        if (self.level if self.paced else slot.out) >= self._wall:
            self._probe_every_s = min(2 * self._probe_every_s, _RAREST_PROBE_S)
        elif not self._in_trouble and self.level >= 1:
            self._probe_every_s = max(_CHANGED_S, self._probe_every_s / 2)

    def _resume(self, slot: RequestSlot, now_s: float) -> None:
        """Continue after trials: as before if the cause was a storm, otherwise at the rate of the first admitted trials."""
        self.pace(now_s)
        if self._trials.was_storm(slot):
            self._suspects_rate = None
            self._lag.forget()
            return
        if not self._trials.were_many:
            return
        self._goodput.begin(now_s)
        known = 1.1 * self._unit_s / (slot.sent_s - self._trials.last_admitted_s)
        if self.paced and known < self.level:
            self.level, self._wall = known, min(self._wall, 1.5 * known)
            self._probe_every_s = _PROBE_S
            self._grow_at_s = now_s + _PROBE_S

    def _settle(self) -> None:
        """Decide the kind of limit behind a refusal, once questions are answered again. A storm of errors shows no limit."""
        if self._suspects_rate is None:
            return
        self._doubts = 0 if self._suspects_rate else self._doubts + 1
        if self._suspects_rate and not self.paced:
            self.paced, self._unit_s = True, self._round_trip_s
            self._lag.forget()
        elif self.paced and self._doubts >= _DOUBTS:
            self.paced, self._wall = False, float(self._refused_at)
            self.level = max(1.0, self._wall - 1)
        self._suspects_rate = None

    def _grow(self, slot: RequestSlot, now_s: float) -> None:
        if self._wall == inf:
            self.level += 1
        elif self.paced or self.level < 1:
            self._grow_pace(now_s)
        else:
            self._grow_places(slot, now_s)
        self.level = min(self.level, self._highest)

    def _grow_places(self, slot: RequestSlot, now_s: float) -> None:
        if slot.out >= self._wall:
            self._wall = slot.out + 1.0
            self._pass()
            self._grow_at_s = now_s + self._probe_every_s
        if self.level < self._wall - 1:
            self.level = min(self.level + 1, self._wall - 1)
        elif now_s >= self._grow_at_s:
            self.level = self._wall + 2**self._passed - 1
            self._grow_at_s = now_s + self._probe_every_s

    def _grow_pace(self, now_s: float) -> None:
        if now_s < self._grow_at_s:
            return
        if self.level > self._wall:
            self._wall = self.level
            self._pass()
        if self.level < _NEAR * self._wall:
            self.level = _NEAR * self._wall
            self._grow_at_s = now_s + self._probe_every_s
        else:
            self.level = self._wall * (1 + min(_STEP * 2**self._passed, _LONGEST_STEP))
            self._grow_at_s = now_s + _PASSED_S

    def _pass(self) -> None:
        self._passed += 1
        self._probe_every_s = _PROBE_S


class Goodput:
    """Estimates the provider's rate limit: questions admitted per second while others were refused, within one episode."""

    _FEWEST = 3
    _TURNED_AWAY = 0.3
    """Lowest number of refusals per admitted question at which the rate is measurable."""

    def __init__(self) -> None:
        self.begin(-inf)

    def begin(self, now_s: float) -> None:
        """Count from now on."""
        self._since_s = now_s
        self.offered = self.not_attempted = 0

    def per_s(self, refused: RequestSlot, later: int) -> float | None:
        """Return the rate up to a refused question; None with too little evidence.

        Args:
            refused: the refused question.
            later: number of questions sent after it, whose outcome is unknown.
        """
        admitted = self.offered - self.not_attempted - later
        if admitted < self._FEWEST or self.not_attempted < self._TURNED_AWAY * admitted:
            return None
        return admitted / (refused.sent_s - self._since_s)


class ProbeBackoff:
    """Backoff for a provider that refuses everything: after two refusals in a row, questions are sent one at a time.

    The first is sent after 0.1 s; each further one waits twice as long, up to 4 s.

    Attributes:
        last_admitted_s: time at which the latest answered question was sent.
    """

    _FIRST_S, _LONGEST_S = 0.1, 4.0
    _MANY = 3
    _STORM_S = 5.0
    """Longest interval of a rate limit between two questions; a longer one is taken for a provider that refuses everything."""

    def __init__(self) -> None:
        self.last_admitted_s = -inf
        self._refusals = 0
        self._trial: RequestSlot | None = None
        self._next_s = -inf
        self._answers = 0

    @property
    def on(self) -> bool:
        """Whether questions are sent one at a time."""
        return self._refusals > 1

    @property
    def were_many(self) -> bool:
        """Whether there were enough refusals for the time until the first admission to show the rate."""
        return self._refusals > self._MANY

    def was_storm(self, admitted: RequestSlot) -> bool:
        """Whether everything was refused for 5 s or more, after a time with several answers."""
        return admitted.sent_s - self.last_admitted_s >= self._STORM_S and self._answers > 2  # noqa: PLR2004  (a few)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next trial may be sent; infinite while one is open."""
        return inf if self._trial else max(0.0, self._next_s - now_s)

    def count_request(self, slot: RequestSlot) -> None:
        """Make a question that is sent the trial, if trials are on."""
        if self.on:
            self._trial = slot

    def count_end(self, slot: RequestSlot) -> None:
        """End the trial, if this question is the trial."""
        if self._trial is slot:
            self._trial = None

    def count_answer(self) -> None:
        """Count an answer to a question that was sent after the last refusal."""
        self._answers = 1 if self.on else self._answers + 1
        self._refusals = 0

    def count_refusal(self, now_s: float) -> bool:
        """Count a refusal of a question that was sent after the last refusal; return whether trials are on now."""
        self._refusals += 1
        if self.on:
            self._next_s = now_s + min(self._FIRST_S * 2 ** (self._refusals - 2), self._LONGEST_S)
        return self.on


class ReleaseLag:
    """Delay after an answer until a gateway frees the place of its request. Until then the place counts as used.

    The delay is learned: a refusal that it may explain doubles it, and each answer makes it a thousandth shorter.
    """

    _FIRST_S = 0.005
    _LONGEST = 0.1
    """Upper bound of the lag, as a fraction of a round trip."""
    _EASED = 0.999

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the lag to 0."""
        self._lag_s = self._longest_s = 0.0
        self._answered_s: deque[float] = deque()

    def count_answer(self, now_s: float, round_trip_s: float) -> None:
        """Count a request that was answered."""
        self._lag_s *= self._EASED
        self._longest_s = self._LONGEST * round_trip_s
        self._answered_s.append(now_s)

    def count_request(self, slot: RequestSlot) -> None:
        """Record in the slot of a question how many answered requests the provider may still count."""
        while self._answered_s and self._answered_s[0] + self._longest_s <= slot.sent_s:
            self._answered_s.popleft()
        slot.held = len(self._held(slot.sent_s))
        slot.doubtful = len(self._answered_s) - slot.held

    def wait_s(self, free: int, now_s: float) -> float:
        """Return the seconds until one of ``free`` places may be used; infinite if no place is free."""
        held = self._held(now_s)
        if free <= 0:
            return inf
        return held[-free] + self._lag_s - now_s if len(held) >= free else 0.0

    def explains(self, refused: RequestSlot, level: float) -> bool:
        """Whether the provider may have refused a question because the provider still counted answered requests.

        If so, the estimated lag is doubled.
        """
        if not refused.doubtful or refused.out + refused.doubtful < int(level):
            return False
        self._lag_s = min(max(self._FIRST_S, 2 * self._lag_s), self._longest_s)
        return True

    def _held(self, now_s: float) -> list[float]:
        return [answered_s for answered_s in self._answered_s if answered_s + self._lag_s > now_s]
