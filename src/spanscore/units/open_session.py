"""OpenSession: what is gathered of one conversation while it goes on."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from sys import getsizeof
from typing import Any, Final, NamedTuple

from spanscore.core.codecs.text import jsonable
from spanscore.core.sample import MultiTurnSample, Samples
from spanscore.core.score import Outcome
from spanscore.core.span import Session, SessionEnd, SpanData, Unit, UnitKey
from spanscore.units.session_ends import PastSession
from spanscore.units.session_turns import Segment, join_turn, messages_in, segment_of

__all__ = ["OpenSession", "Turn"]

_LINKS: Final = 100
_REFERENCES: Final = ("reference", "reference_tool_calls", "reference_topics", "rubrics")
_TIME: Final = (1 << 64) - 1
_HEAD: Final = (1 << 32) - 1
_SESSION_BYTES: Final = 1_300
"""Of a session with its place in the table and the span of its last turn, without what is counted one by one."""
_SEGMENT_BYTES: Final = 280
_LINK_BYTES: Final = 80
_ATTRIBUTE_BYTES: Final = 120


class Turn(NamedTuple):
    """A unit of a conversation.

    Attributes:
        id: of the conversation, as the application gave it.
        root: without content; None where it never arrived.
        end_ns: when it ended, since the epoch: turns stand in that order, whenever they come.
        samples: redacted; with an outcome, of a turn that has none. One that was ``filtered`` is left out, and not missed;
            one that was interrupted is missed until a later one goes on.
        stream: from which it was read, if all turns of its conversation are there; None = any, or none.
    """

    id: str
    unit: UnitKey
    root: SpanData | None
    end_ns: int
    samples: Samples
    stream: Hashable = None


@dataclass(slots=True)
class OpenSession:
    """What is gathered of a conversation.

    Attributes:
        past: how it ended before; None of one that has not, or of which that is forgotten.
        last_ns: when its latest turn came.
        held_bytes: that it keeps, roughly.
        units: turns that came.
        unscored: turns that came since it was scored.
        brings: whether its latest turn brought along all that was said; None where it brought nothing that tells.
        stream: of its first turn.
        piece: why other processes may have turns of it; empty = all of them came here.
    """

    id: str
    key: UnitKey
    past: PastSession | None = None
    last_ns: int = 0
    held_bytes: int = 0
    units: int = 0
    unscored: int = 0
    brings: bool | None = None
    stream: Hashable = None
    piece: str = ""
    _segments: list[Segment] = field(default_factory=list)
    _links: list[bytes] = field(default_factory=list)
    _root: SpanData | None = None
    _references: dict[str, tuple[int, str]] = field(default_factory=dict)
    _gap: tuple[int, Outcome] | None = None
    _waits_ns: int = -1

    @property
    def name(self) -> str:
        """Of the span of its last turn."""
        return "" if self._root is None else self._root.name

    @property
    def exchanges(self) -> int:
        """Questions in what is gathered, each with what came of it."""
        return sum(segment.exchanges for segment in self._segments)

    @property
    def turns(self) -> int:
        """Turns that it consists of; those that went elsewhere too, where they were brought along."""
        return max(self.units, self.exchanges)

    @property
    def revision(self) -> int:
        """0, or how often it has ended before."""
        return 0 if self.past is None else self.past.revision + 1

    @property
    def is_brought(self) -> bool:
        """Whether its last turn, by time, brought all of it along."""
        return bool(self._segments) and self._segments[-1].brought

    def add(self, turn: Turn, now_ns: int) -> None:
        """Gather a turn."""
        self.last_ns, self.brings = now_ns, None
        self.units += 1
        self.unscored += 1
        self._link(turn)
        outcome = turn.samples.outcome
        if turn.samples.interrupted:
            self._waits_ns = max(self._waits_ns, turn.end_ns)
        elif outcome is not None and outcome is not Outcome.FILTERED:
            self._gap = max(self._gap or (0, outcome), (turn.end_ns, outcome))
        elif outcome is None and (segment := segment_of(turn.samples, turn.end_ns)):
            self._insert(segment)
            self._refer(turn)
        self.held_bytes = self._size()

    def incomplete(self, *, heals: bool) -> str | None:
        """Return why turns of it are missing; None where all are there.

        Args:
            heals: histories are believed: one that came later holds a turn that has no sample.
        """
        if self._gap is not None and not (heals and self._gap[0] < self._brought_ns):
            return f"a turn of the conversation has no sample: {self._gap[1]}"
        if self._waits_ns > max((segment.end_ns for segment in self._segments), default=-1):
            return "the last turn of the conversation was interrupted, and has not been resumed"
        if self.past is not None and not self._is_back(self.past):
            return "the conversation went on after its end, and its turns do not bring along what was said before"
        return None

    def as_unit(self, end: SessionEnd) -> Unit:
        """Return what gets the score: the last turn, which stands for all of them."""
        links = tuple(
            UnitKey(int.from_bytes(link[8:24], "big"), int.from_bytes(link[24:], "big")) for link in self._links
        )
        spans = () if self._root is None else (self._root,)
        session = Session(self.key, self.turns, end, links)
        return Unit(links[-1], spans, revision=self.revision, session=session)

    def samples(self) -> Samples:
        """Return the conversation, with each reference as the last turn has it that gave one; or why there is none."""
        messages = messages_in(self._segments)
        if messages:
            references: dict[str, Any] = {name: json.loads(text) for name, (_, text) in self._references.items()}
            return Samples(multi_turn=MultiTurnSample(user_input=messages, **references))
        if self._gap is None and self._waits_ns < 0:
            return Samples(outcome=Outcome.FILTERED, reason="the filter left out every turn of the conversation")
        return Samples(outcome=Outcome.INCOMPLETE, reason="no turn of the conversation has a sample")

    def ended(self) -> PastSession:
        """Return what to remember of it."""
        past = self.past or PastSession(0, 0, 0, self._head or 0)
        end_ns = int.from_bytes(self._links[-1][:8], "big")
        return PastSession(self.revision, max(past.end_ns, end_ns), max(past.exchanges, self.exchanges), past.head)

    @property
    def _brought_ns(self) -> int:
        """When the last turn ended that brought all along."""
        return max((segment.end_ns for segment in self._segments if segment.brought), default=0)

    @property
    def _head(self) -> int | None:
        """What tells the first that was said."""
        return next((mark & _HEAD for segment in self._segments for mark in segment.marks), None)

    def _is_back(self, past: PastSession) -> bool:
        """Whether a turn has brought along what was gone with its end."""
        return self._brought_ns > past.end_ns and self.exchanges > past.exchanges and self._head == past.head

    def _link(self, turn: Turn) -> None:
        link = _link_of(turn)
        if not self._links or link > self._links[-1]:
            self._root = None if turn.root is None else replace(turn.root, metadata={}, events=())
        insort(self._links, link)
        del self._links[:-_LINKS]

    def _insert(self, new: Segment) -> None:
        """Put a turn where it belongs in time: those after it may hold it already, or be without it."""
        later = [segment for segment in self._segments if segment.end_ns > new.end_ns]
        before = self._segments[: len(self._segments) - len(later)]
        segments = join_turn(before, new)
        self.brings = segments[-1].brought or (None if _begins_alike(before, new) else False)
        for segment in later:
            segments = join_turn(segments, segment)
        self._segments = segments

    def _refer(self, turn: Turn) -> None:
        for sample in (turn.samples.single_turn, turn.samples.multi_turn):
            references = {} if sample is None else sample.model_dump(include=set(_REFERENCES))
            for name, reference in references.items():
                if reference is not None:
                    entry = turn.end_ns, json.dumps(jsonable(reference))
                    self._references[name] = max(self._references.get(name, entry), entry)

    def _size(self) -> int:
        attributes = {} if self._root is None else self._root.attributes
        texts = [self.id, *(value for value in attributes.values() if isinstance(value, str))]
        segments = sum(_SEGMENT_BYTES + len(segment.content) + 8 * len(segment.marks) for segment in self._segments)
        references = sum(_SEGMENT_BYTES + len(text) for _, text in self._references.values())
        counted = _ATTRIBUTE_BYTES * len(attributes) + _LINK_BYTES * len(self._links)
        return _SESSION_BYTES + sum(map(getsizeof, texts)) + segments + references + counted


def _begins_alike(before: list[Segment], new: Segment) -> bool:
    """Whether what a turn brought begins as the conversation does, or it brought nothing."""
    first = next((mark for segment in before for mark in segment.marks), None)
    return not new.own or first is None or new.marks[0] == first


def _link_of(turn: Turn) -> bytes:
    """Return a turn's unit in 32 bytes that are in order of time."""
    ids = turn.unit.trace_id.to_bytes(16, "big"), turn.unit.span_id.to_bytes(8, "big")
    return (turn.end_ns & _TIME).to_bytes(8, "big") + b"".join(ids)
