"""Accounts and budgets → the rows that ``status()`` has of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spanscore.core.printable import format_count
from spanscore.judges.effects.account import AccountState, BreakerState
from spanscore.judges.effects.budget_ledger import BudgetState

__all__ = ["account_rows"]

_BREAKER: Mapping[BreakerState, str] = {"closed": "closed", "half_open": "half-open", "open": "open: nothing is sent"}


_THIS: Mapping[str, str] = {"1m": "this minute", "1h": "this hour", "1d": "this day"}


def account_rows(accounts: Sequence[AccountState], budgets: Sequence[BudgetState]) -> Iterator[str]:
    """Yield what each account is at, and what must be known of it; then the budgets, on the row of an only account."""
    paid = [_budget(budget) for budget in budgets]
    only = paid if len(accounts) == 1 else []
    for state in accounts:
        yield "\n  ".join([" · ".join([repr(state.account), *_parts(state, only)]), *state.notes])
    if paid and not only:
        yield " · ".join(["budget", *paid])


def _budget(state: BudgetState) -> str:
    whose = " ".join(filter(None, (state.metric, state.source)))
    whose = f"{whose}: " if whose else ""
    spent, limit = (_amount(amount, state.unit) for amount in (state.spent, state.limit))
    unit = "USD" if state.unit == "usd" else state.unit
    window = _THIS.get(state.window, f"in this window of {state.window}")
    return f"{whose}{spent} of {limit} {unit} {window}, factor {state.factor:.2g}"


def _amount(amount: float, unit: str) -> str:
    if unit != "usd":
        return f"{amount:,.0f}"
    return f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.2g}"


def _parts(state: AccountState, paid: Sequence[str]) -> Iterator[str]:
    yield f"{state.inflight:,} of {_places(state.places)} places (ceiling {state.ceiling:,})"
    if state.share < 1:
        yield f"{100 * state.share:.0f} % of its limits"
    yield f"{state.waiting:,} waiting, longest {_span(state.longest_wait_s)}" if state.waiting else "none waiting"
    yield f"breaker {_BREAKER[state.breaker]}" + (f" ({state.because})" if state.because else "")
    if state.last_throttled_s is not None:
        yield f"limited {_times(state.throttled)}, last {_span(state.last_throttled_s)} ago"
    yield ", ".join([format_count(state.calls, "call"), *paid])
    if state.cached:
        yield f"{state.cached:,} from cache"


def _places(places: float) -> str:
    """Return the level; below 1 it is a pace, and a part of a place."""
    return f"{places:,.0f}" if places >= 1 else f"{places:.2g}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _span(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"  # noqa: PLR2004  (from here on seconds say little)
