"""Adds images to samples: numbers their markers in the texts, and leaves images above a limit out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.core.codecs.media_markers import IMAGE_MARKER, KEY, LEFT_OUT, NUMBER, images_in
from spanscore.core.codecs.sample_images import add_images, number_images, texts_of
from spanscore.core.sample import Image, Sample, Samples
from spanscore.core.span import Unit

_COUNTED: Final = re.compile(re.escape(LEFT_OUT).replace(re.escape("{}"), r"[^\[\]]*"))


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
    """Return samples whose markers are numbered, with their images from the unit's spans."""
    find = cache(lambda: dict(_images_of(unit)))
    return _each(samples, lambda sample: add_images(sample, find))


def limit_images(samples: Samples, max_bytes: int, reason: str) -> Samples:
    """Return samples whose images together have at most ``max_bytes``; markers with the reason replace the other images.

    The single turn and the conversation share their images. ``images_left_out`` counts the images that are missing.
    """
    images = _distinct(samples)
    kept, left_bytes = set[Image](), max_bytes
    for image in images:
        if image.size_bytes <= left_bytes:
            left_bytes -= image.size_bytes
            kept.add(image)
    if len(kept) < len(images):
        samples = _each(samples, lambda sample: _limit_sample(sample, kept, LEFT_OUT.format(reason)))
    missing = max(map(_count_missing, _pair(samples)), default=0)
    return replace(samples, images_left_out=missing) if missing else samples


def with_images_of(question: str | None, prompt: str | None, contexts: Iterable[str]) -> str | None:
    """Return a question with the markers of images that the prompt has beside it; unchanged if the question has its own.

    Images of contexts are left out.
    """
    if question is None or not prompt or IMAGE_MARKER in question or question.strip() not in prompt:
        return question
    retrieved = {key for text in contexts for key in KEY.findall(text)}
    markers = dict.fromkeys(match[0] for match in KEY.finditer(prompt) if match[1] not in retrieved)
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


def _images_of(unit: Unit) -> Iterator[tuple[str, Image]]:
    for span in unit.spans:
        for name in filter(semconv.is_content, span.attributes):
            yield from images_in(span.attributes.get(name))


def _limit_sample(sample: Sample, kept: set[Image], left_out: str) -> Sample:
    if all(image in kept for image in sample.images or ()):
        return sample
    images = {str(place): image for place, image in enumerate(sample.images or (), 1)}
    lost = {f"[image {number}]" for number, image in images.items() if image not in kept}
    held = {number: image for number, image in images.items() if image in kept}
    bare = sample.model_copy(update={"images": None})
    return number_images(bare, NUMBER, held, lambda marker: left_out if marker in lost else marker)


def _distinct(samples: Samples) -> list[Image]:
    return [*dict.fromkeys(image for sample in _pair(samples) for image in sample.images or ())]


def _count_missing(sample: Sample) -> int:
    return sum(len(_COUNTED.findall(text)) for text in texts_of(sample))
