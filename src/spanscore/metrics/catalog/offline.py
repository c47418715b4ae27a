"""Metrics → what must be known of their scores where the offline judge gives them: it stands where the numbers are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spanscore.judges.embeddings import LexicalEmbedder
from spanscore.judges.lexical.judge import is_offline
from spanscore.protocols import Metric

__all__ = ["COMPARES_WORDS", "blind_spots", "offline_notes"]

COMPARES_WORDS = "The offline judge compares words: a first look, no verdict."
_SHARED_WORDS = "counts the words that answer and question share: good answers score low, too"
"""Measured on the 44 right answers of tests/data/grounding.jsonl and answers.jsonl: 0.21 on average, 86 % of them below 0.5;
AUC 0.86 against the same answers beside another question.
"""
_BLIND: Mapping[str, str] = {
    "critique": "passes every answer without an insult, whatever its definition; for a ready aspect it looks for a few words",
    "generate_question": _SHARED_WORDS,
}
"""Step → what is left of the metric that asks it when words are compared; of the other steps it is what it says."""


def offline_notes(metrics: Iterable[Metric]) -> list[str]:
    """Return what must be known of their scores, a sentence each; nothing where no metric is judged offline."""
    judged = [metric for metric in metrics if _is_offline(metric)]
    return [COMPARES_WORDS, *blind_spots(judged)] if judged else []


def blind_spots(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yield what the offline judge makes of those metrics of which that is not what they say."""
    found: dict[str, list[str]] = {}
    for metric in metrics:
        for step in getattr(metric, "steps", ()):
            if step in _BLIND and _is_offline(metric):
                found.setdefault(_BLIND[step], []).append(metric.name)
    for what, names in found.items():
        yield f"Offline, {' and '.join(names)} {what}."


def _is_offline(metric: Any) -> bool:
    """Whether it asks the offline judge, also behind limits, and compares with no embeddings but the offline ones."""
    vectors = getattr(metric, "embeddings", LexicalEmbedder.model)
    return is_offline(getattr(metric, "_judge", None)) and vectors == LexicalEmbedder.model
