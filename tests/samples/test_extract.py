"""Extract: places given by the user replace the search."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from tests.samples.builders import chat, retriever, root, unit

from spanscore.config import Extract
from spanscore.core.sample import Samples
from spanscore.errors import ConfigurationError
from spanscore.samples.extraction import find_contexts, find_question
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.question_answer import ModelTexts
from spanscore.samples.view import UnitView


def found(extract: Extract, *runs: Any) -> Samples:
    return GenAIExtractor(extract).extract(unit(*runs))


STATE = root(
    {"request": {"text": "q", "lines": ["a", "b"]}, "messages": [HumanMessage("m")]},
    {
        "reply": {"text": "r"},
        "passages": [Document("p", id="1"), Document("s", id="2")],
        "steps": [{"found": "x"}, {"other": 1}, {"found": "y"}],
        "messages": [HumanMessage("m"), AIMessage("n")],
    },
)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("input.request.text", "q"),
        ("input.request", "q"),
        ("input.request.lines", "ab"),
        ("input.request.lines.0", "a"),
        ("input.request.lines.-1", "b"),
        ("input.request.lines.7", None),
        ("input.messages", "m"),
        ("input.messages.0", "m"),
        ("output.messages.-1", "n"),
        ("input.nowhere.text", None),
        ("output.steps.found", "xy"),
    ],
)
def test_a_key_path_finds_a_text(path: str, text: str | None) -> None:
    samples = found(Extract(user_input=path), STATE)

    assert samples.single_turn is not None
    assert samples.single_turn.user_input == text
    assert samples.searched[0] == ("user_input", f"the configured place, {path}")


def test_the_whole_side_is_a_place() -> None:
    samples = found(Extract(user_input="input", response="output"), root([HumanMessage("q")], AIMessage("a")))

    assert samples.single_turn is not None
    assert (samples.single_turn.user_input, samples.single_turn.response) == ("q", "a")


@pytest.mark.parametrize("path", ["output.messages.-1", "output.messages"])
def test_a_list_of_messages_is_reached_by_the_same_path_as_in_a_state(path: str) -> None:
    samples = found(Extract(response=path), root("q", [HumanMessage("q"), AIMessage("a")]))

    assert samples.single_turn is not None
    assert samples.single_turn.response == "a"


@pytest.mark.parametrize(
    ("path", "contexts", "ids"),
    [
        ("output.passages", ["p", "s"], ["1", "2"]),
        ("output.passages.page_content", ["p", "s"], None),
        ("output.passages.0", ["p"], ["1"]),
        ("output.steps.found", ["x", "y"], None),
        ("output.reply", ["r"], None),
        ("output.nowhere", None, None),
    ],
)
def test_a_key_path_finds_contexts_and_replaces_the_search(path: str, contexts: Any, ids: Any) -> None:
    samples = found(Extract(retrieved_contexts=path), STATE, retriever("q", [Document("other")]))

    assert samples.single_turn is not None
    assert (samples.single_turn.retrieved_contexts, samples.single_turn.retrieved_context_ids) == (contexts, ids)


def test_a_function_of_the_unit_is_a_place() -> None:
    extract = Extract(
        user_input=lambda unit: unit.root.attributes["input.value"]["request"]["text"].upper(),
        retrieved_contexts=lambda unit: [f"{len(unit.spans)} spans"],
    )

    samples = found(extract, STATE)

    assert samples.single_turn is not None
    assert (samples.single_turn.user_input, samples.single_turn.retrieved_contexts) == ("Q", ["1 spans"])


def test_a_function_that_raises_finds_nothing_and_says_so() -> None:
    def broken(unit: Any) -> str:
        raise KeyError("secret")

    samples = found(Extract(response=broken), STATE)

    assert samples.single_turn is not None
    assert samples.single_turn.response is None
    assert samples.searched[1] == ("response", "the configured function broken, which raised KeyError")


@pytest.mark.parametrize(
    ("extract", "source"),
    [
        (Extract(user_input="input.request.text", response="output.reply"), "extract"),
        (Extract(user_input="input.request.text"), "messages"),  # the answer is the final message
        (Extract(user_input="input.nowhere", response="output.reply"), "extract"),
        (Extract(user_input="input.nowhere"), "messages"),
        (Extract(user_input="input.request.text", response=lambda unit: unit.nowhere), "extract"),
    ],
)
def test_the_source_is_that_of_the_less_certain_text(extract: Extract, source: str) -> None:
    assert found(extract, STATE).source == source


def test_a_text_that_was_not_found_and_contexts_have_no_source() -> None:
    extract, view = Extract(user_input="input.nowhere", retrieved_contexts="input"), UnitView(unit(STATE))
    texts = ModelTexts(view)

    assert find_question(extract, view, texts, None).source is None
    assert find_contexts(extract, view, texts, None).source is None


def test_a_configured_question_does_not_hide_a_guessed_answer() -> None:
    samples = found(Extract(user_input="input.x"), root({"x": "q", "y": 1}), chat([HumanMessage("p")], "guess"))

    assert samples.single_turn is not None
    assert (samples.single_turn.user_input, samples.single_turn.response) == ("q", "guess")
    assert samples.source == "model"


@pytest.mark.parametrize("given", [object(), 7, {"a": {1}}, "\ud800", [float("nan")]])
def test_whatever_a_function_gives_makes_a_sample(given: Any) -> None:
    places = dict.fromkeys(("user_input", "response", "retrieved_contexts"), lambda _: given)

    samples = found(Extract(**places), STATE)

    assert samples.outcome is None


def test_one_tool_is_a_list_of_one() -> None:
    with pytest.raises(ConfigurationError, match=r"retrieval_tools: is no list \(given: 'retrieve'\).*: \[retrieve\]"):
        Extract(retrieval_tools="retrieve")


@pytest.mark.parametrize("path", ["question", "inputs.question", "", "root.input"])
def test_a_path_that_begins_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="begins with one of input, output"):
        Extract(user_input=path)
