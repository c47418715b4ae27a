"""Whatever is sent, it has one defined answer, and costs no memory that stays."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import Parse
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from tests.service.fuzz import a_bad_request
from tests.service.listening import RecordingReceiver, Running, listening
from tests.service.metrics import Answered

from spanscore import OnlineScorer
from spanscore.config import Units
from spanscore.core.codecs.otlp_request import ParsedRequest
from spanscore.scorer import receivers_of
from spanscore.service.otlp_endpoint import ExportHandler, ExportRequest
from spanscore.service.requests import JSON, ExportResponse

DEFINED = {200, 400, 404, 413}
ROOM = 64 * 2**20
EXPORTS = {
    "/v1/traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "/v1/logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "/v1/metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}


class Forgetful(RecordingReceiver):
    """Takes spans and keeps none."""

    def accept(self, taken: ParsedRequest, exit: object = None) -> list[object]:  # type: ignore[override]
        return []


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_read(answer: ExportResponse) -> bool:
    """Whether a client can read it."""
    message = ExportTraceServiceResponse() if answer.status == 200 else Status()
    if answer.content_type == JSON:
        Parse(answer.body, message, ignore_unknown_fields=True)
    else:
        message.ParseFromString(answer.body)
    return True


def test_ten_thousand_bad_requests_have_one_defined_answer_each_and_leave_no_memory_behind() -> None:
    rng, statuses, before = random.Random(21), Counter[int](), 0
    with OnlineScorer([Answered()], tracer_provider=TracerProvider(shutdown_on_exit=False)) as scorer:
        receiver = receivers_of(scorer).otlp_spans(Units(idle_timeout=0.0))
        handler = ExportHandler(receiver, max_inflated_bytes=64_000_000)
        for number in range(10_000):
            if number == 1_000:  # caches and allocator are filled by then
                before = resident()
            answer = handler.answer(a_bad_request(rng))
            assert is_read(answer)
            statuses[answer.status] += 1
        grown = resident() - before
        scorer.shutdown(10)
        status = scorer.status()

    assert (statuses.keys(), receiver.counts.requests) == (DEFINED, 10_000)
    assert grown < ROOM
    assert sum(status.outcomes["answered"].values()) == status.eligible["answered"] > 0


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    with listening(Forgetful()) as running:
        yield running


def over_http(up: Running, request: ExportRequest) -> int:
    headers = {"content-type": request.content_type}
    return up.post(
        request.body, headers | ({"content-encoding": request.encoding} if request.encoding else {}), request.path
    ).status


def test_hundreds_over_http_are_answered(up: Running) -> None:
    rng = random.Random(22)

    assert {over_http(up, a_bad_request(rng)) for _ in range(300)} <= DEFINED


def test_hundreds_over_grpc_are_answered(up: Running) -> None:
    rng, codes = random.Random(23), set[grpc.StatusCode]()
    with grpc.insecure_channel(up.grpc) as channel:
        for _ in range(300):
            request = a_bad_request(rng)
            try:
                channel.unary_unary(EXPORTS[request.path])(request.body, timeout=30)
                codes.add(grpc.StatusCode.OK)
            except grpc.RpcError as error:
                codes.add(error.code())

    defined = ("OK", "INVALID_ARGUMENT", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
    assert codes <= {grpc.StatusCode[name] for name in defined}
