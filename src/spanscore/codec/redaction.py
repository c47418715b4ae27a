"""Redactor → texts without what must not leave."""

from __future__ import annotations

from spanscore.model.foreign import is_a, type_name
from spanscore.protocols import Redactor

__all__ = ["redacted"]


def redacted(text: str, redactor: Redactor) -> str:
    """Return the text as the redactor gives it back.

    Raises:
        TypeError: it gave no text: who says nothing has not said that the text may leave.
        BaseException: whatever the redactor raises.
    """
    given: object = redactor(text)
    if not is_a(given, str):
        raise TypeError(f"the redactor gave {type_name(given)} and no text")
    return str.__str__(given)
