"""langchain-classic, `RetrievalQA`: documents stuffed into one prompt, refined over one by one, or each asked alone first."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_classic.chains import RetrievalQA
from tests.applications.application import Judged, judged_once, says
from tests.applications.shelf import Shelf

QUESTION = "What did the president say about the judge?"
FIRST = "The president said that the judge is one of the nation's top legal minds."
SECOND = "The president said that the judge will continue a legacy of excellence."
SHELF = Shelf(holds={"judge": (FIRST, SECOND)})
ANSWER = "That she is a top legal mind, and will continue a legacy of excellence."


def of_the_question(kind: str, *said: str) -> Judged:
    llm = says(*said)
    llm.custom_get_token_ids = lambda text: list(range(len(text.split())))  # map_reduce counts
    app: Any = RetrievalQA.from_chain_type(llm=llm, chain_type=kind, retriever=SHELF)
    return judged_once(lambda config: app.invoke({"query": QUESTION}, config))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("stuff", [ANSWER]),
        ("refine", ["That she is one of the nation's top legal minds.", ANSWER]),
        ("refine", ["Top.", ANSWER]),
        ("refine", [ANSWER, ANSWER]),
        ("map_reduce", ["Top.", "Legacy.", ANSWER]),
        ("map_reduce", ["She is one of the top legal minds.", "She will continue a legacy of excellence.", ANSWER]),
    ],
)
def test_however_documents_are_read_all_that_were_are_the_contexts(kind: str, said: list[str]) -> None:
    seen = of_the_question(kind, *said)

    assert seen.single_turn is not None
    assert (seen.single_turn.user_input, seen.single_turn.response) == (QUESTION, ANSWER)
    assert seen.single_turn.retrieved_contexts == [FIRST, SECOND]


@pytest.mark.parametrize("kind", ["stuff", "refine", "map_reduce"])
def test_an_instruction_to_refine_is_no_turn_of_the_user(kind: str) -> None:
    seen = of_the_question(kind, *["She is a top legal mind."] * 3)

    assert seen.multi_turn is None
