"""Redactor → texts without what must not leave."""

from __future__ import annotations

from spanscore.model.foreign import is_a, type_name
from spanscore.protocols import Redactor

__all__ = ["redacted"]


def redacted(text: str, redactor: Redactor) -> str:
    """Return the text as the redactor gives it back.

    Raises:
        TypeError: it returned something else: a redactor that returns None did not say that the text may leave.
        BaseException: whatever the redactor raises.
    """
    clean: object = redactor(text)
    if not is_a(clean, str):
        raise TypeError(f"the redactor returned {type_name(clean)}, not a text")
    return str.__str__(clean)
