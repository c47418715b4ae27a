from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.service.listening import Running, a_request, listening

from spanscore.core.codecs.otlp_request import ParsedRequest
from spanscore.service.otlp_endpoint import ExportRequest
from spanscore.service.requests import ExportResponse, accepted

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
THREADS = 32


class HangingBackend:
    """An ``Onward`` with a backend that answers on request."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.released = threading.Event()
        self.taken = 0

    def overloaded(self) -> None:
        return None

    def forward_traces(self, request: ExportRequest, body: bytes, taken: ParsedRequest) -> ExportResponse:
        self.asked.release()
        self.released.wait()
        self.taken += 1
        return accepted()


def status_over_http(running: Running) -> int:
    return running.post(a_request("a")).status


def status_over_grpc(running: Running) -> int:
    with grpc.insecure_channel(running.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        code = channel.unary_unary(EXPORT).future(a_request("a"), timeout=30).code()
    return {grpc.StatusCode.OK: 200, grpc.StatusCode.RESOURCE_EXHAUSTED: 429}[code]


@pytest.mark.parametrize("send", [status_over_http, status_over_grpc])
def test_what_would_wait_for_a_hanging_backend_behind_others_is_to_be_sent_again(send: object) -> None:
    backend = HangingBackend()

    with listening(proxy=backend) as running, ThreadPoolExecutor(THREADS) as clients:
        waiting = [clients.submit(send, running) for _ in range(THREADS)]  # type: ignore[arg-type]
        for _ in range(THREADS):
            assert backend.asked.acquire(timeout=30)
        refused = send(running)  # type: ignore[operator]
        backend.released.set()
        taken = [one.result(30) for one in waiting]

    assert refused == 429
    assert taken == [200] * THREADS
    assert (backend.taken, running.receiver.counts.refused) == (THREADS, {"forward": 1})
