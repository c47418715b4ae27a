"""Proxy: keeps spans that may be scored, forwards all others at once, and the kept ones with their scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, Protocol

from spanscore.capture.otlp.requests import ForwardTarget, RequestClaims
from spanscore.config.serving import ForwardSettings
from spanscore.core.codecs.otlp_request import ParsedRequest, WireSpan, request_of, with_attributes
from spanscore.core.codecs.otlp_scan import RequestSkeleton
from spanscore.core.log import log_internal_error
from spanscore.core.threads import start_daemon
from spanscore.durable.outbox import Outbox
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient
from spanscore.service.otlp_endpoint import TRACES, ExportRequest
from spanscore.service.requests import LATER_S, PROTOBUF, ExportResponse, accepted, refusal

__all__ = ["ForwardCounts", "Forwarder", "Keeper", "Proxy", "ProxySender", "rest_of"]

# --- split ----------------------------------------------------------------------------------------------------------

# A request of which spans are kept → the rest of it.


def rest_of(body: bytes, kept: Iterable[WireSpan]) -> bytes | None:
    """Return a request without these of its spans, all else in it as it came; None where no span is left.

    What we would not take, and fields that we do not know, are the backend's to judge: they go on.
    """
    gone = {span.raw for span in kept}
    request = RequestSkeleton.FromString(body)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            _remove(scope_spans.spans, lambda raw: raw in gone)
        _remove(resource_spans.scope_spans, lambda scope_spans: not scope_spans.spans)
    _remove(request.resource_spans, lambda resource_spans: not resource_spans.scope_spans)
    return request.SerializeToString() if request.resource_spans else None


def _remove(values: Any, is_gone: Callable[[Any], bool]) -> None:
    """Remove values of a field, each for itself: to put all others in again costs five times as much."""
    for index in [index for index, value in enumerate(values) if is_gone(value)][::-1]:
        del values[index]


# --- forward --------------------------------------------------------------------------------------------------------

# Forwarder: what a proxy received → its backend, as the bytes that came, and the backend's answer → the client.

_CONNECTIONS: Final = 32
"""Kept open; more requests at once open more, which are closed again."""
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "te", "transfer-encoding"}
)
"""Of one connection or one body: never passed on, whatever is listed."""


@dataclass(frozen=True, slots=True)
class ForwardCounts:
    """How sending on went so far.

    Attributes:
        sent: requests that the backend took.
        failed: requests that it did not take, or that did not reach it.
        last_error: of the latest of these, with its time; empty where there was none.
    """

    sent: int = 0
    failed: int = 0
    last_error: str = ""


class Forwarder:
    """Sends requests on to one backend. Any thread; blocks until the backend answers, or is silent for ``timeout``.

    Args:
        settings: where to, and which headers go along.
    """

    def __init__(self, settings: ForwardSettings) -> None:
        self._listed = frozenset(name.lower() for name in settings.headers) - _OWN_HEADERS
        self._client = OtlpClient(
            settings.endpoint, key="forward.endpoint", timeout_s=settings.timeout, connections=_CONNECTIONS
        )
        self._lock = Lock()
        self._counts = ForwardCounts()

    def counts(self) -> ForwardCounts:
        """Return how it went so far. Any thread."""
        return self._counts

    def passed(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return those of a request's headers that go along with it, names in lower case."""
        return {name.lower(): value for name, value in headers.items() if name.lower() in self._listed}

    def send(
        self, path: str, body: bytes, *, content_type: str = PROTOBUF, encoding: str = "", headers: Mapping[str, str]
    ) -> BackendAnswer:
        """Send a request on and return what came back. Never raises.

        Args:
            path: of the signal: ``/v1/traces``.
            body: as it came.
            content_type: likewise.
            encoding: likewise: its compression; empty where there is none.
            headers: of the request; those that are not listed stay here.
        """
        sent = {**self.passed(headers), "content-type": content_type}
        answer = self._client.post(path, body, {**sent, "content-encoding": encoding} if encoding else sent)
        self._count(answer)
        return answer

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _count(self, answer: BackendAnswer) -> None:
        with self._lock:
            before = self._counts
            if answer.is_success:
                self._counts = ForwardCounts(before.sent + 1, before.failed, before.last_error)
            else:
                when = datetime.fromtimestamp(time.time(), UTC).strftime("%H:%M:%S UTC")
                self._counts = ForwardCounts(before.sent, before.failed + 1, f"{answer.error} at {when}")


# --- courier --------------------------------------------------------------------------------------------------------

# ProxySender: the thread that takes a proxy's kept spans to its backend.

_AFTER_FAULT_S: Final = 1.0


class ProxySender:
    """Sends what the outbox says is due. Starts with the first span.

    Args:
        send: one request to the backend: body and headers → its answer. Blocks; never raises.
        outbox: where spans wait.
        clock: seconds.
    """

    def __init__(
        self,
        send: Callable[[bytes, Mapping[str, str]], BackendAnswer],
        outbox: Outbox,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._send = send
        self._outbox = outbox
        self._clock = clock
        self._lock = Lock()
        self._wake = Event()
        self._thread: Thread | None = None
        self._over = False

    def take(self, span: WireSpan, attributes: Mapping[str, Any] | None, headers: Mapping[str, str]) -> None:
        """Take a span to be sent with these attributes and headers. Any thread; never raises, does not block."""
        raw = _with(attributes, span.raw) if attributes else span.raw
        if self._outbox.put(span.origin, raw, headers, self._clock()):
            self._start()
            self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Send what waits, without waiting for more, and end. False: not all of it was sent in time; it is counted lost."""
        self._outbox.hurry(self._clock())
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._over = True
        self._wake.set()
        return self._outbox.end()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = start_daemon(self._run, "spanscore-forward")

    def _run(self) -> None:
        while not self._over:
            try:
                due_s = self._send_due()
            except Exception as error:  # noqa: BLE001  (no other thread sends: the batch is tried again)
                log_internal_error("send kept spans on", error)
                due_s = self._clock() + _AFTER_FAULT_S
            if due_s is None and self._outbox.closing:
                return
            self._wake.wait(None if due_s is None else max(0.0, due_s - self._clock()))
            self._wake.clear()

    def _send_due(self) -> float | None:
        """Send every batch that is due; return when the next one is."""
        while (batch := self._outbox.batch(self._clock())) is not None and not self._over:
            answer = self._send(request_of(batch.spans), dict(batch.headers))
            self._outbox.took(batch, answer, self._clock())
        return self._outbox.due_s()


def _with(attributes: Mapping[str, Any], raw: bytes) -> bytes:
    try:
        return with_attributes(raw, attributes)
    except Exception as error:  # noqa: BLE001  (the span is worth more than what we say of it)
        log_internal_error("put scores onto a span", error)
        return raw


# --- proxy ----------------------------------------------------------------------------------------------------------

# Proxy: between clients and their backend: keeps what may be scored, sends on all else at once, and the rest with its
# scores.
#
# What a client is answered is the backend's own word for what went on at once, and only then are spans taken here: of a
# request that the backend did not take nothing is kept, and its client sends all of it again, to this proxy or to another
# one.


class Keeper(Protocol):
    """Who keeps spans: ``OtlpSpans``."""

    def look(self, taken: ParsedRequest, *, keep: bool) -> RequestClaims:
        """Tell which spans of a request are to be kept."""

    def take_in(self, looked: RequestClaims, exit: ForwardTarget | None) -> None:
        """Take its spans; the exit is given the kept ones, once each."""


@dataclass(frozen=True, slots=True)
class _Departure:
    """Where the kept spans of one request go on to, with its headers."""

    courier: ProxySender
    headers: Mapping[str, str]

    def pass_on(self, span: WireSpan, attributes: Mapping[str, Any] | None) -> None:
        self.courier.take(span, attributes, self.headers)


class Proxy:
    """An ``Onward``: what the door asks. Any thread; blocks for as long as the backend takes.

    Args:
        settings: where to.
        keeper: takes the spans, and keeps some.
        max_bytes: of kept spans that wait for the backend.
    """

    def __init__(self, settings: ForwardSettings, keeper: Keeper, *, max_bytes: int) -> None:
        self._keeper = keeper
        self._forwarder = Forwarder(settings)
        self._outbox = Outbox(max_bytes=max_bytes)
        self._courier = ProxySender(self._send_kept, self._outbox)

    def overloaded(self) -> str | None:
        """Return ``forward`` while too much waits for the backend; None where there is room."""
        return "forward" if self._outbox.is_full else None

    def spans(self, request: ExportRequest, body: bytes, taken: ParsedRequest) -> ExportResponse:
        """Send a request on, and keep of it what may be scored: as it came where that is nothing.

        Args:
            request: as it came.
            body: in protobuf, without compression.
            taken: it taken apart.
        """
        looked = self._keeper.look(taken, keep=True)
        here = [*looked.kept, *looked.private]
        answer = self._split(request, body, here) if here else self.signal(request)
        if not answer.grpc:
            self._keeper.take_in(looked, _Departure(self._courier, self._forwarder.passed(request.headers)))
        return answer

    def signal(self, request: ExportRequest) -> ExportResponse:
        """Send a request on as it came, of whichever signal."""
        answer = self._forwarder.send(
            request.path,
            request.body,
            content_type=request.content_type,
            encoding=request.encoding,
            headers=request.headers,
        )
        return _answer_to(request, answer)

    def state(self) -> tuple[int, int, str]:
        """Return requests sent, requests that failed, and what went wrong last, for ``status()``. Any thread."""
        requests, kept = self._forwarder.counts(), self._outbox.counts()
        told = [f"latest {requests.last_error}"] if requests.last_error else []
        told += [f"{kept.waiting:,} held spans wait for it"] if kept.waiting else []
        told += [f"{kept.lost:,} held spans lost, latest: {kept.last_loss}"] if kept.lost else []
        return requests.sent, requests.failed, "; ".join(told)

    def close(self, timeout_s: float) -> bool:
        """Send what waits, and end. False: not all of it could be sent in time; what could not is counted."""
        sent = self._courier.close(timeout_s)
        self._forwarder.close()
        return sent

    def _split(self, request: ExportRequest, body: bytes, kept: Sequence[WireSpan]) -> ExportResponse:
        rest = rest_of(body, kept)
        if rest is None:
            return accepted(is_json=request.is_json)
        answer = self._forwarder.send(request.path, rest, headers=request.headers)
        if answer.is_success and request.is_json:
            return accepted("traces", *answer.rejected, is_json=True)
        return _answer_to(request, answer)

    def _send_kept(self, body: bytes, headers: Mapping[str, str]) -> BackendAnswer:
        return self._forwarder.send(TRACES, body, headers=headers)


def _answer_to(request: ExportRequest, backend: BackendAnswer) -> ExportResponse:
    """Return what the backend said, in its own words where it had any."""
    if backend.is_success:  # a success in another tongue is one all the same: over gRPC its words cannot be told
        same = backend.content_type.partition(";")[0].strip().lower() == request.content_type
        body = backend.body if same else b"{}" if request.is_json else b""
        return ExportResponse(HTTPStatus.OK, body, request.content_type)
    wait_s = int(backend.retry_after) if backend.retry_after.isdecimal() else None
    if wait_s is None and backend.status == HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = LATER_S  # over gRPC it would not be sent again without
    told = refusal(backend.status, f"the backend: {backend.error}", is_json=request.is_json, retry_after_s=wait_s)
    if backend.body:
        told = told._replace(body=backend.body, content_type=backend.content_type)
    return told._replace(headers={"retry-after": backend.retry_after} if backend.retry_after else {})
