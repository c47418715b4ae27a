"""Replaces images, audio and files in JSON values by markers: ``[image 1]``, ``[audio]``, ``[file report.pdf]``."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spanscore.core.codecs.media import (
    BEGINNINGS,
    IMAGE,
    dict_or_empty,
    first_text,
    image_in,
    image_of,
    is_part,
    media_part,
)
from spanscore.core.codecs.text import MAX_DEPTH
from spanscore.core.log import is_a
from spanscore.core.sample import Image

# A text refers to an image by a key of its content until the sample is whole, because the same image is in several spans of a
# unit, whose texts are compared. Then the images of the sample are numbered (``sample_images.py``).

KEY: Final = re.compile(r"\[image #([0-9a-f]{16})\]")
NUMBER: Final = re.compile(r"\[image ([1-9]\d{0,3})\]")
LEFT_OUT: Final = "[image left out: {}]"
NOT_RECORDED: Final = "not recorded"
MARKER: Final = re.compile(r"\[(?:image|audio|video|file)\b[^\[\]]*\]")
IMAGE_MARKER: Final = "[image"
"""The beginning of each marker of an image. Most samples have no such text, which a search finds fastest."""
_KEY_BITS: Final = 2**64 - 1
_CONTENT: Final = frozenset({"parts", "content"})
_LONGEST_NAME: Final = 100
_NOT_IN_NAMES: Final = re.compile(r"[\[\]\s\x00-\x1f]+")


def mark_media(value: Any, depth: int = MAX_DEPTH, *, blocks: bool = False) -> Any:
    """Return a JSON value with images, audio and files replaced by text blocks with their markers; unchanged without any.

    Args:
        value: messages, or any other value, in which only images and parts of the conventions are replaced.
        depth: levels that are read.
        blocks: whether the value is a message's list of parts or of a client's blocks.
    """
    if type(value) is str:
        part = image_in(value)
        return value if part is None else marker_of(part)
    if type(value) is dict:
        return _mark_dict(value, depth, blocks=blocks)
    if depth <= 0 or type(value) is not list:
        return value
    changed = _mark_inner(enumerate(value), depth - 1, range(len(value)) if blocks else ())
    return _space_markers([changed.get(place, item) for place, item in enumerate(value)], value) if changed else value


def _mark_dict(value: dict[str, Any], depth: int, *, blocks: bool) -> dict[str, Any]:
    if depth <= 0:
        return value
    part = media_part(value)
    if part is not None and _is_media(value, part, blocks=blocks):
        return {"type": "text", "text": marker_of(part)}
    is_result = value.get("type") == "tool_call_response"
    of_blocks = value.keys() if is_result else _CONTENT if type(value.get("role")) is str else ()
    changed = _mark_inner(value.items(), depth - 1, of_blocks)
    if is_result:
        changed = {key: join_marked_blocks(marked, value[key]) for key, marked in changed.items()}
    return {**value, **changed} if changed else value


def _mark_inner(items: Iterable[tuple[Any, Any]], depth: int, of_blocks: Container[Any]) -> dict[Any, Any]:
    """Return key → marked value of the items with media; empty for nearly every list and dict, with few calls."""
    changed = {}
    for key, inner in items:
        kind = type(inner)
        if kind is dict:
            marked = _mark_dict(inner, depth, blocks=key in of_blocks)
        elif kind is list or (kind is str and inner.startswith(BEGINNINGS)):
            marked = mark_media(inner, depth, blocks=key in of_blocks)
        else:
            continue
        if marked is not inner:
            changed[key] = marked
    return changed


def join_marked_blocks(value: Any, original: Any) -> Any:
    """Return a marked result of a tool as one text, if it consists of text blocks; unchanged if it has no marker."""
    if value is original or type(value) is not list:
        return value
    texts = [block if is_a(block, str) else first_text(dict_or_empty(block), ("text", "content")) for block in value]
    return value if None in texts else "".join(filter(None, texts))


def is_marker(text: str) -> bool:
    """Whether a text has only markers of images, audio and files."""
    return text.lstrip().startswith("[") and not MARKER.sub("", text).strip()


def marker_of(part: Mapping[str, Any]) -> str:
    """Return the marker of a part: for an image the key of its content, for a file its name."""
    modality = part["modality"]
    if modality == IMAGE:
        if image_of(part) is None:
            return LEFT_OUT.format(NOT_RECORDED)
        return f"[image #{_key_of(part):016x}]"
    name = _NOT_IN_NAMES.sub(" ", str(part.get("name") or "")).strip()[:_LONGEST_NAME]
    return f"[{modality} {name}]" if name else f"[{modality}]"


def images_in(value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Image]]:
    """Yield the key and the image of each image in a JSON value."""
    part = image_in(value) if type(value) is str else media_part(value) if type(value) is dict else None
    if part is not None:
        if part["modality"] == IMAGE and (image := image_of(part)) is not None:
            yield f"{_key_of(part):016x}", image
    elif depth > 0 and type(value) in (dict, list):
        for inner in value.values() if type(value) is dict else value:
            yield from images_in(inner, depth - 1)


def without_image_bytes(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value without the bytes of images, for export: their media type and their size in bytes remain."""
    if type(value) is str:
        part = image_in(value)
        return value if part is None or "content" not in part else _describe_image(part)
    if depth <= 0 or type(value) not in (list, dict):
        return value
    if type(value) is list:
        return [without_image_bytes(item, depth - 1) for item in value]
    part = media_part(value)
    if part is not None and "content" in part:
        content = part.pop("content")
        return {**part, "size": len(content) * 3 // 4}
    return {key: without_image_bytes(inner, depth - 1) for key, inner in value.items()}


def _describe_image(part: Mapping[str, Any]) -> str:
    return f"[image {part.get('mime_type', 'of unknown type')}, {len(part['content']) * 3 // 4} bytes]"


def _key_of(part: Mapping[str, Any]) -> int:
    return content_key(part.get("uri") or part["content"])


def content_key(content: str) -> int:
    """Return a key of an image's address or bytes, equal in this process: Python keeps the hash of a text."""
    return hash(content) & _KEY_BITS


def _is_media(block: Mapping[str, Any], part: Mapping[str, Any], *, blocks: bool) -> bool:
    """Whether a block is replaced by a marker: an application's own dict may have the type ``file``."""
    return not _has_words(block) and (blocks or is_part(block) or image_of(part) is not None)


def _has_words(block: Mapping[str, Any]) -> bool:
    """Whether a document's block has its words, which are an answer and no file."""
    if first_text(dict_or_empty(block.get("source")), ("type",)) in {"text", "content"}:
        return True
    worded = ("text", "page_content") if is_part(block) else ("text", "content", "page_content")
    return any(is_a(block.get(key), str) for key in worded)


def _space_markers(items: list[Any], originals: Sequence[Any]) -> list[Any]:
    """Return blocks with each marker on a line of its own, because the texts of blocks are joined."""
    spaced: list[Any] = []
    for place, (item, original) in enumerate(zip(items, originals, strict=True)):
        if item is original or type(item) is not dict or not MARKER.fullmatch(str(item.get("text"))):
            spaced.append(item)
            continue
        previous = _text_in(spaced[-1]) if spaced else ""
        before = "\n" if previous and not previous[-1].isspace() else ""
        following = _text_in(originals[place + 1]) if place + 1 < len(items) else ""
        after = "\n" if following and not following[0].isspace() else ""
        spaced.append({**item, "text": f"{before}{item['text']}{after}"})
    return spaced


def _text_in(block: Any) -> str:
    if type(block) is str:
        return block
    text = block.get("content", block.get("text")) if type(block) is dict else None
    return text if type(text) is str else ""
