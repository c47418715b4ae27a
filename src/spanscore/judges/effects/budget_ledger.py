"""Purse: what the judges of one scorer may be paid, and what they were.

Before a question is sent its cost is reserved, and corrected by the usage that comes back. One that is given up keeps its
reservation, as it may be billed: what is spent here is never less than what is billed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final

from spanscore.config.judging import Budget, BudgetUnit, MetricCost, Spent
from spanscore.errors import JudgeBudgetSpent

_FIRST_ANSWER: Final = 500
"""Tokens; answers of our steps have some 20 to 400."""
_KNOWN_AFTER: Final = 20
"""Answers, after which the longest of them tells more than that."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The state of a budget, for ``status()`` and the instruments.

    Attributes:
        unit: ``usd``, ``tokens`` or ``calls``.
        window: as it is configured.
        metric: the one that it is for; None = all.
        limit: of one window; what is this process's.
        spent: in the present window, what is reserved included.
        factor: on the sampling rates, (0, 1].
        source: ``shadow``: what second judges may be paid; None = the metrics' own.
    """

    unit: BudgetUnit
    window: str
    metric: str | None
    limit: float
    spent: float
    factor: float
    source: str | None = None


class BudgetLedger:
    """Budgets and what was spent of them. Questions are paid on the loop thread; what reads is for any thread.

    Args:
        budgets: what is this process's of them.
        clock: seconds since the epoch: windows are aligned to UTC.

    Attributes:
        budgets: as they were given.
        factors: gives the budgets' factors on the sampling rates, in their order.
        in_tokens: whether a budget needs a question's tokens to be estimated before it is sent.
    """

    def __init__(self, budgets: Sequence[Budget], *, clock: Callable[[], float] = time.time) -> None:
        self.budgets = tuple(budgets)
        self._clock = clock
        self._share: float | None = None
        self.factors: Callable[[], Sequence[float]] = lambda: [1.0] * len(self.budgets)
        self.in_tokens = any(budget.unit != "calls" for budget in self.budgets)
        self._lock = Lock()
        self._windows = {budget: _Window(budget.window_s, budget.amount) for budget in self.budgets}
        self._divide()
        self._paid: dict[str, MetricCost] = {}
        self._turned_away = 0
        self._answers = self._longest = 0

    def share(self, fraction: float) -> None:
        """Use such a part of the budgets, (0, 1], from now on: the rest is other processes'. Any thread.

        A process's part of a window accrues with time, by its part at each moment. So all processes together have one budget,
        through every change, and one that joins in the middle of a window has the part that accrues from then on.
        """
        with self._lock:
            self._share = fraction
            self._divide()

    def _divide(self) -> None:
        if self._share is not None:
            for window in self._windows.values():
                window.divide(self._share, self._clock())

    def reserve(self, metric: str, estimate: Spent) -> Reservation:
        """Set aside what a question may cost.

        Raises:
            JudgeBudgetSpent: a budget has not so much left.
        """
        with self._lock:
            windows = self._with_room(metric, estimate)
            for budget, window in windows:
                window.spent += estimate.of(budget.unit)
            self._add(metric, estimate, estimate)
            return Reservation(self, metric, estimate, tuple(window.number for _, window in windows))

    def check(self, metric: str, estimate: Spent) -> None:
        """Check that a question can be paid for. Nothing is set aside: while it waits to be sent, others may use what is left.

        Raises:
            JudgeBudgetSpent: a budget has not so much left.
        """
        with self._lock:
            self._with_room(metric, estimate)

    def correct(self, reservation: Reservation, actual: Spent) -> None:
        """Put what a question cost in the place of what was reserved for it.

        Less than was reserved is given back if the window is still the same; more is owed by the present one.
        """
        with self._lock:
            more = actual.plus(reservation.estimate, -1.0)
            for (budget, window), number in zip(self._of(reservation.metric), reservation.windows, strict=True):
                amount = more.of(budget.unit)
                window.spent += amount if window.number == number else max(0.0, amount)
            self._add(reservation.metric, more, Spent().plus(reservation.estimate, -1.0))

    def note_answer(self, tokens: int) -> None:
        """Take note of how long an answer was: questions that are asked later may get one as long."""
        self._answers += 1
        self._longest = max(self._longest, tokens)

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest answer so far; of few answers, at least what others hardly exceed."""
        return self._longest if self._answers >= _KNOWN_AFTER else max(self._longest, _FIRST_ANSWER)

    def spent(self, budget: Budget) -> float:
        """Return what was spent of a budget in the present window, what is reserved included."""
        with self._lock:
            return self._windows[budget].at(self._clock()).spent

    def limit(self, budget: Budget) -> float:
        """Return what may be spent of a budget in the present window."""
        with self._lock:
            return self._windows[budget].at(self._clock()).limit

    def paid(self) -> Mapping[str, MetricCost]:
        """Return metric → what its questions cost since the start."""
        with self._lock:
            return dict(self._paid)

    def not_attempted(self) -> int:
        """Return how many questions were not sent since the start, as a budget was spent."""
        return self._turned_away

    def states(self) -> list[BudgetState]:
        """Return what each budget is at."""
        pairs = zip(self.budgets, self.factors(), strict=True)
        return [
            BudgetState(one.unit, one.window, one.metric, self.limit(one), self.spent(one), factor)
            for one, factor in pairs
        ]

    def _with_room(self, metric: str, estimate: Spent) -> list[tuple[Budget, _Window]]:
        windows = self._of(metric)
        for budget, window in windows:
            if window.spent + estimate.of(budget.unit) > window.limit:
                self._turned_away += 1
                raise JudgeBudgetSpent(f"the budget of {budget} is spent: nothing was sent")
        return windows

    def _of(self, metric: str) -> list[tuple[Budget, _Window]]:
        """Return the budgets that a metric is paid from, with their present windows."""
        return [
            (budget, window.at(self._clock())) for budget, window in self._windows.items() if budget.holds_for(metric)
        ]

    def _add(self, metric: str, spent: Spent, reserved: Spent) -> None:
        known = self._paid.get(metric, MetricCost())
        self._paid[metric] = MetricCost(known.spent.plus(spent), known.reserved.plus(reserved))


@dataclass(slots=True)
class _Window:
    """The present window of a budget: its number since the epoch, what may be spent in it, and what was.

    Attributes:
        amount: of a whole window, for all processes.
        share: what this one has of it; None: it is alone.
    """

    length_s: float
    amount: float
    share: float | None = None
    number: int = -1
    spent: float = 0.0
    limit: float = 0.0

    def at(self, now_s: float) -> _Window:
        """Return it, begun anew where time has gone on; a clock that is set back changes nothing."""
        number = int(now_s // self.length_s)
        if number > self.number:
            self.number, self.spent = number, 0.0
            self.limit = self.amount * (1.0 if self.share is None else self.share)
        return self

    def divide(self, share: float, now_s: float) -> None:
        """Change the part from now on: the accrued amount stays, the amount to come is divided anew."""
        self.at(now_s)
        to_come = self.amount * min(1.0, max(0.0, self.number + 1 - now_s / self.length_s))
        accrued = 0.0 if self.share is None else self.limit - self.share * to_come
        self.share, self.limit = share, accrued + share * to_come


@dataclass(slots=True)
class Reservation:
    """A part of the budgets that is set aside for one request, and settled once."""

    purse: BudgetLedger
    metric: str
    estimate: Spent
    windows: tuple[int, ...]
    _open: bool = True

    def settle(self, actual: Spent) -> None:
        """Put what it cost in its place."""
        if self._open:
            self._open = False
            self.purse.correct(self, actual)


_reserve: ContextVar[Callable[[], Reservation] | None] = ContextVar("spanscore_reserve", default=None)


@contextmanager
def paid_from(purse: BudgetLedger, metric: str, estimate: Spent) -> Iterator[None]:
    """Pay for all requests inside the block, and in tasks started there, from the budgets of a metric.

    The requests are the attempts of one question. Each is reserved when it is sent, from the window that it falls into.

    Args:
        estimate: of one attempt.

    Raises:
        JudgeBudgetSpent: a budget has not so much left.
    """
    purse.check(metric, estimate)
    token = _reserve.set(partial(purse.reserve, metric, estimate))
    try:
        yield
    finally:
        _reserve.reset(token)


@contextmanager
def attempt() -> Iterator[Reservation | None]:
    """Send one request inside the block, which settles its reservation; None if no budget pays for it.

    Raises:
        JudgeBudgetSpent: nothing is left for it.
    """
    reserve = _reserve.get()
    if reserve is None:
        yield None
        return
    reservation = reserve()
    try:
        yield reservation
    finally:
        reservation.settle(reservation.estimate)  # unless it was settled: a request of unknown cost may be billed
