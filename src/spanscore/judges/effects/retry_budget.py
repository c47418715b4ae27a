"""RetryBudget: how often an account may be asked again, so that repeating never becomes most of what is sent."""

from __future__ import annotations

__all__ = ["RetryBudget"]

_PER_ANSWER = 0.5
_MOST_SAVED = 20.0


class RetryBudget:
    """Half a retry for every answered question, at most 20 saved up; it begins full.

    A judge that fails for some questions has them asked again; one that fails for all is not asked twice as often for it
    (the "retry budget" of Google's SRE book, chapter 21).
    """

    def __init__(self) -> None:
        self._saved = _MOST_SAVED

    def answered(self) -> None:
        """Save half a retry: a question was answered."""
        self._saved = min(_MOST_SAVED, self._saved + _PER_ANSWER)

    def take(self) -> bool:
        """Spend one retry; False when there is none."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
