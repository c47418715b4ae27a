"""A name that nobody knows → what was meant by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str], *, likely: Sequence[str] = (), most: int = 1) -> str:
    """Return ``did you mean 'faithfulness'?``; empty where nothing is near.

    Args:
        known: names among which it is looked for what is spelt alike.
        likely: what was meant by all that is known; then it is not looked for.
        most: of what is spelt alike.
    """
    near = likely or get_close_matches(name, [*known], n=most)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
