"""The questions and answers of the recorded applications, the same in every framework, and the server that answers.

It has no model and no library, so that every application in this folder can have the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.servers.openai_api import called

MODEL = "offline-model"
SYSTEM = "You answer in one sentence."
CAPITAL = "What is the capital of France?"
TICKET = "What does a ticket cost?"
SUM = "What is 2 plus 3?"
TOTAL = "2 plus 3 is 5."
TURNS = ("My name is Ada.", "What is my name?", "true")
"""The last is text that happens to be JSON, and so is its answer."""
ANSWERS = {
    CAPITAL: "Paris is the capital of France.",
    TICKET: "A single ticket costs 4 euros.",
    TURNS[0]: "Hello Ada.",
    TURNS[1]: "Your name is Ada.",
    TURNS[2]: "5",
}
DOCUMENTS = {"doc-1": "A single ticket costs 4 euros.", "doc-2": "The harbour ferry leaves every 20 minutes."}
"""By id, in rank order."""
RAG_PROMPT = "Answer from this alone:\n{context}\n\nQuestion: {question}"


def answer(request: Mapping[str, Any]) -> str | dict[str, Any]:
    """Return the answer to the last message; call the tool if there is one that has not answered yet."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return TOTAL
    asked = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
    if asked == SUM and request.get("tools"):
        return called("add", a=2, b=3)
    return next(said for question, said in ANSWERS.items() if question in asked)
