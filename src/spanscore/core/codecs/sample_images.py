"""Numbers the images of a sample: the marker ``[image 1]`` in a text refers to the first of ``images``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from spanscore.core.codecs.media_markers import IMAGE_MARKER, KEY, LEFT_OUT, NOT_RECORDED, NUMBER, content_key
from spanscore.core.codecs.text import MAX_DEPTH
from spanscore.core.log import is_a
from spanscore.core.sample import AIMessage, HumanMessage, Image, Message, Sample, SingleTurnSample


def texts_of(sample: Sample) -> Iterator[str]:
    """Yield the texts of a sample that may have markers of images: question, answer, contexts, messages and arguments."""
    for value in _values_of(sample):
        if type(value) is not str:
            yield from _texts(value)
        elif IMAGE_MARKER in value:
            yield value


def _values_of(sample: Sample) -> list[Any]:
    if isinstance(sample, SingleTurnSample):
        return [sample.user_input, sample.response, *(sample.retrieved_contexts or ())]
    calls = (message.tool_calls or () for message in sample.user_input if isinstance(message, AIMessage))
    return [
        *(message.content for message in sample.user_input),
        *(call.args for each in calls for call in each if call.args),
    ]


def add_images(sample: Sample, find: Callable[[], Mapping[str, Image]]) -> Sample:
    """Return a sample with the images that the keys in its texts refer to; images that it has keep their numbers.

    Args:
        sample: the sample.
        find: returns key → image; called only if a text has a key.
    """
    if not any(KEY.search(text) for text in texts_of(sample)):
        return sample
    return number_images(sample, KEY, find(), lambda _: LEFT_OUT.format(NOT_RECORDED))


def mark_images(sample: Sample) -> Sample:
    """Return a sample whose question ends with the markers of the images that no text refers to; unchanged without any.

    In a conversation, the question is the last human message; without one, the sample is unchanged.
    """
    if not sample.images:
        return sample
    marked = {int(number) for text in texts_of(sample) for number in NUMBER.findall(text)}
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


def number_images(
    sample: Sample, pattern: re.Pattern[str], images: Mapping[str, Image], lacking: Callable[[str], str]
) -> Sample:
    """Return a sample with images, and with their numbers in the markers.

    Args:
        sample: the sample.
        pattern: matches a marker, with the key of its image as a group.
        images: key → image.
        lacking: returns the text in place of a marker without an image.
    """
    own = sample.images or []
    keys = [*dict.fromkeys(key for text in texts_of(sample) for key in pattern.findall(text) if key in images)]
    numbers = {key: number for number, key in enumerate(keys, len(own) + 1)}

    def show(match: re.Match[str]) -> str:
        return f"[image {numbers[match[1]]}]" if match[1] in numbers else lacking(match[0])

    shown = [*own, *(images[key] for key in keys)] or None
    return _with_texts(sample, lambda text: pattern.sub(show, text)).model_copy(update={"images": shown})


def with_keys(sample: Sample) -> tuple[Sample, dict[str, Image]]:
    """Return a sample with keys in place of numbers, and key → image, so that its messages can be joined with others."""
    numbered = {str(number): image for number, image in enumerate(sample.images or (), 1)}
    if not numbered:
        return sample, {}
    keys = {number: f"{content_key(image.url or image.base64 or ''):016x}" for number, image in numbered.items()}

    def show(match: re.Match[str]) -> str:
        return f"[image #{keys[match[1]]}]" if match[1] in keys else match[0]

    keyed = _with_texts(sample, lambda text: NUMBER.sub(show, text)).model_copy(update={"images": None})
    return keyed, {keys[number]: image for number, image in numbered.items()}


def _with_texts(sample: Sample, change_text: Callable[[str], str]) -> Sample:
    """Return a sample with the texts changed that may have markers of images."""

    def change(value: Any) -> Any:
        return _change_texts(value, change_text)

    if isinstance(sample, SingleTurnSample):
        names: Iterable[str] = ("user_input", "response", "retrieved_contexts")
        return sample.model_copy(update={name: change(getattr(sample, name)) for name in names})
    return sample.model_copy(update={"user_input": [_message(each, change) for each in sample.user_input]})


def _message(message: Message, change: Callable[[Any], Any]) -> Message:
    update: dict[str, Any] = {"content": change(message.content)}
    if isinstance(message, AIMessage) and message.tool_calls:
        update["tool_calls"] = [call.model_copy(update={"args": change(call.args)}) for call in message.tool_calls]
    return message.model_copy(update=update)


def _change_texts(value: Any, change: Callable[[str], str], depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value with its texts changed; objects of other types are unchanged."""
    if is_a(value, str):
        return change(value) if IMAGE_MARKER in value else value
    if depth > 0 and is_a(value, list):
        return [_change_texts(inner, change, depth - 1) for inner in value]
    if depth > 0 and is_a(value, dict):
        return {key: _change_texts(inner, change, depth - 1) for key, inner in value.items()}
    return value


def _texts(value: Any, depth: int = MAX_DEPTH) -> Iterator[str]:
    """Yield the texts in a JSON value that may have markers of images."""
    if is_a(value, str):
        if IMAGE_MARKER in value:
            yield value
    elif depth > 0 and is_a(value, list, dict):
        for inner in value.values() if is_a(value, dict) else value:
            yield from _texts(inner, depth - 1)
