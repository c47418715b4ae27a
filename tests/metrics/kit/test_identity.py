"""The settings of a metric are part of its version, and only of the version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

import spanscore
from spanscore import ConfigurationError, OnlineScorer
from spanscore.judges import embedder
from spanscore.metrics import BaseMetric
from spanscore.testing import ScriptedJudge


class Holds(BaseMetric):
    name = "holds"

    def __init__(self, held: Any) -> None:
        self.held = held


@dataclass
class Limits:
    lock: Any = field(default_factory=threading.RLock)
    most: int = 3


def chat(model: str = "gpt-4o", **given: Any) -> ChatOpenAI:
    return ChatOpenAI(model=model, api_key=given.pop("key", "sk-one"), **given)


def embeddings(model: str, **given: Any) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(model=model, api_key=given.pop("key", "sk-one"), **given)


WAYS: dict[str, Callable[..., Any]] = {
    "a chat model": chat,
    "a judge": lambda *model, **given: spanscore.judge(chat(*model, **given)),
    "a judge with a cache": lambda *model, **given: spanscore.judge(chat(*model, **given), cache="memory"),
    "a list of judges": lambda *model, **given: [spanscore.judge(chat(*model, **given))],
    "a dict of models": lambda *model, **given: {"strict": chat(*model, **given)},
    "a model with a stop word": lambda *model, **given: chat(*model, **given).bind(stop=["."]),
    "a sequence": lambda *model, **given: chat(*model, **given) | str,
    "a model with another in reserve": lambda *model, **given: chat("m", **given).with_fallbacks(
        [chat(*model, **given)]
    ),
    "embeddings": embeddings,
    "an embedder": lambda *model, **given: embedder(embeddings(*model, **given)),
    "a dataclass that holds one": lambda *model, **given: Limits(lock=spanscore.judge(chat(*model, **given))),
}


@pytest.mark.parametrize("way", WAYS)
def test_another_model_is_another_series_and_another_key_or_address_is_not(way: str) -> None:
    held = WAYS[way]

    assert Holds(held("gpt-4o")).evaluator_version != Holds(held("gpt-4o-mini")).evaluator_version
    assert (
        Holds(held("gpt-4o")).evaluator_version
        == Holds(held("gpt-4o", key="sk-two", base_url="http://h/v1")).evaluator_version
    )


def test_a_lock_in_a_dataclass_is_its_class() -> None:
    assert Holds(Limits()).version == Holds(Limits()).version != Holds(Limits(most=4)).version


def test_a_metric_with_a_judge_of_its_own_scores_as_the_built_in_ones_do() -> None:
    metric = Holds(ScriptedJudge([]))

    with OnlineScorer(metrics=[metric]) as scorer:
        assert list(scorer.status().eligible) == ["holds"]


class Nameless:
    model = None

    async def ask(self, prompt: Any) -> Any: ...


class Raises:
    @property
    def model(self) -> str:
        raise RuntimeError("of the user")

    ask = Nameless.ask


def in_itself() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


REFUSED = {
    "a Nameless is a judge that names no model; give it a text as model": Nameless(),
    "looking at it raised RuntimeError": {"judges": [Raises()]},
    "looking at it raised RecursionError": in_itself(),
}


@pytest.mark.parametrize("expected", REFUSED)
def test_what_cannot_be_is_refused_at_the_start_with_the_attribute_and_what_to_do(expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        OnlineScorer(metrics=[Holds(REFUSED[expected])])

    assert str(raised.value) == (
        f"holds: the value of its parameter held cannot be part of its version: {expected}; "
        "begin its name with an underscore, and it is no part of the version"
    )
