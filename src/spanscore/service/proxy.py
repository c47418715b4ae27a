"""Proxy: between clients and their backend: keeps what may be scored, sends on all else at once, and the rest with its scores.

What a client is answered is the backend's own word for what went on at once, and only then are spans taken here: of a request
that the backend did not take nothing is kept, and its client sends all of it again, to this proxy or to another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from spanscore.capture.otlp.requests import Exit, Looked
from spanscore.config.serving import ForwardSettings
from spanscore.core.codecs.otlp_request import Taken, WireSpan
from spanscore.durable.outbox import Outbox
from spanscore.outputs.otlp_client import BackendAnswer
from spanscore.service.answers import LATER_S, Answer, accepted, refusal
from spanscore.service.courier import Courier
from spanscore.service.door import TRACES, ExportRequest
from spanscore.service.forward import Forwarder
from spanscore.service.split import rest_of

__all__ = ["Keeper", "Proxy"]


class Keeper(Protocol):
    """Who keeps spans: ``OtlpSpans``."""

    def look(self, taken: Taken, *, keep: bool) -> Looked:
        """Tell which spans of a request are to be kept."""

    def take_in(self, looked: Looked, exit: Exit | None) -> None:
        """Take its spans; the exit is given the kept ones, once each."""


@dataclass(frozen=True, slots=True)
class _Departure:
    """Where the kept spans of one request go on to, with its headers."""

    courier: Courier
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
        self._courier = Courier(self._send_kept, self._outbox)

    def overloaded(self) -> str | None:
        """Return ``forward`` while too much waits for the backend; None where there is room."""
        return "forward" if self._outbox.is_full else None

    def spans(self, request: ExportRequest, body: bytes, taken: Taken) -> Answer:
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

    def signal(self, request: ExportRequest) -> Answer:
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

    def _split(self, request: ExportRequest, body: bytes, kept: Sequence[WireSpan]) -> Answer:
        rest = rest_of(body, kept)
        if rest is None:
            return accepted(is_json=request.is_json)
        answer = self._forwarder.send(request.path, rest, headers=request.headers)
        if answer.is_success and request.is_json:
            return accepted("traces", *answer.rejected, is_json=True)
        return _answer_to(request, answer)

    def _send_kept(self, body: bytes, headers: Mapping[str, str]) -> BackendAnswer:
        return self._forwarder.send(TRACES, body, headers=headers)


def _answer_to(request: ExportRequest, backend: BackendAnswer) -> Answer:
    """Return what the backend said, in its own words where it had any."""
    if backend.is_success:  # a success in another tongue is one all the same: over gRPC its words cannot be told
        same = backend.content_type.partition(";")[0].strip().lower() == request.content_type
        body = backend.body if same else b"{}" if request.is_json else b""
        return Answer(HTTPStatus.OK, body, request.content_type)
    wait_s = int(backend.retry_after) if backend.retry_after.isdecimal() else None
    if wait_s is None and backend.status == HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = LATER_S  # over gRPC it would not be sent again without
    told = refusal(backend.status, f"the backend: {backend.error}", is_json=request.is_json, retry_after_s=wait_s)
    if backend.body:
        told = told._replace(body=backend.body, content_type=backend.content_type)
    return told._replace(headers={"retry-after": backend.retry_after} if backend.retry_after else {})
