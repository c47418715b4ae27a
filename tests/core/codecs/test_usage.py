"""A model's usage and other reports, in the form of each provider."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from spanscore.core.codecs.langchain import chat_attributes
from spanscore.core.codecs.snapshot import snapshot_generation

TOKENS = {"gen_ai.usage.input_tokens": 11, "gen_ai.usage.output_tokens": 7}
CACHE_AND_REASONING = {
    "gen_ai.usage.cache_read.input_tokens": 5,
    "gen_ai.usage.cache_write.input_tokens": 2,
    "gen_ai.usage.cache_creation.input_tokens": 2,
    "gen_ai.usage.reasoning.output_tokens": 3,
}


def answered(llm_output: dict[str, Any] | None = None, **message: Any) -> Any:
    return snapshot_generation(
        LLMResult(generations=[[ChatGeneration(message=AIMessage("a", **message))]], llm_output=llm_output),
        content=False,
    )


REPORTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LangChain": (
        answered(
            usage_metadata={
                "input_tokens": 11,
                "output_tokens": 7,
                "total_tokens": 18,
                "input_token_details": {"cache_read": 5, "cache_creation": 2},
                "output_token_details": {"reasoning": 3},
            }
        ),
        TOKENS | CACHE_AND_REASONING,
    ),
    "OpenAI, llm_output": (
        answered(
            {
                "model_name": "gpt-x",
                "token_usage": {
                    "prompt_tokens": 11,
                    "completion_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 5},
                    "completion_tokens_details": {"reasoning_tokens": 3},
                },
            }
        ),
        {
            **TOKENS,
            "gen_ai.usage.cache_read.input_tokens": 5,
            "gen_ai.usage.reasoning.output_tokens": 3,
            "gen_ai.response.model": "gpt-x",
        },
    ),
    "OpenAI, response metadata": (
        answered(
            response_metadata={
                "model_name": "gpt-x",
                "id": "chatcmpl-1",
                "finish_reason": "stop",
                "token_usage": {"prompt_tokens": 11, "completion_tokens": 7},
            }
        ),
        {
            **TOKENS,
            "gen_ai.response.model": "gpt-x",
            "gen_ai.response.id": "chatcmpl-1",
            "gen_ai.response.finish_reasons": ["stop"],
        },
    ),
    "Anthropic": (
        answered(
            response_metadata={
                "model": "claude-x",
                "id": "msg_1",
                "stop_reason": "end_turn",
                "usage": {
                    "input_tokens": 11,
                    "output_tokens": 7,
                    "cache_read_input_tokens": 5,
                    "cache_creation_input_tokens": 2,
                },
            }
        ),
        {
            **TOKENS,
            "gen_ai.usage.cache_read.input_tokens": 5,
            "gen_ai.usage.cache_write.input_tokens": 2,
            "gen_ai.usage.cache_creation.input_tokens": 2,
            "gen_ai.response.model": "claude-x",
            "gen_ai.response.id": "msg_1",
            "gen_ai.response.finish_reasons": ["end_turn"],
        },
    ),
    "Google": (
        answered(response_metadata={"usage_metadata": {"prompt_token_count": 11, "candidates_token_count": 7}}),
        TOKENS,
    ),
    "Ollama": (
        answered(response_metadata={"model": "llama", "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7}),
        {**TOKENS, "gen_ai.response.model": "llama", "gen_ai.response.finish_reasons": ["stop"]},
    ),
    "the provider's id on the message": (answered(id="resp_1"), {"gen_ai.response.id": "resp_1"}),
    "LangChain's own id on the message": (answered(id="lc_run--1-0"), {}),
    "a text model": (
        snapshot_generation(
            LLMResult(
                generations=[[Generation(text="a", generation_info={"finish_reason": "length"})]],
                llm_output={"token_usage": {"prompt_tokens": 11, "completion_tokens": 7}},
            )
        ),
        {**TOKENS, "gen_ai.response.finish_reasons": ["length"]},
    ),
    "no generation": (snapshot_generation(LLMResult(generations=[])), {}),
    "no answer": (None, {}),
    "nonsense": (
        answered({"token_usage": "many"}, response_metadata={"usage": {"input_tokens": "11"}, "id": 7, "model": True}),
        {},
    ),
    "counts that are no numbers": (
        answered(response_metadata={"usage": {"input_tokens": float("nan"), "output_tokens": 7}}),
        {"gen_ai.usage.output_tokens": 7},
    ),
}


@pytest.mark.parametrize("provider", REPORTS)
def test_tokens_models_ids_and_reasons_are_read_wherever_a_provider_puts_them(provider: str) -> None:
    generation, attributes = REPORTS[provider]

    assert chat_attributes(None, None, None, generation) == attributes


def test_a_report_is_read_whole_not_mixed_with_another() -> None:
    generation = answered(
        {"token_usage": {"prompt_tokens": 99, "prompt_tokens_details": {"cached_tokens": 50}}},
        usage_metadata={"input_tokens": 11, "output_tokens": 7, "total_tokens": 18},
    )

    assert chat_attributes(None, None, None, generation) == TOKENS


def test_the_request_is_read_from_langchains_own_metadata_first() -> None:
    metadata = {"ls_provider": "openai", "ls_model_name": "gpt-x", "ls_temperature": 0.5, "ls_max_tokens": 100}

    assert chat_attributes("ChatOpenAI", metadata, {"model": "other", "temperature": 1}, None) == {
        "gen_ai.request.model": "gpt-x",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 100,
    }


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict"])
def test_else_from_the_parameters_of_the_invocation(name: str) -> None:
    assert chat_attributes("ChatMistral", {}, {"model_name": "m", "temperature": 0, name: 9}, None) == {
        "gen_ai.request.model": "m",
        "gen_ai.provider.name": "mistral",
        "gen_ai.request.temperature": 0,
        "gen_ai.request.max_tokens": 9,
    }


def test_each_choice_has_its_reason() -> None:
    choices = [ChatGeneration(message=AIMessage("a"), generation_info={"finish_reason": r}) for r in ("stop", "length")]

    attributes = chat_attributes(None, None, None, snapshot_generation(LLMResult(generations=[choices])))

    assert attributes["gen_ai.response.finish_reasons"] == ["stop", "length"]
