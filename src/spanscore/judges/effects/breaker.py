"""Breaker: a judge that fails is left alone, and tried with single questions until it answers again."""

from __future__ import annotations

from collections import deque
from math import inf

from spanscore.errors import JudgeError, JudgeOutOfQuota
from spanscore.judges.effects.account import BreakerState

__all__ = ["LASTING", "Breaker"]

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
