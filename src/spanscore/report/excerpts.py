"""Builds the excerpt of a unit for the HTML report: its texts, spans and labels, cut to fit the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from spanscore import semconv
from spanscore.core.codecs.text import as_text, plain_number, safe_text
from spanscore.core.sample import Annotation
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.report import findings
from spanscore.report.rows import ReportRow, unit_name
from spanscore.report.spans import Spans
from spanscore.report.summaries import ReportSummary
from spanscore.samples.genai import GenAIExtractor


def human_labels_of(spans: Spans) -> Mapping[str, tuple[Annotation, ...]]:
    """Return unit name → its human labels in the order of time: the latest per label name and annotator.

    The value of a label is a text: a word of its scale, or a figure.
    """
    return {
        unit_name(key): tuple(
            _label(key, *names, span) for names, span in sorted(by_person.items(), key=lambda item: item[1].end_ns)
        )
        for key, by_person in spans.human_labels.items()
    }


def _label(unit: UnitKey, name: str, annotator: str, span: SpanData) -> Annotation:
    attributes = span.attributes
    value = plain_number(attributes.get(semconv.EVALUATION_SCORE_VALUE))
    quality = plain_number(attributes.get(semconv.QUALITY, value))
    word, comment = attributes.get(semconv.EVALUATION_SCORE_LABEL), attributes.get(semconv.EVALUATION_EXPLANATION)
    return Annotation(
        name=safe_text(name),
        value=safe_text(as_text(word)) if word is not None else findings.figure(value),
        annotator=safe_text(annotator),
        comment=None if comment is None else safe_text(as_text(comment)),
        when_ns=span.end_ns,
        unit=unit,
        quality=None if quality is None else float(quality),
    )


# --- cells of the page -----------------------------------------------------------------------------------------------

MAX_CHARS = 4_000
"""Characters of a question, an answer or a context; a longer text is cut, with a note."""
MAX_CONTEXTS = 20
_LINE_CHARS = 140
_COMMENT_CHARS = 600
_MIDDLE = 0.5
"""Quality of a label that is neither good nor bad."""


def format_time(time_ns: int | None, summary: ReportSummary) -> str:
    """Return a time as text for the page; empty for None."""
    return "" if time_ns is None else f"{findings.clock(time_ns, summary)} UTC"


class Chip(NamedTuple):
    """The short text of a score or a label.

    Attributes:
        text: name and value.
        label: ``pass`` or ``fail``, which sets the colour; empty = unknown. A human label has the suffix ``person``.
    """

    text: str
    label: str


def build_score_chip(row: ReportRow) -> Chip:
    """Return the chip of a score."""
    return Chip(f"{findings.readable(row.metric)} {_format_score(row)}", row.label or "")


def human_label_chip(label: Annotation) -> Chip:
    """Return the chip of a human label."""
    quality = _MIDDLE if label.quality is None else label.quality
    verdict = "" if quality == _MIDDLE else "pass" if quality > _MIDDLE else "fail"
    by = "" if label.annotator == semconv.ANNOTATOR_HUMAN else f" ({label.annotator})"
    return Chip(f"{findings.readable(label.name)}: {label.value}{by}", f"{verdict} person".strip())


def format_comments(labels: Sequence[Annotation]) -> list[str]:
    """Return the comments of labels, each behind the name of its annotator if the name is known."""
    return [
        ("" if label.annotator == semconv.ANNOTATOR_HUMAN else f"{label.annotator}: ")
        + str(cut_text(label.comment, _COMMENT_CHARS))
        for label in labels
        if label.comment
    ]


def score_row(row: ReportRow) -> dict[str, str]:
    """Return a metric's row of a table: name, score or outcome, and explanation."""
    score = findings.outcome_name(row.outcome) if row.value is None else _format_score(row)
    if row.label:
        score += f" ({row.label})"
    if row.number is not None and row.quality is not None and abs(row.quality - row.number) > 1e-9:  # noqa: PLR2004
        score += f", quality {findings.figure(row.quality)}"
    why = row.explanation or row.reason or ("not captured" if row.value is not None else "–")
    return {"metric": findings.readable(row.metric), "score": score, "explanation": safe_text(why)}


def cut_contexts(contexts: Sequence[str] | None) -> list[str] | None:
    """Return the first 20 contexts, long contexts cut, and the number of further contexts."""
    if contexts is None:
        return None
    shown = [cut_text(text) or "" for text in contexts[:MAX_CONTEXTS]]
    left_out = len(contexts) - len(shown)
    return [*shown, f"… and {left_out:,} more"] if left_out else shown


def cut_text(text: str | None, most: int = MAX_CHARS) -> str | None:
    """Return a text; a text longer than ``most`` characters is cut, with a note of its length."""
    if text is None:
        return None
    text = safe_text(text)
    return text if len(text) <= most else f"{text[:most]}… (cut; {len(text):,} characters in all)"


def shorten_to_line(text: str | None, most: int = _LINE_CHARS) -> str:
    """Return the first ``most`` characters of a text as one line; empty for None."""
    line = " ".join(safe_text(text or "").split())
    return line if len(line) <= most else f"{line[:most]}…"


def _format_score(row: ReportRow) -> str:
    return findings.format_score(row.value, row.quality, row.pass_at)


# --- excerpts --------------------------------------------------------------------------------------------------------

MAX_BRANCHES = 200
MAX_DEPTH = 12
"""Largest drawn depth. Deeper spans are drawn at this depth, because the page has no space to the right."""


@dataclass(frozen=True, slots=True)
class UnitExcerpt:
    """Question, answer, contexts and the tree of spans of one unit.

    Attributes:
        question: None = absent, or it was not captured.
        answer: None = absent, or it was not captured.
        contexts: None = nothing was retrieved or captured; empty = the retrieval found nothing.
        captured: whether the spans have any content.
        branches: spans and their depths, 0 for the root, in the order in which they are drawn; empty without a trace.
        left_out: number of spans that are not drawn.
    """

    question: str | None = None
    answer: str | None = None
    contexts: tuple[str, ...] | None = None
    captured: bool = True
    branches: tuple[tuple[SpanData, int], ...] = ()
    left_out: int = 0


class ReportUnits(NamedTuple):
    """Details of units, by their names.

    Attributes:
        rows: rows of each unit, including scores that feedback started.
        human_labels: human labels of each unit, in the order of time.
    """

    rows: Mapping[str, Sequence[ReportRow]]
    human_labels: Mapping[str, Sequence[Annotation]]
    excerpt: Callable[[str], UnitExcerpt]


def excerpt_of_rows(rows: Sequence[ReportRow]) -> UnitExcerpt:
    """Return the excerpt of a unit without spans."""

    def first(name: str) -> str | None:
        return next((safe_text(text) for row in rows if (text := getattr(row, name)) is not None), None)

    contexts = next((row.contexts for row in rows if row.contexts is not None), None)
    return UnitExcerpt(
        question=first("question"),
        answer=first("answer"),
        contexts=None if contexts is None else tuple(safe_text(text) for text in contexts),
    )


def excerpt_of_spans(unit: str, spans: Spans) -> UnitExcerpt:
    """Return the excerpt of a unit by its spans, as far as their content was captured."""
    key, own = spans.unit(unit)
    branches = _draw_tree(key, own)
    single = GenAIExtractor().extract(Unit(key, own)).single_turn if own else None
    captured = any(semconv.is_content(name) for span in own for name in span.attributes)
    excerpt = UnitExcerpt(captured=captured, branches=branches, left_out=len(own) - len(branches))
    if single is None:
        return excerpt
    contexts = None if single.retrieved_contexts is None else tuple(single.retrieved_contexts)
    return replace(excerpt, question=single.user_input, answer=single.response, contexts=contexts)


def _draw_tree(key: UnitKey, spans: Sequence[SpanData]) -> tuple[tuple[SpanData, int], ...]:
    """Return the first spans of the tree in depth-first order, each with its depth."""
    children: dict[int | None, list[SpanData]] = {}
    root = next((span for span in spans if span.span_id == key.span_id), None)
    for span in reversed(spans):  # taken from the end of a list below, so the earliest child comes first
        if span is not root:
            children.setdefault(span.parent_id, []).append(span)
    waiting = [(root, 0)] if root is not None else []
    drawn: list[tuple[SpanData, int]] = []
    while waiting and len(drawn) < MAX_BRANCHES:
        span, depth = waiting.pop()
        drawn.append((span, depth))
        waiting += [(child, min(depth + 1, MAX_DEPTH)) for child in children.pop(span.span_id, ())]
    return tuple(drawn)
