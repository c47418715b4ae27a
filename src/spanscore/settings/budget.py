"""Budget: what judges may be paid in a window of time; and Spent: what was, in each of the units of a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from spanscore.errors import ConfigurationError
from spanscore.settings.durations import DURATION, seconds_of
from spanscore.settings.kinds import NUMBER, SettingsPart

__all__ = ["UNITS", "Budget", "BudgetUnit", "Paid", "Spent", "checked_budgets"]

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


def _check_window(per: Any) -> Any:
    try:
        fits = _SHORTEST_S <= _seconds(per) <= _LONGEST_S
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{per!r}; allowed is 1m to 30d")
    return per


def _seconds(per: str | float) -> float:
    return seconds_of(per) if isinstance(per, str) else float(per)


_Amount = Annotated[
    float, Field(gt=0, allow_inf_nan=False), NUMBER, WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
]
_PER: Final = {
    "anyOf": [
        {"type": "number", "minimum": _SHORTEST_S, "maximum": _LONGEST_S},
        {"type": "string", "pattern": f"^{DURATION}$"},
    ]
}


class Budget(SettingsPart):
    """What judges may be paid per window: one of ``usd``, ``tokens`` and ``calls``. Several budgets may hold at once.

    At one that is spent nothing more is sent; one in usd or tokens may be overrun by as much as an answer is longer than any
    before it. The first twentieth of the first window knows of no cost yet, and lowers no rate unless it ends early.

    The sampling rates are lowered so that a window's money lasts to its end; π and T on every score are the true ones.
    Spending is counted in memory: a restart begins anew.

    Attributes:
        usd: US dollars; needs the prices of the models that are asked.
        tokens: tokens that are read and written.
        calls: requests that may be billed, repeated ones included.
        per: the window, ``1m`` to ``30d``, or its seconds. Windows are aligned to UTC.
        metric: the one metric that it is for; None = all of the scorer together.
        lowers_rates: False for stored samples, whose rates stay as they are: the rest of a window ends ``budget_exhausted``.
            Python only.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [unit], "properties": {unit: {"not": {"type": "null"}}}} for unit in UNITS]
        }
    )
    section: ClassVar[str] = "judge.budget"
    usd: _Amount | None = None
    tokens: _Amount | None = None
    calls: _Amount | None = None
    per: Annotated[str | float, BeforeValidator(_check_window), WithJsonSchema(_PER)]
    metric: str | None = None
    lowers_rates: SkipJsonSchema[bool] = True

    @model_validator(mode="after")
    def _check_unit(self) -> Self:
        given = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"a budget has exactly one of {', '.join(UNITS)}; this one has {found}")
        return self

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
        return _seconds(self.per)

    @property
    def window(self) -> str:
        """The window as it is written."""
        return self.per if isinstance(self.per, str) else f"{self.per:g}s"

    def holds_for(self, metric: str) -> bool:
        """Whether what a metric asks is paid from it."""
        return self.metric is None or self.metric == metric

    def part(self, share: float) -> Budget:
        """Return the part of it that is one replica's; ``share`` is in (0, 1]."""
        return self.model_copy(update={self.unit: self.amount * share})

    def __str__(self) -> str:
        whose = "" if self.metric is None else f" of {self.metric}"
        return f"{self.amount:g} {self.unit} per {self.window}{whose}"


def checked_budgets(given: object) -> tuple[Budget, ...]:
    """Return budgets as a scorer takes them.

    Raises:
        ConfigurationError: it is no list of budgets.
    """
    if not isinstance(given, Sequence) or not all(isinstance(one, Budget) for one in given):
        raise ConfigurationError(f"budget is {given!r}; allowed is a list of them, such as [Budget(usd=2, per='1h')]")
    return tuple(given)
