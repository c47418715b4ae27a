"""A chain with a word for each kind of content, and the places of these words after it was scored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from tests.outputs.memory import Memory

from spanscore import OnlineScorer, references
from spanscore.config import JudgeSettings
from spanscore.core.prompt import Prompt, Reply
from spanscore.metrics import AspectCritic, ContextRelevance

WORDS = {"ASKED", "ANSWERED", "RETRIEVED", "REFERRED", "ARGUMENT", "EXPLAINED", "RAISED", "CONVERSED", "NAMED", "TIER"}


class Attentive:
    """A judge that keeps its prompts."""

    model = "attentive"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked.append(str(prompt.evidence))
        return Reply(text='{"reason": "EXPLAINED", "verdict": 1}', model=self.model)


def without_words(text: str) -> str:
    """Redact all of them: ``ASKED`` is ``(asked)``."""
    return re.sub("|".join(WORDS), lambda word: f"({word[0].lower()})", text)


@tool
def look_up(key: str) -> str:
    """Look a key up."""
    raise ValueError(f"RAISED over {key}")


def answer(_: str) -> Mapping[str, Any]:
    """Ask a tool, which fails, and answer."""
    with suppress(ValueError):
        look_up.invoke({"key": "ARGUMENT"})
    return {"answer": "ANSWERED", "contexts": ["RETRIEVED"]}


def words_by_place(**options: Any) -> dict[str, set[str]]:
    """Score the chain once; return place → the words that came there, redacted ones as ``(asked)``."""
    judge, memory = Attentive(), Memory()
    critic = AspectCritic(judge, name="polite", definition="The response is polite.")
    providers = {name: getattr(memory, name) for name in ("tracer_provider", "meter_provider", "logger_provider")}
    with (
        OnlineScorer(
            [critic, ContextRelevance(judge)], judge=JudgeSettings(trace=True), **providers, **options
        ) as scorer,
        references(reference="REFERRED"),
    ):
        metadata = {"thread_id": "CONVERSED", "tier": "TIER"}
        config: Any = {"callbacks": [scorer.handler], "run_name": "NAMED", "metadata": metadata}
        RunnableLambda(answer).invoke("ASKED", config=config)
        assert scorer.flush(10)
        status = f"{scorer.status()} {[scorer.explain(span.context.trace_id) for span in memory.spans]}"
        metrics = str(memory.reader.get_metrics_data())
    spans = " ".join(
        f"{span.name} {dict(span.attributes)} {span.status.description} {span.events}" for span in memory.spans
    )
    said = {
        "the judge": " ".join(judge.asked),
        "spans": spans,
        "events": str([event.attributes for event in memory.events]),
    }
    return {
        place: _words(text) for place, text in {**said, "metrics": metrics, "`status()`, `explain()`": status}.items()
    }


def _words(text: str) -> set[str]:
    return {form for word in WORDS for form in (word, f"({word.lower()})") if form in text}
