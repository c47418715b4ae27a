"""The same chain and the same graph by every method: one sample each, whatever way they are run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, judged, replies, sample

SAID = {"cats": "Cats purr.", "dogs": "Dogs bark.", "SAFE": "SAFE"}


class State(TypedDict):
    topic: str
    joke: str
    safe: bool


def chain() -> Any:
    prompt = ChatPromptTemplate.from_template("Tell me a joke about {topic}")
    return prompt | replies(SAID) | StrOutputParser()


def graph() -> Any:
    llm = replies({"Is it safe": "SAFE", **SAID})
    builder = StateGraph(State)
    builder.add_node("tell", lambda s: {"joke": llm.invoke(f"Tell me a joke about {s['topic']}").content})
    builder.add_node("guard", lambda s: {"safe": llm.invoke(f"Is it safe? {s['joke']}").content == "SAFE"})
    builder.add_edge(START, "tell")
    builder.add_edge("tell", "guard")
    return builder.compile()


async def drained(stream: Any) -> None:
    async for _ in stream:
        pass


def batched(app: Any, config: Any) -> None:
    app.batch([{"topic": "cats"}, {"topic": "dogs"}], config)


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "invoke": lambda app, config: app.invoke({"topic": "cats"}, config),
    "stream": lambda app, config: list(app.stream({"topic": "cats"}, config)),
    "ainvoke": lambda app, config: asyncio.run(app.ainvoke({"topic": "cats"}, config)),
    "astream": lambda app, config: asyncio.run(drained(app.astream({"topic": "cats"}, config))),
    "astream_events": lambda app, config: asyncio.run(
        drained(app.astream_events({"topic": "cats"}, config, version="v2"))
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("app", [chain, graph])
def test_each_way_gives_the_same_sample(app: Callable[[], Any], way: str) -> None:
    seen = judged(lambda config: WAYS[way](app(), config))

    assert seen == [Judged(single_turn=sample("cats", "Cats purr."), source="only_text")]


@pytest.mark.parametrize("app", [chain, graph])
def test_a_batch_gives_a_sample_for_each_of_its_inputs(app: Callable[[], Any]) -> None:
    seen = judged(lambda config: batched(app(), config))

    assert sorted(seen, key=str) == [
        Judged(single_turn=sample("cats", "Cats purr."), source="only_text"),
        Judged(single_turn=sample("dogs", "Dogs bark."), source="only_text"),
    ]
