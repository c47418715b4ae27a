"""Reads images, audio and files in the content blocks of any client.

A block becomes a part of the GenAI conventions, ``{"type": "blob", "modality", "mime_type", "content"}`` or ``{"type": "uri",
"modality", "mime_type", "uri"}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore.core.codecs.text import Base64
from spanscore.core.log import is_a
from spanscore.core.sample import Image

IMAGE: Final = "image"
MODALITY: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image", "image_url", "input_image"), IMAGE),
    **dict.fromkeys(("audio", "input_audio"), "audio"),
    "video": "video",
    **dict.fromkeys(("file", "input_file", "document", "media"), "file"),
}
"""Type of a content block without words → its modality."""
_PARTS: Final = frozenset({"blob", "uri"})
"""Types of parts of the conventions that have a modality."""
_KINDS: Final = frozenset({*MODALITY, *_PARTS})
_UNTYPED: Final = ("inline_data", "inlineData", "file_data", "fileData")
_UNTYPED_KEYS: Final = frozenset(_UNTYPED)
"""Only key of Google's blocks, which have no type."""
_INNER: Final = ("image_url", "source", "file", "image", "input_audio", *_UNTYPED)
"""Keys under which a block may have the fields of its media."""
_TYPES: Final = ("mime_type", "media_type", "mimeType", "mediaType")
_ADDRESSES: Final = ("url", "uri", "image_url", "file_uri", "fileUri")
_DATA: Final = ("base64", "data", "image", "content", "file_data", "file")
_NAMES: Final = ("filename", "name", "title")
_ADDRESS: Final = re.compile(r"(?:https?|gs)://\S+", re.IGNORECASE)
_DATA_URI: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w-]+=[^;,]*)*;base64,", re.IGNORECASE)
_SIGNATURES: Final[Mapping[str, str]] = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""Beginning of an image as base64 → its media type."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_SHORTEST: Final = 64
"""Characters of the smallest image as base64; a shorter text that begins like an image is a text."""
_MOST_CHARS: Final = 20_000_000
"""Characters of base64 beyond which an image is left out when it is read, because each copy delays the span thread."""
BEGINNINGS: Final = ("data:image/", *_SIGNATURES)
"""Beginnings of a text that may be a whole image."""


def media_part(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an image, an audio or a file in a client's block as a part; None for every other block.

    Only the part of an image has its address or its bytes, and the part of a file has its name, if known.
    """
    kind = block.get("type")
    if _UNTYPED_KEYS.isdisjoint(block) if kind is None else type(kind) is str and kind not in _KINDS:
        return None  # nearly every dict: fast, because each dict in a scored unit's content comes here
    modality = _modality_of(block)
    return None if modality is None else _part_of(block, modality)


def _part_of(block: Mapping[str, Any], modality: str) -> dict[str, Any]:
    inner: Mapping[str, Any] = next((block[key] for key in _INNER if is_a(block.get(key), dict)), {})
    fields = {**block, **inner}
    media_type, text = first_text(fields, _TYPES), _address_or_data(fields)
    if text is not None and (uri := _DATA_URI.match(text)) is not None:
        media_type, text = uri[1].lower(), text[uri.end() :]
    if modality == IMAGE or (modality == "file" and (media_type or "").startswith("image/")):
        return _image_part(text, media_type)
    name = first_text(fields, _NAMES) or first_text(dict_or_empty(block.get("extras")), _NAMES)
    return {"type": "blob", "modality": modality, **({"name": name} if name else {})}


def is_part(block: Mapping[str, Any]) -> bool:
    """Whether a block has a type of the conventions' parts for media."""
    return first_text(block, ("type",)) in _PARTS


def image_in(text: str) -> dict[str, Any] | None:
    """Return a text that is a whole image, as a data URI or as base64, as a part; None for every other text."""
    if not text.startswith(BEGINNINGS):
        return None
    uri = _DATA_URI.match(text)
    if uri is not None:
        return _image_part(text[uri.end() :], uri[1].lower())
    is_image = len(text) >= _SHORTEST and _BASE64.fullmatch(text) is not None
    return _image_part(text, None) if is_image else None


def image_of(part: Mapping[str, Any]) -> Image | None:
    """Return the image of a part; None if the part has neither an address nor bytes of a known type."""
    media_type, address, content = (part.get(key) for key in ("mime_type", "uri", "content"))
    media_type = media_type if is_a(media_type, str) and media_type else None
    if is_a(address, str):
        return Image(url=address, media_type=media_type)
    return Image(base64=content, media_type=media_type) if media_type and is_a(content, str) and content else None


def _modality_of(block: Mapping[str, Any]) -> str | None:
    kind = first_text(block, ("type",))
    if kind is None:
        return "file" if any(is_a(block.get(key), dict) for key in _UNTYPED) else None
    stated = first_text(block, ("modality",)) if kind in _KINDS else None
    return stated or MODALITY.get(kind)


def _image_part(text: str | None, media_type: str | None) -> dict[str, Any]:
    """Return the part of an image from its address or its base64."""
    part: dict[str, Any] = {"type": "blob", "modality": IMAGE}
    if text is None:
        return part if media_type is None else {**part, "mime_type": media_type}
    if _ADDRESS.fullmatch(text):
        typed = {} if media_type is None else {"mime_type": media_type}
        return {"type": "uri", "modality": IMAGE, "uri": text, **typed}
    media_type = media_type or next((kind for start, kind in _SIGNATURES.items() if text.startswith(start)), None)
    if media_type is not None:
        part["mime_type"] = media_type
    if len(text) > _MOST_CHARS:
        return {**part, "size": len(text) * 3 // 4}
    return {**part, "content": text if type(text) is Base64 else Base64(text)}


def _address_or_data(fields: Mapping[str, Any]) -> str | None:
    """Return the text of an address, a data URI or base64; None without any."""
    texts = (fields.get(key) for key in _ADDRESSES)
    addresses = (text for text in texts if is_a(text, str) and (_ADDRESS.fullmatch(text) or _DATA_URI.match(text)))
    return next(addresses, None) or first_text(fields, _DATA)


def first_text(fields: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the first text under these keys that is not empty; None without any."""
    texts = (fields.get(key) for key in keys)
    return next((text for text in texts if is_a(text, str) and text), None)


def dict_or_empty(value: Any) -> Mapping[str, Any]:
    """Return a dict; an empty dict in place of any other value."""
    return value if is_a(value, dict) else {}
