"""Images, audio and files in content: reads them in the blocks of any client, and replaces them by markers in texts.

1. ``media_part`` reads a block of a client as a part of the GenAI conventions, ``{"type": "blob", "modality", "mime_type",
   "content"}`` or ``{"type": "uri", "modality", "mime_type", "uri"}``.
2. ``mark_media`` replaces media in messages by markers in their texts: ``[audio]``, ``[file report.pdf]``, or for an image the
   key of its content, ``[image #1f0c…]``: texts of several spans of a unit are compared, and may have the same image.
3. ``add_images`` adds the images to a sample, and replaces their keys by numbers: ``[image 1]`` is the first of the sample's
   ``images``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.core.codecs.text import MAX_DEPTH, Base64
from spanscore.core.log import is_a
from spanscore.core.sample import AIMessage, HumanMessage, Image, Message, Sample, Samples, SingleTurnSample
from spanscore.core.span import Unit

# --- parts ----------------------------------------------------------------------------------------------------------

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
"""Only key of Google's blocks, which have no type."""
_UNTYPED_KEYS: Final = frozenset(_UNTYPED)
_INNER_KEYS: Final = ("image_url", "source", "file", "image", "input_audio", *_UNTYPED)
"""Keys under which a block may have the fields of its media."""
_TYPE_KEYS: Final = ("mime_type", "media_type", "mimeType", "mediaType")
_ADDRESS_KEYS: Final = ("url", "uri", "image_url", "file_uri", "fileUri")
_DATA_KEYS: Final = ("base64", "data", "image", "content", "file_data", "file")
_NAME_KEYS: Final = ("filename", "name", "title")
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
_LEAST_CHARS: Final = 64
"""Number of characters of the smallest image as base64; a shorter text that begins like an image is a text."""
_MOST_CHARS: Final = 20_000_000
"""Number of characters of base64 above which the bytes of an image are left out, because each copy delays the span thread."""
_BEGINNINGS: Final = ("data:image/", *_SIGNATURES)
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
    inner: Mapping[str, Any] = next((block[key] for key in _INNER_KEYS if is_a(block.get(key), dict)), {})
    fields = {**block, **inner}
    media_type, text = _first_text(fields, _TYPE_KEYS), _address_or_data(fields)
    if text is not None and (uri := _DATA_URI.match(text)) is not None:
        media_type, text = uri[1].lower(), text[uri.end() :]
    if modality == IMAGE or (modality == "file" and (media_type or "").startswith("image/")):
        return _image_part(text, media_type)
    name = _first_text(fields, _NAME_KEYS) or _first_text(_dict(block.get("extras")), _NAME_KEYS)
    return {"type": "blob", "modality": modality, **({"name": name} if name else {})}


def _is_part(block: Mapping[str, Any]) -> bool:
    return _first_text(block, ("type",)) in _PARTS


def _image_in(text: str) -> dict[str, Any] | None:
    """Return a text that is a whole image, as a data URI or as base64, as a part; None for every other text."""
    if not text.startswith(_BEGINNINGS):
        return None
    uri = _DATA_URI.match(text)
    if uri is not None:
        return _image_part(text[uri.end() :], uri[1].lower())
    is_image = len(text) >= _LEAST_CHARS and _BASE64.fullmatch(text) is not None
    return _image_part(text, None) if is_image else None


def image_of(part: Mapping[str, Any]) -> Image | None:
    """Return the image of a part; None if the part has neither an address nor bytes of a known type."""
    media_type, address, content = (part.get(key) for key in ("mime_type", "uri", "content"))
    media_type = media_type if is_a(media_type, str) and media_type else None
    if is_a(address, str):
        return Image(url=address, media_type=media_type)
    return Image(base64=content, media_type=media_type) if media_type and is_a(content, str) and content else None


def _modality_of(block: Mapping[str, Any]) -> str | None:
    kind = _first_text(block, ("type",))
    if kind is None:
        return "file" if any(is_a(block.get(key), dict) for key in _UNTYPED) else None
    stated = _first_text(block, ("modality",)) if kind in _KINDS else None
    return stated or MODALITY.get(kind)


def _image_part(text: str | None, media_type: str | None) -> dict[str, Any]:
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
    texts = (fields.get(key) for key in _ADDRESS_KEYS)
    addresses = (text for text in texts if is_a(text, str) and (_ADDRESS.fullmatch(text) or _DATA_URI.match(text)))
    return next(addresses, None) or _first_text(fields, _DATA_KEYS)


def _first_text(fields: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    texts = (fields.get(key) for key in keys)
    return next((text for text in texts if is_a(text, str) and text), None)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if is_a(value, dict) else {}


# --- markers --------------------------------------------------------------------------------------------------------

_KEY: Final = re.compile(r"\[image #([0-9a-f]{16})\]")
NUMBER: Final = re.compile(r"\[image ([1-9]\d{0,3})\]")
_LEFT_OUT: Final = "[image left out: {}]"
_LEFT_OUT_MARKER: Final = re.compile(re.escape(_LEFT_OUT).replace(re.escape("{}"), r"[^\[\]]*"))
_NOT_RECORDED: Final = _LEFT_OUT.format("not recorded")
MARKER: Final = re.compile(r"\[(?:image|audio|video|file)\b[^\[\]]*\]")
_IMAGE_MARKER: Final = "[image"
"""The beginning of each marker of an image. Most samples have no such text, which a search finds fastest."""
_CONTENT: Final = frozenset({"parts", "content"})
_LONGEST_NAME: Final = 100
_NOT_IN_NAMES: Final = re.compile(r"[\[\]\s\x00-\x1f]+")


def mark_media(value: Any, depth: int = MAX_DEPTH, *, blocks: bool = False) -> Any:
    """Return a JSON value with images, audio and files replaced by text blocks with their markers; the same value without any.

    Args:
        value: messages, or any other value, in which only images and parts of the conventions are replaced.
        depth: number of levels that are read.
        blocks: whether the value is a message's list of parts or of a client's blocks, so that audio and files of any client
            are replaced, too.
    """
    if type(value) is str:
        part = _image_in(value)
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
    # An application's own dict may have the type ``file``.
    if part and not has_words(value) and (blocks or _is_part(value) or image_of(part) is not None):
        return {"type": "text", "text": marker_of(part)}
    is_result = value.get("type") == "tool_call_response"
    block_keys = value.keys() if is_result else _CONTENT if type(value.get("role")) is str else ()
    changed = _mark_inner(value.items(), depth - 1, block_keys)
    if is_result:
        changed = {key: join_marked_blocks(marked, value[key]) for key, marked in changed.items()}
    return {**value, **changed} if changed else value


def _mark_inner(items: Iterable[tuple[Any, Any]], depth: int, block_keys: Container[Any]) -> dict[Any, Any]:
    """Return key → marked value of the items with media. ``block_keys`` are the keys of parts or blocks."""
    changed = {}
    for key, inner in items:
        kind = type(inner)
        if kind is dict:
            marked = _mark_dict(inner, depth, blocks=key in block_keys)
        elif kind is list or (kind is str and inner.startswith(_BEGINNINGS)):
            marked = mark_media(inner, depth, blocks=key in block_keys)
        else:
            continue
        if marked is not inner:
            changed[key] = marked
    return changed


def is_plain_text(part: Any) -> bool:
    """Return whether a message's part is a text and nothing else, without media."""
    if type(part) is not dict or len(part) != 2 or part.get("type") != "text":  # noqa: PLR2004  (type and content)
        return False
    text = part.get("content")
    return type(text) is str and not text.startswith(_BEGINNINGS)


def join_marked_blocks(value: Any, original: Any) -> Any:
    """Return a marked result of a tool as one text, if it consists of text blocks; unchanged if it has no marker."""
    if value is original or type(value) is not list:
        return value
    texts = [block if is_a(block, str) else _first_text(_dict(block), ("text", "content")) for block in value]
    return value if None in texts else "".join(filter(None, texts))


def is_marker(text: str) -> bool:
    """Whether a text consists of markers only."""
    return text.lstrip().startswith("[") and not MARKER.sub("", text).strip()


def marker_of(part: Mapping[str, Any]) -> str:
    """Return the marker of a part: for an image the key of its content, for a file its name."""
    modality = part["modality"]
    if modality == IMAGE:
        return _NOT_RECORDED if image_of(part) is None else f"[image #{_key_of(part)}]"
    name = _NOT_IN_NAMES.sub(" ", str(part.get("name") or "")).strip()[:_LONGEST_NAME]
    return f"[{modality} {name}]" if name else f"[{modality}]"


def images_in(value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Image]]:
    """Yield the key and the image of each image in a JSON value."""
    part = _image_in(value) if type(value) is str else media_part(value) if type(value) is dict else None
    if part is not None:
        if part["modality"] == IMAGE and (image := image_of(part)) is not None:
            yield _key_of(part), image
    elif depth > 0 and type(value) in (dict, list):
        for inner in value.values() if type(value) is dict else value:
            yield from images_in(inner, depth - 1)


def without_image_bytes(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value without the bytes of images, for export: their media type and their size in bytes remain."""
    if type(value) is str:
        part = _image_in(value)
        if part is None or "content" not in part:
            return value
        return f"[image {part.get('mime_type', 'of unknown type')}, {len(part['content']) * 3 // 4} bytes]"
    if depth <= 0 or type(value) not in (list, dict):
        return value
    if type(value) is list:
        return [without_image_bytes(item, depth - 1) for item in value]
    part = media_part(value)
    if part is not None and "content" in part:
        content = part.pop("content")
        return {**part, "size": len(content) * 3 // 4}
    return {key: without_image_bytes(inner, depth - 1) for key, inner in value.items()}


def _key_of(part: Mapping[str, Any]) -> str:
    return _content_key(part.get("uri") or part["content"])


def _content_key(content: str) -> str:
    """Return the key of an image's address or bytes, valid in this process; fast, because Python caches the hash of a text."""
    return f"{hash(content) & (2**64 - 1):016x}"


def has_words(block: Mapping[str, Any]) -> bool:
    """Whether a block of a document has the document's text, which is content and no file."""
    if _first_text(_dict(block.get("source")), ("type",)) in {"text", "content"}:
        return True
    text_keys = ("text", "page_content") if _is_part(block) else ("text", "content", "page_content")
    return any(is_a(block.get(key), str) for key in text_keys)


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


# --- images of a sample ---------------------------------------------------------------------------------------------


def _texts_of(sample: Sample) -> Iterator[str]:
    """Yield the texts of a sample that may have markers of images: question, answer, contexts, messages and arguments."""
    for value in _values_of(sample):
        if type(value) is not str:
            yield from _texts(value)
        elif _IMAGE_MARKER in value:
            yield value


def _values_of(sample: Sample) -> list[Any]:
    if isinstance(sample, SingleTurnSample):
        return [sample.user_input, sample.response, *(sample.retrieved_contexts or ())]
    calls = (message.tool_calls or () for message in sample.user_input if isinstance(message, AIMessage))
    arguments = [call.args for each in calls for call in each if call.args]
    return [*(message.content for message in sample.user_input), *arguments]


def _has_keys(sample: Sample) -> bool:
    return any(_KEY.search(text) for text in _texts_of(sample))


def add_images(sample: Sample, find: Callable[[], Mapping[str, Image]]) -> Sample:
    """Return a sample with the images to which keys in its texts refer; images that the sample already has keep their numbers.

    ``find`` returns key → image, and is called only if a text has a key.
    """
    return _number_images(sample, _KEY, find(), lambda _: _NOT_RECORDED) if _has_keys(sample) else sample


def mark_images(sample: Sample) -> Sample:
    """Return a sample with markers at the end of its question for the images that no text refers to; unchanged without any.

    In a conversation, the question is the last human message; without one, the sample is unchanged.
    """
    if not sample.images:
        return sample
    marked = {int(number) for text in _texts_of(sample) for number in NUMBER.findall(text)}
    missing = [f"[image {number}]" for number in range(1, len(sample.images) + 1) if number not in marked]
    if not missing:
        return sample
    if isinstance(sample, SingleTurnSample):
        return sample.model_copy(update={"user_input": "\n".join(filter(None, [sample.user_input, *missing]))})
    messages = [*sample.user_input]
    for place, message in reversed([*enumerate(messages)]):
        if isinstance(message, HumanMessage):
            messages[place] = message.model_copy(update={"content": "\n".join([message.content, *missing])})
            return sample.model_copy(update={"user_input": messages})
    return sample


def _number_images(
    sample: Sample, pattern: re.Pattern[str], images: Mapping[str, Image], replace_missing: Callable[[str], str]
) -> Sample:
    """Return a sample with further images, and with their numbers in the markers; its own images keep their numbers.

    The first group of ``pattern`` is the key of an image in ``images``. ``replace_missing`` gets each marker without an image.
    """
    own = sample.images or []
    keys = [*dict.fromkeys(key for text in _texts_of(sample) for key in pattern.findall(text) if key in images)]
    numbers = {key: number for number, key in enumerate(keys, len(own) + 1)}

    def number(match: re.Match[str]) -> str:
        return f"[image {numbers[match[1]]}]" if match[1] in numbers else replace_missing(match[0])

    numbered = [*own, *(images[key] for key in keys)] or None
    return _with_texts(sample, lambda text: pattern.sub(number, text)).model_copy(update={"images": numbered})


def with_keys(sample: Sample) -> tuple[Sample, dict[str, Image]]:
    """Return a sample with keys in place of numbers, and key → image, so that its messages can be joined with others."""
    numbered = {str(number): image for number, image in enumerate(sample.images or (), 1)}
    if not numbered:
        return sample, {}
    keys = {number: _content_key(image.url or image.base64 or "") for number, image in numbered.items()}

    def insert_key(match: re.Match[str]) -> str:
        return f"[image #{keys[match[1]]}]" if match[1] in keys else match[0]

    keyed = _with_texts(sample, lambda text: NUMBER.sub(insert_key, text)).model_copy(update={"images": None})
    return keyed, {keys[number]: image for number, image in numbered.items()}


def _with_texts(sample: Sample, change_text: Callable[[str], str]) -> Sample:
    change = partial(_change_texts, change_text)
    if isinstance(sample, SingleTurnSample):
        names = ("user_input", "response", "retrieved_contexts")
        return sample.model_copy(update={name: change(getattr(sample, name)) for name in names})
    return sample.model_copy(update={"user_input": [_message(each, change) for each in sample.user_input]})


def _message(message: Message, change: Callable[[Any], Any]) -> Message:
    update: dict[str, Any] = {"content": change(message.content)}
    if isinstance(message, AIMessage) and message.tool_calls:
        update["tool_calls"] = [call.model_copy(update={"args": change(call.args)}) for call in message.tool_calls]
    return message.model_copy(update=update)


def _change_texts(change: Callable[[str], str], value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value with its texts changed; objects of other types are unchanged."""
    if is_a(value, str):
        return change(value) if _IMAGE_MARKER in value else value
    if depth > 0 and is_a(value, list):
        return [_change_texts(change, inner, depth - 1) for inner in value]
    if depth > 0 and is_a(value, dict):
        return {key: _change_texts(change, inner, depth - 1) for key, inner in value.items()}
    return value


def _texts(value: Any, depth: int = MAX_DEPTH) -> Iterator[str]:
    """Yield the texts in a JSON value that may have markers of images."""
    if is_a(value, str):
        if _IMAGE_MARKER in value:
            yield value
    elif depth > 0 and is_a(value, list, dict):
        for inner in value.values() if is_a(value, dict) else value:
            yield from _texts(inner, depth - 1)


# --- images of a unit -----------------------------------------------------------------------------------------------


class ImageLimit(NamedTuple):
    """The images of a unit that its samples keep.

    Attributes:
        max_bytes: size of the decoded images together; 0 = no image is kept.
        reason: reason in the marker of an image that is left out.
    """

    max_bytes: int = 5_000_000
    reason: str = "above limits.image_bytes"


IMAGE_LIMIT: Final = ImageLimit()
"""The limit with the default settings."""


def add_unit_images(samples: Samples, unit: Unit) -> Samples:
    """Return samples with numbered markers, and with their images from the unit's spans."""
    if not any(map(_has_keys, _pair(samples))):  # nearly every unit: its spans are not searched
        return samples
    values = (span.attributes.get(name) for span in unit.spans for name in filter(semconv.is_content, span.attributes))
    images = {key: image for value in values for key, image in images_in(value)}
    return _each(samples, lambda sample: add_images(sample, lambda: images))


def limit_images(samples: Samples, max_bytes: int, reason: str) -> Samples:
    """Return samples with images of at most ``max_bytes`` together; markers with the reason replace the other images.

    The single turn and the conversation share their images. ``images_left_out`` counts all images that are left out.
    """
    images = [*dict.fromkeys(image for sample in _pair(samples) for image in sample.images or ())]
    kept, left_bytes = set[Image](), max_bytes
    for image in images:
        if image.size_bytes <= left_bytes:
            left_bytes -= image.size_bytes
            kept.add(image)
    if len(kept) < len(images):
        samples = _each(samples, lambda sample: _limit_sample(sample, kept, _LEFT_OUT.format(reason)))
    counts = (sum(len(_LEFT_OUT_MARKER.findall(text)) for text in _texts_of(sample)) for sample in _pair(samples))
    left_out = max(counts, default=0)
    return replace(samples, images_left_out=left_out) if left_out else samples


def with_images_of(question: str | None, prompt: str | None, contexts: Iterable[str]) -> str | None:
    """Return a question with the markers of the images in its prompt, except those of contexts.

    The question is unchanged if it has markers itself, or is not in the prompt.
    """
    if question is None or not prompt or _IMAGE_MARKER in question or question.strip() not in prompt:
        return question
    retrieved = {key for text in contexts for key in _KEY.findall(text)}
    markers = dict.fromkeys(match[0] for match in _KEY.finditer(prompt) if match[1] not in retrieved)
    return "\n".join([question, *markers])


def _pair(samples: Samples) -> list[Sample]:
    return [sample for sample in (samples.single_turn, samples.multi_turn) if sample is not None]


def _each(samples: Samples, change: Callable[[Any], Any]) -> Samples:
    single, multi = samples.single_turn, samples.multi_turn
    return replace(
        samples,
        single_turn=None if single is None else change(single),
        multi_turn=None if multi is None else change(multi),
    )


def _limit_sample(sample: Sample, kept: set[Image], left_out: str) -> Sample:
    if all(image in kept for image in sample.images or ()):
        return sample
    images = {str(place): image for place, image in enumerate(sample.images or (), 1)}
    dropped = {f"[image {number}]" for number, image in images.items() if image not in kept}
    remaining = {number: image for number, image in images.items() if image in kept}
    bare = sample.model_copy(update={"images": None})
    return _number_images(bare, NUMBER, remaining, lambda marker: left_out if marker in dropped else marker)
