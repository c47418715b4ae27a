"""Conversations → cards of the page: turn by turn, each with its scores and labels, below how the whole was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from spanscore.core.printable import format_count
from spanscore.core.span import SpanData, UnitKey
from spanscore.report.cells import Chip, chip, comments, cut, label_chip, rough, score_row, when
from spanscore.report.conversations import Conversation, WholeScore
from spanscore.report.rows import unit_name
from spanscore.report.story import UnitBook
from spanscore.report.summaries import ReportSummary

__all__ = ["ConversationCard", "TurnCard", "cards"]

MOST_CONVERSATIONS, MOST_TURNS = 24, 50
MAX_CHARS = 1_500
"""Of what a turn asked or answered."""
_ENDS: Mapping[str, str] = {
    "explicit": "ended by the application",
    "idle": "ended by silence",
    "max_turns": "ended at its most turns",
    "evicted": "ended to make room for others",
    "shutdown": "ended with the process",
    "open": "provisional: it went on, the score is in no mean",
}


@dataclass(frozen=True, slots=True)
class TurnCard:
    """One turn.

    Attributes:
        number: in its conversation, from 1.
        captured: whether its spans carry content.
        chips: its scores, then its labels.
    """

    number: int
    when: str
    question: str | None
    answer: str | None
    captured: bool
    chips: Sequence[Chip]
    comments: Sequence[str]
    trace_id: str


@dataclass(frozen=True, slots=True)
class ConversationCard:
    """One conversation.

    Attributes:
        chips: its scores as a whole.
        rows: the same as a table's.
        earlier: turns that are left out before the first one shown.
    """

    id: str
    title: str
    about: str
    chips: Sequence[Chip]
    rows: Sequence[Mapping[str, str]]
    turns: Sequence[TurnCard]
    earlier: int


def cards(conversations: Sequence[Conversation], units: UnitBook, summary: ReportSummary) -> list[ConversationCard]:
    """Return the conversations to look at, what failed first."""
    order = {worst.unit: place for place, worst in enumerate(summary.failed)}
    ranked = sorted(conversations, key=lambda each: (order.get(each.id, len(order)), _lowest(each, units)))
    return [_card(conversation, units, summary) for conversation in ranked[:MOST_CONVERSATIONS]]


def _lowest(conversation: Conversation, units: UnitBook) -> float:
    """Return the lowest quality of the whole or of any turn, by a judge or a person; 1 where nothing is known."""
    names = [_name(turn) for turn in conversation.turns]
    rows = chain((score.row for score in conversation.scores), *(units.rows.get(name, ()) for name in names))
    labels = chain.from_iterable(units.labels.get(name, ()) for name in names)
    qualities = [*(row.quality for row in rows), *(label.quality for label in labels)]
    return min((quality for quality in qualities if quality is not None), default=1.0)


def _card(conversation: Conversation, units: UnitBook, summary: ReportSummary) -> ConversationCard:
    turns = conversation.turns
    first = max(0, len(turns) - MOST_TURNS)
    begun = turns[0].start_ns if turns else next((score.row.time_ns for score in conversation.scores), None)
    return ConversationCard(
        id=conversation.id,
        title=rough(units.tell(_name(turns[0])).question if turns else None) or conversation.id,
        about=", ".join(filter(None, [when(begun, summary), format_count(len(turns), "turn") if turns else ""])),
        chips=[_chip(score) for score in conversation.scores if score.row.value is not None],
        rows=[{**score_row(score.row), "of": _of(score)} for score in conversation.scores],
        turns=[_turn(number, turn, units, summary) for number, turn in enumerate(turns[first:], first + 1)],
        earlier=first,
    )


def _turn(number: int, turn: SpanData, units: UnitBook, summary: ReportSummary) -> TurnCard:
    name = _name(turn)
    story, labels = units.tell(name), units.labels.get(name, ())
    scores = [chip(row) for row in units.rows.get(name, ()) if row.value is not None]
    return TurnCard(
        number=number,
        when=when(turn.end_ns, summary),
        question=cut(story.question, MAX_CHARS),
        answer=cut(story.answer, MAX_CHARS),
        captured=story.captured,
        chips=[*scores, *map(label_chip, labels)],
        comments=comments(labels),
        trace_id=f"{turn.trace_id:032x}",
    )


def _name(turn: SpanData) -> str:
    return unit_name(UnitKey(turn.trace_id, turn.span_id))


def _chip(score: WholeScore) -> Chip:
    made = chip(score.row)
    return Chip(f"{made.text} so far", "") if score.provisional else made


def _of(score: WholeScore) -> str:
    seen = format_count(score.turns, "turn") if score.turns else ""
    return ", ".join(filter(None, [seen, _ENDS.get(score.end, score.end)]))
