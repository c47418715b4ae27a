"""Finds the conversations in a file of spans, and makes their cards on the page: turns in time order, with their scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.text import as_text, safe_text
from spanscore.core.printable import format_count
from spanscore.core.span import SpanData, UnitKey
from spanscore.report.excerpts import (
    Chip,
    ReportUnits,
    build_score_chip,
    cut_text,
    format_comments,
    format_time,
    human_label_chip,
    score_row,
    shorten_to_line,
)
from spanscore.report.rows import ReportRow, unit_name
from spanscore.report.spans import OPEN, Spans, turns_of
from spanscore.report.summaries import ReportSummary


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns and scores of one conversation.

    Attributes:
        turns: root spans of its units in the order of time; empty if the file has none.
        scores: scores of the whole conversation with their evaluation spans: first final scores, then provisional scores, which
            were made before the conversation went on and are in no mean.
    """

    id: str
    turns: tuple[SpanData, ...]
    scores: tuple[tuple[ReportRow, SpanData], ...]


def conversations(spans: Spans) -> list[Conversation]:
    """Return the conversations that were judged as a whole, or have at least two turns.

    Conversations without turns come first, the others in the order of time.
    """
    turns = _turns(spans)
    ids = dict.fromkeys([*turns, *spans.conversations, *spans.provisional])
    candidates = [Conversation(key, tuple(turns.get(key, ())), tuple(_scores(key, spans))) for key in ids]
    kept = [conversation for conversation in candidates if conversation.scores or len(conversation.turns) > 1]
    return sorted(kept, key=lambda conversation: conversation.turns[0].start_ns if conversation.turns else 0)


def _scores(conversation: str, spans: Spans) -> Iterator[tuple[ReportRow, SpanData]]:
    """Yield the final scores, and each provisional score of more turns than the final score of its metric."""
    final, provisional = spans.conversations.get(conversation, {}), spans.provisional.get(conversation, {})
    later = {
        metric: span
        for metric, span in provisional.items()
        if metric not in final or turns_of(span) > turns_of(final[metric])
    }
    for metric, span in (*final.items(), *later.items()):
        yield spans.conversation_row(conversation, metric, span), span


def _turns(spans: Spans) -> dict[str, list[SpanData]]:
    """Return the units of each conversation, in the order of time."""
    turns: dict[str, list[SpanData]] = {}
    for span in _units(spans):
        evaluations = spans.evaluations.get(UnitKey(span.trace_id, span.span_id), {}).values()
        # An evaluation span has the id even if its unit names it otherwise.
        ids = map(_read_conversation_id, (span, *evaluations))
        if conversation := next(filter(None, ids), ""):
            turns.setdefault(conversation, []).append(span)
    for units in turns.values():
        units.sort(key=lambda span: (span.start_ns, span.end_ns))
    return turns


def _units(spans: Spans) -> Iterator[SpanData]:
    """Yield the units with scores or a status; of a trace without such units, the topmost spans that name a conversation."""
    yield from spans.units.values()
    ours = {key.trace_id for key in spans.units}
    for trace_id, within in spans.by_trace.items():
        if trace_id not in ours:
            named = {span_id: span for span_id, span in within.items() if _read_conversation_id(span)}
            yield from (span for span in named.values() if named.keys().isdisjoint(_ancestors(span, within)))


def _ancestors(span: SpanData, within: Mapping[int, SpanData]) -> Iterator[int]:
    """Yield the ids of a span's ancestors, each once, even if the parents in the file form a cycle."""
    seen: set[int] = set()
    above = span.parent_id
    while above is not None and above not in seen:
        seen.add(above)
        yield above
        above = within[above].parent_id if above in within else None


def _read_conversation_id(span: SpanData) -> str:
    return safe_text(as_text(span.attributes.get(semconv.CONVERSATION_ID) or ""))


# --- cards of the page -----------------------------------------------------------------------------------------------

MOST_CONVERSATIONS, MOST_TURNS = 24, 50
MAX_CHARS = 1_500
"""Characters of the question and of the answer of a turn that are shown."""
_ENDS: Mapping[str, str] = {
    "explicit": "ended by the application",
    "idle": "ended by silence",
    "max_turns": "ended at the maximum number of turns",
    "evicted": "ended to make room for others",
    "shutdown": "ended with the process",
    "open": "provisional: the conversation went on, and the score is in no mean",
}


def cards(conversations: Sequence[Conversation], units: ReportUnits, summary: ReportSummary) -> list[dict[str, Any]]:
    """Return the cards of at most ``MOST_CONVERSATIONS``: failed conversations first, then by their lowest quality."""
    order = {worst.unit: place for place, worst in enumerate(summary.failed)}
    ranked = sorted(conversations, key=lambda own: (order.get(own.id, len(order)), _lowest_quality(own, units)))
    return [_card(conversation, units, summary) for conversation in ranked[:MOST_CONVERSATIONS]]


def _lowest_quality(conversation: Conversation, units: ReportUnits) -> float:
    """Return the lowest quality of the conversation or of a turn, by a judge or a person; 1 without a quality."""
    names = [_name(turn) for turn in conversation.turns]
    rows = chain((row for row, _ in conversation.scores), *(units.rows.get(name, ()) for name in names))
    labels = chain.from_iterable(units.human_labels.get(name, ()) for name in names)
    qualities = [*(row.quality for row in rows), *(label.quality for label in labels)]
    return min((quality for quality in qualities if quality is not None), default=1.0)


def _card(conversation: Conversation, units: ReportUnits, summary: ReportSummary) -> dict[str, Any]:
    turns = conversation.turns
    first = max(0, len(turns) - MOST_TURNS)
    begun = turns[0].start_ns if turns else next((row.time_ns for row, _ in conversation.scores), None)
    chips, rows = list[Chip](), list[dict[str, str]]()
    for row, span in conversation.scores:
        judged, end = turns_of(span), as_text(span.attributes[semconv.SESSION_END])
        seen = format_count(judged, "turn") if judged else ""
        rows.append({**score_row(row), "of": ", ".join(filter(None, [seen, _ENDS.get(end, end)]))})
        if row.value is not None:
            chip = build_score_chip(row)
            chips.append(Chip(f"{chip.text} so far", "") if end == OPEN else chip)
    return {
        "id": conversation.id,
        "title": shorten_to_line(units.excerpt(_name(turns[0])).question if turns else None) or conversation.id,
        "about": ", ".join(
            filter(None, [format_time(begun, summary), format_count(len(turns), "turn") if turns else ""])
        ),
        "chips": chips,
        "rows": rows,
        "turns": [_turn(number, turn, units, summary) for number, turn in enumerate(turns[first:], first + 1)],
        "earlier": first,
    }


def _turn(number: int, turn: SpanData, units: ReportUnits, summary: ReportSummary) -> dict[str, Any]:
    name = _name(turn)
    excerpt, labels = units.excerpt(name), units.human_labels.get(name, ())
    scores = [build_score_chip(row) for row in units.rows.get(name, ()) if row.value is not None]
    return {
        "number": number,
        "when": format_time(turn.end_ns, summary),
        "question": cut_text(excerpt.question, MAX_CHARS),
        "answer": cut_text(excerpt.answer, MAX_CHARS),
        "captured": excerpt.captured,
        "chips": [*scores, *map(human_label_chip, labels)],
        "comments": format_comments(labels),
        "trace_id": f"{turn.trace_id:032x}",
    }


def _name(turn: SpanData) -> str:
    return unit_name(UnitKey(turn.trace_id, turn.span_id))
