"""Applies the user's redactor to texts, content and samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from spanscore.core.codecs.media import without_image_bytes
from spanscore.core.codecs.text import jsonable
from spanscore.core.log import is_a, type_name
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.protocols import Redactor

S = TypeVar("S", bound=SingleTurnSample | MultiTurnSample)

_CODEC_KEYS: Final = frozenset(
    {
        *("role", "parts", "type", "content", "id", "name", "arguments", "response", "status", "finish_reason"),
        *("modality", "page_content", "metadata", "score", "resume", "update", "goto", "size", "description"),
        *("parameters", "mime_type", "uri"),
    }
)
"""Keys of spanscore's own message codec, which are not redacted. Other keys come from the application, and may be private."""
_UNREDACTED_FIELDS: Final = frozenset({"type", "tool_call_id", "id"})
"""Fields of a sample whose texts are not redacted."""
_FIELDS_WITH_OWN_KEYS: Final = frozenset({"args", "metadata", "rubrics", "parameters"})
"""Fields of a sample whose keys the application chooses. In these fields the keys are redacted as well as the values."""


def redact(text: str, redactor: Redactor) -> str:
    """Return the redactor's result as a plain ``str``.

    Raises:
        TypeError: the redactor did not return a text. None, too, is an error, and does not permit export.
        BaseException: any exception of the redactor.
    """
    clean: object = redactor(text)
    if not is_a(clean, str):
        raise TypeError(f"the redactor returned {type_name(clean)}, not a text")
    return str.__str__(clean)


def redact_content(content: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Any]:
    """Return content without bytes of images, with every text redacted, and every key that the codec did not write.

    Raises:
        BaseException: any exception of the redactor.
    """
    return {name: _redact_content(without_image_bytes(value), redactor) for name, value in content.items()}


def _redact_content(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redact(value, redactor)
    if isinstance(value, Mapping):
        clean = ((key if key in _CODEC_KEYS else _redact_content(key, redactor), item) for key, item in value.items())
        return {key: _redact_content(item, redactor) for key, item in clean}
    return [_redact_content(item, redactor) for item in value] if isinstance(value, list) else value


def redact_sample(sample: S, redactor: Redactor) -> S:
    """Return a copy of the sample with its texts redacted, except types and ids. Images are unchanged.

    Raises:
        BaseException: any exception of the redactor.
    """
    texts = _redact_value(sample.model_dump(exclude={"images"}), redactor)
    return cast("S", type(sample).model_validate({**texts, "images": sample.images}))  # a sample of the same class


def _redact_value(value: Any, redactor: Redactor, *, redact_keys: bool = False) -> Any:
    if isinstance(value, str):
        return redact(value, redactor)
    if isinstance(value, dict):
        return dict(_redact_field(key, item, redactor, redact_keys) for key, item in value.items())
    if isinstance(value, list):
        return [_redact_value(item, redactor, redact_keys=redact_keys) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    # Any other object in a submitted sample may contain a text.
    return _redact_value(jsonable(value), redactor, redact_keys=redact_keys)


def _redact_field(key: Any, item: Any, redactor: Redactor, redact_keys: bool) -> tuple[Any, Any]:
    if redact_keys:
        item = _redact_value(item, redactor, redact_keys=True)
        return redact(key, redactor) if isinstance(key, str) else key, item
    if key in _UNREDACTED_FIELDS and isinstance(item, str):
        return key, item
    return key, _redact_value(item, redactor, redact_keys=key in _FIELDS_WITH_OWN_KEYS)
