"""Trials: how a provider that refuses everything is asked."""

from __future__ import annotations

from math import inf

from spanscore.judges.effects.ticket import Ticket

__all__ = ["Trials"]


class Trials:
    """After two refusals with no answer between: one question at a time, 0.1 s later, twice as long each time, up to 4 s.

    Attributes:
        last_admitted_s: when the last question left that was answered.
    """

    _FIRST_S, _LONGEST_S = 0.1, 4.0
    _MANY = 3
    _STORM_S = 5.0
    """A rate that lets in fewer than one question in so long is rarer than a provider that refuses everybody for a while."""

    def __init__(self) -> None:
        self.last_admitted_s = -inf
        self._refusals = 0
        self._trial: Ticket | None = None
        self._next_s = -inf
        self._answers = 0

    @property
    def on(self) -> bool:
        """Whether questions go one at a time."""
        return self._refusals > 1

    @property
    def were_many(self) -> bool:
        """Whether so many were refused that the time until one was let in tells the rate."""
        return self._refusals > self._MANY

    def was_storm(self, admitted: Ticket) -> bool:
        """Whether everything was refused for a while, where much was answered before."""
        return admitted.sent_s - self.last_admitted_s >= self._STORM_S and self._answers > 2  # noqa: PLR2004  (a few)

    def wait_s(self, now_s: float) -> float:
        """Return in how many seconds the next may go; infinite while one is out."""
        return inf if self._trial else max(0.0, self._next_s - now_s)

    def sent(self, ticket: Ticket) -> None:
        """Tell that a question is sent."""
        if self.on:
            self._trial = ticket

    def ended(self, ticket: Ticket) -> None:
        """Tell that a question is not out any more."""
        if self._trial is ticket:
            self._trial = None

    def answered(self) -> None:
        """Tell that a question was answered that was sent after the last refusal."""
        self._answers = 1 if self.on else self._answers + 1
        self._refusals = 0

    def refused(self, now_s: float) -> bool:
        """Tell that a question was refused that was sent after the last refusal; return whether they are on now."""
        self._refusals += 1
        if self.on:
            self._next_s = now_s + min(self._FIRST_S * 2 ** (self._refusals - 2), self._LONGEST_S)
        return self.on
