"""Applies the user's redactor to texts, content and samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from spanscore.core.codecs.text import jsonable
from spanscore.core.log import is_a, type_name
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.protocols import Redactor

S = TypeVar("S", bound=SingleTurnSample | MultiTurnSample)

_WRITTEN: Final = frozenset(
    {"role", "parts", "type", "content", "id", "name", "arguments", "response", "status", "finish_reason", "modality"}
    | {"page_content", "metadata", "score", "resume", "update", "goto", "size"}
)
"""Keys that the codec writes. All other keys come from the application, and may themselves be private."""
_STRUCTURE: Final = frozenset({"type", "tool_call_id", "id"})
_FREE: Final = frozenset({"args", "metadata", "rubrics"})
"""Fields of a sample with keys from the application, which are redacted, too."""


def redacted(text: str, redactor: Redactor) -> str:
    """Return the text as the redactor returns it.

    Raises:
        TypeError: the redactor returned something else than a text, such as None, which is no permission to export.
        BaseException: any exception of the redactor.
    """
    clean: object = redactor(text)
    if not is_a(clean, str):
        raise TypeError(f"the redactor returned {type_name(clean)}, not a text")
    return str.__str__(clean)


def redacted_content(content: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Any]:
    """Return content with all parts from the application redacted: texts, and keys that the codec did not write.

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


def redacted_sample(sample: S, redactor: Redactor) -> S:
    """Return a sample with all its texts redacted.

    Raises:
        BaseException: as ``redacted`` does.
    """
    return cast("S", type(sample).model_validate(_texts(sample.model_dump(), redactor)))  # of its own class


def _texts(value: Any, redactor: Redactor, *, free: bool = False) -> Any:
    if isinstance(value, str):
        return redacted(value, redactor)
    if isinstance(value, dict):
        return dict(_entry(key, item, redactor, free) for key, item in value.items())
    if isinstance(value, list):
        return [_texts(item, redactor, free=free) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _texts(jsonable(value), redactor, free=free)  # any other object in a submitted sample may contain a text


def _entry(key: Any, item: Any, redactor: Redactor, free: bool) -> tuple[Any, Any]:
    if free:
        return redacted(key, redactor) if isinstance(key, str) else key, _texts(item, redactor, free=True)
    if key in _STRUCTURE and isinstance(item, str):
        return key, item
    return key, _texts(item, redactor, free=key in _FREE)
