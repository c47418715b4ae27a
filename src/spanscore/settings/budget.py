"""Budget: what judges may be paid in a window of time; and Spent: what was, in each of the units of a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from spanscore.errors import ConfigurationError
from spanscore.settings.durations import seconds_of

__all__ = ["UNITS", "Budget", "BudgetUnit", "Paid", "Spent", "checked_budgets", "checked_share"]

BudgetUnit = Literal["usd", "tokens", "calls"]
UNITS: Final[tuple[BudgetUnit, ...]] = ("usd", "tokens", "calls")
_SHORTEST_S: Final = 60.0
_LONGEST_S: Final = 30 * 86_400.0


class Spent(NamedTuple):
    """What questions cost, in each unit that a budget may have."""

    usd: float = 0.0
    tokens: float = 0.0
    calls: float = 0.0

    def plus(self, other: Spent, times: float = 1.0) -> Spent:
        """Return the sum with so many of another."""
        return Spent(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))

    def of(self, unit: BudgetUnit) -> float:
        """Return the amount in one unit."""
        return float(getattr(self, unit))


class Paid(NamedTuple):
    """What the questions of one metric cost since the start, what is reserved for those that are out included.

    Attributes:
        spent: all of it.
        reserved: of it, for questions that are out.
    """

    spent: Spent = Spent()
    reserved: Spent = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What judges may be paid per window, in one unit. Several may hold at once.

    At one that is spent nothing more is sent; one in usd or tokens may be overrun by as much as an answer is longer than any
    before it. The first twentieth of the first window knows of no cost yet, and lowers no rate unless it ends early.

    The sampling rates are lowered so that a window's money lasts to its end; π and T on every score are the true ones.
    Spending is counted in memory: a restart begins anew.

    Attributes:
        usd: US dollars; needs the prices of the models that are asked.
        tokens: read and written.
        calls: requests that may be billed, repeated ones included.
        per: the window, ``"1m"`` to ``"30d"``, or its seconds. Windows are aligned to UTC.
        metric: the one metric that it is for; None = all of the scorer together.
        lowers_rates: False for stored samples, whose rates stay as they are: the rest of a window ends ``budget_exhausted``.

    Raises:
        ConfigurationError: not exactly one unit is given, or it is not above 0, or the window is too short or too long.
    """

    usd: float | None = None
    tokens: float | None = None
    calls: float | None = None
    per: str | float
    metric: str | None = None
    lowers_rates: bool = True

    def __post_init__(self) -> None:
        given = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(given) != 1:
            told = " and ".join(given) or "none"
            raise ConfigurationError(f"a budget has exactly one of {', '.join(UNITS)}; this one has {told}")
        given_amount = getattr(self, self.unit)
        if not _is_number(given_amount) or not 0 < given_amount < float("inf"):
            told = f"{given_amount:g}" if _is_number(given_amount) else repr(given_amount)
            raise ConfigurationError(f"a budget's {self.unit} is {told}; allowed is any number above 0")
        if not isinstance(self.per, str) and not _is_number(self.per):
            raise ConfigurationError(f"a budget's per is {self.per!r}; allowed is 1m to 30d")
        if not _SHORTEST_S <= self.window_s <= _LONGEST_S:
            raise ConfigurationError(f"a budget's per is {self.per!r}; allowed is 1m to 30d")

    @property
    def unit(self) -> BudgetUnit:
        """The one that is given."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def amount(self) -> float:
        """How much of it, per window."""
        return float(getattr(self, self.unit))

    @property
    def window_s(self) -> float:
        """How long a window is, in seconds."""
        if not isinstance(self.per, str):
            return float(self.per)
        try:
            return seconds_of(self.per)
        except ValueError as error:
            raise ConfigurationError(f"a budget's per is {self.per!r}; allowed is 1m to 30d") from error

    @property
    def window(self) -> str:
        """The window as it is written."""
        return self.per if isinstance(self.per, str) else f"{self.per:g}s"

    def holds_for(self, metric: str) -> bool:
        """Whether what a metric asks is paid from it."""
        return self.metric is None or self.metric == metric

    def part(self, share: float) -> Budget:
        """Return the part of it that is one replica's; ``share`` is in (0, 1]."""
        amounts: dict[str, Any] = {self.unit: self.amount * share}
        return replace(self, **amounts)

    def __str__(self) -> str:
        whose = "" if self.metric is None else f" of {self.metric}"
        return f"{self.amount:g} {self.unit} per {self.window}{whose}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def checked_budgets(given: object) -> tuple[Budget, ...]:
    """Return budgets as a scorer takes them.

    Raises:
        ConfigurationError: it is no list of budgets.
    """
    if not isinstance(given, Sequence) or not all(isinstance(one, Budget) for one in given):
        raise ConfigurationError(f"budget is {given!r}; allowed is a list of them, such as [Budget(usd=2, per='1h')]")
    return tuple(given)


def checked_share(share: float) -> float:
    """Return the part of every budget that is this process's.

    Raises:
        ConfigurationError: it is not above 0 and at most 1.
    """
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise ConfigurationError(
            f"judge.replica_share is {share!r}; allowed is above 0, up to 1: 0.25 for one of four replicas"
        )
    return share
