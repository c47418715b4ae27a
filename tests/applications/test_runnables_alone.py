"""A tool, a function, a completion model: the smallest applications."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import FakeListLLM
from langchain_core.messages import HumanMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from tests.applications.application import Judged, asked, sample, says


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"Found: {query} is sunny."


def test_a_tool_called_alone_is_asked_and_answers() -> None:
    assert asked(search, {"query": "Lisbon"}) == Judged(
        single_turn=sample("Lisbon", "Found: Lisbon is sunny."), source="only_text"
    )


def test_a_function_of_a_text_is_asked_and_answers() -> None:
    assert asked(RunnableLambda(lambda text: text.upper()), "quiet") == Judged(
        single_turn=sample("quiet", "QUIET"), source="only_text"
    )


def test_a_completion_models_prompt_is_not_the_question() -> None:
    app = PromptTemplate.from_template("What is a good name for a company that makes {product}?") | FakeListLLM(
        responses=["\n\nSocktastic!"]
    )

    assert asked(app, {"product": "colorful socks"}) == Judged(
        single_turn=sample("colorful socks", "\n\nSocktastic!"), source="only_text"
    )


def test_a_chat_model_alone_is_asked_by_messages() -> None:
    assert asked(says("Hello Bob!"), [HumanMessage("hi, I'm Bob")]) == Judged(
        single_turn=sample("hi, I'm Bob", "Hello Bob!"), source="messages"
    )


def test_a_prompt_with_one_variable_takes_a_bare_text() -> None:
    app: Any = PromptTemplate.from_template("Tell me a joke about {topic}") | says("Bears laugh.")

    assert asked(app, "bears") == Judged(single_turn=sample("bears", "Bears laugh."), source="only_text")
