"""The account of a model: equal for equal objects, names or one object; another for another key or address."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from langchain_openai import AzureChatOpenAI, AzureOpenAIEmbeddings, ChatOpenAI, OpenAIEmbeddings

from spanscore.judges.langchain.models import account_of_model, is_in_process

OPENAI = {"model": "gpt-4o-mini", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-secret"}
AZURE: dict[str, Any] = {
    "azure_endpoint": "https://mine.example.com",
    "api_version": "2024-10-21",
    "azure_deployment": "small",
    "api_key": "sk-secret",
}


def test_equal_objects_have_one_account() -> None:
    assert account_of_model(ChatOpenAI(**OPENAI)) == account_of_model(ChatOpenAI(**OPENAI, temperature=0))


def test_objects_of_one_name_have_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    accounts = [account_of_model(ChatOpenAI(model="gpt-4o-mini")) for _ in range(2)]

    assert accounts[0] == accounts[1]
    assert accounts[0][:3] == ("openai", "gpt-4o-mini", "api.openai.com/v1")


@pytest.mark.parametrize("other", [{"api_key": "sk-other"}, {"base_url": "http://127.0.0.1:8/v1"}, {"model": "gpt-4o"}])
def test_another_key_address_or_model_is_another_account(other: dict[str, Any]) -> None:
    assert account_of_model(ChatOpenAI(**OPENAI)) != account_of_model(ChatOpenAI(**{**OPENAI, **other}))


@pytest.mark.parametrize(
    ("model", "account"),
    [
        (ChatOpenAI(**OPENAI), ("openai", "gpt-4o-mini", "127.0.0.1:9/v1")),
        (OpenAIEmbeddings(**OPENAI), ("openai", "gpt-4o-mini", "127.0.0.1:9/v1")),
        (AzureChatOpenAI(**AZURE), ("azure", "small", "mine.example.com/openai/deployments/small")),
        (
            AzureOpenAIEmbeddings(**AZURE),
            ("azure", "text-embedding-ada-002", "mine.example.com/openai/deployments/small"),
        ),
    ],
)
def test_an_account_says_whom_is_asked_and_where(model: Any, account: tuple[str, str, str]) -> None:
    assert account_of_model(model)[:3] == account


def test_a_key_is_in_no_account() -> None:
    assert "sk-secret" not in repr(tuple(account_of_model(ChatOpenAI(**OPENAI))))
    assert repr(account_of_model(ChatOpenAI(**OPENAI))) == "openai gpt-4o-mini"


def test_what_makes_keys_is_distinguished_and_never_called() -> None:
    def mine() -> str:
        raise AssertionError

    def theirs() -> str:
        raise AssertionError

    one, same, other = (account_of_model(ChatOpenAI(**{**OPENAI, "api_key": maker})) for maker in (mine, mine, theirs))

    assert one == same != other


@pytest.mark.parametrize(
    ("model", "computes_here"),
    [(FakeListChatModel(responses=["a"]), True), (ChatOpenAI(**OPENAI), False), (RunnableLambda(str), False)],
)
def test_a_model_without_address_and_key_computes_in_this_process(model: Any, computes_here: bool) -> None:
    assert is_in_process(model) is computes_here
