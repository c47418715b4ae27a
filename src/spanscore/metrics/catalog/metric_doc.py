"""A metric's docstring → what a person must know: what it asks, how it computes, what it needs, and where it is blind.

The docstring is the one place where this is written; a MetricDoc is cut from it by its labels:

    Does …?                                             question: the first paragraph
    Formula: … Range [0, 1], higher is better. …        formula, range, direction
    Fields: … Judge calls: …                            fields, judge_calls
    Blind spot: …                                       blind_spot
    Source: … Deviations: …                             source, deviations ("Deviations: none." where there are none)

A label opens a paragraph or stands behind a sentence's end; what follows it goes to the next label or to the paragraph's end.
A paragraph without a label is for the reader of the docstring alone.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["MetricDoc", "metric_doc_of"]

_LABELS = {
    "Formula": "formula",
    "Fields": "fields",
    "Judge calls": "judge_calls",
    "Blind spot": "blind_spot",
    "Blind spots": "blind_spot",
    "Source": "source",
    "Sources": "source",
    "Deviation": "deviations",
    "Deviations": "deviations",
}
_LABEL = re.compile(rf"(?:^|(?<=[.;:!?)\"”] ))({'|'.join(sorted(_LABELS, key=len, reverse=True))}): ")
_RANGE = re.compile(r"Range (.+?), (higher|lower) is better")
_ARGUMENTS = re.compile(r"^(?:Args|Attributes|Raises|Example|Examples):\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDoc:
    """What a person must know of a metric before believing its scores. Texts; a part its docstring does not have is empty.

    Attributes:
        question: that it answers.
        formula: how the value comes about.
        range: of the values, as ``[0, 1]`` or ``{0, 1}``.
        direction: ``higher`` or ``lower`` is better, by default.
        fields: that a sample must have.
        judge_calls: per sample; ``none.`` for a metric that computes.
        blind_spot: what it does not see.
        source: the paper or project it comes from.
        deviations: from that source.
    """

    question: str = ""
    formula: str = ""
    range: str = ""
    direction: str = ""
    fields: str = ""
    judge_calls: str = ""
    blind_spot: str = ""
    source: str = ""
    deviations: str = ""

    @property
    def lacking(self) -> list[str]:
        """The parts that are empty."""
        return [part.name for part in fields(self) if not getattr(self, part.name)]


def metric_doc_of(metric: Any) -> MetricDoc:
    """Return the doc of a metric or of its class; with empty parts where its docstring does not have them."""
    text = _ARGUMENTS.split(inspect.cleandoc(metric.__doc__ or ""), maxsplit=1)[0]
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    parts: dict[str, str] = {"question": paragraphs[0]}
    for paragraph in paragraphs[1:]:
        _, *labelled = _LABEL.split(paragraph)
        for label, words in zip(labelled[::2], labelled[1::2], strict=True):
            parts.setdefault(_LABELS[label], words.strip())
    scale = _RANGE.search(text.replace("\n", " "))
    if scale is not None:
        parts |= {"range": scale[1], "direction": scale[2]}
    return MetricDoc(**parts)
