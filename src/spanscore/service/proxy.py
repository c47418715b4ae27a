"""The OTLP proxy: holds spans that may be scored until they have scores, and forwards all other spans at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from spanscore.config.serving import ForwardSettings
from spanscore.core.codecs.otlp_request import ParsedRequest, WireSpan, request_of, with_attributes
from spanscore.core.codecs.otlp_scan import RequestSkeleton
from spanscore.core.log import log_internal_error, log_once
from spanscore.durable.outbox import HELD_SPANS, Batch, Outbox, OutboxSender, Payload
from spanscore.outputs.otlp_client import BackendAnswer, OtlpClient
from spanscore.service.otlp_endpoint import TRACES, ExportRequest
from spanscore.service.requests import LATER_S, PROTOBUF, ExportResponse, accepted, refusal

if TYPE_CHECKING:
    from spanscore.capture.otlp.spans import OtlpSpans

_CONNECTIONS: Final = 32
"""Number of connections that are kept open. If all are in use, a request opens a further connection and closes it."""
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "te", "transfer-encoding"}
)
"""Headers of the connection or the body, which are not copied from the request; ``send`` sets the content headers."""


class Forwarder:
    """Forwards requests to one backend. Thread-safe; blocks until the backend answers, at most ``timeout``.

    Attributes:
        sent: number of requests that the backend accepted.
        failed: number of requests that the backend rejected, or that did not reach it.
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

    def forwarded_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request that are forwarded, names in lower case."""
        return {name.lower(): value for name, value in headers.items() if name.lower() in self._listed}

    def send(
        self, path: str, body: bytes, *, content_type: str = PROTOBUF, encoding: str = "", headers: Mapping[str, str]
    ) -> BackendAnswer:
        """Forward a body as received, with the listed headers of its request, and return the answer. Never raises.

        ``path`` is that of the signal, ``/v1/traces``. An empty ``encoding`` means that the body is uncompressed.
        """
        sent = {**self.forwarded_headers(headers), "content-type": content_type}
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


def forward_held(
    sender: OutboxSender, headers: Mapping[str, str], span: WireSpan, attributes: Mapping[str, Any] | None
) -> None:
    """Send a held span with its request's headers; ``attributes`` are appended to the span's. Thread-safe; never raises."""
    raw = span.raw
    if attributes:
        try:
            raw = with_attributes(raw, attributes)
        except Exception as error:  # noqa: BLE001  (send the span without scores rather than lose it)
            log_internal_error("put scores onto a span", error)
    sender.put(Payload(raw, _log_loss, span.origin), headers)


class Proxy:
    """Forwards the requests of clients to their backend, and holds the spans that may be scored until they have their scores.

    Thread-safe; blocks until the backend answers. Other spans are forwarded at once, and the client gets the backend's answer
    to them. Spans are held only after the backend has accepted the other spans of their request. If the backend rejects the
    other spans, no span is held, and the client sends the whole request again, perhaps to another proxy.

    Args:
        settings: endpoint of the backend, and the names of forwarded headers.
        spans: receiver of the spans, which claims spans that may be scored.
        max_bytes: maximum size, in bytes, of the spans that no longer wait for scores and are not yet sent.
    """

    def __init__(self, settings: ForwardSettings, spans: OtlpSpans, *, max_bytes: int) -> None:
        self._spans = spans
        self._forwarder = Forwarder(settings)
        self._outbox = Outbox(HELD_SPANS, max_bytes=max_bytes)
        self._sender = OutboxSender(self._outbox, self._post, "spanscore-forward")

    def overloaded(self) -> str | None:
        """Return ``forward``, the reason for a rejection, while too many spans wait for the backend; otherwise None."""
        return "forward" if self._outbox.is_full else None

    def forward_traces(self, request: ExportRequest, body: bytes, parsed: ParsedRequest) -> ExportResponse:
        """Hold the spans that may be scored, keep the copies for remote scoring, and forward all other spans.

        Applications send the copies, and the proxy never forwards them. A request without spans to hold and without copies is
        forwarded unchanged. ``body`` is the request's body in protobuf, uncompressed.
        """
        claims = self._spans.classify(parsed, keep=True)
        withheld = [*claims.kept, *claims.private]  # spans to hold; copies for remote scoring
        answer = self._split(request, body, withheld) if withheld else self.forward_unchanged(request)
        if not answer.grpc:  # 0 = OK, also over HTTP: the backend accepted the other spans
            headers = self._forwarder.forwarded_headers(request.headers)
            self._spans.accept_classified(claims, partial(forward_held, self._sender, headers))
        return answer

    def forward_unchanged(self, request: ExportRequest) -> ExportResponse:
        """Forward a request of any signal unchanged."""
        path, body, _, encoding, headers = request
        answer = self._forwarder.send(path, body, content_type=request.content_type, encoding=encoding, headers=headers)
        return _as_response(request, answer)

    def state(self) -> tuple[int, int, str]:
        """Return the numbers of sent and failed requests, and the latest failures, for ``status()``. Thread-safe."""
        requests, held = self._forwarder, self._outbox.counts()
        notes = [f"latest {requests.last_error}"] if requests.last_error else []
        notes += [f"{held.waiting:,} held spans wait for the backend"] if held.waiting else []
        notes += [f"{held.lost:,} held spans lost, latest: {held.last_loss}"] if held.lost else []
        return requests.sent, requests.failed, "; ".join(notes)

    def close(self, timeout_s: float) -> bool:
        """Send the waiting spans, and end. Returns False if the time was too short; the unsent spans then count as lost."""
        is_sent = self._sender.close(timeout_s)
        self._forwarder.close()
        if not is_sent:
            _log_loss(self._outbox.counts().last_loss)
        return is_sent

    def _split(self, request: ExportRequest, body: bytes, withheld: Sequence[WireSpan]) -> ExportResponse:
        rest = rest_of(body, withheld)
        if rest is None:
            return accepted(is_json=request.is_json)
        answer = self._forwarder.send(request.path, rest, headers=request.headers)
        if answer.is_success and request.is_json:
            return accepted("traces", *answer.rejected, is_json=True)
        return _as_response(request, answer)

    def _post(self, batch: Batch) -> BackendAnswer:
        body = request_of((payload.origin, payload.raw) for payload in batch.payloads if payload.origin is not None)
        return self._forwarder.send(TRACES, body, headers=dict(batch.headers))


def _log_loss(reason: str | None) -> None:
    if reason is not None:
        text = f"spans that were held for their scores are lost: {reason}; row 'forward' of status() has their number"
        log_once("forward", text)


def _as_response(request: ExportRequest, backend: BackendAnswer) -> ExportResponse:
    """Return the backend's answer. The body of a success is dropped if its content type differs from the request's."""
    if backend.is_success:  # the status stays OK even if the body cannot be passed on; gRPC has no other content type
        has_same_type = backend.content_type.partition(";")[0].strip().lower() == request.content_type
        body = backend.body if has_same_type else b"{}" if request.is_json else b""
        return ExportResponse(HTTPStatus.OK, body, request.content_type)
    wait_s = int(backend.retry_after) if backend.retry_after.isdecimal() else None
    if wait_s is None and backend.status == HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = LATER_S  # gRPC clients retry only if the response has a retry delay
    answer = refusal(backend.status, f"the backend: {backend.error}", is_json=request.is_json, retry_after_s=wait_s)
    if backend.body:
        answer = answer._replace(body=backend.body, content_type=backend.content_type)
    return answer._replace(headers={"retry-after": backend.retry_after} if backend.retry_after else {})


def rest_of(body: bytes, withheld: Iterable[WireSpan]) -> bytes | None:
    """Return a request without the withheld spans, otherwise unchanged; None if no span is left.

    Invalid spans and unknown fields are forwarded, because the backend decides on them.
    """
    removed = {span.raw for span in withheld}
    request = RequestSkeleton.FromString(body)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            _remove(scope_spans.spans, lambda raw: raw in removed)
        _remove(resource_spans.scope_spans, lambda scope_spans: not scope_spans.spans)
    _remove(request.resource_spans, lambda resource_spans: not resource_spans.scope_spans)
    return request.SerializeToString() if request.resource_spans else None


def _remove(values: Any, is_removed: Callable[[Any], bool]) -> None:
    """Delete values of a repeated field in place: five times as fast as rebuilding the field."""
    for index in [index for index, value in enumerate(values) if is_removed(value)][::-1]:
        del values[index]
