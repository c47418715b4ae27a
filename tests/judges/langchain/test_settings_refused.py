"""A setting that a provider rejects is left out, once and for an hour; every other rejection names its setting."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models.llms import LLM
from tests.judges.langchain.wire import Exchanged, Wire, chat
from tests.judges.models import CRITIQUE_JSON, QUESTION

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import JudgeError
from spanscore.judges import LangChainJudge, render
from spanscore.metrics import AspectCritic

SYSTEM_ROLE = (
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    "Developer instruction is not enabled for models/gemma-3-27b-it",
    "System role not supported",
    "This model doesn't support system messages.",
)
TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
    "`temperature` is deprecated for this model.",
    "[{'type': 'extra_forbidden', 'loc': ('body', 'temperature'), 'msg': 'Extra inputs are not permitted'}]",
    "invalid temperature: only 1 is allowed for this model",
)


def has(name: str, body: dict[str, Any]) -> bool:
    return name in body if name != "system" else any(message["role"] != "user" for message in body["messages"])


@pytest.mark.parametrize(
    ("name", "message", "settings"),
    [
        *(("system", message, {}) for message in SYSTEM_ROLE),
        *(("temperature", message, {"temperature": 0.2}) for message in TEMPERATURE),
        ("temperature", TEMPERATURE[0], {"model_kwargs": {"temperature": 0.2}}),
        ("top_p", "Unsupported parameter: 'top_p' is not supported with this model.", {"top_p": 0.9}),
        ("max_completion_tokens", "Unrecognized request argument supplied: max_completion_tokens", {"max_tokens": 200}),
    ],
)
@pytest.mark.filterwarnings("ignore:Parameters")
async def test_a_setting_that_is_refused_is_left_out_and_remembered(
    name: str, message: str, settings: dict[str, Any]
) -> None:
    def answer(asked: Exchanged) -> None:
        if has(name, asked.body):
            asked.refuse(400, message)
        else:
            asked.say(CRITIQUE_JSON)

    with Wire(answer) as wire:
        judge = LangChainJudge(chat(wire, **settings))
        texts = [(await judge.ask(QUESTION)).text for _ in range(3)]

    assert texts == [CRITIQUE_JSON] * 3
    assert [has(name, body) for body in wire.requests] == [True, False, False, False]
    assert all("response_format" in body for body in wire.requests)


async def test_without_the_system_role_the_whole_question_is_the_users() -> None:
    def answer(asked: Exchanged) -> None:
        if has("system", asked.body):
            asked.refuse(400, SYSTEM_ROLE[0])
        else:
            asked.say(CRITIQUE_JSON)

    with Wire(answer) as wire:
        await LangChainJudge(chat(wire)).ask(QUESTION)

    (message,) = wire.requests[-1]["messages"]
    assert message["content"] == "\n\n".join(render(QUESTION))


@pytest.mark.filterwarnings("ignore:Parameters")
async def test_two_settings_may_be_refused() -> None:
    def answer(asked: Exchanged) -> None:
        refused = next((name for name in ("temperature", "system") if has(name, asked.body)), None)
        if refused is None:
            asked.say(CRITIQUE_JSON)
        else:
            asked.refuse(400, {"temperature": TEMPERATURE[0], "system": SYSTEM_ROLE[0]}[refused])

    with Wire(answer) as wire:
        judge = LangChainJudge(chat(wire, temperature=0.2).bind(temperature=0.1))
        await judge.ask(QUESTION)
        await judge.ask(QUESTION)

    assert len(wire.requests) == 4


async def test_a_refusal_that_goes_on_without_the_setting_is_not_remembered() -> None:
    with Wire(lambda asked: asked.refuse(400, SYSTEM_ROLE[0])) as wire:
        judge = LangChainJudge(chat(wire))
        for _ in range(2):
            with pytest.raises(JudgeError):
                await judge.ask(QUESTION)

    assert [has("system", body) for body in wire.requests] == [True, False, True, False]


async def test_any_other_refusal_names_param_and_code() -> None:
    named = r"HTTP 400 \(\w+; param logit_bias, code bad_value\)"

    with (
        Wire(lambda asked: asked.refuse(400, "no: SECRET", param="logit_bias", code="bad_value")) as wire,
        pytest.raises(JudgeError, match=named) as raised,
    ):
        await LangChainJudge(chat(wire)).ask(QUESTION)

    assert "SECRET" not in str(raised.value)


async def test_a_param_that_may_be_a_text_is_not_named() -> None:
    with (
        Wire(lambda asked: asked.refuse(400, "no", param="the SECRET prompt", code=7)) as wire,
        pytest.raises(JudgeError, match=r"HTTP 400 \(\w+\)"),
    ):
        await LangChainJudge(chat(wire)).ask(QUESTION)


def test_a_model_that_completes_texts_is_a_judge() -> None:
    seen = []

    class Completing(LLM):
        @property
        def _llm_type(self) -> str:
            return "completing"

        def _call(self, prompt: str, *_: Any, **__: Any) -> str:
            seen.append(prompt)
            return CRITIQUE_JSON

    score = AspectCritic(Completing(), definition="Is it polite?", strictness=2).score_sync(
        SingleTurnSample(response="r")
    )

    assert score.value == 1.0
    assert "Is it polite?" in seen[0]
    assert seen[0].index("</evidence>") < seen[0].index("Is it polite?")
