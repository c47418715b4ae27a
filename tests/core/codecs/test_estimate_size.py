"""A snapshot's size is guessed from the first few things in it: long texts once, of a long list a few for all."""

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from spanscore.core.codecs.snapshot import estimate_size, snapshot, snapshot_generation, snapshot_messages

KB = "x" * 1_000
IMAGE = {"type": "image_url", "image_url": {"url": "y" * 50_000}}

SNAPSHOTS = {
    "a text": (lambda: KB, 1_000),
    "a state": (lambda: snapshot({"question": KB, "notes": [KB, KB]}), 3_000),
    "messages": (lambda: snapshot_messages([[HumanMessage(KB), AIMessage(KB)]]), 2_000),
    "an image": (lambda: snapshot_messages([[HumanMessage([{"type": "text", "text": KB}, IMAGE])]]), 51_000),
    "documents": (lambda: snapshot([Document(page_content="x" * (2_000 + n)) for n in range(40)]), 80_000),
    "an answer": (lambda: snapshot_generation(LLMResult(generations=[[ChatGeneration(message=AIMessage(KB))]])), 1_000),
    "a number": (lambda: 7, 0),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_is_about_as_large_as_its_texts(name):
    snapshot_of, size = SNAPSHOTS[name]

    assert estimate_size(snapshot_of(), set()) == pytest.approx(size, rel=0.05)


def test_a_long_text_is_counted_once_for_all_that_share_a_memory():
    text, counted = "x" * 10_000, set()

    assert [estimate_size(snapshot([text, text]), counted), estimate_size(snapshot({"again": text}), counted)] == [
        10_000,
        0,
    ]


def test_a_value_that_holds_itself_is_looked_at_for_a_while():
    inner = [KB]
    inner.append(inner)

    assert 1_000 <= estimate_size(inner, set()) <= 10_000
