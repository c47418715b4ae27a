"""Images in a judge's question: the blocks of a chat model, judges without images, tokens, and the cache's key."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from tests.judges.langchain.wire import Exchanged, Wire, chat
from tests.judges.models import CRITIQUE_JSON, QUESTION, Answers, PlainModel
from tests.live import a_line

from spanscore import semconv
from spanscore.core.sample import Image, SingleTurnSample
from spanscore.errors import JudgeError
from spanscore.judges import LangChainJudge, ask, judge
from spanscore.judges.effects.cache import key_of
from spanscore.judges.effects.limited import FallingBack
from spanscore.judges.effects.middleware import reads_images
from spanscore.judges.langchain.models import takes_images
from spanscore.judges.rendering import IMAGE_TOKENS, fit, question_tokens, render
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics import AspectCritic

CAT = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90)).decode()
OF_CAT = Image(base64=CAT, media_type="image/png")
LINKED = Image(url="https://example.org/dog.png")
SAMPLE = SingleTurnSample(user_input="Is [image 2] as [image 1]?", response="No.", images=[OF_CAT, LINKED])
CRITIC = {"definition": "The answer is right.", "name": "right"}
SHOWN = replace(QUESTION, images={1: OF_CAT, 2: LINKED})


class Seeing(Answers):
    """A judge that reads images."""

    reads_images = True


def graded(by: Any, sample: SingleTurnSample = SAMPLE) -> Any:
    return AspectCritic(**CRITIC, judge=by).score_sync(sample)


# --- questions --------------------------------------------------------------------------------------------------


def test_a_judge_that_reads_images_gets_those_of_its_evidence() -> None:
    seeing = Seeing(CRITIQUE_JSON)

    score = graded(seeing)

    assert seeing.asked[0].images == {1: OF_CAT, 2: LINKED}
    assert score.usage.images_not_shown == 0


async def test_an_image_whose_marker_is_not_in_the_evidence_is_not_sent() -> None:
    seeing = Seeing(CRITIQUE_JSON)

    with asked_by(ScoreContext(images=[OF_CAT, LINKED])):
        await ask(seeing, replace(QUESTION, evidence={"response": "As [image 2] and [image 3] show."}))

    assert seeing.asked[0].images == {2: LINKED}


def test_another_judge_gets_the_markers_and_its_score_states_the_number() -> None:
    blind = Answers(CRITIQUE_JSON)

    score = graded(blind)

    assert blind.asked[0].images == {}
    assert "Is [image 2] as [image 1]?" in render(blind.asked[0]).user
    assert score.usage.images_not_shown == 2


def test_the_offline_judge_reads_no_images() -> None:
    assert graded("lexical").usage.images_not_shown == 2


def test_the_text_of_a_question_is_the_same_with_and_without_images() -> None:
    assert render(SHOWN) == render(QUESTION)


def test_a_fallback_reads_images_only_if_every_judge_does() -> None:
    seeing, blind = Seeing(CRITIQUE_JSON), Answers(CRITIQUE_JSON)

    assert reads_images(FallingBack(seeing, [Seeing(CRITIQUE_JSON)]))
    assert not reads_images(FallingBack(seeing, [blind]))
    assert reads_images(judge(seeing, cache="memory", max_attempts=2))


# --- tokens, cache ----------------------------------------------------------------------------------------------


def test_an_image_counts_a_constant_number_of_tokens() -> None:
    assert question_tokens(SHOWN) == question_tokens(QUESTION) + 2 * IMAGE_TOKENS


def test_images_take_their_part_of_the_window() -> None:
    assert fit(SHOWN, 10_000) == (SHOWN, 0.0)
    with pytest.raises(JudgeError, match="too long"):
        fit(SHOWN, 2 * IMAGE_TOKENS + 10)


def test_a_question_that_is_too_long_names_the_window_and_its_tokens_with_its_images() -> None:
    needed = question_tokens(SHOWN)
    with pytest.raises(JudgeError, match=rf"about {needed} tokens cannot be cut, the judge reads 100 at most"):
        fit(SHOWN, 100)


def test_a_question_with_another_image_is_another_question() -> None:
    by = Seeing(CRITIQUE_JSON)
    prompts = [QUESTION, SHOWN, replace(QUESTION, images={1: OF_CAT}), replace(QUESTION, images={2: OF_CAT})]

    assert len({key_of(by, prompt) for prompt in prompts}) == 4
    assert key_of(by, replace(QUESTION, images={})) == key_of(by, QUESTION)


# --- chat models ------------------------------------------------------------------------------------------------


async def test_a_chat_model_gets_standard_blocks_behind_the_text() -> None:
    model = PlainModel()

    await LangChainJudge(model, images=True).ask(SHOWN)

    assert model.seen[0][1].content == [
        {"type": "text", "text": render(QUESTION).user},
        {"type": "text", "text": "[image 1]"},
        {"type": "image", "base64": CAT, "mime_type": "image/png"},
        {"type": "text", "text": "[image 2]"},
        {"type": "image", "url": "https://example.org/dog.png"},
    ]


async def test_a_question_without_images_is_a_text() -> None:
    model = PlainModel()

    await LangChainJudge(model, images=True).ask(QUESTION)

    assert model.seen[0][1].content == render(QUESTION).user


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("gpt-4o-mini", True),
        ("claude-sonnet-4-5", True),
        ("qwen2.5-vl-72b", True),
        ("llama3.2-vision", True),
        ("gpt-3.5-turbo", False),
        ("mistral-7b", False),
    ],
)
def test_a_model_without_a_profile_is_known_by_its_name(name: str, reads: bool) -> None:
    assert takes_images(PlainModel(model_name=name)) is reads
    assert LangChainJudge(PlainModel(model_name=name)).reads_images is reads
    assert LangChainJudge(PlainModel(model_name=name), images=not reads).reads_images is not reads


def test_the_profile_of_a_model_counts_before_its_name() -> None:
    assert not takes_images(PlainModel(model_name="gpt-4o", profile={"image_inputs": False}))
    assert takes_images(PlainModel(profile={"image_inputs": True}))


# --- a whole run ------------------------------------------------------------------------------------------------


def say_that_it_is_right(request: Exchanged) -> None:
    request.say(CRITIQUE_JSON)


@pytest.mark.parametrize("images", [None, False])
def test_a_chain_with_an_image_is_judged_by_a_server_that_gets_the_image(images: bool | None) -> None:
    picture = {"type": "image", "base64": "{picture}", "mime_type": "image/png"}
    prompt = ChatPromptTemplate.from_messages([("human", [{"type": "text", "text": "{question}"}, picture])])
    chain = prompt | GenericFakeChatModel(messages=iter([AIMessage("A cat.")]))
    with Wire(say_that_it_is_right) as wire:
        critic = AspectCritic(**CRITIC, judge=judge(chat(wire), images=images))
        with a_line(critic) as (scorer, trace):
            chain.invoke({"question": "What is it?", "picture": CAT}, config={"callbacks": [scorer.handler]})
            assert scorer.flush(20)
            assert scorer.status().outcomes["right"]["scored"] == 1
    content = wire.requests[0]["messages"][1]["content"]
    (evaluation,) = trace.evaluations
    if images is False:
        assert "What is it?\\n[image 1]" in content
        assert evaluation.attributes[semconv.JUDGE_IMAGES_NOT_SHOWN] == 1
    else:
        assert "What is it?\\n[image 1]" in content[0]["text"]
        assert content[1:] == [
            {"type": "text", "text": "[image 1]"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{CAT}"}},
        ]
        assert semconv.JUDGE_IMAGES_NOT_SHOWN not in evaluation.attributes


def test_a_message_with_an_image_is_judged_by_a_server_that_gets_the_address() -> None:
    asked = HumanMessage(
        [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": LINKED.url}}]
    )
    with Wire(say_that_it_is_right) as wire:
        critic = AspectCritic(**CRITIC, judge=judge(chat(wire)))
        with a_line(critic) as (scorer, _):
            model = GenericFakeChatModel(messages=iter([AIMessage("A dog.")]))
            model.invoke([asked], config={"callbacks": [scorer.handler]})
            assert scorer.flush(20)

    assert wire.requests[0]["messages"][1]["content"][2] == {"type": "image_url", "image_url": {"url": LINKED.url}}
