"""Spans → conversations: their turns in the order of time, and how each was judged as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spanscore import semconv
from spanscore.core.codecs.text import as_text, safe_text
from spanscore.core.span import SpanData, UnitKey
from spanscore.report.rows import ReportRow
from spanscore.report.spans import Spans, turns_of

__all__ = ["Conversation", "WholeScore", "conversations"]


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
