"""Account: the endpoint and key that a judge asks, the slot of a request, the circuit breaker, and its probes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from math import inf
from typing import Literal, NamedTuple

from spanscore.errors import ConfigurationError, JudgeError, JudgeOutOfQuota

__all__ = [
    "LASTING",
    "Account",
    "AccountLimits",
    "AccountState",
    "Breaker",
    "BreakerState",
    "RequestSlot",
    "checked_positive",
]

# --- account --------------------------------------------------------------------------------------------------------

# Account: whom a judge asks, and who pays. Limits belong to it, whoever asks and however the judge was made.

BreakerState = Literal["closed", "half_open", "open"]


class Account(NamedTuple):
    """Judges, metrics, embedders and scorers of a process that ask the same account share one gate.

    Attributes:
        provider: as ``gen_ai.provider.name`` has it.
        model: as it is asked for.
        address: where the provider is asked; empty where it is not known.
        key: a hash of the credentials, never they themselves; empty where there are none.
    """

    provider: str
    model: str
    address: str = ""
    key: str = ""

    def __repr__(self) -> str:
        """Name provider and model only: the rest is nobody's to read in a log."""
        return f"{self.provider} {self.model}"


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """What a user allows an account, None where nothing is said.

    Attributes:
        max_concurrency: questions at once.
        requests_per_minute: where the provider does not tell what is left.
        tokens_per_minute: likewise, of questions and answers.

    Raises:
        ConfigurationError: one is not positive.
    """

    max_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None:
                checked_positive(limit.name, value)


def checked_positive(keyword: str, value: float) -> float:
    """Return a setting.

    Raises:
        ConfigurationError: it is not more than 0.
    """
    if value <= 0:
        raise ConfigurationError(f"{keyword} is {value}; it must be more than 0")
    return value


@dataclass(frozen=True, slots=True)
class AccountState:
    """What an account's gate is at, for ``status()`` and the instruments.

    Attributes:
        places: questions that may be out at once now; below 1 it is a pace.
        ceiling: of ``places``.
        share: part of the user's limits that is this process's, (0, 1]; the rest is other workers'.
        inflight: questions that are out.
        waiting: questions that wait to be sent.
        longest_wait_s: of those that wait now.
        breaker: ``open``: nothing is sent.
        because: the failure that opened it; empty while it is closed.
        throttled: refusals for load so far.
        last_throttled_s: seconds since the last one; None where there was none.
        calls: requests that were sent.
        retries: of them, those that repeated a failed one.
        cached: questions that were answered without a request.
        notes: what must be known of the account, a sentence each.
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


# --- ticket ---------------------------------------------------------------------------------------------------------

# RequestSlot: leave to send one question, and what was so when it left.


@dataclass(slots=True, eq=False)
class RequestSlot:
    """A question that is out.

    Attributes:
        serial: they are numbered as they leave.
        sent_s: when it left.
        out: how many were out then, itself included.
        probe: it is the breaker's: whether the judge is back hangs on it.
        left: nobody waits for it any more; its request has not ended yet.
        held: of those that were answered, how many were taken to be counted by the provider still.
        doubtful: how many more it may have counted.
    """

    serial: int
    sent_s: float
    out: int
    probe: bool = False
    left: bool = False
    held: int = 0
    doubtful: int = 0


# --- breaker --------------------------------------------------------------------------------------------------------

# Breaker: a judge that fails is left alone, and tried with single questions until it answers again.

_WINDOW = 20
_FEWEST = 10
_FAILED_SHARE = 0.8
_FIRST_S = 1.0
_LONGEST_S = 5.0
_UNTIL_A_PERSON_ACTS_S = 300.0
LASTING = frozenset({"not_allowed", "no_such_model"})
"""Nothing of ours mends a wrong key or a wrong name (401, 403; 404). Quota is an error of its own."""


class Breaker:
    """A circuit breaker: closed, open for a time, half open for one probe.

    Ten outcomes or more of the last twenty, four fifths of them failed, open it for 1 s, and so do ten failures in a row; each
    failed probe doubles that, up to 5 s, and after as long one that hangs is followed by another. What a person must mend opens
    it for 5 min. An answered probe closes it. Outcomes of calls that were out when it opened say nothing new and are left out.

    Attributes:
        error: the failure that opened it; None while it is closed.
    """

    def __init__(self) -> None:
        self.error: JudgeError | None = None
        self._open_until_s: float | None = None
        self._close()

    @property
    def state(self) -> BreakerState:
        """``half_open`` while the probe is out."""
        if self._open_until_s is None:
            return "closed"
        return "half_open" if self._probing else "open"

    @property
    def refuses(self) -> JudgeError | None:
        """The error with which questions end at once while it is open: a person must act. None: they wait."""
        return self.error if self.error is not None and _asks_a_person(self.error) and not self.is_about_money else None

    @property
    def is_about_money(self) -> bool:
        """Whether it is open as the account has no money left."""
        return isinstance(self.error, JudgeOutOfQuota)

    def wait_s(self, now_s: float) -> float:
        """Return in how many seconds a call may be sent."""
        if self._open_until_s is None:
            return 0.0
        return max(0.0, self._open_until_s - now_s)

    def sent(self, now_s: float) -> bool:
        """Tell that a call is sent; return whether it is the probe."""
        self._probing = self._open_until_s is not None
        if self._probing:  # one that hangs must not hold up the next for as long as an attempt may take
            self._next_probe_s = now_s + _LONGEST_S
            self._open_until_s = max(self._next_probe_s, now_s + self._open_for_s)
        return self._probing

    def answered(self, *, probe: bool) -> bool:
        """Tell that the judge answered, be it by a refusal for load; return whether that closed it."""
        if self._open_until_s is None:
            self._in_a_row = 0
            self._failures.append(False)
        elif probe:
            self._close()
            return True
        return False

    def failed(self, error: JudgeError, now_s: float, *, probe: bool) -> bool:
        """Tell that a call failed for want of the judge; return whether that opened it, again or for the first time."""
        if self._open_until_s is not None and not probe:
            return False
        self._in_a_row += 1
        self._failures.append(True)
        if _asks_a_person(error):
            return self._open(_UNTIL_A_PERSON_ACTS_S, now_s, error)
        was_open = self._open_until_s is not None
        if not was_open and not self._is_away():
            return False
        self._open(min(max(_FIRST_S, 2 * self._open_for_s), _LONGEST_S), now_s, error)
        if was_open:  # the last to fail of several probes that hung is not the last that was sent
            self._open_until_s = min(now_s + self._open_for_s, self._next_probe_s)
        return True

    def given_up(self) -> None:
        """Tell that the probe was called back by its asker: the next question is one."""
        self._probing = False
        if self._open_until_s is not None:
            self._open_until_s = -inf

    def excuses(self, failed: int) -> bool:
        """Whether so many failed attempts of one question say nothing of it: the breaker is open, or about to be.

        About to be: half of what opens it has failed in a row, and not this question alone.
        """
        return self._open_until_s is not None or self._in_a_row > max(failed, _FEWEST // 2 - 1)

    def _is_away(self) -> bool:
        """Whether enough of the last outcomes failed. Ten in a row are enough, however well it was before."""
        failed, outcomes = sum(self._failures), len(self._failures)
        return self._in_a_row >= _FEWEST or (outcomes >= _FEWEST and failed >= _FAILED_SHARE * outcomes)

    def _close(self) -> None:
        self._failures: deque[bool] = deque(maxlen=_WINDOW)
        self._in_a_row = 0
        self._open_for_s = self._next_probe_s = 0.0
        self._open_until_s = self.error = None
        self._probing = False

    def _open(self, seconds: float, now_s: float, error: JudgeError) -> bool:
        self._open_for_s, self._open_until_s, self._probing, self.error = seconds, now_s + seconds, False, error
        return True


def _asks_a_person(error: JudgeError) -> bool:
    return isinstance(error, JudgeOutOfQuota) or error.error_type in LASTING
