"""Joins turns, in any order, into a conversation in which each message occurs once; and remembers ended conversations.

    gathered so far     H1 A1 H2 A2
    the turn            H1 A1 H2 A2 H3 A3      has the whole history, and replaces the gathered messages
                              H2 A2 H3 A3      has a part of the history: the last exchange is appended
                                    H3 A3      has no history, and is appended

The history is found by comparing texts, never lengths. The last exchange of a turn, from its human message on, is new, even
if an earlier exchange has the same texts. Exceptions:

- If the last gathered exchange was interrupted, and the last exchange of the turn begins with the same messages, the turn
  replaces it.
- If the whole history lacks gathered tool calls, the gathered messages are kept, and the turn's later messages are appended.
"""

from __future__ import annotations

import json
from array import array
from bisect import insort
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from sys import getsizeof
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import TypeAdapter

from spanscore.core.codecs.media import add_images, with_keys
from spanscore.core.codecs.text import jsonable
from spanscore.core.sample import AIMessage, HumanMessage, Image, Message, MultiTurnSample, Sample, Samples, ToolMessage
from spanscore.core.score import Outcome
from spanscore.core.span import Session, SessionEnd, SpanData, Unit, UnitKey
from spanscore.pipeline.decisions import drop_oldest

Marks: TypeAlias = "array[int]"
_MESSAGES: Final = TypeAdapter(list[Message])


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive messages: the messages that a turn added to a conversation, or all messages of the turn.

    Attributes:
        end_ns: end of the turn.
        content: the messages as JSON, so that their exact size is known.
        count: number of messages.
        marks: a hash of each text of humans and the assistant. Tool calls have no mark, because an application's history may
            lack them.
        own: index in ``marks`` of the turn's last exchange; the history is before it.
        own_message: index of that exchange among the messages.
        exchanges: number of human messages; consecutive human messages count once.
        is_open: whether the last message has no answer, because the run was interrupted.
        has_history: whether the turn contained all messages that were gathered before.
    """

    end_ns: int
    content: bytes
    count: int
    marks: Marks
    own: int
    own_message: int
    exchanges: int
    is_open: bool
    has_history: bool = False

    def messages(self) -> list[Message]:
        """Return the messages."""
        return _MESSAGES.validate_json(self.content)

    def cut(self, start: int, end: int | None = None) -> Segment:
        """Return a segment of the messages from ``start`` to before ``end``."""
        return _segment(self.messages()[start:end], self.end_ns)


def segment_of(conversation: Sample, end_ns: int) -> Segment | None:
    """Return a turn's conversation, or its question and answer; None if there are no messages."""
    if isinstance(conversation, MultiTurnSample):
        messages = conversation.user_input
    else:
        question, answer = conversation.user_input, conversation.response
        messages = list[Message]() if question is None else [HumanMessage(content=question)]
        messages += [] if answer is None else [AIMessage(content=answer)]
    return _segment(messages, end_ns) if messages else None


def join_turn(gathered: Sequence[Segment], turn: Segment) -> list[Segment]:
    """Return the segments of a conversation, in order, with one more turn."""
    if gathered and _resumes(gathered[-1], turn):
        last = gathered[-1]  # without its interrupted exchange, which the turn contains
        rest = [last.cut(0, last.own_message)] if last.own_message else []
        return join_turn([*gathered[:-1], *rest], turn)
    gathered_marks = [*chain.from_iterable(segment.marks for segment in gathered)]
    covered = _count_covered(gathered_marks, turn.marks[: turn.own])
    if covered is None:
        return [*gathered, turn.cut(turn.own_message) if turn.own_message else turn]
    messages = sum(segment.count for segment in gathered)
    if messages > covered:  # the gathered messages may have tool calls that the history lacks
        starts = [at for at, message in enumerate(turn.messages()) if _mark(message) is not None]
        after = [*starts, turn.count][covered]  # tool calls belong to the text before them
        if messages > after:
            return [*gathered, replace(turn.cut(after), has_history=True)]
    return [replace(turn, has_history=turn.exchanges > 1)]


def messages_in(gathered: Iterable[Segment]) -> list[Message]:
    """Return the messages of a conversation, without tool results that no call precedes."""
    kept: list[Message] = []
    caller: AIMessage | None = None
    for message in chain.from_iterable(segment.messages() for segment in gathered):
        if not isinstance(message, ToolMessage):
            caller = message if isinstance(message, AIMessage) and message.tool_calls else None
        elif caller is None or not _answers(message, caller):
            continue
        kept.append(message)
    return kept


def _segment(messages: Sequence[Message], end_ns: int) -> Segment:
    marks = [_mark(message) for message in messages]
    exchanges = _exchanges(messages)
    own_message, last = exchanges[-1] if exchanges else 0, messages[-1]
    content = json.dumps([_plain(message) for message in messages], ensure_ascii=False, separators=(",", ":"))
    return Segment(
        end_ns=end_ns,
        content=content.encode(errors="replace"),
        count=len(messages),
        marks=array("q", (mark for mark in marks if mark is not None)),
        own=sum(mark is not None for mark in marks[:own_message]),
        own_message=own_message,
        exchanges=len(exchanges),
        is_open=not (isinstance(last, AIMessage) and last.content.strip() and not last.tool_calls),
    )


def _plain(message: Message) -> dict[str, Any]:
    """Return a message for JSON; arguments and metadata of a submitted sample may be any object."""
    plain = dict(message)
    if message.metadata is not None:
        plain["metadata"] = jsonable(message.metadata)
    if isinstance(message, AIMessage) and message.tool_calls:
        plain["tool_calls"] = [{**dict(call), "args": jsonable(call.args)} for call in message.tool_calls]
    return plain


def _exchanges(messages: Sequence[Message]) -> list[int]:
    """Return the indexes at which exchanges begin. An exchange has one human message or several in a row."""
    human = [isinstance(message, HumanMessage) for message in messages]
    return [at for at, is_human in enumerate(human) if is_human and not (at and human[at - 1])]


def _mark(message: Message) -> int | None:
    """Return a hash of a message's stripped text; None if it is not a text of a human or the assistant."""
    text = message.content.strip()
    if isinstance(message, ToolMessage) or not (text or isinstance(message, HumanMessage)):
        return None
    return hash((message.type, text))


def _count_covered(gathered: Sequence[int], history: Marks) -> int | None:
    """Return the number of texts at the beginning of a history that cover all gathered texts; None if it lacks some of them.

    A history that covers the gathered texts begins with the first of them and has the others in order. It may have further
    texts in between, because a turn's sample has only the last of several texts of an assistant.
    """
    if gathered and (not history or history[0] != gathered[0]):
        return None
    covered = 0
    for mark in gathered:
        try:
            covered = history.index(mark, covered) + 1
        except ValueError:
            return None
    return covered


def _resumes(before: Segment, turn: Segment) -> bool:
    """Whether a turn continues the unanswered exchange of ``before``: it begins with the same messages and tool calls."""
    unanswered = before.marks[before.own :]
    if not (before.is_open and unanswered) or turn.marks[turn.own : turn.own + len(unanswered)] != unanswered:
        return False
    interrupted, resumed = before.messages()[before.own_message :], turn.messages()[turn.own_message :]
    return len(interrupted) <= len(resumed) and all(map(_same, interrupted, resumed))


def _same(message: Message, other: Message) -> bool:
    calls = [
        [(call.name, call.id, call.args) for call in getattr(m, "tool_calls", None) or ()] for m in (message, other)
    ]
    return message.type == other.type and message.content.strip() == other.content.strip() and calls[0] == calls[1]


def _answers(message: ToolMessage, caller: AIMessage) -> bool:
    calls = {call.id for call in caller.tool_calls or () if call.id}
    return not message.tool_call_id or not calls or message.tool_call_id in calls


_KEY_BITS: Final = (1 << 60) - 1
"""An int of 60 bits takes 32 bytes of memory, an int of 64 bits takes 48."""
_TIME_BITS: Final = 64
_EXCHANGE_BITS: Final = 16
_HEAD_BITS: Final = 32


class PastSession(NamedTuple):
    """A conversation that has ended.

    Attributes:
        revision: revision of its last end.
        end_ns: end of its last turn, 64 bits.
        exchanges: number of its exchanges; 65,535 if it had more.
        head: 32 bits of the hash of its first text.
    """

    revision: int
    end_ns: int
    exchanges: int
    head: int


class PastSessions:
    """Remembers ended conversations, 120 to 170 bytes each, so that further turns make a revision and no new conversation.

    Python's hash of bytes is keyed per process: ids cannot be made to collide, and collide by chance once in 10¹² look-ups.

    Args:
        most: minimum number of remembered conversations; the latest ended conversations are remembered. The maximum is an
            eighth more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._past: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._past)

    def add(self, key: UnitKey, past: PastSession) -> None:
        """Remember a conversation that has ended, for the first time or again."""
        exchanges = min(past.exchanges, (1 << _EXCHANGE_BITS) - 1)
        packed = (past.revision << _TIME_BITS) + past.end_ns
        packed = (packed << _EXCHANGE_BITS) + exchanges
        self._past.pop(_hash(key), None)
        self._past[_hash(key)] = (packed << _HEAD_BITS) + past.head
        drop_oldest(self._past, self._most)

    def get(self, key: UnitKey) -> PastSession | None:
        """Return the end of a conversation; None if it has not ended, or was forgotten."""
        packed = self._past.get(_hash(key))
        if packed is None:
            return None
        packed, head = divmod(packed, 1 << _HEAD_BITS)
        packed, exchanges = divmod(packed, 1 << _EXCHANGE_BITS)
        return PastSession(*divmod(packed, 1 << _TIME_BITS), exchanges, head)


def _hash(key: UnitKey) -> int:
    return hash(key.trace_id.to_bytes(16, "big")) & _KEY_BITS


_MAX_LINKS: Final = 100
_REFERENCES: Final = ("reference", "reference_tool_calls", "reference_topics", "rubrics")
_SESSION_BYTES: Final = 1_300
"""Bytes of a session with its place in the table and its last turn's span, without segments, links and attributes."""
_SEGMENT_BYTES: Final = 280
_LINK_BYTES: Final = 80
_ATTRIBUTE_BYTES: Final = 120


class Turn(NamedTuple):
    """A unit of a conversation.

    Attributes:
        id: the application's own id of the conversation.
        root: root span without content; None if it never arrived.
        end_ns: end of the turn, nanoseconds since the epoch; turns are ordered by it.
        samples: redacted samples, or an outcome. A ``filtered`` turn is left out and does not count as missing; an interrupted
            turn is missing until a later turn continues it.
        stream: stream that has all turns of its conversation, such as a Kafka partition; None = no such stream.
    """

    id: str
    unit: UnitKey
    root: SpanData | None
    end_ns: int
    samples: Samples
    stream: Hashable = None


@dataclass(slots=True)
class OpenSession:
    """The gathered turns of a conversation that goes on.

    Attributes:
        id: the application's own id of the conversation.
        key: key in the ledger of sessions.
        past: previous end of the conversation; None if it has not ended before, or its end was forgotten.
        last_ns: arrival of its latest turn.
        size_bytes: approximate memory of the session.
        units: number of turns that arrived.
        unscored: number of turns that arrived since it was last scored.
        arrived_with_history: whether the turn that arrived last contained the whole history; None if unknown.
        stream: stream of its first turn.
        why_partial: why other processes may have turns of it; empty if every turn arrived here.
    """

    id: str
    key: UnitKey
    past: PastSession | None = None
    last_ns: int = 0
    size_bytes: int = 0
    units: int = 0
    unscored: int = 0
    arrived_with_history: bool | None = None
    stream: Hashable = None
    why_partial: str = ""
    _segments: list[Segment] = field(default_factory=list)
    _links: list[bytes] = field(default_factory=list)
    _root: SpanData | None = None
    # name of a reference field → end of its latest turn, and its value as JSON
    _references: dict[str, tuple[int, str]] = field(default_factory=dict)
    # tool's name → end of its latest turn, and its definition as JSON
    _tools: dict[str, tuple[int, str]] = field(default_factory=dict)
    _images: dict[str, Image] = field(default_factory=dict)  # key in the messages → image
    _missing_turn: tuple[int, Outcome] | None = None  # end and outcome of the latest turn without a sample
    _interrupted_ns: int = -1  # end of the latest interrupted turn; -1 = none was interrupted

    @property
    def name(self) -> str:
        """Name of the span of its last turn."""
        return "" if self._root is None else self._root.name

    @property
    def exchanges(self) -> int:
        """Number of gathered exchanges."""
        return sum(segment.exchanges for segment in self._segments)

    @property
    def turns(self) -> int:
        """Number of turns, including turns of other processes that the histories of later turns contain."""
        return max(self.units, self.exchanges)

    @property
    def revision(self) -> int:
        """Number of its earlier ends."""
        return 0 if self.past is None else self.past.revision + 1

    @property
    def ends_with_history(self) -> bool:
        """Whether its last turn by time contained the whole history."""
        return bool(self._segments) and self._segments[-1].has_history

    def add(self, turn: Turn, now_ns: int) -> None:
        """Add a turn."""
        self.last_ns, self.arrived_with_history = now_ns, None
        self.units += 1
        self.unscored += 1
        self._add_link(turn)
        outcome = turn.samples.outcome
        if turn.samples.interrupted:
            self._interrupted_ns = max(self._interrupted_ns, turn.end_ns)
        elif outcome is not None and outcome is not Outcome.FILTERED:
            self._missing_turn = max(self._missing_turn or (0, outcome), (turn.end_ns, outcome))
        elif outcome is None:
            self._gather(turn)
        self.size_bytes = self._size_bytes()

    def _gather(self, turn: Turn) -> None:
        conversation = turn.samples.multi_turn or turn.samples.single_turn
        if conversation is None:
            return
        keyed, images = with_keys(conversation)
        segment = segment_of(keyed, turn.end_ns)
        if segment is not None:
            self._images |= images
            self._insert(segment)
            self._add_references(turn)

    def incomplete(self, *, history_fills_gaps: bool) -> str | None:
        """Return why turns are missing; None if all turns are present.

        ``history_fills_gaps``: whether a turn without a sample is present if the history of a later turn contains it.
        """
        if self._missing_turn is not None and not (
            history_fills_gaps and self._missing_turn[0] < self._last_history_ns
        ):
            return f"a turn of the conversation has no sample: {self._missing_turn[1]}"
        if self._interrupted_ns > max((segment.end_ns for segment in self._segments), default=-1):
            return "the last turn of the conversation was interrupted, and has not been resumed"
        past = self.past
        if past is None or (
            self._last_history_ns > past.end_ns and self.exchanges > past.exchanges and self._head == past.head
        ):
            return None
        return "the conversation went on after its end, and its turns do not contain the earlier messages"

    def as_unit(self, end: SessionEnd) -> Unit:
        """Return the unit that gets the score of the conversation: its last turn."""
        links = tuple(UnitKey(int.from_bytes(link[8:24]), int.from_bytes(link[24:])) for link in self._links)
        spans = () if self._root is None else (self._root,)
        session = Session(self.key, self.turns, end, links)
        return Unit(links[-1], spans, revision=self.revision, session=session)

    def samples(self) -> Samples:
        """Return the conversation with the latest value of each reference field; an outcome if it has no messages."""
        messages = messages_in(self._segments)
        if messages:
            references: dict[str, Any] = {name: json.loads(text) for name, (_, text) in self._references.items()}
            tools = [json.loads(text) for _, text in self._tools.values()] or None
            conversation = MultiTurnSample(user_input=messages, tools=tools, **references)
            return Samples.of(add_images(conversation, lambda: self._images))
        if self._missing_turn is None and self._interrupted_ns < 0:
            return Samples(outcome=Outcome.FILTERED, reason="the filter left out every turn of the conversation")
        return Samples(outcome=Outcome.INCOMPLETE, reason="no turn of the conversation has a sample")

    def ended(self) -> PastSession:
        """Return the end of the conversation, which `PastSessions` remembers."""
        past = self.past or PastSession(0, 0, 0, self._head or 0)
        end_ns = int.from_bytes(self._links[-1][:8])
        return PastSession(self.revision, max(past.end_ns, end_ns), max(past.exchanges, self.exchanges), past.head)

    @property
    def _last_history_ns(self) -> int:
        """End of the latest turn that contained the whole history."""
        return max((segment.end_ns for segment in self._segments if segment.has_history), default=0)

    @property
    def _head(self) -> int | None:
        """32 bits of the hash of its first text; None without a text."""
        return next((mark & (1 << _HEAD_BITS) - 1 for segment in self._segments for mark in segment.marks), None)

    def _add_link(self, turn: Turn) -> None:
        ids = turn.unit.trace_id.to_bytes(16, "big") + turn.unit.span_id.to_bytes(8, "big")
        link = (turn.end_ns & (1 << _TIME_BITS) - 1).to_bytes(8, "big") + ids  # 32 bytes, which sort by time
        if not self._links or link > self._links[-1]:
            self._root = None if turn.root is None else replace(turn.root, metadata={}, events=())
        insort(self._links, link)
        del self._links[:-_MAX_LINKS]

    def _insert(self, new: Segment) -> None:
        """Insert a turn by its time, and join the later turns again, because their histories may contain it."""
        later = [segment for segment in self._segments if segment.end_ns > new.end_ns]
        before = self._segments[: len(self._segments) - len(later)]
        segments = join_turn(before, new)
        first = next((mark for segment in before for mark in segment.marks), None)
        # unknown for a turn without a history, or with a history that begins like the conversation
        begins_alike = not new.own or first is None or new.marks[0] == first
        self.arrived_with_history = segments[-1].has_history or (None if begins_alike else False)
        for segment in later:
            segments = join_turn(segments, segment)
        self._segments = segments

    def _add_references(self, turn: Turn) -> None:
        for sample in (turn.samples.single_turn, turn.samples.multi_turn):
            references = {} if sample is None else sample.model_dump(include=set(_REFERENCES))
            for name, reference in references.items():
                if reference is not None:
                    entry = turn.end_ns, json.dumps(jsonable(reference))
                    self._references[name] = max(self._references.get(name, entry), entry)
        conversation = turn.samples.multi_turn
        for tool in () if conversation is None else conversation.tools or ():
            entry = turn.end_ns, json.dumps(jsonable(tool.model_dump()))
            self._tools[tool.name] = max(self._tools.get(tool.name, entry), entry)

    def _size_bytes(self) -> int:
        attributes = {} if self._root is None else self._root.attributes
        texts = [self.id, *(value for value in attributes.values() if isinstance(value, str))]
        segments = sum(_SEGMENT_BYTES + len(segment.content) + 8 * len(segment.marks) for segment in self._segments)
        references = sum(_SEGMENT_BYTES + len(text) for _, text in (*self._references.values(), *self._tools.values()))
        counted = _ATTRIBUTE_BYTES * len(attributes) + _LINK_BYTES * len(self._links)
        images = sum(len(image.url or image.base64 or "") for image in self._images.values())
        return _SESSION_BYTES + sum(map(getsizeof, texts)) + segments + references + counted + images
