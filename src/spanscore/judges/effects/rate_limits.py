"""Limits of an account: token buckets, a limit of concurrency or rate that is learned from refusals, and a backoff."""

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
"""Longest reset time that is believed: some gateways send a date in (milli)seconds since 1970, decades as a duration."""
_ROUNDING = 1e-6
"""Missing amount of a bucket that counts as a rounding error."""


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
    """Buckets for requests and tokens, from the user's limits and the provider's headers; and a stop until a given time.

    Headers describe the account at the time when their question was sent. So the requests that were sent later are subtracted.

    Args:
        utc_s: the wall clock, for reset times that are dates.

    Attributes:
        stopped_until_s: time before which no question is sent, by the caller's clock.
    """

    def __init__(self, utc_s: Callable[[], float]) -> None:
        self._utc_s = utc_s
        self._allowed_per_s: dict[Kind, float] = {}
        self._share = 1.0
        self._user_buckets: dict[Kind, TokenBucket] = {}
        self._provider_buckets: dict[Kind, TokenBucket] = {}
        # Serial number and tokens of the questions that were sent after the one with the latest headers.
        self._sent: deque[tuple[int, float]] = deque()
        self._serial = self._headers_serial = 0
        self.stopped_until_s = -inf

    @property
    def count_tokens(self) -> bool:
        """Whether a bucket counts tokens, so that the tokens of a question must be estimated."""
        return "tokens" in self._user_buckets or "tokens" in self._provider_buckets

    def allow(self, kind: Kind, per_minute: float) -> None:
        """Limit requests or tokens per minute; the strictest limit applies."""
        per_s = per_minute / _MINUTE_S
        if per_s < self._allowed_per_s.get(kind, inf):
            self._allowed_per_s[kind] = per_s
            self._user_buckets[kind] = TokenBucket(*self._size(kind), -inf)

    def share(self, fraction: float, now_s: float) -> None:
        """Refill the user's buckets at a fraction of their rates, because other processes share the limits. No level rises."""
        self._share = fraction
        for kind, bucket in self._user_buckets.items():
            bucket.change(*self._size(kind), now_s)

    def stop(self, seconds: float, now_s: float) -> None:
        """Send nothing for some seconds, as the provider requests by ``Retry-After``."""
        self.stopped_until_s = max(self.stopped_until_s, now_s + seconds)

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Return the seconds until a question of so many tokens may be sent."""
        wait_s = max(0.0, self.stopped_until_s - now_s)
        for buckets in (self._user_buckets, self._provider_buckets):
            for kind, bucket in buckets.items():
                wait_s = max(wait_s, bucket.wait_s(1.0 if kind == "requests" else tokens, now_s))
        return wait_s

    def count_request(self, tokens: float, now_s: float) -> int:
        """Count a question that is sent; return its serial number."""
        self._serial += 1
        self._take(self._user_buckets, 1.0, tokens, now_s)
        self._take(self._provider_buckets, 1.0, tokens, now_s)
        if self._provider_buckets:
            self._sent.append((self._serial, tokens))
        return self._serial

    def update(self, headers: Mapping[str, str], serial: int, sent_s: float, now_s: float) -> None:
        """Update the provider's buckets from the headers of an answer or a refusal.

        Args:
            headers: the response headers, with lower-case names.
        """
        if serial < self._headers_serial:
            return
        buckets = {kind: bucket for kind in KINDS if (bucket := self._read(headers, kind, sent_s))}
        if not buckets:
            return
        self._provider_buckets, self._headers_serial = buckets, serial
        while self._sent and self._sent[0][0] <= serial:
            self._sent.popleft()
        self._take(self._provider_buckets, len(self._sent), sum(tokens for _, tokens in self._sent), now_s)

    def _size(self, kind: Kind) -> tuple[float, float]:
        per_s = self._allowed_per_s[kind] * self._share
        return per_s, max(1.0, per_s * _BURST_S)

    @staticmethod
    def _take(buckets: dict[Kind, TokenBucket], requests: float, tokens: float, now_s: float) -> None:
        for kind, bucket in buckets.items():
            bucket.take(requests if kind == "requests" else tokens, now_s)

    def _read(self, headers: Mapping[str, str], kind: Kind, now_s: float) -> TokenBucket | None:
        remaining = _read_number(headers, f"x-ratelimit-remaining-{kind}", f"anthropic-ratelimit-{kind}-remaining")
        if remaining is None:
            return None
        limit = _read_number(headers, f"x-ratelimit-limit-{kind}", f"anthropic-ratelimit-{kind}-limit")
        reset_s = self._reset_s(headers, kind)
        most = max(limit or 0.0, remaining, 1.0)
        used = most - remaining
        per_s = used / reset_s if reset_s and used else most / _MINUTE_S
        bucket = TokenBucket(per_s, most, now_s)
        bucket.take(used, now_s)
        return bucket

    def _reset_s(self, headers: Mapping[str, str], kind: Kind) -> float | None:
        if text := headers.get(f"x-ratelimit-reset-{kind}"):
            number, utc_s = _duration_s(text), self._utc_s()
            # A duration, or a date in seconds or milliseconds.
            readings = () if number is None else (number, number - utc_s, number / 1000 - utc_s)
            return next((seconds for seconds in readings if 0 <= seconds <= _LONGEST_RESET_S), None)
        try:
            date_s = datetime.fromisoformat(headers.get(f"anthropic-ratelimit-{kind}-reset", "")).timestamp()
        except (ValueError, OverflowError):
            return None
        reset_s = max(0.0, date_s - self._utc_s())
        return reset_s if reset_s <= _LONGEST_RESET_S else None


def _read_number(headers: Mapping[str, str], *names: str) -> float | None:
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
    if seconds := _read_number({"": text}, ""):
        return seconds
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True))


_FIRST_LEVEL = 4.0
_LOWEST_LEVEL = 0.01
_LOWERED_TO = 0.9
"""Fraction of the refused level that becomes the new level."""
_RESUMED_AT = 0.96
"""Fraction of the known limit to which a pace returns before a probe exceeds the limit."""
_FIRST_PROBE_STEP, _LARGEST_PROBE_STEP = 0.04, 0.64
"""Fraction by which a probe of a pace exceeds the known limit: first and highest value. It doubles while probes pass."""
_PROBE_S, _RAREST_PROBE_S = 1.0, 8.0
"""Shortest and longest time between two probes."""
_CHANGED_PROBE_S = 4.0
"""Lower bound of that time while it is halved, because the provider allows less than before."""
_PASSED_S = 1.0
"""Seconds without a refusal after which a probe of a pace has passed."""
_EVIDENCE_S, _EVIDENCE_ANSWERS = 30.0, 3
"""A number of concurrent questions counts as allowed for so many seconds, after so many answers."""
_EPISODE_ANSWERS = 4
"""Answers in a row after which a further refusal belongs to a new episode."""
_CONCURRENCY_REFUSALS = 2
"""Refusals in a row that indicate a concurrency limit, after which a pace is abandoned."""
_SMOOTHING = 0.1
"""Weight of the latest round trip in the moving average."""


class AdaptiveConcurrency:
    """The number of questions that may be open at once with one account, learned from its refusals.

    The level starts at 4, doubles per round trip until the first refusal, and then stays a tenth below the refused level.

    Providers limit open requests, or requests per second, and do not publish which. If ``n`` concurrent questions were answered
    lately, and the ``n``-th is refused, the cause is a rate limit, or a place that is freed a moment after its answer
    (``ReleaseLag``). Otherwise the cause is a concurrency limit. For a rate limit the level is a pace: one call per (round trip
    ÷ level). For a concurrency limit it is a number of places. ``benchmarks/judges.py`` shows that both are needed: a pace uses
    too little of a provider that limits concurrency, and places are refused again and again by a provider that limits the rate.

    A question that was sent before a refusal arrived, and is refused, too, changes nothing. A refusal begins an episode, which
    ends after five answers in a row. A probe exceeds the level after 1 s, and half as often after each refused probe, down to
    every 8 s. After a passed probe, larger probes follow every second. Only a refusal lowers the level, and only use raises it.

    Args:
        ceiling: highest level; below 1 it is a pace, for a process that has a fraction of a place.

    Attributes:
        level: number of places; a pace if it is below 1, or if ``paced``.
        paced: whether the level is a pace, because the provider limits the rate.
    """

    def __init__(self, ceiling: float) -> None:
        self.ceiling = ceiling
        self.level = min(_FIRST_LEVEL, self._highest)
        self.paced = False
        self._known_limit = inf  # the level that was refused; infinite before the first refusal
        self._round_trip_s = self._pace_unit_s = 0.5  # moving average, and its value at the beginning of the pace
        self._last_sent_s = self._sent_before_s = self._one_by_one_until_s = -inf
        self._last_serial = self._last_sent_at_refusal = 0
        self._answer_times: dict[int, deque[float]] = {}  # number of concurrent questions → times of its latest answers
        self._suspects_rate: bool | None = None  # kind of the limit behind the latest refusal; None = decided
        self._concurrency_refusals = self._refused_concurrency = 0
        self._probe_every_s = _PROBE_S
        self._grow_at_s = inf
        self._passed_probes = 0  # in a row
        self._answers_in_a_row = 0
        self._in_episode = False
        self._trials = ProbeBackoff()
        self._goodput = Goodput()
        self._lag = ReleaseLag()

    def bound(self, ceiling: float) -> None:
        """Change the ceiling."""
        self.ceiling = ceiling
        self.level = min(self.level if self._last_serial else _FIRST_LEVEL, self._highest)

    def wait_s(self, in_flight: int, now_s: float) -> float:
        """Return the seconds until one more question may be sent; infinite until one of those ``in_flight`` ends."""
        if self._trials.are_on:
            return self._trials.wait_s(now_s)
        most_open = ceil(1.5 * self.level) + 1 if self.paced else max(1, floor(self.level))
        place_s = self._lag.wait_s(min(floor(self._highest), most_open) - in_flight, now_s)
        level = min(self.level, self.ceiling)
        if level >= 1 and not self.paced and now_s >= self._one_by_one_until_s:
            return place_s
        unit_s = self._pace_unit_s if self.paced else self._round_trip_s
        return max(place_s, self._last_sent_s + unit_s / level - now_s)

    def count_request(self, slot: RequestSlot, now_s: float) -> None:
        """Count a request that is sent."""
        self._sent_before_s, self._last_sent_s, self._last_serial = self._last_sent_s, now_s, slot.serial
        self._goodput.sent_requests += 1
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
        self._answer_times.setdefault(slot.in_flight, deque(maxlen=_EVIDENCE_ANSWERS)).append(now_s)
        if slot.serial > self._last_sent_at_refusal:
            if self._trials.are_on:
                self._resume_after_trials(slot, now_s)
            self._trials.count_answer()
            self._decide_kind()
            self._answers_in_a_row += 1
            self._in_episode = self._in_episode and self._answers_in_a_row <= _EPISODE_ANSWERS
        self._trials.last_admitted_s = max(self._trials.last_admitted_s, slot.sent_s)
        if in_use:
            self._grow(slot, now_s)

    def count_refusal(self, slot: RequestSlot, now_s: float, open_slots: Iterable[RequestSlot] = ()) -> None:
        """Count a request that was refused for load.

        Args:
            open_slots: slots of the open requests. The refused request counted in the ``in_flight`` of the later ones.
        """
        later = [other for other in open_slots if other.serial > slot.serial]
        for other in later:
            other.in_flight -= 1
        slot.in_flight += slot.held_places
        self._goodput.refused_requests += 1
        if slot.serial == self._last_serial and self.level < 1:  # a refused request used nothing of a rate limit
            self._last_sent_s = self._sent_before_s
        if slot.serial <= self._last_sent_at_refusal:
            return
        self._last_sent_at_refusal = self._last_serial
        if not self.paced and self._was_answered_lately(slot.in_flight, now_s) and self._lag.explains(slot, self.level):
            return
        if not self._trials.count_refusal(now_s):
            self._lower_level(slot, len(later), now_s)

    def halve(self) -> None:
        """Halve the level, because the judge answers again and its capacity is unknown."""
        self.level = max(min(self.level, 1.0), self.level / 2)

    def pace(self, from_s: float) -> None:
        """Spread the questions over one round trip from a time on, at which many waiting questions may be sent."""
        self._one_by_one_until_s = from_s + self._round_trip_s

    @property
    def _highest(self) -> float:
        """The highest level that is learned: the ceiling, but at least one place, as a later ceiling may be higher."""
        return max(1.0, self.ceiling)

    def _lower_level(self, slot: RequestSlot, later: int, now_s: float) -> None:
        self._answers_in_a_row = self._passed_probes = 0
        if not self._in_episode:
            self._goodput.begin(now_s)
        self._adjust_probe_interval(slot)
        self._in_episode = True
        self._grow_at_s = now_s + self._probe_every_s
        self._refused_concurrency = slot.in_flight
        self._suspects_rate = slot.in_flight == 1 or self._was_answered_lately(slot.in_flight, now_s)
        if not self._suspects_rate:
            self._answer_times = {n: times for n, times in self._answer_times.items() if n < slot.in_flight}
        if not self._suspects_rate and not self.paced:
            self._known_limit = float(slot.in_flight)
            self.level = max(1.0, min(self._known_limit - 1, _LOWERED_TO * self._known_limit))
            return
        self.level = max(_LOWEST_LEVEL, _LOWERED_TO * self.level)
        goodput = self._goodput.per_s(slot, later)
        if goodput is not None and self.level >= 1:
            measured = goodput * (self._pace_unit_s if self.paced else self._round_trip_s)
            self.level = min(self.level, max(_RESUMED_AT * measured, self.level / 4))
        self._known_limit = self.level / _LOWERED_TO

    def _was_answered_lately(self, in_flight: int, now_s: float) -> bool:
        """Whether so many concurrent questions, or more, were answered lately, three times or more.

        One time may be luck: a provider may free a place before its answer arrives here.
        """
        times = (time_s for n, times in self._answer_times.items() if n >= in_flight for time_s in times)
        return sum(time_s > now_s - _EVIDENCE_S for time_s in times) >= _EVIDENCE_ANSWERS

    def _adjust_probe_interval(self, slot: RequestSlot) -> None:
        """Probe half as often if a probe was refused; more often if the provider allows less than before."""
        if (self.level if self.paced else slot.in_flight) >= self._known_limit:
            self._probe_every_s = min(2 * self._probe_every_s, _RAREST_PROBE_S)
        elif not self._in_episode and self.level >= 1:
            self._probe_every_s = max(_CHANGED_PROBE_S, self._probe_every_s / 2)

    def _resume_after_trials(self, slot: RequestSlot, now_s: float) -> None:
        """Continue after the trials of ``ProbeBackoff``.

        After a storm the level stays. Otherwise the interval to the latest admitted question shows the rate, plus a tenth.
        """
        self.pace(now_s)
        if self._trials.was_storm(slot):
            self._suspects_rate = None
            self._lag.forget()
            return
        if not self._trials.were_many:
            return
        self._goodput.begin(now_s)
        measured = 1.1 * self._pace_unit_s / (slot.sent_s - self._trials.last_admitted_s)
        if self.paced and measured < self.level:
            self.level, self._known_limit = measured, min(self._known_limit, 1.5 * measured)
            self._probe_every_s = _PROBE_S
            self._grow_at_s = now_s + _PROBE_S

    def _decide_kind(self) -> None:
        """Decide the kind of the limit behind a refusal, once questions are answered again: a storm shows no limit."""
        if self._suspects_rate is None:
            return
        self._concurrency_refusals = 0 if self._suspects_rate else self._concurrency_refusals + 1
        if self._suspects_rate and not self.paced:
            self.paced, self._pace_unit_s = True, self._round_trip_s
            self._lag.forget()
        elif self.paced and self._concurrency_refusals >= _CONCURRENCY_REFUSALS:
            self.paced, self._known_limit = False, float(self._refused_concurrency)
            self.level = max(1.0, self._known_limit - 1)
        self._suspects_rate = None

    def _grow(self, slot: RequestSlot, now_s: float) -> None:
        if self._known_limit == inf:
            self.level += 1
        elif self.paced or self.level < 1:
            self._grow_pace(now_s)
        else:
            self._grow_places(slot, now_s)
        self.level = min(self.level, self._highest)

    def _grow_places(self, slot: RequestSlot, now_s: float) -> None:
        if slot.in_flight >= self._known_limit:
            self._known_limit = slot.in_flight + 1.0
            self._count_passed_probe()
            self._grow_at_s = now_s + self._probe_every_s
        if self.level < self._known_limit - 1:
            self.level = min(self.level + 1, self._known_limit - 1)
        elif now_s >= self._grow_at_s:
            self.level = self._known_limit + 2**self._passed_probes - 1
            self._grow_at_s = now_s + self._probe_every_s

    def _grow_pace(self, now_s: float) -> None:
        if now_s < self._grow_at_s:
            return
        if self.level > self._known_limit:
            self._known_limit = self.level
            self._count_passed_probe()
        if self.level < _RESUMED_AT * self._known_limit:
            self.level = _RESUMED_AT * self._known_limit
            self._grow_at_s = now_s + self._probe_every_s
        else:
            self.level = self._known_limit * (1 + min(_FIRST_PROBE_STEP * 2**self._passed_probes, _LARGEST_PROBE_STEP))
            self._grow_at_s = now_s + _PASSED_S

    def _count_passed_probe(self) -> None:
        self._passed_probes += 1
        self._probe_every_s = _PROBE_S


class Goodput:
    """Estimates the provider's rate limit: questions admitted per second while others were refused, within one episode.

    Attributes:
        refused_requests: number of refusals since ``begin``.
    """

    _FEWEST = 3
    _LEAST_REFUSED = 0.3
    """Lowest number of refusals per admitted question at which the rate is measurable."""

    def __init__(self) -> None:
        self.begin(-inf)

    def begin(self, now_s: float) -> None:
        """Count from now on."""
        self._since_s = now_s
        self.sent_requests = self.refused_requests = 0

    def per_s(self, refused: RequestSlot, later: int) -> float | None:
        """Return the rate up to a refused question; None with too little evidence.

        Args:
            later: number of questions sent after it, whose outcome is unknown.
        """
        admitted = self.sent_requests - self.refused_requests - later
        if admitted < self._FEWEST or self.refused_requests < self._LEAST_REFUSED * admitted:
            return None
        return admitted / (refused.sent_s - self._since_s)


class ProbeBackoff:
    """Backoff for a provider that refuses everything: after two refusals in a row, only trials are sent, one at a time.

    The first trial is sent after 0.1 s; each further trial waits twice as long, up to 4 s. An answer ends the trials.

    Attributes:
        last_admitted_s: time at which the latest answered question was sent.
    """

    _FIRST_S, _LONGEST_S = 0.1, 4.0
    _MANY_REFUSALS = 3
    _STORM_S = 5.0
    """Longest interval of a rate limit between two questions; a longer one is taken for a provider that refuses everything."""

    def __init__(self) -> None:
        self.last_admitted_s = -inf
        self._refusals = 0
        self._trial: RequestSlot | None = None
        self._next_s = -inf
        self._answers = 0

    @property
    def are_on(self) -> bool:
        """Whether only trials are sent."""
        return self._refusals > 1

    @property
    def were_many(self) -> bool:
        """Whether there were enough refusals for the time until the first admission to show the rate."""
        return self._refusals > self._MANY_REFUSALS

    def was_storm(self, admitted: RequestSlot) -> bool:
        """Whether everything was refused for 5 s or more, after three answers or more in a row."""
        return admitted.sent_s - self.last_admitted_s >= self._STORM_S and self._answers > 2  # noqa: PLR2004  (a few)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next trial may be sent; infinite while a trial is open."""
        return inf if self._trial else max(0.0, self._next_s - now_s)

    def count_request(self, slot: RequestSlot) -> None:
        """Make a question that is sent the trial, if trials are on."""
        if self.are_on:
            self._trial = slot

    def count_end(self, slot: RequestSlot) -> None:
        """End the trial, if this question is the trial."""
        if self._trial is slot:
            self._trial = None

    def count_answer(self) -> None:
        """Count an answer to a question that was sent after the last refusal."""
        self._answers = 1 if self.are_on else self._answers + 1
        self._refusals = 0

    def count_refusal(self, now_s: float) -> bool:
        """Count a refusal of a question that was sent after the last refusal; return whether trials are on now."""
        self._refusals += 1
        if self.are_on:
            self._next_s = now_s + min(self._FIRST_S * 2 ** (self._refusals - 2), self._LONGEST_S)
        return self.are_on


class ReleaseLag:
    """Delay between an answer and the time when a gateway frees the place of its request. Until then the place counts as used.

    The delay is learned: a refusal that it may explain doubles it, and each answer makes it a thousandth shorter.
    """

    _FIRST_S = 0.005
    _LONGEST = 0.1
    """Upper bound of the delay, as a fraction of a round trip."""
    _SHRINKS = 0.999
    """Factor on the delay at each answer."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the delay to 0."""
        self._lag_s = self._longest_s = 0.0
        self._answered_s: deque[float] = deque()

    def count_answer(self, now_s: float, round_trip_s: float) -> None:
        """Count a request that was answered."""
        self._lag_s *= self._SHRINKS
        self._longest_s = self._LONGEST * round_trip_s
        self._answered_s.append(now_s)

    def count_request(self, slot: RequestSlot) -> None:
        """Record in the slot of a question how many places of answered requests may not be free."""
        while self._answered_s and self._answered_s[0] + self._longest_s <= slot.sent_s:
            self._answered_s.popleft()
        slot.held_places = len(self._held_since(slot.sent_s))
        slot.doubtful_places = len(self._answered_s) - slot.held_places

    def wait_s(self, free: int, now_s: float) -> float:
        """Return the seconds until one of ``free`` places may be used; infinite if no place is free."""
        if free <= 0:
            return inf
        held = self._held_since(now_s)
        return held[-free] + self._lag_s - now_s if len(held) >= free else 0.0

    def explains(self, refused: RequestSlot, level: float) -> bool:
        """Whether the places of answered requests may be the cause of a refusal. If so, the estimated delay is doubled."""
        if not refused.doubtful_places or refused.in_flight + refused.doubtful_places < int(level):
            return False
        self._lag_s = min(max(self._FIRST_S, 2 * self._lag_s), self._longest_s)
        return True

    def _held_since(self, now_s: float) -> list[float]:
        """Return the times of answers, in order, if their places are probably not free."""
        return [answered_s for answered_s in self._answered_s if answered_s + self._lag_s > now_s]
