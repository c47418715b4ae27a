"""Jaeger and Tempo over HTTP, and SOURCE on the command line → the store."""

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
from datetime import UTC, datetime
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from spanscore.config.kinds import seconds_of
from spanscore.core.codecs.otlp_request import UnreadableRequest, from_json, taken_apart
from spanscore.core.codecs.text import retry_after_s
from spanscore.core.log import type_name
from spanscore.errors import ConfigurationError
from spanscore.stored.traces import OtlpFiles, StoredTrace, TraceStore, Unread

__all__ = [
    "LIMIT",
    "JaegerStore",
    "StoreClient",
    "StoreNotFound",
    "StoreUnavailable",
    "TempoStore",
    "listed",
    "store_of",
    "time_of",
]

# --- asking ---------------------------------------------------------------------------------------------------------

# StoreClient: one question over HTTP, three tries of it, and an answer that was read as a whole.

T = TypeVar("T")

_TRIES: Final = 3
_WAIT_S: Final = 1.0
"""Before the second try, where the store does not say how long; twice that before the third."""
_LONGEST_WAIT_S: Final = 60.0
_TIMEOUT_S: Final = 60.0
_OVERLOADED: Final = 429
_NOT_FOUND: Final = 404
_SERVER: Final = 500


class StoreUnavailable(Exception):
    """A store gave no usable answer, three times. The text says why, without content."""


class StoreNotFound(StoreUnavailable):
    """It says that it does not have what was asked for."""


class StoreClient:
    """Asks one store. Blocks.

    Args:
        url: of the store, without a path to its API.
        sleep: waits between tries, in seconds.
        timeout_s: for one answer.

    Raises:
        ConfigurationError: the address is none.
    """

    def __init__(self, url: str, *, sleep: Callable[[float], None] = time.sleep, timeout_s: float = _TIMEOUT_S) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.username or parts.password:
            raise ConfigurationError("the address of a store holds a name or a password, which is not asked with")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"{url!r} is no address of a store; write for example http://localhost:16686")
        self.url = url.rstrip("/")
        self._sleep = sleep
        self._timeout_s = timeout_s

    def ask(self, path: str, given: Mapping[str, str], read: Callable[[Any], T]) -> T:
        """Return what ``read`` makes of the JSON of an answer.

        Args:
            path: below the address.
            given: parameters.
            read: raises ``AttributeError``, ``KeyError``, ``TypeError`` or ``ValueError`` where it is not what was asked for.

        Raises:
            StoreNotFound: the answer is 404.
            Unanswered: it is another error, or none, or half of one, three times.
            ConfigurationError: the store refuses; asking again would not help.
        """
        asked = f"{self.url}{path}?{urllib.parse.urlencode(given)}" if given else f"{self.url}{path}"
        request = urllib.request.Request(asked, headers={"Accept": "application/json"})
        for left in reversed(range(_TRIES)):
            wait_s = _WAIT_S * 2 ** (_TRIES - 1 - left)
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                    return read(json.loads(response.read()))
            except urllib.error.HTTPError as error:
                because = self._refused(error)
                told_s = retry_after_s(error.headers.get("Retry-After", ""))
                wait_s = wait_s if told_s is None else min(told_s, _LONGEST_WAIT_S)
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # half a body is no JSON
                because = "what it answers is not what was asked for, or not all of it"
            except (OSError, http.client.HTTPException) as error:
                because = f"no whole answer ({_why(error)})"
            if left:
                self._sleep(wait_s)
        raise StoreUnavailable(because)

    def _refused(self, error: urllib.error.HTTPError) -> str:
        """Return why an answer is worth another try."""
        told = f"it answers {error.code} {error.reason}"
        if error.code == _NOT_FOUND:
            raise StoreNotFound(told) from None
        if error.code < _SERVER and error.code != _OVERLOADED:
            raise ConfigurationError(f"{self.url}: {told}") from None
        return told


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason) if reason is not None else type_name(error)


# --- windows --------------------------------------------------------------------------------------------------------

# Stretches of time → the ids of all traces in them, of a store that lists so many at most and cannot turn pages.
#
# A stretch for which as many are listed as may be is halved, as there may be more, and one that cannot be halved is asked
# about again with a higher limit; after one that is nearly empty the next is twice as long.

LIMIT: Final = 200
"""Traces that are listed for one stretch: Jaeger sends all their spans with them."""
_WIDTH_S: Final = 3_600.0
_FEW: Final = 4
_HIGHER: Final = 4
_HIGHEST: Final = 64
"""So many times as many are listed of a stretch that cannot be shorter."""


def listed(
    start_s: float,
    end_s: float,
    ask: Callable[[float, float, int], Sequence[bytes]],
    *,
    least_s: float = 1.0,
    limit: int = LIMIT,
    where: str = "there",
) -> Iterator[bytes | Unread]:
    """Yield trace ids, each once, roughly in the order of time.

    Args:
        start_s: since the epoch; likewise ``end_s``, which is not part of it.
        ask: lists the ids of a stretch, so many at most.
        least_s: the shortest stretch that the store can be asked about.
        limit: how many it lists at most where the stretch can be shorter.
        where: names the store in the error: ``at http://localhost:16686``.

    Raises:
        ConfigurationError: of the first stretch nothing could be had: nobody is there.
    """
    seen, width_s, at_s = set[bytes](), _WIDTH_S, start_s
    answered = False
    while at_s < end_s:
        until_s = min(end_s, at_s + width_s)
        try:
            found = ask(at_s, until_s, limit)
        except StoreUnavailable as error:
            if not answered:
                raise ConfigurationError(f"no store lists its traces {where}: {error}") from None
            yield Unread(f"the traces {_stretch(at_s, until_s)}", str(error))
            at_s = until_s
            continue
        answered = True
        if len(found) >= limit and until_s - at_s > least_s:
            width_s = max(least_s, (until_s - at_s) / 2)
            continue
        if len(found) >= limit:
            found, because = _higher(partial(ask, at_s, until_s), found, limit)
            if because:
                yield Unread(f"more traces {_stretch(at_s, until_s)}", because)
        yield from (trace_id for trace_id in dict.fromkeys(found) if trace_id not in seen)
        seen.update(found)
        at_s = until_s
        if len(found) < limit // _FEW:
            width_s *= 2


def _higher(ask: Callable[[int], Sequence[bytes]], found: Sequence[bytes], limit: int) -> tuple[Sequence[bytes], str]:
    """Return what a full stretch holds, asked with ever higher limits, and why that may not be all."""
    highest = _HIGHEST * limit
    while len(found) >= limit:
        if limit >= highest:
            return found, f"{limit} are listed at most"
        limit *= _HIGHER
        try:
            found = ask(limit)
        except (StoreUnavailable, ConfigurationError) as error:
            return found, str(error)
    return found, ""


def _stretch(start_s: float, end_s: float) -> str:
    began, ended = (datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for time_s in (start_s, end_s))
    return f"from {began} to {ended}"


# --- jaeger ---------------------------------------------------------------------------------------------------------

# Jaeger's query API → whole traces: by its API v3, which gives OTLP, else by the JSON of its page.
#
# Of the latter a span is made again: tags are attributes, a reference is the parent, ``otel.scope.name`` the scope, and
# ``w3c.tracestate`` the trace state. What it has lost is told.

_LOST: Final = (
    "its API has no flags of a span: whether a parent is in another process is not known",
    "its API has times in microseconds: a rule on durations may decide otherwise at its very edge",
    "its API has lists as text",
)
_LEAST_S: Final = 0.001
_STATUS: Final = {"OK": 1, "ERROR": 2}
_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_NOT_ATTRIBUTES: Final = frozenset(
    {
        *("span.kind", "otel.scope.name", "otel.scope.version", "otel.status_code", "otel.status_description"),
        *("w3c.tracestate", "error", "internal.span.format"),
    }
)
"""Tags that Jaeger itself makes of the other parts of a span."""


class JaegerStore:
    """Asks one Jaeger.

    Args:
        client: of its query API.
        query: what its search takes (``service``, which it needs; ``operation``, ``tags``, ``minDuration`` …).
        start_s: since the epoch; likewise ``end_s``.
        otlp: whether its API v3 is used; None = where it has one.
    """

    def __init__(
        self, client: StoreClient, query: Mapping[str, str], start_s: float, end_s: float, *, otlp: bool | None = None
    ) -> None:
        self._client = client
        self._query = dict(query)
        self._start_s, self._end_s = start_s, end_s
        self._otlp = otlp
        self.lost: Sequence[str] = ()

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield the traces that are found."""
        if self._otlp is None:
            self._otlp = self._speaks_otlp()
        self.lost = () if self._otlp else _LOST
        where = f"at {self._client.url}"
        for trace_id in listed(self._start_s, self._end_s, self._ids, least_s=_LEAST_S, where=where):
            yield trace_id if isinstance(trace_id, Unread) else self._trace(trace_id)

    def _speaks_otlp(self) -> bool:
        try:
            return self._client.ask("/api/v3/services", {}, lambda answer: isinstance(answer, dict))
        except StoreNotFound:
            return False
        except StoreUnavailable as error:
            raise ConfigurationError(f"{self._client.url} is no Jaeger that answers: {error}") from None

    def _ids(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        stretch = {"start": str(int(start_s * 1e6)), "end": str(int(end_s * 1e6)), "limit": str(limit)}
        return self._client.ask("/api/traces", {**self._query, **stretch}, _ids_of)

    def _trace(self, trace_id: bytes) -> StoredTrace | Unread:
        path, read = ("/api/v3/traces/", _of_v3) if self._otlp else ("/api/traces/", _of_page)
        try:
            request = self._client.ask(f"{path}{trace_id.hex()}", {}, read)
            return StoredTrace(trace_id, taken_apart(from_json(request)).spans)
        except (StoreUnavailable, UnreadableRequest) as error:
            return Unread(f"trace {trace_id.hex()}", str(error))


def _ids_of(answer: Any) -> Sequence[bytes]:
    return [unhexlify(trace["traceID"].zfill(32)) for trace in answer["data"] or ()]


def _of_v3(answer: Any) -> str:
    return json.dumps({"resourceSpans": answer["result"]["resourceSpans"]})


def _of_page(answer: Any) -> str:
    """Return an OTLP-JSON request; a span each, as each has a process and a scope of its own."""
    (trace,) = answer["data"]
    return json.dumps({"resourceSpans": [_resource_spans(span, trace["processes"]) for span in trace["spans"]]})


def _resource_spans(span: Mapping[str, Any], processes: Mapping[str, Any]) -> dict[str, Any]:
    tags = {tag["key"]: tag for tag in span["tags"]}
    process = processes[span["processID"]]
    named = {"key": "service.name", "type": "string", "value": process["serviceName"]}
    resource = {"attributes": [_attribute(tag) for tag in (named, *process["tags"])]}
    scope = {"name": _text(tags, "otel.scope.name"), "version": _text(tags, "otel.scope.version")}
    return {"resource": resource, "scopeSpans": [{"scope": scope, "spans": [_span(span, tags)]}]}


def _span(span: Mapping[str, Any], tags: Mapping[str, Any]) -> dict[str, Any]:
    start_us = int(span["startTime"])
    status = {"code": _STATUS.get(_text(tags, "otel.status_code"), 2 if _text(tags, "error") == "True" else 0)}
    return {
        "traceId": span["traceID"].zfill(32),
        "spanId": span["spanID"].zfill(16),
        "parentSpanId": _parent(span),
        "traceState": _text(tags, "w3c.tracestate"),
        "name": span["operationName"],
        "kind": _KINDS.get(_text(tags, "span.kind"), 0),
        "startTimeUnixNano": str(start_us * 1_000),
        "endTimeUnixNano": str((start_us + int(span["duration"])) * 1_000),
        "attributes": [_attribute(tag) for name, tag in tags.items() if name not in _NOT_ATTRIBUTES],
        "events": [_event(log) for log in span["logs"] or ()],
        "status": status,
    }


def _parent(span: Mapping[str, Any]) -> str:
    """Return the parent's id: a child that is also linked to it follows from it."""
    own = [one for one in span["references"] or () if one["traceID"] == span["traceID"]]
    own.sort(key=lambda one: one["refType"] != "CHILD_OF")
    return own[0]["spanID"].zfill(16) if own else ""


def _event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field["key"]: field for field in log["fields"]}
    rest = [_attribute(field) for name, field in fields.items() if name != "event"]
    return {"timeUnixNano": str(int(log["timestamp"]) * 1_000), "name": _text(fields, "event"), "attributes": rest}


def _text(tags: Mapping[str, Any], name: str) -> str:
    return str(tags[name]["value"]) if name in tags else ""


def _attribute(tag: Mapping[str, Any]) -> dict[str, Any]:
    kind, value = tag["type"], tag["value"]
    if kind == "bool":
        return {"key": tag["key"], "value": {"boolValue": value}}
    if kind == "int64":
        return {"key": tag["key"], "value": {"intValue": str(value)}}
    if kind == "float64":
        return {"key": tag["key"], "value": {"doubleValue": value}}
    return {"key": tag["key"], "value": {"stringValue": str(value)}}


# --- tempo ----------------------------------------------------------------------------------------------------------

# Tempo's HTTP API → whole traces: a search by TraceQL lists ids, each trace is asked for alone.
#
# Its JSON is OTLP's but for its outermost name, and its ids are base64, as protobuf's own JSON has them (Tempo 2.x; both
# forms are read).

_IDS: Final = {"traceId": 32, "spanId": 16, "parentSpanId": 16}
"""Id → its hex digits."""
_CUT: Final = "the store left out some of its spans, as it is too large"


class TempoStore:
    """Asks one Tempo.

    Args:
        client: of its API.
        query: what its search takes: ``q``, in TraceQL, or ``tags``.
        start_s: since the epoch; likewise ``end_s``.
    """

    lost: Sequence[str] = ()

    def __init__(self, client: StoreClient, query: Mapping[str, str], start_s: float, end_s: float) -> None:
        self._client = client
        self._query = dict(query)
        self._start_s, self._end_s = start_s, end_s
        self._v2: bool | None = None

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield the traces that are found."""
        for trace_id in listed(self._start_s, self._end_s, self._ids, where=f"at {self._client.url}"):
            yield trace_id if isinstance(trace_id, Unread) else self._trace(trace_id)

    def _ids(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        stretch = {"start": str(int(start_s)), "end": str(ceil(end_s)), "limit": str(limit)}
        return self._client.ask("/api/search", {**self._query, **stretch}, _found_ids)

    def _trace(self, trace_id: bytes) -> StoredTrace | Unread:
        try:
            request = self._asked(trace_id.hex())
            if request is None:
                return Unread(f"trace {trace_id.hex()}", _CUT)
            return StoredTrace(trace_id, taken_apart(from_json(request)).spans)
        except (StoreUnavailable, UnreadableRequest) as error:
            return Unread(f"trace {trace_id.hex()}", str(error))

    def _asked(self, trace_id: str) -> str | None:
        """Ask the API v2, which says whether a trace is whole (None: it is not); Tempo before 2.7 has none."""
        if self._v2 is not False:
            try:
                request = self._client.ask(f"/api/v2/traces/{trace_id}", {}, _request)
            except StoreNotFound:
                if self._v2:
                    raise
            else:
                self._v2 = True
                return request
        request = self._client.ask(f"/api/traces/{trace_id}", {}, _request)
        self._v2 = False
        return request


def _found_ids(answer: Any) -> Sequence[bytes]:
    return [unhexlify(trace["traceID"].zfill(32)) for trace in answer.get("traces") or ()]


def _resource_spans_of_trace(answer: Mapping[str, Any]) -> list[Any]:
    trace = answer.get("trace", answer)
    found: list[Any] = trace["resourceSpans"] if "resourceSpans" in trace else trace["batches"]
    return found


def _request(answer: Mapping[str, Any]) -> str | None:
    """Return the trace as an OTLP request; None: the store left out some of its spans."""
    resource_spans = _resource_spans_of_trace(answer)
    for scope_spans in (one for resource in resource_spans for one in resource.get("scopeSpans") or ()):
        for span in scope_spans.get("spans") or ():
            for holder in (span, *(span.get("links") or ())):
                holder.update({name: _hex(holder[name], digits) for name, digits in _IDS.items() if name in holder})
    return None if answer.get("status") == "PARTIAL" else json.dumps({"resourceSpans": resource_spans})


def _hex(given: str, digits: int) -> str:
    return given if len(given) in (0, digits) else b64decode(given).hex()


# --- named ----------------------------------------------------------------------------------------------------------

# What an operator writes as SOURCE → the store.

_STORES: Final[Mapping[str, tuple[str, Callable[..., TraceStore]]]] = {
    "jaeger": ("service", JaegerStore),
    "tempo": ("q", TempoStore),
}
"""How a store is written → the parameter that it needs, and what asks it."""
_PATIENCE_S: Final = 7 * 86_400.0
"""How far back a store is asked, where nobody says."""


def store_of(source: str, *, since_s: float | None, until_s: float | None) -> TraceStore:
    """Return what reads a source.

    Args:
        source: a path, ``jaeger:http://host:16686?service=NAME`` or ``tempo:http://host:3200?q={…}``.
        since_s: since the epoch; None = of a store seven days ago, of files everything.
        until_s: likewise; None = now.

    Raises:
        ConfigurationError: it is none of these.
    """
    kind, _, address = source.partition(":")
    if kind not in _STORES:
        return OtlpFiles(Path(source))
    needed, make = _STORES[kind]
    url, _, asked = address.partition("?")
    query = _query(asked)
    if not query.get(needed):
        raise ConfigurationError(
            f"{source!r} does not say {needed}; write {kind}:{url or 'http://HOST:PORT'}?{needed}=…"
        )
    end_s = time.time() if until_s is None else until_s
    start_s = end_s - _PATIENCE_S if since_s is None else since_s
    return make(StoreClient(url), query, start_s, end_s)


def _query(asked: str) -> dict[str, str]:
    """Return the parameters; ``q`` is the last of them, as TraceQL has an ``&&`` of its own."""
    before, q, traceql = f"&{asked}".partition("&q=")
    given = dict(parse_qsl(before.strip("&"), keep_blank_values=True))
    return given | {"q": unquote(traceql)} if q else given


def time_of(text: str, now_s: float) -> float:
    """Return seconds since the epoch: of so long ago (``7d``), or of a date, with or without a time; without a zone it is UTC.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return now_s - seconds_of(text)
    except ValueError:
        pass
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no time; write how long ago, such as 7d or 12h, or 2026-07-01T12:00:00Z"
        ) from None
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
