"""The application of the demo: its requests, its handbook, its model, its topics."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from langchain_core.messages import HumanMessage

from spanscore.errors import MissingExtraError
from spanscore.judges.lexical.words import words
from spanscore.testing.demo.application import QUESTION, Handbook, OfflineModel, documents, handbook_chain, memory
from spanscore.testing.demo.langchain_langgraph_agent import TOPICS, ferry_agent
from spanscore.testing.demo.run import LEAST_REQUESTS, OFF_SUBJECT, QUESTIONS, requests


def test_same_seed_same_requests_and_another_seed_others() -> None:
    assert list(requests(60, 1)) == list(requests(60, 1)) != list(requests(60, 2))


def test_the_fewest_requests_already_have_all_three_stretches_and_a_conversation() -> None:
    asked = list(requests(LEAST_REQUESTS, 7))

    assert Counter(request.stretch for request in asked) == {"before": 5, "during": 3, "after": 4}
    assert Counter(request.thread for request in asked) == {None: 8, "conversation-1": 2, "conversation-2": 2}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_handbook_answers_every_question(question: str) -> None:
    first, *_ = Handbook().invoke(question)

    answer = OfflineModel(seed=0).invoke([HumanMessage(f"{first.page_content}{QUESTION}{question}")])

    assert str(answer.content).startswith(tuple(first.page_content.split(". ")))


def test_a_broken_handbook_finds_other_pages_and_always_the_same() -> None:
    whole, broken = Handbook(seed=1), Handbook(seed=1, broken=True)

    pairs = [(whole.invoke(question)[0], broken.invoke(question)) for question in QUESTIONS]

    assert sum(right in found for right, found in pairs) < len(pairs) / 2
    assert [found for _, found in pairs] == [broken.invoke(question) for question in QUESTIONS]


def test_without_notes_that_fit_the_model_answers_from_memory() -> None:
    said = OfflineModel(seed=1).invoke([HumanMessage(f"Dogs are nice.{QUESTION}What do lockers at Port Maddern cost?")])

    assert said.content == "Lockers cost 13 euros for 24 hours."


def test_nothing_in_memory_stands_in_the_handbook() -> None:
    written = " ".join(page.page_content for page in documents())

    assert not [claim for claim in memory().split(". ") if claim in written]


def test_every_question_touches_a_topic_of_the_agent_and_no_stray_one_does() -> None:
    topics = [set(words(topic).content) for topic in TOPICS]

    def inside(question: str) -> bool:
        return any(len(topic & set(words(question).content)) >= len(topic) / 2 for topic in topics)

    assert [question for question in QUESTIONS if not inside(question)] == []
    assert [question for question in OFF_SUBJECT if inside(question)] == []


def test_the_agent_calls_its_tool_then_answers_from_it_and_remembers_the_conversation() -> None:
    agent = ferry_agent(OfflineModel(seed=1), Handbook())
    config = {"configurable": {"thread_id": "t"}}

    agent.invoke({"messages": [("user", "Where do dogs travel?")]}, config)
    state = agent.invoke({"messages": [("user", "When does the last ferry to Skerrow leave?")]}, config)

    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"] * 2
    assert [call["name"] for message in state["messages"] for call in getattr(message, "tool_calls", [])] == [
        "search_handbook",
        "timetable",
    ]
    assert "21:15" in state["messages"][-1].content


def test_the_chain_streams_and_answers_like_any_other() -> None:
    chain = handbook_chain(OfflineModel(seed=1), Handbook())

    assert "".join(chain.stream("Where do dogs travel?")).startswith("Dogs travel free of charge")


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain.agents", None)

    with pytest.raises(MissingExtraError, match=r'pip install "spanscore\[demo\]"'):
        ferry_agent(OfflineModel(), Handbook())
