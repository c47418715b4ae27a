"""Images, audio and files in the content blocks of each client: their parts, their markers, and exported values."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from tests.core.codecs.payloads import payloads

from spanscore.core.codecs.langchain import render_messages, sample_from_messages
from spanscore.core.codecs.media import (
    image_of,
    images_in,
    join_marked_blocks,
    mark_media,
    media_part,
    without_image_bytes,
)
from spanscore.core.codecs.messages import read_message
from spanscore.core.codecs.stored_sample import content_hash, sample_of
from spanscore.core.codecs.text import MAX_CHARS, to_wire
from spanscore.core.sample import Image, MultiTurnSample, SingleTurnSample
from spanscore.core.span import UnitKey
from spanscore.outputs.collected_cases import CollectedCase

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(60))).decode()
URI = f"data:image/png;base64,{PNG}"
URL = "https://example.org/cat.png"
BYTES = Image(base64=PNG, media_type="image/png")

FORMS: dict[str, tuple[dict[str, Any], Image]] = {
    "OpenAI's chat, an address": ({"type": "image_url", "image_url": {"url": URL}}, Image(url=URL)),
    "OpenAI's chat, a data URI": ({"type": "image_url", "image_url": {"url": URI, "detail": "low"}}, BYTES),
    "OpenAI's chat, an address alone": ({"type": "image_url", "image_url": URL}, Image(url=URL)),
    "OpenAI's Responses, an address": ({"type": "input_image", "image_url": URL}, Image(url=URL)),
    "OpenAI's Responses, a data URI": ({"type": "input_image", "image_url": URI}, BYTES),
    "Anthropic, base64": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        BYTES,
    ),
    "Anthropic, an address": ({"type": "image", "source": {"type": "url", "url": URL}}, Image(url=URL)),
    "LangChain, an address": (
        {"type": "image", "url": URL, "mime_type": "image/png"},
        Image(url=URL, media_type="image/png"),
    ),
    "LangChain, base64": ({"type": "image", "base64": PNG, "mime_type": "image/png"}, BYTES),
    "LangChain before 1.0, base64": (
        {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
        BYTES,
    ),
    "LangChain before 1.0, an address": ({"type": "image", "source_type": "url", "url": URL}, Image(url=URL)),
    "Google, in Python": ({"inline_data": {"mime_type": "image/png", "data": PNG}}, BYTES),
    "Google, as JSON": ({"inlineData": {"mimeType": "image/png", "data": PNG}}, BYTES),
    "Google, a file": (
        {"file_data": {"mime_type": "image/png", "file_uri": "gs://bucket/cat.png"}},
        Image(url="gs://bucket/cat.png", media_type="image/png"),
    ),
    "LangChain's Google, media": ({"type": "media", "mime_type": "image/png", "data": PNG}, BYTES),
    "the conventions, a blob": (
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG},
        BYTES,
    ),
    "the conventions, an address": ({"type": "uri", "modality": "image", "uri": URL}, Image(url=URL)),
    "Vercel, a data URI": ({"type": "image", "image": URI}, BYTES),
    "Vercel, base64 of a known type": ({"type": "image", "image": PNG, "mediaType": "image/png"}, BYTES),
    "Vercel, an address": ({"type": "image", "image": URL}, Image(url=URL)),
    "Vercel, a file": ({"type": "file", "data": PNG, "mediaType": "image/png"}, BYTES),
    "base64 whose type its beginning shows": ({"type": "image", "base64": PNG}, BYTES),
}
SOURCES = st.sampled_from([None, "", URL, URI, PNG, "x", 5]) | st.dictionaries(
    st.sampled_from(["url", "type", "data", "media_type", "filename"]),
    st.sampled_from([URL, URI, PNG, "image/png", None]),
)
BLOCKS = st.dictionaries(
    st.sampled_from(
        ["type", "modality", "image_url", "source", "image", "base64", "mime_type", "file", "inlineData", "text"]
    ),
    st.sampled_from(["image", "image_url", "file", "blob", "uri", "image/png"]) | SOURCES,
)


@pytest.mark.parametrize("form", FORMS)
def test_an_image_is_read_in_the_form_of_each_client(form: str) -> None:
    block, image = FORMS[form]
    part = media_part(block)

    assert part is not None
    assert (part["modality"], image_of(part)) == ("image", image)
    assert media_part(part) == part
    assert [found for _, found in images_in({"messages": [{"role": "user", "content": [block]}]})] == [image]


@pytest.mark.parametrize(
    ("block", "marker"),
    [
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, "[audio]"),
        ({"type": "audio", "base64": "AA", "mime_type": "audio/wav"}, "[audio]"),
        ({"type": "video", "url": URL}, "[video]"),
        (
            {"type": "file", "file": {"filename": "report.pdf", "file_data": "data:application/pdf;base64,AA"}},
            "[file report.pdf]",
        ),
        ({"type": "file", "base64": "AA", "extras": {"filename": "a.pdf"}}, "[file a.pdf]"),
        ({"type": "input_file", "filename": "of [two]\nlines.pdf"}, "[file of two lines.pdf]"),
        ({"type": "document", "source": {"type": "base64", "data": "AA"}, "title": "Terms"}, "[file Terms]"),
        ({"type": "file", "file_id": "f-1"}, "[file]"),
        ({"type": "file", "modality": "image", "file_id": "f-1"}, "[image left out: not recorded]"),
        ({"type": "image", "url": "cat.png"}, "[image left out: not recorded]"),
        ({"type": "image", "base64": "AAAA"}, "[image left out: not recorded]"),
        ({"type": "blob", "modality": "image", "mime_type": "image/png", "size": 12}, "[image left out: not recorded]"),
    ],
)
def test_other_media_have_a_named_marker(block: dict[str, Any], marker: str) -> None:
    assert mark_media([block], blocks=True) == [{"type": "text", "text": marker}]


def test_a_marker_is_on_a_line_of_its_own() -> None:
    blocks = [{"type": "text", "text": "Look:"}, {"type": "audio", "base64": "AA"}, {"type": "text", "text": "And?"}]
    read = mark_media(blocks, blocks=True)

    assert join_marked_blocks(read, blocks) == "Look:\n[audio]\nAnd?"


def test_a_value_without_media_is_the_same_object() -> None:
    value = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "n": 1, "type": "file"}

    assert mark_media(value) is value


def test_a_message_of_one_text_is_read_unchanged_unless_the_text_is_an_image() -> None:
    text = {"role": "user", "parts": [{"type": "text", "content": "Hi"}]}
    image = {"role": "user", "parts": [{"type": "text", "content": URI}]}

    assert read_message(text) is text
    assert str(read_message(image)).count("[image #") == 1


def test_a_long_image_is_not_cut_by_the_limit_of_a_message() -> None:
    data = PNG + "A" * (MAX_CHARS + 4 - len(PNG) % 4)
    message = HumanMessage(
        [{"type": "text", "text": "What?"}, {"type": "image", "base64": data, "mime_type": "image/png"}]
    )

    (rendered,) = render_messages([message])

    assert rendered["parts"][1]["content"] == data


@pytest.mark.parametrize("form", FORMS)
def test_an_exported_value_has_addresses_and_no_bytes(form: str) -> None:
    block, image = FORMS[form]

    wire = to_wire(without_image_bytes([{"role": "user", "parts": [media_part(block)]}, {"image": URI, "raw": PNG}]))

    assert PNG not in wire
    assert (image.url or f'"size":{image.size_bytes}') in wire


@given(payloads() | st.lists(BLOCKS))
def test_no_value_makes_the_readers_raise(payload: Any) -> None:
    without_image_bytes(payload)
    mark_media(payload, blocks=True)
    assert all(isinstance(image, Image) for _, image in images_in(payload))


@pytest.mark.parametrize("given_image", [{}, {"url": URL, "base64": PNG, "media_type": "image/png"}, {"base64": PNG}])
def test_an_image_has_one_source_and_bytes_have_a_type(given_image: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="image"):
        Image.model_validate(given_image)


# --- samples ----------------------------------------------------------------------------------------------------


def test_a_conversation_of_langchain_becomes_a_sample_with_its_images() -> None:
    from langchain_core.messages import AIMessage

    asked = HumanMessage([{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": URI}}])

    sample = sample_from_messages([asked, AIMessage("A cat.")])

    assert sample == SingleTurnSample(user_input="What is it?\n[image 1]", response="A cat.", images=[BYTES])


def test_a_stored_conversation_keeps_its_images() -> None:
    content = [{"type": "text", "text": "Which?"}, {"type": "image_url", "image_url": {"url": URL}}]
    record = {"user_input": [{"role": "user", "content": content}, {"role": "assistant", "content": "The left."}]}

    sample = sample_of(record)

    assert isinstance(sample, MultiTurnSample)
    assert (sample.user_input[0].content, sample.images) == ("Which?\n[image 1]", [Image(url=URL)])


def test_a_context_that_is_an_image_is_an_image_of_the_sample() -> None:
    sample = sample_of({"user_input": "q", "retrieved_contexts": ["A text.", URI]})

    assert isinstance(sample, SingleTurnSample)
    assert (sample.retrieved_contexts, sample.images) == (["A text.", "[image 1]"], [BYTES])


def test_a_collected_case_is_read_as_the_same_sample() -> None:
    sample = SingleTurnSample(user_input="[image 1] or [image 2]?", response="a", images=[BYTES, Image(url=URL)])
    case = CollectedCase(UnitKey(1, 2), sample, {})

    assert sample_of(json.loads(case.line())) == sample


def test_a_sample_without_images_has_the_hash_that_it_had() -> None:
    sample = SingleTurnSample(user_input="q", response="a")

    assert content_hash(sample) == "d4b188a056aac4b59afd70b911145c6f"
    assert "images" not in sample.model_dump_json(exclude_none=True)
