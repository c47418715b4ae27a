"""The how-to's table of exported content, destinations and switches agrees with the library."""

from __future__ import annotations

from typing import Any

import pytest
from tests.docs.private import WORDS, without_words, words_by_place
from tests.docs.test_how_to import rows

from spanscore.config import Capture

ASKED_ABOUT = {"ASKED", "ANSWERED", "RETRIEVED", "REFERRED", "ARGUMENT"}
HELD = {
    "question, answer, contexts, references, tool calls of a scored unit": ASKED_ABOUT,
    "prompts, answers, documents, references, tool arguments": ASKED_ABOUT,
    "text of an error": {"RAISED"},
    "the judge's explanation, which quotes": {"EXPLAINED"},
    "the conversation's id (`thread_id`, `session_id`)": {"CONVERSED"},
    "names of runs, agents, models, tools": {"NAMED"},
    "everything except these names": WORDS - {"NAMED"},
    "other metadata of a run": {"TIER"},
}
"""Kind of content in the table → its words in the chain."""
COLUMNS = {
    "by default": {},
    "`Capture(content=True)`": {"capture": Capture(content=True)},
    "and with a `redactor`": {"capture": Capture(content=True), "redactor": without_words},
}
TABLE = [*rows("keep-content-private.md", "content", "goes to", *COLUMNS)]


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
        return "redacted" if {f"({word.lower()})" for word in words} <= found else "no"
    return "as it is" if words <= found else f"only {words & found}"
