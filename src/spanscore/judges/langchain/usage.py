"""Usage as providers write it → tokens that can be believed: whole, not negative, below 10⁸. Else nothing is known of any.

A gateway that counts -5 or 1e30 tokens has once made a cost of 5.4e24 USD, and one that writes "many" has lost a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["UNKNOWN", "Tokens", "is_believable", "tokens_in"]

_TOO_MANY = 10**8
_INPUT = ("input_tokens", "prompt_tokens")
_OUTPUT = ("output_tokens", "completion_tokens")
_DETAILS = ("input_token_details", "prompt_tokens_details", "input_tokens_details")
_CACHED = ("cache_read", "cached_tokens", "cache_read_input_tokens")


class Tokens(NamedTuple):
    """What an answer took; all 0 where it is not known."""

    input: int = 0
    output: int = 0
    cached_input: int = 0


UNKNOWN = Tokens()


def tokens_in(usage: Any) -> Tokens:
    """Return the tokens of a usage object, LangChain's or a provider's own."""
    if not isinstance(usage, Mapping) or not is_believable(usage):
        return UNKNOWN
    sent = _first(usage, _INPUT)
    details = next((usage[name] for name in _DETAILS if isinstance(usage.get(name), Mapping)), usage)
    return Tokens(sent, _first(usage, _OUTPUT), min(sent, _first(details, _CACHED)))


def is_believable(usage: Mapping[str, Any]) -> bool:
    """Whether each count of tokens in it can be one."""
    return all(value is None or _is_count(value) for value in _counts(usage))


def _counts(usage: Mapping[str, Any]) -> Iterator[Any]:
    for name, value in usage.items():
        if isinstance(value, Mapping):
            yield from _counts(value)
        elif name in _CACHED or str(name).endswith("tokens"):
            yield value


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _TOO_MANY and value == int(value)


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return next((int(usage[name]) for name in names if usage.get(name) is not None), 0)
