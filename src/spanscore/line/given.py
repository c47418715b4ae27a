"""What a caller gives ``feedback()`` → plain values, or a ValueError that says what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import isfinite
from typing import Any, Final
from uuid import UUID

from spanscore.core.log import is_a
from spanscore.core.sample import HumanValue
from spanscore.core.span import UnitKey

__all__ = ["id_of", "only_unit", "seconds_since_1970_ns", "text_of", "uuid_of", "value_of"]

_HEX_BITS: Final = 4
_LATEST_S: Final = 2**33
"""In the year 2242: what is later were milliseconds."""
_LISTED: Final = 10


def id_of(name: str, value: Any, bits: int) -> int:
    """Return an id as the number that it is; ``given``: that, or its hex digits, all of them."""
    digits = bits // _HEX_BITS
    try:
        number = int(value, 16) if is_a(value, str) and len(value) == digits and value.isalnum() else value
    except ValueError:
        number = 0
    if is_a(number, int) and not is_a(number, bool) and 0 < number < 1 << bits:
        return number
    raise ValueError(f"{name} is {value!r}; allowed are {digits} hex digits, not all 0, or the number")


def only_unit(trace_id: int, keys: Iterable[UnitKey]) -> UnitKey:
    """Return the one unit of a trace that is known.

    Raises:
        ValueError: there is none, or there are several; the message lists them.
    """
    units = list(keys)
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


def text_of(name: str, value: Any) -> str:
    """Return a text that says something."""
    if is_a(value, str) and value.strip():
        return str.__str__(value)
    raise ValueError(f"{name} is {value!r}; allowed is a text that is not empty")


def value_of(value: Any) -> HumanValue:
    """Return what a person said, of which the scale is yet to be looked at."""
    if is_a(value, bool):
        return value
    if is_a(value, str):
        return str.__str__(value)
    if is_a(value, int, float) and isfinite(value):
        return float(value)
    raise ValueError(f"the value is {value!r}; allowed are True, False, a number, or a word of a declared scale")


def seconds_since_1970_ns(when: Any) -> int:
    """Return a time as nanoseconds."""
    if is_a(when, datetime):
        if when.tzinfo is None:
            raise ValueError(
                f"when is {when.isoformat()}, which has no time zone; allowed is datetime.now(timezone.utc)"
            )
        when = when.timestamp()
    if is_a(when, int, float) and not is_a(when, bool) and 0 < when < _LATEST_S:
        return round(when * 1e9)
    raise ValueError(f"when is {when!r}; allowed are a datetime with a time zone, and seconds since 1970")


def uuid_of(name: str, value: UUID | str) -> UUID:
    """Return an id as LangChain has it. Raises ValueError: it is none."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{name} is {value!r}; allowed is a UUID") from None
