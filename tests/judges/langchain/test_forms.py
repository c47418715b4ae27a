"""The ways of requesting the form of an answer, and the errors of a provider that lead from one to the next."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from tests.contracts.test_metrics import built
from tests.judges.langchain.wire import Exchanged, Wire, chat
from tests.judges.models import CRITIQUE_JSON, QUESTION, PlainModel

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges import LangChainJudge
from spanscore.judges.langchain.chat import OptionalFeature
from spanscore.judges.records import recorded_calls
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics import AspectCritic
from spanscore.metrics.catalog.registry import built_ins

NO_SCHEMA = {"message": "'response_format' of type 'json_schema' is not supported with this model"}


def knows_no_schema(asked: Exchanged) -> None:
    if "response_format" in asked.body:
        asked.refuse(400, **NO_SCHEMA)
    else:
        asked.say(CRITIQUE_JSON)


def shapes(wire: Wire) -> list[str]:
    return ["schema" if "response_format" in body else "tools" if "tools" in body else "text" for body in wire.requests]


async def test_a_provider_that_twice_refuses_the_schema_is_asked_in_text_and_that_is_reported_once(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    with Wire(knows_no_schema) as wire, caplog.at_level(logging.WARNING, "spanscore"), recorded_calls() as calls:
        judge = LangChainJudge(chat(wire))
        texts = [(await judge.ask(QUESTION)).text for _ in range(4)]

    assert texts == [CRITIQUE_JSON] * 4
    assert shapes(wire) == ["schema", "text", "schema", "text", "text", "text"]
    assert [call.error_type for call in calls] == ["http_400"] * 2
    assert sum("plain text" in line for line in caplog.messages) == 1
    assert not any(warning.category is UserWarning for warning in recwarn)  # langchain_openai's, on stderr


async def test_a_schema_that_passes_in_between_starts_the_count_again() -> None:
    refusals = iter([True, False, True, False])

    def answer(asked: Exchanged) -> None:
        if "response_format" in asked.body and next(refusals):
            asked.refuse(400, **NO_SCHEMA)
        else:
            asked.say(CRITIQUE_JSON)

    with Wire(answer) as wire:
        judge = LangChainJudge(chat(wire))
        for _ in range(4):
            await judge.ask(QUESTION)

    assert shapes(wire) == ["schema", "text", "schema", "schema", "text", "schema"]


@pytest.mark.parametrize(
    "trouble",
    [
        lambda asked: asked.refuse(400, code="content_filter"),
        lambda asked: asked.refuse(400, code="context_length_exceeded"),
        lambda asked: asked.refuse(400, "the request is invalid"),
        lambda asked: asked.refuse(404, code="model_not_found"),
        lambda asked: asked.say("{", finish="length"),
        lambda asked: asked.say("", finish="content_filter"),
        lambda asked: asked.send(200, b"<html>"),
    ],
)
async def test_a_sample_s_own_trouble_never_changes_the_mode(trouble: Any) -> None:
    with Wire(trouble) as wire:
        judge = LangChainJudge(chat(wire))
        for _ in range(3):
            with pytest.raises(JudgeError):
                await judge.ask(QUESTION)

    assert set(shapes(wire)) == {"schema"}


def test_what_was_refused_twice_in_a_row_is_tried_again_after_an_hour() -> None:
    now = [0.0]
    feature = OptionalFeature(clock=lambda: now[0])

    seen = []
    for at, refused in ((0.0, True), (1.0, True), (2.0, None), (3_700.0, True), (3_701.0, None)):
        now[0] = at
        seen.append(feature.is_on)
        if refused:
            feature.count_refusal()

    assert seen == [True, True, False, True, False]


@pytest.mark.parametrize(
    ("structured", "shape"),
    [("auto", "schema"), (True, "schema"), ("schema", "schema"), ("tools", "tools"), ("text", "text"), (False, "text")],
)
async def test_how_a_judge_is_asked_can_be_said(structured: Any, shape: str) -> None:
    def answer(asked: Exchanged) -> None:
        if "tools" not in asked.body:
            return asked.say(CRITIQUE_JSON)
        call = {"id": "1", "type": "function", "function": {"name": "Answer", "arguments": CRITIQUE_JSON}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return asked.answer_with([{"index": 0, "finish_reason": "tool_calls", "message": message}])

    with Wire(answer) as wire:
        reply = await LangChainJudge(chat(wire), structured=structured).ask(QUESTION)

    assert shapes(wire) == [shape]
    assert json.loads(reply.text) == json.loads(CRITIQUE_JSON)


async def test_json_mode_is_asked_for_without_the_schema() -> None:
    with Wire(lambda asked: asked.say(CRITIQUE_JSON)) as wire:
        await LangChainJudge(chat(wire), structured="json").ask(QUESTION)

    assert wire.requests[0]["response_format"] == {"type": "json_object"}


async def test_a_mode_that_was_asked_for_stays_whatever_the_provider_says() -> None:
    with Wire(knows_no_schema) as wire:
        judge = LangChainJudge(chat(wire), structured="schema")
        for _ in range(3):
            with pytest.raises(JudgeError):
                await judge.ask(QUESTION)

    assert shapes(wire) == ["schema"] * 3


@pytest.mark.parametrize("structured", ["tools", "yaml"])
def test_a_mode_that_a_model_has_not_is_refused_at_the_start(structured: Any) -> None:
    with pytest.raises(ConfigurationError, match=structured):
        LangChainJudge(PlainModel(), structured=structured)


SHAPES = {step.answer for name in built_ins() for step in built(name).steps.values()}
DOCSTRINGS = [
    described["description"].partition("\n")[0]
    for schema in (shape.model_json_schema() for shape in SHAPES)
    for described in (schema, *schema.get("$defs", {}).values())
    if "description" in described
]
"""First lines of the docstrings of the answers of all built-in metrics."""


@pytest.mark.parametrize("structured", ["schema", "tools"])
async def test_no_docstring_of_a_shape_is_in_a_question(structured: Any) -> None:
    with Wire(lambda asked: asked.say("{}")) as wire:
        judge = LangChainJudge(chat(wire), structured=structured)
        for shape in SHAPES:
            await judge.ask(replace(QUESTION, output=shape))

    sent = json.dumps(wire.requests, ensure_ascii=False)
    assert {"One verdict per statement.", "One statement, why, and whether the context supports it."} <= {*DOCSTRINGS}
    assert [text for text in DOCSTRINGS if text in sent] == []


def test_the_votes_of_a_score_are_asked_with_the_schema() -> None:
    def answer(asked: Exchanged) -> None:
        message = {"role": "assistant", "content": json.dumps({"reason": "so", "verdict": 1})}
        asked.answer_with([{"index": n, "finish_reason": "stop", "message": message} for n in range(asked.body["n"])])

    with Wire(answer) as wire:
        score = AspectCritic(chat(wire), definition="Polite?", strictness=3).score_sync(
            SingleTurnSample(user_input="Hello?", response="Good morning.")
        )

    assert (score.value, shapes(wire), wire.requests[0]["n"]) == (1.0, ["schema"], 3)


async def test_a_provider_is_asked_which_questions_begin_alike_until_it_does_not_know_how() -> None:
    def answer(asked: Exchanged) -> None:
        if "prompt_cache_key" in asked.body:
            return asked.refuse(400, "Unrecognized request argument supplied: prompt_cache_key")
        return asked.say(CRITIQUE_JSON)

    with Wire(answer) as wire:
        judge, long = LangChainJudge(chat(wire)), replace(QUESTION, evidence={"response": "It is so. " * 500})
        with asked_by(ScoreContext(first_field="response", questions_alike=2)):
            for _ in range(2):
                await judge.ask(long)

    assert ["prompt_cache_key" in body for body in wire.requests] == [True, False, False]
