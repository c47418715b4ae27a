"""A judge's account (endpoint and key), the state of its limiter, a slot for one request, and the circuit breaker."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from spanscore.errors import ConfigurationError, JudgeError, JudgeOutOfQuota

BreakerState = Literal["closed", "half_open", "open"]


class Account(NamedTuple):
    """The endpoint and the key to which a judge's requests go. The provider's rate limits apply to an account.

    All judges and embedders of a process that use the same account share one limiter, also across metrics and scorers.

    Attributes:
        provider: value of ``gen_ai.provider.name``.
        model: name of the requested model.
        address: host, port and path of the endpoint; empty if unknown.
        key: a hash of the credentials, never the credentials themselves; empty without credentials.
    """

    provider: str
    model: str
    address: str = ""
    key: str = ""

    def __repr__(self) -> str:
        """Name only provider and model, so that address and key are in no log."""
        return f"{self.provider} {self.model}"


def check_positive(keyword: str, value: float) -> float:
    """Check that a setting is more than 0, and return it."""
    if value <= 0:
        raise ConfigurationError(f"{keyword} is {value}; it must be more than 0")
    return value


@dataclass(frozen=True, slots=True)
class AccountState:
    """The state of an account's limiter, for ``status()`` and the instruments.

    Attributes:
        account: the account.
        places: number of questions that may be open at once now. A number below 1 is a pace: one question per
            (round trip ÷ ``places``).
        ceiling: upper limit of ``places``.
        share: this process's fraction of the user's limits, (0, 1]; other workers have the other fractions.
        inflight: number of open questions.
        waiting: number of questions that wait to be sent.
        longest_wait_s: longest wait so far of the waiting questions, in seconds.
        breaker: state of the breaker; while it is ``open``, no request is sent.
        because: message of the failure that opened the breaker; empty while it is closed.
        throttled: number of refusals for load so far.
        last_throttled_s: seconds since the last refusal for load; None without a refusal.
        calls: number of requests sent.
        retries: number of requests that repeated a failed request.
        cached: number of questions that were answered without a request.
        notes: remarks for the operator, a sentence each.
    """

    account: Account
    places: float = 0.0
    ceiling: int = 0
    share: float = 1.0
    inflight: int = 0
    waiting: int = 0
    longest_wait_s: float = 0.0
    breaker: BreakerState = "closed"
    because: str = ""
    throttled: int = 0
    last_throttled_s: float | None = None
    calls: int = 0
    retries: int = 0
    cached: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class RequestSlot:
    """The permission to send one request, with the state of the account when it was sent. An open request occupies a place.

    Attributes:
        serial: number of the request, in the order of sending.
        sent_s: time of sending, by the loop's clock.
        in_flight: number of open requests at that time, this one included.
        probe: whether it is the breaker's probe, which shows whether the judge answers again.
        abandoned: whether the caller left (by timeout or cancellation) before the request ended.
        held_places: number of places that the provider has probably not freed, although their requests are answered.
        doubtful_places: number of further places of answered requests that the provider may not have freed.
    """

    serial: int
    sent_s: float
    in_flight: int
    probe: bool = False
    abandoned: bool = False
    held_places: int = 0
    doubtful_places: int = 0


_WINDOW, _FEWEST, _FAILED_SHARE = 20, 10, 0.8
"""The breaker opens if this share of the latest outcomes, of so many at least, failed; or after so many failures in a row."""
_FIRST_S, _LONGEST_S = 1.0, 5.0
"""First and longest time for which the breaker is open."""
_UNTIL_A_PERSON_ACTS_S = 300.0
PERSON_NEEDED = frozenset({"not_allowed", "no_such_model"})
"""Error types that only a person can correct: a wrong key or model name (401, 403; 404). Quota is a separate error."""


class Breaker:
    """A circuit breaker: closed, open for a time, half open for one probe.

    A judge that fails gets only single probes until it answers again. The breaker opens for 1 s after ten failures in a row,
    or if four fifths of the last twenty outcomes failed (of ten or more). Each failed probe doubles the time for which the
    breaker is open, up to 5 s. If a probe hangs, the next probe follows after 5 s. A failure that a person must correct opens
    the breaker for 5 min. An answered probe closes the breaker. Outcomes of calls that were open when it opened are ignored.

    Attributes:
        error: the failure that opened the breaker; None while it is closed.
    """

    def __init__(self) -> None:
        self.error: JudgeError | None = None
        self._open_until_s: float | None = None
        self._close()

    @property
    def state(self) -> BreakerState:
        """The state; ``half_open`` while the probe is open."""
        if self._open_until_s is None:
            return "closed"
        return "half_open" if self._probing else "open"

    @property
    def refusal(self) -> JudgeError | None:
        """The error that ends questions immediately, because a person must act first; None if questions wait."""
        return self.error if self.error is not None and self.error.error_type in PERSON_NEEDED else None

    @property
    def is_out_of_quota(self) -> bool:
        """Whether the breaker is open because the account's quota is used up."""
        return isinstance(self.error, JudgeOutOfQuota)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until a call may be sent."""
        if self._open_until_s is None:
            return 0.0
        return max(0.0, self._open_until_s - now_s)

    def count_request(self, now_s: float) -> bool:
        """Count a request that is sent; return whether it is the probe."""
        self._probing = self._open_until_s is not None
        if self._probing:  # a probe that hangs must not delay the next one by the timeout of an attempt
            self._next_probe_s = now_s + _LONGEST_S
            self._open_until_s = max(self._next_probe_s, now_s + self._open_for_s)
        return self._probing

    def count_answer(self, *, probe: bool) -> bool:
        """Count an answer, which a refusal for load is, too; return whether it closed the breaker."""
        if self._open_until_s is None:
            self._in_a_row = 0
            self._failures.append(False)
        elif probe:
            self._close()
            return True
        return False

    def count_failure(self, error: JudgeError, now_s: float, *, probe: bool) -> bool:
        """Count a failure that concerns every question; return whether it opened the breaker, again or for the first time.

        Such failures are: the judge is unavailable or too slow, the quota is used up, or key or model name is wrong.
        """
        if self._open_until_s is not None and not probe:
            return False
        self._in_a_row += 1
        self._failures.append(True)
        if isinstance(error, JudgeOutOfQuota) or error.error_type in PERSON_NEEDED:
            self._open(_UNTIL_A_PERSON_ACTS_S, now_s, error)
            return True
        was_open = self._open_until_s is not None
        if not was_open:
            failed, outcomes = sum(self._failures), len(self._failures)
            mostly_failed = outcomes >= _FEWEST and failed >= _FAILED_SHARE * outcomes
            if self._in_a_row < _FEWEST and not mostly_failed:  # ten in a row open it, whatever came before
                return False
        self._open(min(max(_FIRST_S, 2 * self._open_for_s), _LONGEST_S), now_s, error)
        if was_open:  # several probes may hang; the last that fails is not always the last that was sent
            self._open_until_s = min(now_s + self._open_for_s, self._next_probe_s)
        return True

    def drop_probe(self) -> None:
        """Drop the probe after its caller cancelled it: the next question becomes the probe."""
        self._probing = False
        if self._open_until_s is not None:
            self._open_until_s = -inf

    def excuses(self, failed: int) -> bool:
        """Whether the failed attempts of one question do not count, because requests of other questions fail, too.

        That is so while the breaker is open, and after five failures in a row, at least one of another question.

        Args:
            failed: number of failed attempts of the question.
        """
        return self._open_until_s is not None or self._in_a_row > max(failed, _FEWEST // 2 - 1)

    def _close(self) -> None:
        self._failures: deque[bool] = deque(maxlen=_WINDOW)
        self._in_a_row = 0
        self._open_for_s = self._next_probe_s = 0.0
        self._open_until_s = self.error = None
        self._probing = False

    def _open(self, seconds: float, now_s: float, error: JudgeError) -> None:
        self._open_for_s, self._open_until_s, self._probing, self.error = seconds, now_s + seconds, False, error
