"""Account: the endpoint and key that a judge asks, the slot of a request, the circuit breaker, and its probes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from spanscore.errors import ConfigurationError, JudgeError, JudgeOutOfQuota

BreakerState = Literal["closed", "half_open", "open"]


class Account(NamedTuple):
    """The endpoint that a judge asks, and the key that pays. Limits belong to it.

    Judges, metrics, embedders and scorers of a process that ask the same account share one gate.

    Attributes:
        provider: as ``gen_ai.provider.name`` has it.
        model: as it is asked for.
        address: where the provider is asked; empty if it is not known.
        key: a hash of the credentials, never they themselves; empty without one.
    """

    provider: str
    model: str
    address: str = ""
    key: str = ""

    def __repr__(self) -> str:
        """Name provider and model only: address and key stay out of logs."""
        return f"{self.provider} {self.model}"


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
    """The state of an account's gate, for ``status()`` and the instruments.

    Attributes:
        places: questions that may be out at once now; below 1 it is a pace.
        ceiling: of ``places``.
        share: part of the user's limits that is this process's, (0, 1]; the rest is other workers'.
        inflight: questions that are out.
        waiting: questions that wait to be sent.
        longest_wait_s: of the questions that wait now.
        breaker: ``open``: nothing is sent.
        because: the failure that opened it; empty while it is closed.
        throttled: refusals for load so far.
        last_throttled_s: seconds since the last one; None if there was none.
        calls: requests that were sent.
        retries: requests that repeated a failed one.
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


@dataclass(slots=True, eq=False)
class RequestSlot:
    """A place for one request, and the state of the account when the request was sent.

    Attributes:
        serial: number of the request, in the order of sending.
        sent_s: when it was sent.
        out: open requests at that time, itself included.
        probe: whether it is the breaker's probe, which shows whether the judge is back.
        left: whether no caller waits for it any more; its request has not ended yet.
        held: answered requests that the provider was taken to count still.
        doubtful: further answered requests that the provider may have counted.
    """

    serial: int
    sent_s: float
    out: int
    probe: bool = False
    left: bool = False
    held: int = 0
    doubtful: int = 0


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

    A judge that fails gets no questions but single probes until it answers again. Ten outcomes or more of the last twenty,
    four fifths of them failed, open it for 1 s, and so do ten failures in a row. Each failed probe doubles that, up to 5 s, and
    after as long a probe that hangs is followed by another. A failure that a person must mend opens it for 5 min. An answered
    probe closes it. Outcomes of calls that were out when it opened are left out.

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
        """Count a call that is sent; return whether it is the probe."""
        self._probing = self._open_until_s is not None
        if self._probing:  # one that hangs must not hold up the next for as long as an attempt may take
            self._next_probe_s = now_s + _LONGEST_S
            self._open_until_s = max(self._next_probe_s, now_s + self._open_for_s)
        return self._probing

    def answered(self, *, probe: bool) -> bool:
        """Count an answer, also a refusal for load; return whether it closed the breaker."""
        if self._open_until_s is None:
            self._in_a_row = 0
            self._failures.append(False)
        elif probe:
            self._close()
            return True
        return False

    def failed(self, error: JudgeError, now_s: float, *, probe: bool) -> bool:
        """Count a call that did not reach the judge; return whether it opened the breaker, again or for the first time."""
        if self._open_until_s is not None and not probe:
            return False
        self._in_a_row += 1
        self._failures.append(True)
        if _asks_a_person(error):
            return self._open(_UNTIL_A_PERSON_ACTS_S, now_s, error)
        was_open = self._open_until_s is not None
        if not was_open:
            failed, outcomes = sum(self._failures), len(self._failures)
            mostly_failed = outcomes >= _FEWEST and failed >= _FAILED_SHARE * outcomes
            if self._in_a_row < _FEWEST and not mostly_failed:  # ten in a row are enough, however well it was before
                return False
        self._open(min(max(_FIRST_S, 2 * self._open_for_s), _LONGEST_S), now_s, error)
        if was_open:  # the last to fail of several probes that hung is not the last that was sent
            self._open_until_s = min(now_s + self._open_for_s, self._next_probe_s)
        return True

    def given_up(self) -> None:
        """Drop the probe, which its caller cancelled: the next question is one."""
        self._probing = False
        if self._open_until_s is not None:
            self._open_until_s = -inf

    def excuses(self, failed: int) -> bool:
        """Whether so many failed attempts of one question say nothing of it: the breaker is open, or about to be.

        About to be: half of what opens it has failed in a row, and not this question alone.
        """
        return self._open_until_s is not None or self._in_a_row > max(failed, _FEWEST // 2 - 1)

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
