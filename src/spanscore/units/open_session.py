"""OpenSession: what is gathered of one conversation that goes on."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from sys import getsizeof
from typing import Any, Final, NamedTuple

from spanscore.codec.text import jsonable
from spanscore.model.outcome import Outcome
from spanscore.model.sample import MultiTurnSample, Samples
from spanscore.model.span import Session, SessionEnd, SpanData, Unit, UnitKey
from spanscore.units.session_ends import PastSession
from spanscore.units.session_turns import TurnMessages, joined, messages_in, turn_messages

__all__ = ["OpenSession", "Turn"]

_LINKS: Final = 100
_SESSION_BYTES: Final = 3_000
"""Of a session with its last turn's span, without what follows."""
_STRETCH_BYTES: Final = 400
_LINK_BYTES: Final = 200
_ATTRIBUTE_BYTES: Final = 120
_REFERENCES: Final = ("reference", "reference_tool_calls", "reference_topics", "rubrics")


class Turn(NamedTuple):
    """A unit of a conversation.

    Attributes:
        id: of the conversation, as the application gave it.
        root: without content; None where it never arrived.
        end_ns: when it ended, since the epoch: turns are in that order.
        samples: with an outcome, of a turn whose sample is not there.
    """

    id: str
    unit: UnitKey
    root: SpanData | None
    end_ns: int
    samples: Samples


@dataclass(slots=True)
class OpenSession:
    """What is gathered of a conversation.

    Attributes:
        past: how it ended before; None of one that has not, or of which that is forgotten.
        last_ns: when its latest turn came.
        bytes: that it keeps, roughly.
        units: turns that came.
        unscored: turns that came since it was scored.
    """

    id: str
    key: UnitKey
    past: PastSession | None = None
    last_ns: int = 0
    bytes: int = 0
    units: int = 0
    unscored: int = 0
    _stretches: list[TurnMessages] = field(default_factory=list)
    _links: deque[tuple[int, UnitKey]] = field(default_factory=lambda: deque(maxlen=_LINKS))
    _root: SpanData | None = None
    _references: dict[str, tuple[int, str]] = field(default_factory=dict)
    _gap: tuple[int, Outcome] | None = None

    @property
    def exchanges(self) -> int:
        """Of a question and what came of it, in what is gathered."""
        return sum(one.exchanges for one in self._stretches)

    @property
    def turns(self) -> int:
        """That it consists of: those before this process saw it too, where they were brought along."""
        return max(self.units, self.exchanges)

    @property
    def is_brought(self) -> bool:
        """Whether its last turn brought the whole history along."""
        return bool(self._stretches) and self._stretches[-1].brought

    def add(self, turn: Turn, now_ns: int) -> None:
        """Gather a turn."""
        self.last_ns = now_ns
        self.units += 1
        self.unscored += 1
        self._link(turn)
        if turn.samples.outcome not in (None, Outcome.FILTERED):
            self._gap = max(self._gap or (0, Outcome.INCOMPLETE), (turn.end_ns, turn.samples.outcome))
        elif said := turn_messages(turn.samples, turn.end_ns):
            self._insert(said)
            self._refer(turn)
        self.bytes = self._size()

    def incomplete(self) -> str | None:
        """Return why turns of it are missing; None where all are there."""
        brought_ns = max((one.end_ns for one in self._stretches if one.brought), default=0)
        if self._gap is not None and self._gap[0] > brought_ns:
            return f"a turn of the conversation has no sample: {self._gap[1]}"
        if self.past is not None and not self._is_back(self.past):
            return "the conversation went on after its end, and its turns do not bring along what was said before"
        return None

    def as_unit(self, end: SessionEnd) -> Unit:
        """Return what gets the score: the last turn, for all of them."""
        links = tuple(unit for _, unit in self._links)
        session = Session(self.key, self.turns, end, links)
        spans = () if self._root is None else (self._root,)
        return Unit(links[-1], spans, revision=self.revision, session=session)

    @property
    def revision(self) -> int:
        """0, or how often it has ended before."""
        return 0 if self.past is None else self.past.revision + 1

    def samples(self) -> Samples:
        """Return the conversation; of references that several turns gave, each of the last."""
        messages = messages_in(self._stretches)
        if not messages:
            if self._gap is None:
                return Samples(outcome=Outcome.FILTERED, reason="the filter left out each turn")
            return Samples(outcome=Outcome.INCOMPLETE, reason="no turn of the conversation has a sample")
        references: dict[str, Any] = {name: json.loads(text) for name, (_, text) in self._references.items()}
        return Samples(multi=MultiTurnSample(user_input=messages, **references))

    def ended(self) -> PastSession:
        """Return what to remember of it."""
        head = next((mark for one in self._stretches for mark in one.marks), 0)
        return PastSession(self.revision, self.exchanges, head)

    def _is_back(self, past: PastSession) -> bool:
        """Whether a turn has brought along what was gone."""
        first = self._stretches[0] if self._stretches else None
        return first is not None and first.brought and first.marks[0] == past.head and self.exchanges > past.exchanges

    def _link(self, turn: Turn) -> None:
        if not self._links or turn.end_ns >= self._links[-1][0]:
            self._root = None if turn.root is None else replace(turn.root, metadata={}, events=())
        self._links.append((turn.end_ns, turn.unit))
        if any(before > after for (before, _), (after, _) in pairwise(self._links)):
            self._links = deque(sorted(self._links), maxlen=_LINKS)

    def _insert(self, said: TurnMessages) -> None:
        """Put a turn where it belongs in time; what came after it may hold it already."""
        later = [one for one in self._stretches if one.end_ns > said.end_ns]
        stretches = self._stretches[: len(self._stretches) - len(later)]
        for one in (said, *later):
            stretches = joined(stretches, one)
        self._stretches = stretches

    def _refer(self, turn: Turn) -> None:
        for sample in (turn.samples.single, turn.samples.multi):
            for name in _REFERENCES:
                if getattr(sample, name, None) is None or sample is None:
                    continue
                text = json.dumps(jsonable(sample.model_dump(include={name})[name]))
                self._references[name] = max(self._references.get(name, (0, "")), (turn.end_ns, text))

    def _size(self) -> int:
        attributes = {} if self._root is None else self._root.attributes
        texts = sum(len(value) for value in attributes.values() if isinstance(value, str))
        stretches = sum(_STRETCH_BYTES + len(one.content) + 8 * len(one.marks) for one in self._stretches)
        references = sum(_STRETCH_BYTES + len(text) for _, text in self._references.values())
        root = _ATTRIBUTE_BYTES * len(attributes) + texts
        return _SESSION_BYTES + getsizeof(self.id) + root + stretches + references + _LINK_BYTES * len(self._links)
