"""Redactor → texts without what must not leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spanscore.model.foreign import is_a, type_name
from spanscore.protocols import Redactor

__all__ = ["redacted", "redacted_content"]

_WRITTEN: Final = frozenset(
    {"role", "parts", "type", "content", "id", "name", "arguments", "response", "status", "finish_reason", "modality"}
    | {"page_content", "metadata", "score", "resume", "update", "goto", "size"}
)
"""Keys that the codec writes; any other is the application's, and may itself be what must not leave."""


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


def redacted_content(content: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Any]:
    """Return content with all that is the application's redacted: texts, and keys that the codec did not write.

    Raises:
        BaseException: as ``redacted`` does.
    """
    return {name: _redacted(value, redactor) for name, value in content.items()}


def _redacted(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redacted(value, redactor)
    if isinstance(value, Mapping):
        clean = ((key if key in _WRITTEN else _redacted(key, redactor), item) for key, item in value.items())
        return {key: _redacted(item, redactor) for key, item in clean}
    if isinstance(value, list):
        return [_redacted(item, redactor) for item in value]
    return value
