"""Decides which spans received over OTLP belong to units, and finds the units in a request that no rate would sample.

Both read the bytes of the spans, without decoding them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.capture.scopes import LOGFIRE, Role, Scopes, root_role, scope_notes
from spanscore.core.codecs.otlp_request import (
    Origin,
    ParsedRequest,
    UnreadableRequest,
    WireSpan,
    copy_span,
    copy_times,
    resource_of,
)
from spanscore.core.codecs.otlp_scan import TIMES_SIZE, SpanPlace
from spanscore.core.printable import printable
from spanscore.pipeline.assembly import RootRole, role_of_operation, topmost_roots
from spanscore.pipeline.trace_index import ClosedUnit
from spanscore.pipeline.traces import TraceTable
from spanscore.samples.normalizers.registry import SpanNormalizers

FindMark = Callable[[bytes, int, int], object]
"""Function of a request's body, and of the start and end of a span in it. It returns None if the span is not claimed."""

_BY_CONTENT: Final = (Role.UNKNOWN, Role.GENERAL)
_MOST: Final = 1_000
"""Number of cached processes, resources and scopes. Beyond it all are forgotten; each returns with its next span."""
_LONGEST_NAME: Final = 200
"""Longest name of a scope or a service in messages, in characters."""

# An attribute is encoded as a key and a value, in either order: SDKs write the key first, the Collector writes it last.
#
#     key      0x0A, length, name
#     value    0x12, length, 0x0A, length, text
_KEY_TAG: Final = 0x0A
_KEY_HEAD: Final = rb"\n[\x01-\x7f]"
"""Matches the tag and the length before a name, which distinguish a key from a text that mentions the name."""
_VALUE_TAGS: Final = b"\x12\n"
_VALUE_HEAD_SIZE: Final = 4
"""Number of bytes before the text of a value."""
_VALUE_BEFORE: Final = re.compile(rb"\x12.\n.[ -~]*\Z", re.DOTALL)
"""Matches an ASCII value at the end of the searched bytes, which is the value before a key."""
_LONGEST_VALUE: Final = 64
"""Longest value that is searched before a key, in bytes."""


class ScopeClaim(NamedTuple):
    """The role of a scope, and the test by which its spans are claimed.

    Attributes:
        find_mark: test of a span's bytes; None = every span is claimed.
        usual_mark: byte string that most claimed spans contain, and no other span. It is searched first, which halves the
            search time. Empty = it is not searched.
    """

    role: Role
    find_mark: FindMark | None
    usual_mark: bytes = b""


class WireClaims:
    """Decides which received spans are claimed: by their scope, or by the names of attributes in their bytes.

    Scopes are compared within one process, identified by ``service.name`` and ``service.instance.id``. If two of them trace one
    library, only the one that is requested first is read. Thread-safe: threads that compute the same entry get equal results.

    Args:
        translator: normalizers, which name the known scopes, and the attribute names that mark spans of other scopes.
        listed: prefixes of further scopes to claim.
        ignored: prefixes of scopes that are not claimed.
    """

    def __init__(self, translator: SpanNormalizers, *, listed: Sequence[str] = (), ignored: Sequence[str] = ()) -> None:
        self._translator = translator
        marks = b"|".join(map(re.escape, translator.marks))
        # One search takes an eighth of the time of one find per mark.
        self._find_mark = re.compile(_KEY_HEAD + b"(?:" + marks + b")").search
        self._usual_mark = _key_of(semconv.OPERATION_NAME)
        self._listed = tuple(listed)
        self._ignored = tuple(ignored)
        self._claims: dict[int, ScopeClaim] = {}
        self._superseded_keys: dict[int, str] = {}  # key of an ignored scope → its name, for ``unread``
        self._resources: dict[int, Scopes] = {}
        self._processes: dict[tuple[str, str], Scopes] = {}

    def of(self, origin: Origin) -> ScopeClaim:
        """Return the claim of a scope."""
        key = hash(origin)  # the hash, because the bytes may be many
        claim = self._claims.get(key)
        if claim is None:
            scopes, scope = self._scopes_of(origin), _format_name(origin.scope_name)
            role = scopes.role(scope)
            if len(self._claims) >= _MOST:
                self._claims.clear()
                self._superseded_keys.clear()
            if role is Role.IGNORED and scope in scopes.superseded:
                self._superseded_keys[key] = scope
            if role is Role.CLAIMED:
                claim = ScopeClaim(role, None)
            elif role in _BY_CONTENT:
                claim = ScopeClaim(role, self._find_mark, self._usual_mark)
            else:
                claim = ScopeClaim(role, lambda *_: None)
            self._claims[key] = claim
        return claim

    def claims(self, span: WireSpan) -> bool:
        """Return whether a span may belong to a unit."""
        mark = self.of(span.origin).find_mark
        return mark is None or mark(span.raw, 0, len(span.raw)) is not None

    def shorten_root(self, body: bytes, root: SpanPlace, origin: Origin) -> WireSpan | None:
        """Return the root of an unsampled unit with its times only; None if the spans below it decide which spans are roots."""
        _, _, _, _, start, end, _ = root
        is_certain = (
            text_of(body, semconv.OPERATION_NAME, start, end) in _ROOT_OPERATIONS
            and body.find(_KIND_KEY, start, end) < 0
            and not origin.scope_name.startswith(LOGFIRE)
        )
        if is_certain or root_role(RawAttributes(body, start, end), origin.scope_name) is RootRole.ROOT:
            return copy_times(body, root, origin)
        return None

    def role(self, span: WireSpan) -> RootRole:
        """Return the role of a topmost claimed span, without decoding it. Pure.

        A root of spanscore's own capture stays a root. A submitted sample is never a root, because the process that made it
        has scored it.
        """
        if len(span.raw) <= TIMES_SIZE:  # a shortened root
            return RootRole.ROOT
        if span.origin.scope_name == semconv.CAPTURE_SCOPE:
            return RootRole.NEVER if text_of(span.raw, semconv.OPERATION_NAME) is None else RootRole.ROOT
        return root_role(RawAttributes(span.raw), span.origin.scope_name)

    def has_no_unit(self, closed: ClosedUnit) -> bool:
        """Return whether a closed topmost span makes no unit: a submitted sample, or a span that cannot have an answer.

        False if other spans below it may make units.
        """
        only_root_counts = closed.outcome is not None or closed.root.origin.scope_name == semconv.CAPTURE_SCOPE
        return only_root_counts and self.role(closed.root) is RootRole.NEVER

    def is_unit_root(self, span: WireSpan) -> bool:
        """Return whether a span without its parent is the root of a unit. Pure.

        A retrieval or a tool call of spanscore's own capture is not a root, because it was below the missing root. A step of
        LlamaIndex is not a root either, because OpenLLMetry makes a span for each run, and that of a streamed query never ends.
        """
        scope = span.origin.scope_name
        if scope == semconv.LLAMA_INDEX_SCOPE and text_of(span.raw, semconv.TRACELOOP_KIND) == "task":
            return False
        if scope == semconv.CAPTURE_SCOPE and len(span.raw) > TIMES_SIZE:
            return role_of_operation(text_of(span.raw, semconv.OPERATION_NAME)) is RootRole.ROOT
        return self.role(span) in (RootRole.ROOT, RootRole.UNNAMED)

    def roots(self, closed: ClosedUnit) -> int:
        """Return the number of units among a topmost span and the claimed spans below it, without decoding them."""
        spans = {span.span_id: span for span in closed.spans} | {closed.root.span_id: closed.root}
        ids = [(span.span_id, span.parent_id) for span in closed.spans]
        return len(topmost_roots(closed.root.span_id, ids, lambda span_id: self.role(spans[span_id]), closed.unread))

    def unread(self, request: ParsedRequest) -> Iterator[tuple[str, set[bytes]]]:
        """Yield scopes that are ignored because another scope traces the same library, with the traces of their spans."""
        for origin, places in request.places if self._superseded_keys else ():
            scope = self._superseded_keys.get(hash(origin))
            if scope is not None:
                yield scope, {place[0] for place in places}

    def notes(self) -> list[str]:
        """Return the notes on scopes for ``status()``."""
        return scope_notes(self._listed, [*self._processes.values()])

    def found_by_content(self, origin: Origin) -> None:
        """Record that the root of a unit has a scope that no normalizer names."""
        if self.of(origin).role in _BY_CONTENT:
            self._scopes_of(origin).found_by_content(_format_name(origin.scope_name))

    @property
    def superseded(self) -> Mapping[str, str]:
        """Ignored scope → the scope that is read instead, in any process."""
        return {
            scope: by for scopes in list(self._processes.values()) for scope, by in scopes.superseded.copy().items()
        }

    def _scopes_of(self, origin: Origin) -> Scopes:
        resource = hash(origin.resource)
        scopes = self._resources.get(resource)
        if scopes is not None:
            return scopes
        if len(self._resources) >= _MOST:
            self._claims.clear()
            self._superseded_keys.clear()
            self._resources.clear()
            self._processes.clear()
        try:
            attributes = resource_of(origin)
        except UnreadableRequest:
            return self._processes.setdefault(("", ""), self._scopes("some process"))
        process = _format_name(attributes.get("service.name", "")), str(attributes.get("service.instance.id", ""))
        scopes = self._processes.setdefault(
            process, self._scopes(f"the process of {process[0] or 'an unnamed service'}")
        )
        return self._resources.setdefault(resource, scopes)

    def _scopes(self, place: str) -> Scopes:
        return Scopes(
            self._translator.names_scope,
            listed=self._listed,
            ignored=self._ignored,
            own_scopes=semconv.EVALUATOR_SCOPES,
            place=place,
        )


def _format_name(name: Any) -> str:
    """Return a name from the network in printable form, for a log."""
    text = str(name)[:_LONGEST_NAME]
    return text if text.isprintable() else printable(text)


def text_of(body: bytes, name: str, start: int = 0, end: int | None = None) -> str | None:
    """Return a short text attribute from the bytes of a span, ``body[start:end]``; None if it is missing."""
    key = _key_of(name)
    key_at = body.find(key, start, end)
    if key_at < 0:
        return None
    value_at, end = key_at + len(key), len(body) if end is None else end
    head = body[value_at : value_at + _VALUE_HEAD_SIZE]
    if head[::2] != _VALUE_TAGS or value_at + _VALUE_HEAD_SIZE > end:  # the value is before the key
        value = _VALUE_BEFORE.search(body, max(start, key_at - _LONGEST_VALUE), key_at)
        if value is None:
            return None
        value_at, end = value.start(), key_at
        head = body[value_at : value_at + _VALUE_HEAD_SIZE]
    text_at, size = value_at + _VALUE_HEAD_SIZE, head[3]
    if head[1] != size + 2 or text_at + size > end:
        return None
    text = body[text_at : text_at + size].decode("latin-1")
    return text if text.isascii() and text.isprintable() else None


class RawAttributes(NamedTuple):
    """The attributes of an undecoded span, which is ``body[start:end]``."""

    body: bytes
    start: int = 0
    end: int | None = None

    def get(self, name: str) -> str | None:
        """Return a short text attribute; None if it is missing."""
        return text_of(self.body, name, self.start, self.end)

    def __contains__(self, name: object) -> bool:
        """Return whether the span has an attribute of this name."""
        return self.body.find(_key_of(str(name)), self.start, self.end) >= 0


@cache
def _key_of(name: str) -> bytes:
    """Return the bytes of an attribute's key in a span. Cached, for a few names."""
    key = name.encode()
    return bytes((_KEY_TAG, len(key))) + key


_ROOT_OPERATIONS: Final = semconv.WHOLE_OPERATIONS | semconv.MODEL_OPERATIONS
"""Operations that make a span certainly a root, unless it has OpenInference's kind or Logfire's names."""
_KIND_KEY: Final = _key_of(semconv.OPENINFERENCE_KIND)


_UnitIds = dict[bytes, bytes]
"""Span id → parent's id."""
_NO_UNIT: Final = _UnitIds()
"""The value for unclaimed spans without a claimed span above them."""
UnsampledUnit = tuple[WireSpan, _UnitIds]
"""An unsampled unit in one request: its topmost span, as received or without content, and its claimed spans, parents first."""


class RequestPartition:
    """Splits the spans of one request into units that no rate would sample, and all other spans.

    An unsampled unit is counted without waiting for more spans, because most traces arrive in one request. The ids of its spans
    are kept, because other spans of it may have arrived before, or may follow. The bytes of its spans are never read, so they
    are not copied out of the request.

    Args:
        shorten_unsampled: function that returns a root without its content if no rate would sample its unit, otherwise None.

    Attributes:
        unsampled: the unsampled units.
        other_spans: (span, whether it is claimed) for all other spans, last span first.
        ours: number of spans of spanscore's evaluators, which are not read.
        traces: ids of the traces of claimed spans.
        other_traces: ids of the traces of unclaimed spans.
        size: total bytes of the claimed spans in ``other_spans``.
        roots: number of claimed spans that certainly begin a unit.
    """

    def __init__(
        self,
        request: ParsedRequest,
        shorten_unsampled: Callable[[bytes, SpanPlace, Origin], WireSpan | None],
    ) -> None:
        self._body = request.body
        self._shorten_unsampled = shorten_unsampled
        # Trace → ids of its unit, while all spans of the trace belong to one unit.
        self._single_units: dict[bytes, _UnitIds] = {}
        # Any other trace → span → ids of its unit.
        self._units_by_span: dict[bytes, dict[bytes, _UnitIds]] = {}
        self.unsampled: list[UnsampledUnit] = []  # list[…]() takes six times as long
        self.other_spans: list[tuple[WireSpan, bool]] = []
        self.traces: set[bytes] = set()
        self.other_traces: set[bytes] = set()
        self.read_spans = self.ours = self.roots = self.unclaimed = self.size = 0

    def read(
        self, origin: Origin, places: Sequence[SpanPlace], find_mark: FindMark | None, usual_mark: bytes = b""
    ) -> None:
        """Read spans of a scope, the last first: SDKs send them in order of their end, children before their parents.

        The last two arguments are those of the scope's ``ScopeClaim``.
        """
        single_units, body, last_trace_id, ids = self._single_units, self._body, b"", None
        find = body.find
        self.read_spans += len(places)
        for place in reversed(places):
            trace_id, span_id, parent_id, is_remote, start, end, _ = place
            claimed = (
                find_mark is None
                or (usual_mark != b"" and find(usual_mark, start, end) >= 0)
                or find_mark(body, start, end) is not None
            )
            if trace_id is not last_trace_id:
                last_trace_id, ids = trace_id, single_units.get(trace_id)
            if ids is not None and claimed and parent_id in ids and not is_remote and span_id not in ids:
                ids[span_id] = parent_id
            else:
                self._read_span(place, origin, claimed=claimed)
                last_trace_id = b""

    def _read_span(self, place: SpanPlace, origin: Origin, *, claimed: bool) -> None:
        """Read a span that does not follow its parent in the only unsampled unit of its trace, which is the usual case."""
        trace_id, span_id, parent_id, is_remote, start, end, _ = place
        unit_ids = _NO_UNIT if is_remote or not parent_id else self._ids_of_parent(trace_id, parent_id)
        (self.traces if claimed else self.other_traces).add(trace_id)
        self.unclaimed += not claimed
        self.roots += claimed and (is_remote or not parent_id)
        if unit_ids is None:
            pass  # the parent is in another request, or follows
        elif unit_ids is not _NO_UNIT:
            self._ids_by_span(trace_id)[span_id] = unit_ids
            if claimed and span_id not in unit_ids:
                unit_ids[span_id] = parent_id
                return
        elif not claimed:
            self._ids_by_span(trace_id)[span_id] = _NO_UNIT
        elif (root := self._shorten_unsampled(self._body, place, origin)) is not None:
            self._begin_unit(root, trace_id, span_id, parent_id)
            return
        self.other_spans.append((copy_span(self._body, place, origin), claimed))
        self.size += claimed * (end - start)

    def _begin_unit(self, root: WireSpan, trace_id: bytes, span_id: bytes, parent_id: bytes) -> None:
        ids = {span_id: parent_id}
        self.unsampled.append((root, ids))
        if trace_id in self._single_units or trace_id in self._units_by_span:
            self._ids_by_span(trace_id)[span_id] = ids
        else:
            self._single_units[trace_id] = ids

    def _ids_of_parent(self, trace_id: bytes, parent_id: bytes) -> _UnitIds | None:
        """Return the ids of the unit of a span's parent; ``_NO_UNIT`` if the parent is in no unit; None if it is unknown."""
        ids = self._single_units.get(trace_id)
        if ids is not None:
            return ids if parent_id in ids else None
        ids_by_span = self._units_by_span.get(trace_id)
        return None if ids_by_span is None else ids_by_span.get(parent_id)

    def _ids_by_span(self, trace_id: bytes) -> dict[bytes, _UnitIds]:
        """Return the known spans of a trace, each with the ids of its unit."""
        ids = self._single_units.pop(trace_id, None)
        if ids is not None:
            self._units_by_span[trace_id] = dict.fromkeys(ids, ids)
        return self._units_by_span.setdefault(trace_id, {})


def add_unsampled(table: TraceTable, units: Sequence[UnsampledUnit], now_ns: int) -> None:
    """Add the spans of unsampled units to a table."""
    for root, ids in units:
        if table.add_brief(root, ids, now_ns):
            continue
        table.add(root, claimed=True, now_ns=now_ns)
        for span_id, parent_id in [*ids.items()][1:]:
            span = WireSpan(root.trace_id, span_id, parent_id, False, b"", root.origin)
            table.add(span, claimed=True, now_ns=now_ns)
