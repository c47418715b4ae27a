"""A judge by name has a client of its own: its address, its key, its parameters; none of them the application's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.judges.models import QUESTION, PlainModel
from tests.servers.openai_api import OpenAIServer

from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges import judge

KEY = "sk-Judge0123456789"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-application")
    monkeypatch.setenv("JUDGE_KEY", KEY)
    monkeypatch.delenv("NOWHERE", raising=False)


ANSWER = '{"reason": "r", "verdict": 1}'


def keys_sent(server: OpenAIServer) -> list[str]:
    return [headers["Authorization"] for headers in server.headers]


async def test_a_judge_behind_a_gateway_asks_there_and_the_application_where_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with OpenAIServer(lambda _: ANSWER) as gateway, OpenAIServer(lambda _: "no") as shared:
        monkeypatch.setenv("OPENAI_BASE_URL", shared.url)
        monkeypatch.setenv("OPENAI_API_BASE", shared.url)
        asked = judge("openai:m", base_url=gateway.url, api_key_env="JUDGE_KEY", model_kwargs={"temperature": 0})

        await asked.ask(QUESTION)

    assert [(body["model"], body["temperature"]) for body in gateway.requests] == [("m", 0)]
    assert shared.requests == []
    assert keys_sent(gateway) == [f"Bearer {KEY}"]


async def test_a_key_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")

    with OpenAIServer(lambda _: ANSWER) as gateway:
        await judge("openai:m", base_url=gateway.url, api_key_file=tmp_path / "key").ask(QUESTION)

    assert keys_sent(gateway) == [f"Bearer {KEY}"]


async def test_the_applications_key_goes_to_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(lambda _: ANSWER) as shared, OpenAIServer(lambda _: ANSWER) as gateway:
        monkeypatch.setenv("OPENAI_BASE_URL", shared.url)
        monkeypatch.setenv("OPENAI_API_BASE", shared.url)
        await judge("openai:m").ask(QUESTION)
        await judge("openai:m", base_url=gateway.url).ask(QUESTION)

    assert (keys_sent(shared), keys_sent(gateway)) == (["Bearer sk-of-the-application"], ["Bearer none"])


async def test_a_provider_may_be_spelt_as_langchain_allows() -> None:
    with OpenAIServer(lambda _: ANSWER) as gateway:
        await judge("OpenAI:m", base_url=gateway.url).ask(QUESTION)

    assert keys_sent(gateway) == ["Bearer none"]


@pytest.mark.parametrize("name", ["gpt-4o-mini", "gpt-oss:20b"])
def test_an_address_needs_a_provider_because_langchain_would_guess_it_and_send_its_key(name: str) -> None:
    with pytest.raises(ConfigurationError, match="'provider:model'"):
        judge(name, base_url="http://127.0.0.1:1/v1")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two keys": ({"api_key_env": "JUDGE_KEY", "api_key_file": "key"}, "api_key_env and api_key_file"),
    "a key in the code": ({"model_kwargs": {"api_key": KEY}}, "model_kwargs names 'api_key'; write api_key_env"),
    "a key of its provider": ({"model_kwargs": {"openai_api_key": KEY}}, "model_kwargs names 'openai_api_key'"),
    "an address twice": (
        {"model_kwargs": {"base_url": "http://x"}},
        "model_kwargs contains 'base_url', which is a setting of its own",
    ),
    "a model twice": ({"model_kwargs": {"model": "x"}}, "model_kwargs contains 'model', which is a setting of its own"),
    "a misspelt parameter": ({"model_kwargs": {"temprature": 0}}, "no 'temprature'; did you mean 'temperature'"),
    "a wrong value": ({"model_kwargs": {"temperature": "sk-hot"}}, "temperature: Input should be a valid number"),
    "no address": ({"base_url": "gateway:8000"}, "base_url is 'gateway:8000'; it is http://… or https://…"),
    "a password in it": ({"base_url": f"http://me:{KEY}@host/v1"}, "base_url holds a password"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_client_cannot_be_made_with_is_refused_and_no_key_is_reported(case: str) -> None:
    settings, expected = REFUSED[case]

    with pytest.raises(ConfigurationError) as raised:
        judge("openai:m", **settings)

    assert expected in str(raised.value)
    assert KEY not in str(raised.value)
    assert "sk-hot" not in str(raised.value)


LACKING: dict[str, tuple[dict[str, Any], str]] = {
    "no variable": ({"api_key_env": "NOWHERE"}, "NOWHERE is not set"),
    "a key for a name": ({"api_key_env": KEY}, "api_key_env names no variable"),
    "a long key for a name": ({"api_key_env": "skJudge0123456789"}, "it is not set"),
    "no file": ({"api_key_file": "nowhere/key"}, "nowhere/key cannot be read"),
}


@pytest.mark.parametrize("case", LACKING)
def test_a_key_that_is_not_there_is_named_by_where_it_should_be(case: str) -> None:
    settings, expected = LACKING[case]

    with pytest.raises(NotReadyError if "names no" not in expected else ConfigurationError) as raised:
        judge("openai:m", **settings)

    assert expected in str(raised.value)
    assert "Judge0123456789" not in str(raised.value)


@pytest.mark.parametrize("model", ["lexical", PlainModel()])
def test_what_has_no_client_of_its_own_takes_no_address(model: Any) -> None:
    with pytest.raises(ConfigurationError, match="base_url applies only to a judge given as 'provider:model'"):
        judge(model, base_url="http://127.0.0.1:1/v1")
