"""ReportRow → the words and figures of a page's cells, cut to what a page can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.report import findings as say
from spanscore.report.annotations import PersonAnnotation
from spanscore.report.rows import ReportRow
from spanscore.report.summaries import ReportSummary

__all__ = ["Chip", "chip", "comments", "cut", "cut_contexts", "label_chip", "rough", "score_row", "when"]

MAX_CHARS = 4_000
"""Of a question, an answer or a context; what is longer is cut, and says so."""
MAX_CONTEXTS = 20
_ROUGH_CHARS = 140
_COMMENT_CHARS = 600
_MIDDLE = 0.5
"""Quality of a label that is neither good nor bad."""


def when(time_ns: int | None, summary: ReportSummary) -> str:
    """Return a time as the page's other times are told; empty where it is not known."""
    return "" if time_ns is None else f"{say.clock(time_ns, summary)} UTC"


class Chip(NamedTuple):
    """A score or a label in few words.

    Attributes:
        label: ``pass`` or ``fail``, which is its colour; empty where neither is known. ``person`` beside it: no judge said so.
    """

    text: str
    label: str


def chip(row: ReportRow) -> Chip:
    """Return a score in few words."""
    return Chip(f"{say.readable(row.metric)} {_format_score(row)}", row.label or "")


def label_chip(label: PersonAnnotation) -> Chip:
    """Return what a person said in few words."""
    good = "" if label.quality in (None, _MIDDLE) else "pass" if (label.quality or 0.0) > _MIDDLE else "fail"
    by = "" if label.annotator == semconv.ANNOTATOR_HUMAN else f" ({label.annotator})"
    return Chip(f"{say.readable(label.name)}: {label.told}{by}", f"{good} person".strip())


def comments(labels: Sequence[PersonAnnotation]) -> list[str]:
    """Return what people wrote beside their labels, and who it was where that is known."""
    return [f"{_who(label)}{cut(label.comment, _COMMENT_CHARS)}" for label in labels if label.comment]


def _who(label: PersonAnnotation) -> str:
    return "" if label.annotator == semconv.ANNOTATOR_HUMAN else f"{label.annotator}: "


def score_row(row: ReportRow) -> dict[str, str]:
    """Return a metric's row of a table: its name, the score or what there is instead, and why."""
    score = say.outcome_name(row.outcome) if row.value is None else _format_score(row)
    if row.label:
        score += f" ({row.label})"
    if row.value is not None and row.quality is not None and abs(row.quality - row.value) > 1e-9:  # noqa: PLR2004
        score += f", quality {say.figure(row.quality)}"
    why = row.explanation or row.reason or ("not captured" if row.value is not None else "–")
    return {"metric": say.readable(row.metric), "score": score, "explanation": safe_text(why)}


def cut_contexts(contexts: Sequence[str] | None) -> list[str] | None:
    """Return contexts, long ones cut and many left out."""
    if contexts is None:
        return None
    shown = [cut(text) or "" for text in contexts[:MAX_CONTEXTS]]
    left_out = len(contexts) - len(shown)
    return [*shown, f"… and {left_out:,} more"] if left_out else shown


def cut(text: str | None, most: int = MAX_CHARS) -> str | None:
    """Return a text with what is too long cut off, and said to be."""
    if text is None:
        return None
    text = safe_text(text)
    return text if len(text) <= most else f"{text[:most]}… (cut; {len(text):,} characters in all)"


def rough(text: str | None, most: int = _ROUGH_CHARS) -> str:
    """Return a text's beginning on one line; empty for none."""
    line = " ".join(safe_text(text or "").split())
    return line if len(line) <= most else f"{line[:most]}…"


def _format_score(row: ReportRow) -> str:
    return say.format_score(row.value, row.quality, row.pass_at)
