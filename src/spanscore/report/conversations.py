"""Spans → conversations and their cards: turns in order of time, each with its scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from spanscore import semconv
from spanscore.core.codecs.text import as_text, safe_text
from spanscore.core.printable import format_count
from spanscore.core.span import SpanData, UnitKey
from spanscore.report.rows import ReportRow, unit_name
from spanscore.report.spans import Spans, turns_of
from spanscore.report.story import Chip, UnitBook, chip, comments, cut, label_chip, rough, score_row, when
from spanscore.report.summaries import ReportSummary

__all__ = ["Conversation", "ConversationCard", "TurnCard", "WholeScore", "cards", "conversations"]

# --- conversations --------------------------------------------------------------------------------------------------

# Spans → conversations: their turns in the order of time, and how each was judged as a whole.


@dataclass(frozen=True, slots=True)
class WholeScore:
    """How a conversation was judged as a whole, by one metric.

    Attributes:
        turns: that were judged; 0 where its span does not tell.
        provisional: the conversation went on: the score is in no mean.
    """

    row: ReportRow
    turns: int
    end: str
    provisional: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """Units of one conversation.

    Attributes:
        turns: in the order of time; empty where the file has none of them.
        scores: of the whole, the one that counts before a provisional one.
    """

    id: str
    turns: tuple[SpanData, ...]
    scores: tuple[WholeScore, ...]


def conversations(spans: Spans) -> list[Conversation]:
    """Return those that were judged as a whole, or of which the file has at least two turns, in the order of time."""
    turns = _turns(spans)
    ids = dict.fromkeys([*turns, *spans.conversations, *spans.going_on])
    candidates = [Conversation(key, tuple(turns.get(key, ())), tuple(_scores(key, spans))) for key in ids]
    kept = [conversation for conversation in candidates if conversation.scores or len(conversation.turns) > 1]
    return sorted(kept, key=lambda conversation: conversation.turns[0].start_ns if conversation.turns else 0)


def _scores(conversation: str, spans: Spans) -> Iterator[WholeScore]:
    """Yield what counts, and what is provisional where it knows more of the conversation."""
    counted, going_on = spans.conversations.get(conversation, {}), spans.going_on.get(conversation, {})
    for metric, span in counted.items():
        yield _score(conversation, metric, span, spans)
    for metric, span in going_on.items():
        if metric not in counted or turns_of(span) > turns_of(counted[metric]):
            yield _score(conversation, metric, span, spans, provisional=True)


def _score(conversation: str, metric: str, span: SpanData, spans: Spans, *, provisional: bool = False) -> WholeScore:
    row = spans.whole(conversation, metric, span)
    return WholeScore(row, turns_of(span), as_text(span.attributes[semconv.SESSION_END]), provisional)


def _turns(spans: Spans) -> dict[str, list[SpanData]]:
    """Return the units of each conversation, in the order of time."""
    turns: dict[str, list[SpanData]] = {}
    for span in _units(spans):
        conversation = _conversation_of(span, spans.evaluations.get(UnitKey(span.trace_id, span.span_id), {}))
        if conversation:
            turns.setdefault(conversation, []).append(span)
    for of_one in turns.values():
        of_one.sort(key=lambda span: (span.start_ns, span.end_ns))
    return turns


def _units(spans: Spans) -> Iterator[SpanData]:
    """Yield the units that carry something of ours; of a trace without any, its top-most spans that name a conversation."""
    yield from spans.units.values()
    ours = {key.trace_id for key in spans.units}
    for trace_id, within in spans.by_trace.items():
        if trace_id not in ours:
            yield from _topmost([span for span in within.values() if _read_conversation_id(span)], within)


def _topmost(named: Sequence[SpanData], within: Mapping[int, SpanData]) -> Iterator[SpanData]:
    ids = {span.span_id for span in named}
    yield from (span for span in named if not ids & {*_above(span, within)})


def _above(span: SpanData, within: Mapping[int, SpanData]) -> Iterator[int]:
    """Yield the ids of a span's ancestors, each once, whatever a file says."""
    seen: set[int] = set()
    above = span.parent_id
    while above is not None and above not in seen:
        seen.add(above)
        yield above
        above = within[above].parent_id if above in within else None


def _conversation_of(span: SpanData, evaluations: Mapping[str, SpanData]) -> str:
    """Return what a unit's span says, or else its evaluations, whose writer may have read another convention."""
    ids = (_read_conversation_id(each) for each in (span, *evaluations.values()))
    return next((name for name in ids if name), "")


def _read_conversation_id(span: SpanData) -> str:
    return safe_text(as_text(span.attributes.get(semconv.CONVERSATION_ID) or ""))


# --- conversation cards ---------------------------------------------------------------------------------------------

# Conversations → cards of the page: turn by turn, each with its scores and labels, below how the whole was judged.

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
