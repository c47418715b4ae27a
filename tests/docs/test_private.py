"""The how-to's table of exported content, destinations and switches agrees with the library."""

from __future__ import annotations

from typing import Any

import pytest
from tests.docs.page import Reader
from tests.docs.private import WORDS, without_words, words_by_place
from tests.docs.test_how_to import rows

from spanscore import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.config import Capture
from spanscore.core.sample import ToolCall

ASKED_ABOUT = {"ASKED", "ANSWERED", "RETRIEVED", "REFERRED", "ARGUMENT"}
HELD = {
    "question, answer, contexts, references, tool calls of a scored unit": ASKED_ABOUT,
    "prompts, answers, documents, references, tool arguments": ASKED_ABOUT,
    "text of an error": {"RAISED"},
    "the judge's explanation, which may quote content": {"EXPLAINED"},
    "the conversation's id (`thread_id`, `session_id`)": {"CONVERSED"},
    "names of runs, agents, models, tools": {"NAMED"},
    "all content except these names": WORDS - {"NAMED"},
    "other metadata of a run": {"TIER"},
}
"""Kind of content in the table → its words in the chain."""
COLUMNS: dict[str, dict[str, Any]] = {
    "by default": {},
    "`Capture(content=True)`": {"capture": Capture(content=True)},
    "`Capture(content=True)` and a `redactor`": {"capture": Capture(content=True), "redactor": without_words},
}
PAGE = "keep-content-private.md"
TABLE = [
    [content, place, *cells]
    for content, places, *cells in rows(PAGE, "content", "goes to", *COLUMNS)
    for place in places.split(" and ")
]


def test_the_table_speaks_of_all_that_the_chain_holds() -> None:
    assert {what for what, *_ in TABLE} == {*HELD}
    assert set.union(*HELD.values()) == WORDS


@pytest.mark.parametrize("column", COLUMNS)
def test_what_leaves_is_what_the_table_says(column: str) -> None:
    at, options = [*COLUMNS].index(column) + 2, COLUMNS[column]

    found = words_by_place(**options)

    assert {(row[0], row[1]): row[at] for row in TABLE} == {
        (row[0], row[1]): _describe(HELD[row[0]], found[row[1]]) for row in TABLE
    }


def _describe(words: set[str], found: Any) -> str:
    if not words & found:
        return "redacted" if {f"({word.lower()})" for word in words} <= found else "not sent"
    return "unchanged" if words <= found else f"only {words & found}"


def test_the_filter_of_the_page_reads_turns_and_conversations() -> None:
    may_be_judged = _names_of_the_page()["may_be_judged"]
    secret, hello = HumanMessage(content="My Password is x."), HumanMessage(content="Hello")
    refused = [
        SingleTurnSample(user_input="My Password is x.", response="Thank you."),
        SingleTurnSample(user_input="Who am I?", response="Ann.", retrieved_contexts=["Ann's password is x."]),
        MultiTurnSample(user_input=[secret, AIMessage(content="Hi."), hello]),
        MultiTurnSample(user_input=[hello, AIMessage(tool_calls=[ToolCall(name="log_in", args={"password": "x"})])]),
    ]

    assert [may_be_judged(sample) for sample in refused] == [False] * 4
    assert may_be_judged(SingleTurnSample(user_input="What is the capital of France?", response="Paris."))
    assert may_be_judged(MultiTurnSample(user_input=[hello, AIMessage(content="Hi.")]))


def _names_of_the_page() -> dict[str, Any]:
    reader = Reader(f"docs/how-to/{PAGE}", llm="lexical")
    reader.read()
    for scorer in reader.scorers:
        scorer.shutdown()
    return reader.namespace
