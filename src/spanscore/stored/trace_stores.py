"""Reads traces from Jaeger and Tempo over HTTP, and from the SOURCE on a command line: a file, a Jaeger or a Tempo."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64decode
from binascii import unhexlify
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar
from urllib.parse import parse_qsl, unquote

from spanscore.core.codecs.otlp_request import UnreadableRequest, from_json, parse_request
from spanscore.core.codecs.text import retry_after_s
from spanscore.core.log import type_name
from spanscore.core.printable import parse_duration
from spanscore.errors import ConfigurationError
from spanscore.stored.traces import OtlpFiles, StoredTrace, TraceStore, Unread

if TYPE_CHECKING:
    from spanscore.stored.unit_reading import StoredUnit, UnitReader

T = TypeVar("T")

_TRIES: Final = 3
WAIT_S: Final = 1.0
"""Seconds before the second try, unless the store sends ``Retry-After``; twice that before the third."""
_LONGEST_WAIT_S: Final = 60.0


class StoreUnavailable(Exception):
    """A store gave no usable answer in three tries. The text is the reason, without content."""


class StoreNotFound(StoreUnavailable):
    """The store answered 404."""


class StoreClient:
    """An HTTP client of one store, with three tries for each request. Blocks.

    Args:
        url: base address of the store, without a path to its API.
        sleep: waits between tries, in seconds.
        timeout_s: limit for one answer, in seconds.

    Raises:
        ConfigurationError: the address is not an HTTP address, or holds a user name or a password.
    """

    def __init__(self, url: str, *, sleep: Callable[[float], None] = time.sleep, timeout_s: float = 60.0) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
        except ValueError as error:
            raise ConfigurationError(f"the address of a store cannot be read: {error}") from None
        if parts.username or parts.password:
            raise ConfigurationError(
                "the address of a store contains a name or a password, which requests do not use; remove it"
            )
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"{url!r} is not an address of a store; write for example http://localhost:16686")
        self.url = url.rstrip("/")
        self._sleep = sleep
        self._timeout_s = timeout_s

    def ask(self, path: str, parameters: Mapping[str, str], read: Callable[[Any], T]) -> T:
        """Request a path below the base address and return its JSON as ``read`` converts it.

        ``read`` raises ``AttributeError``, ``KeyError``, ``TypeError`` or ``ValueError`` if the JSON has another shape.

        Raises:
            StoreNotFound: the answer is 404.
            StoreUnavailable: three tries gave an error, no answer or an incomplete answer.
            ConfigurationError: the store refuses the request; another try would not help.
        """
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        request = urllib.request.Request(f"{self.url}{path}{query}", headers={"Accept": "application/json"})
        for left in reversed(range(_TRIES)):
            wait_s = WAIT_S * 2 ** (_TRIES - 1 - left)
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                    return read(json.loads(response.read()))
            except urllib.error.HTTPError as error:
                because = f"it answers {error.code} {error.reason}"
                if error.code == HTTPStatus.NOT_FOUND:
                    raise StoreNotFound(because) from None
                if error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code != HTTPStatus.TOO_MANY_REQUESTS:
                    raise ConfigurationError(f"{self.url}: {because}") from None
                retry_s = retry_after_s(error.headers.get("Retry-After", ""))
                wait_s = wait_s if retry_s is None else min(retry_s, _LONGEST_WAIT_S)
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # an incomplete body is not JSON
                because = "its answer has another form than expected, or is incomplete"
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None)
                because = f"no complete answer ({type_name(error) if reason is None else reason})"
            if left:
                self._sleep(wait_s)
        raise StoreUnavailable(because)


# --- search by time windows ------------------------------------------------------------------------------------------

LIMIT: Final = 200
"""Traces that one search lists at most, because Jaeger sends all their spans with them."""
_WIDTH_S: Final = 3_600.0
"""Length of the first window."""
_FEW: Final = 4
"""A window with fewer than 1 ⁄ 4 of the limit is followed by a longer one."""
_HIGHER: Final = 4
"""Factor between two limits for a window that cannot be shorter."""
_HIGHEST: Final = 64
"""Factor between the first and the highest limit."""


def list_trace_ids(
    start_s: float,
    end_s: float,
    ask: Callable[[float, float, int], Sequence[bytes]],
    *,
    least_s: float = 1.0,
    limit: int = LIMIT,
    where: str = "there",
) -> Iterator[bytes | Unread]:
    """Yield all trace ids of a store that lists a limited number per search and has no pages.

    The time is searched in windows. If a search reaches the limit, the window may contain more traces, and is halved. A window
    that cannot be halved is searched again with a higher limit. After a nearly empty window, the next one is twice as long.

    Args:
        start_s: seconds since the epoch, included.
        end_s: seconds since the epoch, excluded.
        ask: lists the ids between two times, up to a limit.
        least_s: shortest window that the store can search, in seconds.
        limit: highest number of ids that a search lists, unless the window cannot be shorter.
        where: address of the store for the error message: ``at http://localhost:16686``.

    Yields:
        Each id once, roughly in the order of time; and the windows that could not be searched.

    Raises:
        ConfigurationError: the first search failed, so the store is not reachable.
    """
    seen, width_s, at_s = set[bytes](), _WIDTH_S, start_s
    answered = False
    while at_s < end_s:
        until_s = min(end_s, at_s + width_s)
        try:
            ids = ask(at_s, until_s, limit)
        except StoreUnavailable as error:
            if not answered:
                raise ConfigurationError(f"no store answers a search {where}: {error}") from None
            yield Unread(f"the traces {_describe_window(at_s, until_s)}", str(error))
            at_s = until_s
            continue
        answered = True
        if len(ids) >= limit and until_s - at_s > least_s:
            width_s = max(least_s, (until_s - at_s) / 2)
            continue
        if len(ids) >= limit:
            ids, because = _raise_limit(partial(ask, at_s, until_s), ids, limit)
            if because:
                yield Unread(f"more traces {_describe_window(at_s, until_s)}", because)
        yield from (trace_id for trace_id in dict.fromkeys(ids) if trace_id not in seen)
        seen.update(ids)
        at_s = until_s
        if len(ids) < limit // _FEW:
            width_s *= 2


def _raise_limit(
    ask: Callable[[int], Sequence[bytes]], ids: Sequence[bytes], limit: int
) -> tuple[Sequence[bytes], str]:
    """Search a full window with increasing limits; return its ids, and the reason why there may be more."""
    highest = _HIGHEST * limit
    while len(ids) >= limit:
        if limit >= highest:
            return ids, f"{limit} are listed at most"
        limit *= _HIGHER
        try:
            ids = ask(limit)
        except (StoreUnavailable, ConfigurationError) as error:
            return ids, str(error)
    return ids, ""


def _describe_window(start_s: float, end_s: float) -> str:
    began, ended = (datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for time_s in (start_s, end_s))
    return f"from {began} to {ended}"


@dataclass(slots=True)
class _SearchedStore:
    """A store in which a search lists the ids of traces, as ``list_trace_ids`` does, and then each trace is requested."""

    shortest_s: ClassVar[float] = 1.0  # the shortest window that the store can search
    client: StoreClient
    query: Mapping[str, str]  # parameters of the search
    start_s: float  # begin of the search, seconds since the epoch
    end_s: float  # end of the search
    lost: Sequence[str] = field(default=(), init=False)

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield the traces that the search finds."""
        window, where = (self.start_s, self.end_s), f"at {self.client.url}"
        for trace_id in list_trace_ids(*window, self._list_ids, least_s=self.shortest_s, where=where):
            if isinstance(trace_id, Unread):
                yield trace_id
                continue
            name = f"trace {trace_id.hex()}"
            try:
                resource_spans = self._read_trace(trace_id.hex())
                if resource_spans is None:
                    yield Unread(name, _CUT)
                    continue
                request = from_json(json.dumps({"resourceSpans": resource_spans}))
                yield StoredTrace(trace_id, parse_request(request).spans)
            except (StoreUnavailable, UnreadableRequest) as error:
                yield Unread(name, str(error))

    def _list_ids(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        raise NotImplementedError

    def _read_trace(self, trace_id: str) -> Sequence[Any] | None:
        """Return the ``resourceSpans`` of an OTLP request; None if the store left out some of the trace's spans."""
        raise NotImplementedError


# --- Jaeger ----------------------------------------------------------------------------------------------------------

_LOST: Final = (
    "its API has no flags of a span: whether a parent is in another process is not known",
    "its API has times in microseconds: a rule on durations may decide otherwise at its very edge",
    "its API has lists as text",
)
_STATUS: Final = {"OK": 1, "ERROR": 2}
_VALUES: Final = {"bool": "boolValue", "int64": "intValue", "float64": "doubleValue"}
_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_NOT_ATTRIBUTES: Final = frozenset(
    {
        *("span.kind", "otel.scope.name", "otel.scope.version", "otel.status_code", "otel.status_description"),
        *("w3c.tracestate", "error", "internal.span.format"),
    }
)
"""Tags that Jaeger makes from other parts of a span."""


@dataclass(slots=True)
class JaegerStore(_SearchedStore):
    """The traces of one Jaeger, by its API v3, which returns OTLP, or by the JSON API of its user interface.

    Attributes:
        query: ``service``, which Jaeger requires, ``operation``, ``tags``, ``minDuration`` …
        otlp: whether API v3 is used; None = use it if this Jaeger has it.
        lost: facts that the JSON of the user interface lacks, a sentence each; empty with API v3.
    """

    shortest_s = 0.001
    _: KW_ONLY
    otlp: bool | None = None

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield the traces that the search finds."""
        if self.otlp is None:
            try:
                self.otlp = self.client.ask("/api/v3/services", {}, lambda answer: isinstance(answer, dict))
            except StoreNotFound:
                self.otlp = False
            except StoreUnavailable as error:
                raise ConfigurationError(f"{self.client.url} is not a Jaeger that answers: {error}") from None
        self.lost = () if self.otlp else _LOST
        yield from _SearchedStore.traces(self)

    def _list_ids(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        window = {"start": str(int(start_s * 1e6)), "end": str(int(end_s * 1e6)), "limit": str(limit)}
        return self.client.ask("/api/traces", {**self.query, **window}, lambda answer: _read_ids(answer["data"]))

    def _read_trace(self, trace_id: str) -> Sequence[Any]:
        if self.otlp:
            path = f"/api/v3/traces/{trace_id}"
            return self.client.ask(path, {}, lambda answer: [*answer["result"]["resourceSpans"]])
        return self.client.ask(f"/api/traces/{trace_id}", {}, _convert_ui_answer)


def _read_ids(traces: Any) -> Sequence[bytes]:
    return [unhexlify(trace["traceID"].zfill(32)) for trace in traces or ()]


def _convert_ui_answer(answer: Any) -> Sequence[Any]:
    """Return an answer of the user interface's API as ``resourceSpans`` of one span each, because each has its own process.

    Tags become attributes, a reference the parent, ``otel.scope.name`` the scope and ``w3c.tracestate`` the trace state.
    """
    (trace,) = answer["data"]
    resource_spans = []
    for span in trace["spans"]:
        tags = {tag["key"]: tag for tag in span["tags"]}
        process = trace["processes"][span["processID"]]
        service = {"key": "service.name", "type": "string", "value": process["serviceName"]}
        resource = {"attributes": [_attribute(tag) for tag in (service, *process["tags"])]}
        scope = {"name": _text(tags, "otel.scope.name"), "version": _text(tags, "otel.scope.version")}
        scope_spans = {"scope": scope, "spans": [_convert_span(span, tags)]}
        resource_spans.append({"resource": resource, "scopeSpans": [scope_spans]})
    return resource_spans


def _convert_span(span: Mapping[str, Any], tags: Mapping[str, Any]) -> dict[str, Any]:
    start_us = int(span["startTime"])
    parents = [reference for reference in span["references"] or () if reference["traceID"] == span["traceID"]]
    parents.sort(key=lambda reference: reference["refType"] != "CHILD_OF")  # others are FOLLOWS_FROM
    return {
        "traceId": span["traceID"].zfill(32),
        "spanId": span["spanID"].zfill(16),
        "parentSpanId": parents[0]["spanID"].zfill(16) if parents else "",
        "traceState": _text(tags, "w3c.tracestate"),
        "name": span["operationName"],
        "kind": _KINDS.get(_text(tags, "span.kind"), 0),
        "startTimeUnixNano": str(start_us * 1_000),
        "endTimeUnixNano": str((start_us + int(span["duration"])) * 1_000),
        "attributes": [_attribute(tag) for name, tag in tags.items() if name not in _NOT_ATTRIBUTES],
        "events": [_convert_event(log) for log in span["logs"] or ()],
        "status": {"code": _STATUS.get(_text(tags, "otel.status_code"), 2 if _text(tags, "error") == "True" else 0)},
    }


def _convert_event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field["key"]: field for field in log["fields"]}
    rest = [_attribute(field) for name, field in fields.items() if name != "event"]
    return {"timeUnixNano": str(int(log["timestamp"]) * 1_000), "name": _text(fields, "event"), "attributes": rest}


def _text(tags: Mapping[str, Any], name: str) -> str:
    return str(tags[name]["value"]) if name in tags else ""


def _attribute(tag: Mapping[str, Any]) -> dict[str, Any]:
    name = _VALUES.get(tag["type"], "stringValue")
    value = tag["value"] if name in ("boolValue", "doubleValue") else str(tag["value"])  # in JSON an int64 is a string
    return {"key": tag["key"], "value": {name: value}}


# --- Tempo -----------------------------------------------------------------------------------------------------------

_IDS: Final = {"traceId": 32, "spanId": 16, "parentSpanId": 16}
"""Id → number of its hex digits."""
_CUT: Final = "the store left out some of its spans, because the trace is too large"


@dataclass(slots=True)
class TempoStore(_SearchedStore):
    """The traces of one Tempo.

    Attributes:
        query: ``q``, in TraceQL, or ``tags``.
        lost: always empty, because the answers are OTLP.
    """

    _has_v2: bool | None = field(default=None, init=False)

    def _list_ids(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        window = {"start": str(int(start_s)), "end": str(ceil(end_s)), "limit": str(limit)}
        return self.client.ask("/api/search", {**self.query, **window}, lambda answer: _read_ids(answer.get("traces")))

    def _read_trace(self, trace_id: str) -> Sequence[Any] | None:
        """Request a trace from API v2, which states whether it is whole; Tempo before 2.7 has no such API."""
        if self._has_v2 is not False:
            try:
                resource_spans = self.client.ask(f"/api/v2/traces/{trace_id}", {}, _convert_answer)
            except StoreNotFound:
                if self._has_v2:
                    raise
            else:
                self._has_v2 = True
                return resource_spans
        resource_spans = self.client.ask(f"/api/traces/{trace_id}", {}, _convert_answer)
        self._has_v2 = False
        return resource_spans


def _convert_answer(answer: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the ``resourceSpans`` of a trace with hexadecimal ids; None if the store left out some of its spans.

    Tempo 2 writes ids in base64, as protobuf's own JSON does.
    """
    trace = answer.get("trace", answer)
    resource_spans: Sequence[Any] = trace.get("resourceSpans", trace.get("batches"))
    for scope_spans in (scope for resource in resource_spans for scope in resource.get("scopeSpans") or ()):
        for span in scope_spans.get("spans") or ():
            for holder in (span, *(span.get("links") or ())):
                holder.update({name: _hex_id(holder[name], digits) for name, digits in _IDS.items() if name in holder})
    return None if answer.get("status") == "PARTIAL" else resource_spans


def _hex_id(text: str, digits: int) -> str:
    return text if len(text) in (0, digits) else b64decode(text).hex()


# --- SOURCE ----------------------------------------------------------------------------------------------------------

_STORES: Final[Mapping[str, tuple[str, Callable[..., TraceStore]]]] = {
    "jaeger": ("service", JaegerStore),
    "tempo": ("q", TempoStore),
}
"""Scheme of a source → the parameter that it requires, and its class."""
_DEFAULT_SEARCH_S: Final = 7 * 86_400.0
"""Length of the time that is searched by default, up to the end."""
_MOST_NAMED: Final = 20
"""Maximum number of unread parts that are listed one by one."""


@dataclass(slots=True)
class TraceSource:
    """The traces and units of SOURCE on a command line, read once; parts that cannot be read are counted.

    Attributes:
        name: SOURCE as it was written.
        store: reader of the source.
        since_s: earliest start of a unit, seconds since the epoch; None = no bound.
        until_s: units start before this time, seconds since the epoch; None = no bound.
        most_kept: maximum length of ``unread``.
        traces_read: number of traces that were read so far.
        outside: number of units that started outside the bounds.
        unread: the first parts that could not be read.
        unread_total: number of all parts that could not be read.
    """

    name: str
    store: TraceStore
    since_s: float | None = None
    until_s: float | None = None
    most_kept: float = inf
    traces_read: int = 0
    outside: int = 0
    unread: list[Unread] = field(default_factory=list)
    unread_total: int = 0

    @classmethod
    def of(cls, source: str, since: str, until: str, *, most_kept: float = inf) -> Self:
        """Return the source, with the times of ``--since`` and ``--until``; an empty text means no bound.

        Raises:
            ConfigurationError: a time or the source cannot be read, or ``--since`` is not before ``--until``.
        """
        now_s = time.time()
        since_s, until_s = (time_of(text, now_s) if text else None for text in (since, until))
        if since_s is not None and until_s is not None and until_s <= since_s:
            raise ConfigurationError(f"--until {until} is not after --since {since}: no unit began between them")
        store = store_of(source, since_s=since_s, until_s=until_s)
        return cls(source, store, since_s, until_s, most_kept)

    def traces(self) -> Iterator[StoredTrace]:
        """Yield the traces that can be read."""
        for trace in self.store.traces():
            if isinstance(trace, Unread):
                self.unread_total += 1
                if len(self.unread) < self.most_kept:
                    self.unread.append(trace)
            else:
                self.traces_read += 1
                yield trace

    def units(self, reader: UnitReader, on_trace: Callable[[], None] = lambda: None) -> Iterator[StoredUnit]:
        """Yield the units that started between both times; ``on_trace`` is called after the units of each trace."""
        since_ns, until_ns = (self.since_s or 0) * 1e9, inf if self.until_s is None else self.until_s * 1e9
        for trace in self.traces():
            for stored in reader.units(trace):
                if since_ns <= (stored.unit.root or stored.unit.spans[0]).start_ns < until_ns:
                    yield stored
                else:
                    self.outside += 1
            on_trace()

    def describe_unread(self) -> Iterator[str]:
        """Yield a line for each of the first parts that could not be read, and one line for all others."""
        for part in self.unread[:_MOST_NAMED]:
            yield f"not read: {part.name}: {part.because}"
        if self.unread_total > _MOST_NAMED:
            yield f"not read: {self.unread_total - _MOST_NAMED:,} more"

    def describe_emptiness(self) -> str:
        """Return the reason why the source has no units."""
        if self.unread and not self.traces_read:
            first = self.unread[0]
            return f"{self.name}: nothing in it could be read; the first: {first.name}: {first.because}"
        if self.outside:
            return f"{self.name}: none of its {self.outside:,} units began between --since and --until"
        if self.traces_read:
            traces = f"{self.traces_read:,} traces"
            return f"{self.name} holds no units: no root of a chain, agent or model call is in {traces}"
        return (
            f"{self.name} holds no spans: a file has lines of OTLP-JSON, as the Collector's 'file' exporter writes them"
        )


def store_of(source: str, *, since_s: float | None, until_s: float | None) -> TraceStore:
    """Return the reader of a source.

    Args:
        source: a path, ``jaeger:http://host:16686?service=NAME`` or ``tempo:http://host:3200?q={…}``.
        since_s: begin of a store's search, seconds since the epoch; None = seven days before its end. Files are read
            completely.
        until_s: end of a store's search, seconds since the epoch; None = now.

    Raises:
        ConfigurationError: the source has no such form, or lacks a parameter.
    """
    kind, _, address = source.partition(":")
    if kind not in _STORES:
        return OtlpFiles(Path(source))
    needed, make = _STORES[kind]
    url, _, parameters = address.partition("?")
    others, has_q, traceql = f"&{parameters}".partition("&q=")  # ``q`` must be the last one, as TraceQL contains ``&&``
    query = dict(parse_qsl(others.strip("&"), keep_blank_values=True)) | ({"q": unquote(traceql)} if has_q else {})
    if not query.get(needed):
        raise ConfigurationError(f"{source!r} has no {needed}; write {kind}:{url or 'http://HOST:PORT'}?{needed}=…")
    end_s = time.time() if until_s is None else until_s
    start_s = end_s - _DEFAULT_SEARCH_S if since_s is None else since_s
    return make(StoreClient(url), query, start_s, end_s)


def time_of(text: str, now_s: float) -> float:
    """Return seconds since the epoch.

    Args:
        text: a duration before now (``7d``), or a date with or without a time; without a zone the time is UTC.
        now_s: seconds since the epoch.

    Raises:
        ConfigurationError: the text is neither.
    """
    try:
        return now_s - parse_duration(text)
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time; write how long ago, such as 7d or 12h, or 2026-07-01T12:00:00Z"
        ) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
