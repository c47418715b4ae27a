"""An account → the row that ``status()`` has of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spanscore.judges.effects.account import AccountState, BreakerState

__all__ = ["account_row"]

_BREAKER: Mapping[BreakerState, str] = {"closed": "closed", "half_open": "half-open", "open": "open: nothing is sent"}


def account_row(state: AccountState) -> str:
    """Return what an account is at, and what must be known of it."""
    return "\n  ".join([" · ".join([repr(state.account), *_parts(state)]), *state.notes])


def _parts(state: AccountState) -> Iterator[str]:
    yield f"{state.inflight:,} of {_places(state.places)} places (ceiling {state.ceiling:,})"
    yield f"{state.waiting:,} waiting, longest {_span(state.longest_wait_s)}" if state.waiting else "none waiting"
    yield f"breaker {_BREAKER[state.breaker]}"
    if state.last_throttled_s is not None:
        yield f"limited {_times(state.throttled)}, last {_span(state.last_throttled_s)} ago"
    yield f"{state.calls:,} call{'' if state.calls == 1 else 's'}"
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
