"""Story: what happened in one unit, as a person reads it: question, answer, contexts, and the tree of its spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.span import SpanData, SpanStatus, Unit, UnitKey
from spanscore.report.annotations import PersonAnnotation
from spanscore.report.rows import ReportRow
from spanscore.report.spans import Spans
from spanscore.samples.genai import GenAIExtractor

__all__ = ["Branch", "Story", "UnitBook", "story_of_rows", "story_of_spans"]

MAX_BRANCHES = 200
MAX_DEPTH = 12
"""Deeper spans are drawn at this depth: there is no room to the right."""
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Branch:
    """One span of the tree, in the order in which they are drawn.

    Attributes:
        depth: 0 for the unit's root.
        after_ms: from the root's start to this one's.
        took_ms: its duration.
    """

    name: str
    depth: int
    after_ms: float
    took_ms: float
    status: SpanStatus
    operation: str


@dataclass(frozen=True, slots=True)
class Story:
    """What happened in one unit.

    Attributes:
        question: None where there is none; ``captured`` says whether there could be. Likewise ``answer``.
        contexts: None = nothing was retrieved (or captured), empty = the retrieval found nothing.
        captured: whether the spans carry content at all.
        branches: empty for what came from no trace.
        more: spans that were left out.
    """

    question: str | None = None
    answer: str | None = None
    contexts: tuple[str, ...] | None = None
    captured: bool = True
    branches: tuple[Branch, ...] = ()
    more: int = 0


class UnitBook(NamedTuple):
    """What is known of units beside the summary, by their names.

    Attributes:
        rows: scores and why there are none, also of what was judged after feedback.
        labels: what people said.
        tell: gives a unit's story.
    """

    rows: Mapping[str, Sequence[ReportRow]]
    labels: Mapping[str, Sequence[PersonAnnotation]]
    tell: Callable[[str], Story]


def story_of_rows(rows: Sequence[ReportRow]) -> Story:
    """Return the story that rows tell by themselves."""

    def first(name: str) -> str | None:
        return next((safe_text(text) for row in rows if (text := getattr(row, name)) is not None), None)

    contexts = next((row.contexts for row in rows if row.contexts is not None), None)
    return Story(
        question=first("question"),
        answer=first("answer"),
        contexts=None if contexts is None else tuple(safe_text(text) for text in contexts),
    )


def story_of_spans(unit: str, spans: Spans) -> Story:
    """Return the story that a unit's spans tell, as far as their content was captured."""
    key, own = spans.unit(unit)
    branches = _branches(key, own)
    single = GenAIExtractor().extract(Unit(key, own)).single_turn if own else None
    captured = any(semconv.is_content(name) for span in own for name in span.attributes)
    story = Story(captured=captured, branches=branches, more=len(own) - len(branches))
    if single is None:
        return story
    contexts = None if single.retrieved_contexts is None else tuple(single.retrieved_contexts)
    return replace(story, question=single.user_input, answer=single.response, contexts=contexts)


def _branches(key: UnitKey, spans: Sequence[SpanData]) -> tuple[Branch, ...]:
    children: dict[int | None, list[SpanData]] = {}
    root = next((span for span in spans if span.span_id == key.span_id), None)
    for span in reversed(spans):  # taken from the end of a list below, so the earliest child comes first
        if span is not root:
            children.setdefault(span.parent_id, []).append(span)
    waiting = [(root, 0)] if root is not None else []
    drawn: list[Branch] = []
    while waiting and root is not None and len(drawn) < MAX_BRANCHES:
        span, depth = waiting.pop()
        drawn.append(_branch(span, depth, root))
        waiting += [(child, min(depth + 1, MAX_DEPTH)) for child in children.pop(span.span_id, ())]
    return tuple(drawn)


def _branch(span: SpanData, depth: int, root: SpanData) -> Branch:
    return Branch(
        name=safe_text(span.name),
        depth=depth,
        after_ms=max(0, span.start_ns - root.start_ns) / _NS_PER_MS,
        took_ms=max(0, span.end_ns - span.start_ns) / _NS_PER_MS,
        status=span.status,
        operation=safe_text(str(span.operation or "")),
    )
