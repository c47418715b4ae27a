"""Spans → labels: what people said of units, the last word of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spanscore import semconv
from spanscore.core.codecs.text import as_text, plain_number, safe_text
from spanscore.core.span import SpanData
from spanscore.report import findings as say
from spanscore.report.rows import unit_name
from spanscore.report.spans import Spans

__all__ = ["PersonAnnotation", "labels"]


@dataclass(frozen=True, slots=True)
class PersonAnnotation:
    """What somebody said of a unit.

    Attributes:
        told: the value as it was given: a word of the label's scale, or a figure.
        quality: 0…1, 1 good; None where no scale tells.
        comment: None where there is none, or it was not exported.
        when_ns: since 1970.
    """

    name: str
    told: str
    quality: float | None
    annotator: str
    comment: str | None
    when_ns: int


def labels(spans: Spans) -> Mapping[str, tuple[PersonAnnotation, ...]]:
    """Return unit, by its name → its labels, in the order of time."""
    return {
        unit_name(key): tuple(
            sorted((_label(*who, span) for who, span in by_person.items()), key=lambda label: label.when_ns)
        )
        for key, by_person in spans.labels.items()
    }


def _label(name: str, annotator: str, span: SpanData) -> PersonAnnotation:
    held = span.attributes
    value = plain_number(held.get(semconv.EVALUATION_SCORE_VALUE))
    quality = plain_number(held.get(semconv.QUALITY, value))
    word, comment = held.get(semconv.EVALUATION_SCORE_LABEL), held.get(semconv.EVALUATION_EXPLANATION)
    return PersonAnnotation(
        name=safe_text(name),
        told=safe_text(as_text(word)) if word is not None else say.figure(value),
        quality=None if quality is None else float(quality),
        annotator=safe_text(annotator),
        comment=None if comment is None else safe_text(as_text(comment)),
        when_ns=span.end_ns,
    )
