"""The images of a unit in its samples: their places, their numbers, their bound, their redaction and their export."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from tests.live import a_line
from tests.samples.builders import chat, retriever, root, unit
from tests.samples.test_live import Witness

from spanscore import semconv
from spanscore.core.codecs.media import ImageLimit, limit_images
from spanscore.core.job import SampledUnit
from spanscore.core.sample import Image, MultiTurnSample, Samples, SingleTurnSample
from spanscore.pipeline.jobs import Hooks, JobBuilder
from spanscore.samples.genai import GenAIExtractor

CAT = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90)).decode()
DOG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(94)).decode()
URL = "https://example.org/cat.png"
OF_CAT = Image(base64=CAT, media_type="image/png")
OF_DOG = Image(base64=DOG, media_type="image/jpeg")


def shown(*blocks: str) -> HumanMessage:
    """A human message of texts, addresses and base64."""
    return HumanMessage([_block(block) for block in blocks])


def _block(text: str) -> dict[str, Any]:
    if text in (CAT, DOG):
        return {
            "type": "image_url",
            "image_url": {"url": f"data:image/{'png' if text == CAT else 'jpeg'};base64,{text}"},
        }
    return {"type": "image", "url": text} if text == URL else {"type": "text", "text": text}


def made(*runs: Any) -> Samples:
    return GenAIExtractor().extract(unit(*runs))


def single(samples: Samples) -> SingleTurnSample:
    assert samples.single_turn is not None
    return samples.single_turn


def test_images_of_question_and_answer_are_numbered_in_their_order() -> None:
    answer = AIMessage([{"type": "text", "text": "Like this:"}, {"type": "image", "base64": DOG}])

    sample = single(made(root([shown("Compare ", CAT, " with ", URL)], answer)))

    assert (sample.user_input, sample.response) == ("Compare [image 1] with [image 2]", "Like this:\n[image 3]")
    assert sample.images == [OF_CAT, Image(url=URL), OF_DOG]


def test_the_same_image_has_one_number() -> None:
    sample = single(made(root([shown(CAT, "What is it?"), shown(CAT)], AIMessage("A cat."))))

    assert (sample.user_input, sample.images) == ("[image 1]\nWhat is it?\n[image 1]", [OF_CAT])


def test_an_image_beside_the_question_in_the_input_is_found_in_the_prompt() -> None:
    asked = shown("Answer shortly. What is it?", CAT)

    sample = single(made(root({"question": "What is it?", "picture": CAT}, "A cat."), chat([asked], "A cat.")))

    assert (sample.user_input, sample.images) == ("What is it?\n[image 1]", [OF_CAT])


def test_an_image_under_an_unknown_key_is_no_second_question() -> None:
    sample = single(
        made(root({"task": "What is it?", "picture": CAT}, "A cat."), chat([shown("What is it?", CAT)], "A cat."))
    )

    assert sample.user_input == "What is it?\n[image 1]"


def test_retrieved_images_are_contexts() -> None:
    found = [Document("A text."), Document(CAT), Document(f"data:image/jpeg;base64,{DOG}")]
    asked = shown("A text.", CAT, DOG, "Which is a cat?")

    sample = single(made(root("Which is a cat?", "The first."), retriever("q", found), chat([asked], "The first.")))

    assert sample.user_input == "Which is a cat?"
    assert sample.retrieved_contexts == ["A text.", "[image 1]", "[image 2]"]
    assert sample.images == [OF_CAT, OF_DOG]


def test_the_result_of_a_tool_is_a_text_with_its_image() -> None:
    call = AIMessage("", tool_calls=[{"name": "draw", "args": {"of": "a cat"}, "id": "1"}])
    result = ToolMessage([{"type": "text", "text": "Done."}, {"type": "image", "base64": CAT}], tool_call_id="1")

    conversation = made(root([HumanMessage("Draw."), call, result], AIMessage("Here."))).multi_turn

    assert conversation is not None
    assert [message.content for message in conversation.user_input][2] == "Done.\n[image 1]"
    assert conversation.images == [OF_CAT]


def test_audio_and_files_are_named_in_the_text() -> None:
    blocks = [{"type": "file", "file": {"filename": "report.pdf"}}, {"type": "audio", "base64": "AA"}]
    asked = HumanMessage([{"type": "text", "text": "Sum up."}, *blocks])

    sample = single(made(root([asked], AIMessage("Done."))))

    assert (sample.user_input, sample.images) == ("Sum up.\n[file report.pdf]\n[audio]", None)


def test_a_text_that_looks_like_a_marker_stays_a_text() -> None:
    text = "What does [image #0123456789abcdef] or [image 1] mean?"

    sample = single(made(root([HumanMessage(text)], AIMessage("Nothing."))))

    assert sample.images is None
    assert "[image 1]" in (sample.user_input or "")


# --- bounds -----------------------------------------------------------------------------------------------------


def test_images_above_the_limit_are_left_out_and_counted() -> None:
    samples = made(root([shown("Which?", CAT, DOG)], AIMessage("The second.")))
    room = OF_CAT.size_bytes + OF_DOG.size_bytes

    assert limit_images(samples, room, "above limits.image_bytes") is samples
    limited = limit_images(samples, room - 1, "above limits.image_bytes")

    assert single(limited).images == [OF_CAT]
    assert single(limited).user_input == "Which?\n[image 1]\n[image left out: above limits.image_bytes]"
    assert limited.attributes()[semconv.IMAGES_LEFT_OUT] == 1


def test_the_images_that_are_kept_get_new_numbers() -> None:
    sample = SingleTurnSample(user_input="[image 1] [image 2] [image 3]", images=[OF_CAT, Image(url=URL), OF_DOG])

    limited = limit_images(Samples.of(sample), len(URL), "too large")

    assert single(limited).user_input == "[image left out: too large] [image 1] [image left out: too large]"
    assert (single(limited).images, limited.images_left_out) == ([Image(url=URL)], 2)


def test_turn_and_conversation_share_the_limit() -> None:
    asked = [HumanMessage("Hi"), AIMessage("Hello"), shown("What is it?", CAT)]
    samples = made(root(asked, AIMessage("A cat.")))

    limited = limit_images(samples, OF_CAT.size_bytes, "too large")

    assert limited.multi_turn is not None
    assert (single(limited).images, limited.multi_turn.images) == ([OF_CAT], [OF_CAT])


# --- redaction --------------------------------------------------------------------------------------------------


def test_a_redactor_gets_texts_and_no_image() -> None:
    texts: list[str] = []

    def redact(text: str) -> str:
        texts.append(text)
        return text.replace("Ada", "***")

    builder = JobBuilder([GenAIExtractor()], Hooks(redact))
    job = builder.job(SampledUnit(unit(root([shown("Is this Ada?", CAT)], AIMessage("Yes."))), {}))

    assert job.samples.single_turn == SingleTurnSample(
        user_input="Is this ***?\n[image 1]", response="Yes.", images=[OF_CAT]
    )
    assert not any(CAT in text for text in texts)


@pytest.mark.parametrize(
    ("capture", "redactor", "images"),
    [
        ({}, None, [OF_CAT]),
        ({"images": "drop"}, None, None),
        ({}, str.strip, None),
        ({"images": "keep"}, str.strip, [OF_CAT]),
    ],
)
def test_images_are_kept_unless_they_are_dropped_or_texts_are_redacted(
    capture: dict[str, Any], redactor: Any, images: list[Image] | None
) -> None:
    samples: list[Any] = []
    with a_line(Witness("single_turn", samples), capture=capture, redactor=redactor) as (scorer, _):
        model = GenericFakeChatModel(messages=iter([AIMessage("A cat.")]))
        model.invoke([shown("What is it?", CAT)], config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)
        left_out = scorer.status().images_left_out

    assert [sample.images for sample in samples] == [images]
    assert left_out == (0 if images else 1)
    assert images or samples[0].user_input == "What is it?\n[image left out: capture.images is drop]"


# --- export -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [True, False])
def test_spans_have_addresses_and_never_bytes(content: bool) -> None:
    samples: list[Any] = []
    with a_line(Witness("single_turn", samples), capture={"content": content}) as (scorer, trace):
        picture = {"type": "image", "base64": "{picture}", "mime_type": "image/png"}
        blocks = [{"type": "text", "text": "{question}"}, picture, _block(URL)]
        prompt = ChatPromptTemplate.from_messages([("human", blocks)])
        chain = prompt | GenericFakeChatModel(messages=iter([AIMessage("Two cats.")]))
        chain.invoke({"question": "What is it?", "picture": CAT}, config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)

    exported = trace.text()
    assert samples[0].images == [OF_CAT, Image(url=URL)]
    assert CAT not in exported
    assert (URL in exported) == content
    assert (f'"mime_type":"image/png","size":{OF_CAT.size_bytes}' in exported) == content


def test_a_unit_that_is_read_from_its_exported_spans_counts_the_missing_image() -> None:
    conversation = MultiTurnSample(user_input=[])
    exported = {"role": "user", "parts": [{"type": "blob", "modality": "image", "mime_type": "image/png", "size": 9}]}

    samples = limit_images(made(root({"messages": [exported]}, AIMessage("A cat."))), *ImageLimit())

    assert single(samples).user_input == "[image left out: not recorded]"
    assert (samples.images_left_out, conversation.images) == (1, None)


def test_a_question_behind_an_image_has_a_place() -> None:
    with a_line(Witness("single_turn", [])) as (scorer, trace):
        model = GenericFakeChatModel(messages=iter([AIMessage("A cat.")]))
        model.invoke([shown(CAT, "What is in the picture?")], config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)
        (explained,) = scorer.explain(trace.roots[0].context.trace_id)

    question = next(part for part in explained["parts"] if part["field"] == "user_input")
    assert question["attribute"] == semconv.INPUT_MESSAGES
