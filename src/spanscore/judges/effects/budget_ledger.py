"""Budget ledger: the amounts that the judges of one scorer may spend per window, and the amounts they have spent.

The estimated cost of a request is reserved before it is sent, and replaced by the reported usage afterwards. A request
of unknown usage, such as an abandoned one, keeps its reservation, as it may be billed. So the recorded spending is below the
bill only if such a request costs more than its estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final

from spanscore.config.judging import Budget, BudgetUnit, MetricCost, Spent
from spanscore.core.context import set_inside
from spanscore.errors import JudgeBudgetSpent

_FIRST_ANSWER: Final = 500
"""Tokens assumed for an answer at first; answers of this package's metric steps have some 20 to 400."""
_MEASURED_AFTER: Final = 20
"""Number of answers after which the longest of them is the estimate."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The state of a budget, for ``status()`` and the instruments.

    Attributes:
        unit: ``usd``, ``tokens`` or ``calls``.
        window: the budget's window, as it is configured.
        metric: the metric that the budget is for; None = all metrics.
        limit: this process's part of the budget for one window, in ``unit``.
        spent: amount spent in the present window, reservations included, in ``unit``.
        factor: the budget's factor on the sampling rates, (0, 1].
        source: ``shadow`` for the budget of shadow judges; None = a budget of the metrics' own judges.
    """

    unit: BudgetUnit
    window: str
    metric: str | None
    limit: float
    spent: float
    factor: float
    source: str | None = None


class BudgetLedger:
    """Records the spending of a scorer's judges against their budgets.

    Reservations are made on the loop thread; any thread may read. ``reserve`` and ``check`` raise ``JudgeBudgetSpent`` if a
    budget of the metric has less left than the estimate.

    Args:
        budgets: the budgets of this process.
        clock: seconds since the epoch: windows are aligned to UTC.

    Attributes:
        factors: returns each budget's factor on the sampling rates, (0, 1], in the order of ``budgets``; set by the scorer.
        estimates_tokens: whether a budget in tokens or USD needs an estimate of a question's tokens before it is sent.
        not_attempted: number of questions since the start that were not sent because a budget was spent.
    """

    def __init__(self, budgets: Sequence[Budget], *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._share: float | None = None  # None = the process is alone
        self.factors: Callable[[], Sequence[float]] = lambda: [1.0] * len(self.budgets)
        self._lock = Lock()
        self._windows: dict[Budget, _Window] = {}
        self.change(budgets)
        self._paid: dict[str, MetricCost] = {}
        self.not_attempted = 0
        self._answers = self._longest = 0

    def share(self, fraction: float) -> None:
        """Limit this process to a fraction of the budgets, (0, 1], from now on; other processes have the remaining fractions.
        Thread-safe.

        From the start of a window on, a process may spend its fraction of the whole window. A change applies to the rest of the
        window, in proportion to its time. So the limits of all processes add up to one budget, however the fractions change. A
        process that starts within a window gets only the part from its start on.
        """
        with self._lock:
            self._share = fraction
            self._set_share()

    def change(self, budgets: Sequence[Budget]) -> None:
        """Limit the spending by other budgets from now on. Thread-safe.

        A budget with the unit, the window and the metric of an earlier one keeps the amount spent in its present window.
        """
        with self._lock:
            windows = {budget.kind: window for budget, window in self._windows.items()}
            self.budgets = tuple(budgets)
            self._windows = {
                budget: windows.get(budget.kind) or _Window(budget.window_s, budget.amount) for budget in self.budgets
            }
            for budget, window in self._windows.items():
                window.resize(budget.amount)
            self.estimates_tokens = any(budget.unit != "calls" for budget in self.budgets)
            self._set_share()

    def _set_share(self) -> None:
        if self._share is not None:
            for window in self._windows.values():
                window.set_share(self._share, self._clock())

    def reserve(self, metric: str, estimate: Spent) -> Reservation:
        """Reserve the estimated cost of a request.

        Raises:
            JudgeBudgetSpent: a budget of the metric has less left than the estimate.
        """
        with self._lock:
            windows = self._with_room(metric, estimate)
            for budget, window in windows:
                window.spent += estimate.of(budget.unit)
            self._add_cost(metric, estimate, estimate)
            return Reservation(self, metric, estimate, tuple((*pair, pair[1].number) for pair in windows))

    def check(self, metric: str, estimate: Spent) -> None:
        """Check that a question can be paid for. No amount is reserved, so other requests may use the budget meanwhile.

        Raises:
            JudgeBudgetSpent: a budget of the metric has less left than the estimate.
        """
        with self._lock:
            self._with_room(metric, estimate)

    def correct(self, reservation: Reservation, actual: Spent) -> None:
        """Replace a reservation by the actual cost.

        An unused part returns to its window if that window has not ended. An excess is charged to the present window.
        """
        with self._lock:
            excess = actual.plus(reservation.estimate, -1.0)
            for budget, window, number in reservation.windows:
                amount, present = excess.of(budget.unit), window.renew(self._clock())
                present.spent += amount if present.number == number else max(0.0, amount)
            self._add_cost(reservation.metric, excess, Spent().plus(reservation.estimate, -1.0))

    def note_answer(self, tokens: int) -> None:
        """Record the length of an answer, in tokens; later estimates assume the longest answer."""
        self._answers += 1
        self._longest = max(self._longest, tokens)

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest answer so far; before 20 answers, at least 500."""
        return self._longest if self._answers >= _MEASURED_AFTER else max(self._longest, _FIRST_ANSWER)

    def spent(self, budget: Budget) -> float:
        """Return the amount spent of a budget in the present window, reservations included."""
        with self._lock:
            return self._windows[budget].renew(self._clock()).spent

    def limit(self, budget: Budget) -> float:
        """Return this process's limit of a budget in the present window."""
        with self._lock:
            return self._windows[budget].renew(self._clock()).limit

    def paid(self) -> Mapping[str, MetricCost]:
        """Return metric → cost of its questions since the start."""
        with self._lock:
            return dict(self._paid)

    def states(self) -> list[BudgetState]:
        """Return the state of each budget, in their order."""
        factors = self.factors()
        with self._lock:
            windows = [self._windows[budget].renew(self._clock()) for budget in self.budgets]
            pairs = zip(self.budgets, windows, factors, strict=False)  # during a reload the factors may be earlier ones
            return [
                BudgetState(budget.unit, budget.window, budget.metric, window.limit, window.spent, factor)
                for budget, window, factor in pairs
            ]

    def _with_room(self, metric: str, estimate: Spent) -> list[tuple[Budget, _Window]]:
        """Return the budgets that pay for a metric, with their present windows, which have room for the estimate."""
        windows = [
            (budget, window.renew(self._clock()))
            for budget, window in self._windows.items()
            if budget.holds_for(metric)
        ]
        for budget, window in windows:
            if window.spent + estimate.of(budget.unit) > window.limit:
                self.not_attempted += 1
                raise JudgeBudgetSpent(f"the budget of {budget} is spent: nothing was sent")
        return windows

    def _add_cost(self, metric: str, spent: Spent, reserved: Spent) -> None:
        """Add to the cost of a metric: the amount spent, reservations included, and the part of it that is only reserved."""
        cost = self._paid.get(metric, MetricCost())
        self._paid[metric] = MetricCost(cost.spent.plus(spent), cost.reserved.plus(reserved))


@dataclass(slots=True)
class _Window:
    """The present window of a budget.

    Attributes:
        length_s: length of a window, in s.
        amount: the budget of a whole window, for all processes.
        share: this process's fraction of it, (0, 1]; None if the process is alone.
        number: number of the window since the epoch.
        spent: amount spent in the window, reservations included.
        limit: this process's part of ``amount`` in the window.
    """

    length_s: float
    amount: float
    share: float | None = None
    number: int = -1
    spent: float = 0.0
    limit: float = 0.0

    def renew(self, now_s: float) -> _Window:
        """Reset the window if a new one has begun, and return it. A clock that is set back has no effect."""
        number = int(now_s // self.length_s)
        if number > self.number:
            self.number, self.spent = number, 0.0
            self.limit = self.amount * (1.0 if self.share is None else self.share)
        return self

    def resize(self, amount: float) -> None:
        """Change the budget of a whole window; the limit of the present window changes in proportion."""
        self.limit *= amount / self.amount
        self.amount = amount

    def set_share(self, share: float, now_s: float) -> None:
        """Change the fraction for the rest of the window. The part of the limit up to now stays."""
        self.renew(now_s)
        rest = self.amount * min(1.0, max(0.0, self.number + 1 - now_s / self.length_s))
        up_to_now = 0.0 if self.share is None else self.limit - self.share * rest
        self.share, self.limit = share, up_to_now + share * rest


@dataclass(slots=True)
class Reservation:
    """An amount of the budgets that is reserved for one request, and settled once.

    Attributes:
        windows: the budgets that pay, their windows, and the number of each window at the time of the reservation.
    """

    ledger: BudgetLedger
    metric: str
    estimate: Spent
    windows: tuple[tuple[Budget, _Window, int], ...]
    _open: bool = True

    def settle(self, actual: Spent) -> None:
        """Replace the reservation by the actual cost; further calls have no effect."""
        if self._open:
            self._open = False
            self.ledger.correct(self, actual)


_reserve: ContextVar[Callable[[], Reservation] | None] = ContextVar("spanscore_reserve", default=None)


def paid_from(ledger: BudgetLedger, metric: str, estimate: Spent) -> AbstractContextManager[None]:
    """Pay for all requests inside the block, and in tasks started there, from the budgets of a metric.

    The requests are the attempts of one question. The cost of each is reserved when it is sent (``reserve_request``), in the
    window of that time.

    Args:
        estimate: estimated cost of one attempt.

    Raises:
        JudgeBudgetSpent: a budget of the metric has less left than the estimate.
    """
    ledger.check(metric, estimate)
    return set_inside(_reserve, partial(ledger.reserve, metric, estimate))


@contextmanager
def reserve_request() -> Iterator[Reservation | None]:
    """Reserve the cost of one request. The block sends the request and settles the reservation.

    Yields None outside of ``paid_from``: then no budget pays for the request.

    Raises:
        JudgeBudgetSpent: a budget of the metric has less left than the estimate.
    """
    reserve = _reserve.get()
    if reserve is None:
        yield None
        return
    reservation = reserve()
    try:
        yield reservation
    finally:
        # It has no effect on a settled reservation. A request of unknown cost may be billed.
        reservation.settle(reservation.estimate)
