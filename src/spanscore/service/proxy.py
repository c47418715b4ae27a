"""The OTLP proxy: holds spans that may be scored, forwards all others at once, and forwards the held ones with their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from spanscore.config.serving import ForwardSettings
from spanscore.core.codecs.otlp_request import ParsedRequest, WireSpan, request_of, with_attributes
from spanscore.core.codecs.otlp_scan import RequestSkeleton
from spanscore.core.log import log_internal_error, log_once
from spanscore.durable.outbox import HELD_SPANS, Batch, Outbox, OutboxSender, Parcel
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient
from spanscore.service.otlp_endpoint import TRACES, ExportRequest
from spanscore.service.requests import LATER_S, PROTOBUF, ExportResponse, accepted, refusal

if TYPE_CHECKING:
    from spanscore.capture.otlp.spans import OtlpSpans

_CONNECTIONS: Final = 32
"""Connections that are kept open; further requests open connections that are closed again."""
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "te", "transfer-encoding"}
)
"""Headers that describe the connection or the body, not the request: never forwarded, even if they are listed."""


class Forwarder:
    """Forwards requests to one backend. Any thread; blocks until the backend answers, or is silent for ``timeout``.

    Args:
        settings: endpoint of the backend, and the names of forwarded headers.

    Attributes:
        sent: number of requests that the backend accepted.
        failed: number of requests that it rejected, or that did not reach it.
        last_error: latest error, with its time; empty without an error.
    """

    def __init__(self, settings: ForwardSettings) -> None:
        self._listed = frozenset(name.lower() for name in settings.headers) - _OWN_HEADERS
        self._client = OtlpClient(
            settings.endpoint, key="forward.endpoint", timeout_s=settings.timeout, connections=_CONNECTIONS
        )
        self._lock = Lock()
        self.sent = self.failed = 0
        self.last_error = ""

    def passed(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request that are forwarded, names in lower case."""
        return {name.lower(): value for name, value in headers.items() if name.lower() in self._listed}

    def send(
        self, path: str, body: bytes, *, content_type: str = PROTOBUF, encoding: str = "", headers: Mapping[str, str]
    ) -> BackendAnswer:
        """Forward a request and return the answer. Never raises.

        Args:
            path: path of the signal: ``/v1/traces``.
            body: body as received.
            content_type: content type of the body.
            encoding: compression of the body; empty = uncompressed.
            headers: headers of the request; unlisted ones are not forwarded.
        """
        sent = {**self.passed(headers), "content-type": content_type}
        answer = self._client.post(path, body, {**sent, "content-encoding": encoding} if encoding else sent)
        with self._lock:
            if answer.is_success:
                self.sent += 1
            else:
                self.failed += 1
                self.last_error = f"{answer.error} at {datetime.now(UTC):%H:%M:%S UTC}"
        return answer

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class HeldSpans:
    """The held spans of one request; implements ``ForwardTarget``.

    Attributes:
        sender: sends them to the backend.
        headers: forwarded headers of the request.
    """

    sender: OutboxSender
    headers: Mapping[str, str]

    def pass_on(self, span: WireSpan, attributes: Mapping[str, Any] | None) -> None:
        """Send a span with these attributes added to its own. Any thread; never raises, does not block."""
        raw = span.raw
        if attributes:
            try:
                raw = with_attributes(raw, attributes)
            except Exception as error:  # noqa: BLE001  (the span is worth more than our attributes)
                log_internal_error("put scores onto a span", error)
        self.sender.put(Parcel(raw, _log_loss, span.origin), self.headers)


class Proxy:
    """Forwards the requests of clients to their backend, and holds the spans that may be scored until they have their scores.

    Any thread; blocks until the backend answers. Other spans are forwarded at once, and the client gets the backend's answer
    to them. Spans are held only after that answer: if the backend rejects a request, none of its spans are held, and the client
    sends all of it again, to this proxy or to another one.

    Args:
        settings: endpoint of the backend, and the names of forwarded headers.
        spans: receiver of the spans, which claims spans that may be scored.
        max_bytes: limit of held spans that wait for the backend, in bytes.
    """

    def __init__(self, settings: ForwardSettings, spans: OtlpSpans, *, max_bytes: int) -> None:
        self._spans = spans
        self._forwarder = Forwarder(settings)
        self._outbox = Outbox(HELD_SPANS, max_bytes=max_bytes)
        self._sender = OutboxSender(self._outbox, self._post, "spanscore-forward")

    def overloaded(self) -> str | None:
        """Return ``forward`` while too many spans wait for the backend; None if there is room."""
        return "forward" if self._outbox.is_full else None

    def spans(self, request: ExportRequest, body: bytes, taken: ParsedRequest) -> ExportResponse:
        """Hold the spans that may be scored, and forward the rest; a request without such spans is forwarded unchanged.

        Args:
            request: the received request.
            body: its body in protobuf, uncompressed.
            taken: the parsed body.
        """
        looked = self._spans.look(taken, keep=True)
        here = [*looked.kept, *looked.private]  # spans that wait for scores; copies, which are never forwarded
        answer = self._split(request, body, here) if here else self.signal(request)
        if not answer.grpc:  # 0 = OK, also over HTTP: the backend accepted the rest
            self._spans.take_in(looked, HeldSpans(self._sender, self._forwarder.passed(request.headers)))
        return answer

    def signal(self, request: ExportRequest) -> ExportResponse:
        """Forward a request of any signal unchanged."""
        answer = self._forwarder.send(
            request.path,
            request.body,
            content_type=request.content_type,
            encoding=request.encoding,
            headers=request.headers,
        )
        return _answer_to(request, answer)

    def state(self) -> tuple[int, int, str]:
        """Return the numbers of sent and failed requests, and the latest failures, for ``status()``. Any thread."""
        requests, held = self._forwarder, self._outbox.counts()
        notes = [f"latest {requests.last_error}"] if requests.last_error else []
        notes += [f"{held.waiting:,} held spans wait for it"] if held.waiting else []
        notes += [f"{held.lost:,} held spans lost, latest: {held.last_loss}"] if held.lost else []
        return requests.sent, requests.failed, "; ".join(notes)

    def close(self, timeout_s: float) -> bool:
        """Send the waiting spans, and end. False: the time was too short, and the rest counts as lost."""
        is_sent = self._sender.close(timeout_s)
        self._forwarder.close()
        if not is_sent:
            _log_loss(self._outbox.counts().last_loss)
        return is_sent

    def _split(self, request: ExportRequest, body: bytes, kept: Sequence[WireSpan]) -> ExportResponse:
        rest = rest_of(body, kept)
        if rest is None:
            return accepted(is_json=request.is_json)
        answer = self._forwarder.send(request.path, rest, headers=request.headers)
        if answer.is_success and request.is_json:
            return accepted("traces", *answer.rejected, is_json=True)
        return _answer_to(request, answer)

    def _post(self, batch: Batch) -> BackendAnswer:
        body = request_of((parcel.origin, parcel.raw) for parcel in batch.parcels if parcel.origin is not None)
        return self._forwarder.send(TRACES, body, headers=dict(batch.headers))


def _log_loss(reason: str | None) -> None:
    if reason is not None:
        log_once(
            "forward",
            f"spans that were held for their scores are lost: {reason}; the row forward of the status counts them",
        )


def _answer_to(request: ExportRequest, backend: BackendAnswer) -> ExportResponse:
    """Return the backend's answer, with its body if it has one."""
    if backend.is_success:  # a success counts with any type of body, but gRPC cannot carry another type
        same = backend.content_type.partition(";")[0].strip().lower() == request.content_type
        body = backend.body if same else b"{}" if request.is_json else b""
        return ExportResponse(HTTPStatus.OK, body, request.content_type)
    wait_s = int(backend.retry_after) if backend.retry_after.isdecimal() else None
    if wait_s is None and backend.status == HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = LATER_S  # gRPC clients do not send again without it
    answer = refusal(backend.status, f"the backend: {backend.error}", is_json=request.is_json, retry_after_s=wait_s)
    if backend.body:
        answer = answer._replace(body=backend.body, content_type=backend.content_type)
    return answer._replace(headers={"retry-after": backend.retry_after} if backend.retry_after else {})


def rest_of(body: bytes, kept: Iterable[WireSpan]) -> bytes | None:
    """Return a request without the held spans, otherwise unchanged; None if no span is left.

    Invalid spans and unknown fields are forwarded, because the backend decides on them.
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
    """Delete values of a field one by one, because adding all others again takes five times as long."""
    for index in [index for index, value in enumerate(values) if is_gone(value)][::-1]:
        del values[index]
