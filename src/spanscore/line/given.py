"""What a caller gives ``feedback()`` → plain values, or a ValueError that says what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import isfinite
from typing import Any, Final
from uuid import UUID

from spanscore.model.annotation import HumanValue
from spanscore.model.foreign import is_a
from spanscore.model.span import UnitKey

__all__ = ["id_of", "only_unit", "seconds_since_1970_ns", "text_of", "uuid_of", "value_of"]

_HEX_BITS: Final = 4
_LATEST_S: Final = 2**33
"""In the year 2242: what is later were milliseconds."""
_LISTED: Final = 10


def id_of(name: str, given: Any, bits: int) -> int:
    """Return an id as the number that it is; ``given``: that, or its hex digits, all of them."""
    digits = bits // _HEX_BITS
    try:
        number = int(given, 16) if is_a(given, str) and len(given) == digits and given.isalnum() else given
    except ValueError:
        number = 0
    if is_a(number, int) and not is_a(number, bool) and 0 < number < 1 << bits:
        return number
    raise ValueError(f"{name} is {given!r}; allowed are {digits} hex digits, not all 0, or the number")


def only_unit(trace_id: int, known: Iterable[UnitKey]) -> UnitKey:
    """Return the one unit of a trace that is known.

    Raises:
        ValueError: there is none, or there are several; the message lists them.
    """
    units = list(known)
    if len(units) == 1:
        return units[0]
    if not units:
        raise ValueError(
            f"this process knows no unit of the trace {trace_id:032x}: give span_id, too, as unit_id() told it where it ran"
        )
    listed = [f"{unit.span_id:016x}" for unit in units[:_LISTED]] + ["…"] * (len(units) > _LISTED)
    raise ValueError(
        f"the trace {trace_id:032x} has {len(units)} units: say which by span_id; they are {', '.join(listed)}"
    )


def text_of(name: str, given: Any) -> str:
    """Return a text that says something."""
    if is_a(given, str) and given.strip():
        return str.__str__(given)
    raise ValueError(f"{name} is {given!r}; allowed is a text that is not empty")


def value_of(given: Any) -> HumanValue:
    """Return what a person said, of which the scale is yet to be looked at."""
    if is_a(given, bool):
        return given
    if is_a(given, str):
        return str.__str__(given)
    if is_a(given, int, float) and isfinite(given):
        return float(given)
    raise ValueError(f"the value is {given!r}; allowed are True, False, a number, or a word of a declared scale")


def seconds_since_1970_ns(given: Any) -> int:
    """Return a time as nanoseconds."""
    if is_a(given, datetime):
        if given.tzinfo is None:
            raise ValueError(
                f"when is {given.isoformat()}, which has no time zone; allowed is datetime.now(timezone.utc)"
            )
        given = given.timestamp()
    if is_a(given, int, float) and not is_a(given, bool) and 0 < given < _LATEST_S:
        return round(given * 1e9)
    raise ValueError(f"when is {given!r}; allowed are a datetime with a time zone, and seconds since 1970")


def uuid_of(name: str, given: UUID | str) -> UUID:
    """Return an id as LangChain has it. Raises ValueError: it is none."""
    try:
        return given if isinstance(given, UUID) else UUID(given)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{name} is {given!r}; allowed is a UUID") from None
