"""Tempo: its documented responses, and the effect of incomplete ones."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stored.stores import StoreDouble, served

from spanscore import ConfigurationError
from spanscore.core.codecs.otlp_request import span_data_of
from spanscore.stored.trace_stores import StoreClient, TempoStore
from spanscore.stored.traces import StoredTrace, Unread

TRACE = "00f067aa0ba902b7a3ce929d0e0e4736"
SEARCH = {
    "traces": [
        {
            "traceID": "f067aa0ba902b7a3ce929d0e0e4736",
            "rootServiceName": "bot",
            "rootTraceName": "invoke_workflow support",
            "startTimeUnixNano": "1684778327699392724",
            "durationMs": 557,
        }
    ],
    "metrics": {"totalBlocks": 13},
}
"""A search's answer: zeros at the beginning of an id are left out."""
SPAN = {
    "traceId": "APBnqgupArejzpKdDg5HNg==",
    "spanId": "APBnqgupArc=",
    "parentSpanId": "",
    "name": "invoke_workflow support",
    "kind": "SPAN_KIND_INTERNAL",
    "startTimeUnixNano": "1684778327699392724",
    "endTimeUnixNano": "1684778328256392724",
    "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_workflow"}}],
    "status": {"code": "STATUS_CODE_ERROR", "message": "broken"},
}
"""A span as protobuf's own JSON has it."""
BATCH = {
    "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "bot"}}]},
    "scopeSpans": [{"scope": {"name": "spanscore.capture"}, "spans": [SPAN]}],
}


class TempoServer(StoreDouble):
    """Answers as a Tempo did."""

    def __init__(self, **answers: Any) -> None:
        super().__init__([])
        self._answers = {"/api/search": SEARCH, **answers}

    def answer(self, path: str, given: dict[str, str]) -> Any:
        return self._answers.get(path)


def read(store: StoreDouble) -> list[StoredTrace | Unread]:
    with served(store) as url:
        return list(TempoStore(StoreClient(url, sleep=lambda _: None), {"q": "{}"}, 0, 10).traces())


ANSWERS: dict[str, dict[str, Any]] = {
    "before 2.7": {f"/api/traces/{TRACE}": {"batches": [BATCH]}},
    "since": {f"/api/v2/traces/{TRACE}": {"trace": {"resourceSpans": [BATCH]}, "metrics": {}}},
}


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
def test_a_trace_is_read_with_its_ids_its_kind_and_its_status(answers: dict[str, Any]) -> None:
    (found,) = read(TempoServer(**answers))

    assert isinstance(found, StoredTrace)
    data = span_data_of(found.spans[0])
    assert (data.trace_id, data.span_id, data.parent_id) == (int(TRACE, 16), int(TRACE[:16], 16), None)
    assert (data.scope, data.kind, data.status, data.resource) == (
        "spanscore.capture",
        "internal",
        "error",
        {"service.name": "bot"},
    )
    assert data.end_ns - data.start_ns == 557_000_000


def test_a_trace_that_tempo_cut_is_named_and_not_scored() -> None:
    partial = {"trace": {"resourceSpans": [BATCH]}, "status": "PARTIAL", "message": "too large"}

    (found,) = read(TempoServer(**{f"/api/v2/traces/{TRACE}": partial}))

    assert found == Unread(f"trace {TRACE}", "the store left out some of its spans, because the trace is too large")


def test_a_trace_that_is_gone_is_named() -> None:
    (found,) = read(TempoServer())

    assert found == Unread(f"trace {TRACE}", "it answers 404 Not Found")


def test_another_answer_than_a_trace_is_named_after_three_tries() -> None:
    store = TempoServer(**{f"/api/v2/traces/{TRACE}": {"trace": {}}})

    (found,) = read(store)

    assert found == Unread(f"trace {TRACE}", "its answer has another form than expected, or is incomplete")
    assert [path for path, _ in store.asked].count(f"/api/v2/traces/{TRACE}") == 3


NONSENSE: tuple[Any, ...] = (
    [],
    {"trace": []},
    {"trace": {"resourceSpans": None}},
    {"trace": {"resourceSpans": ["text"]}},
    {"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "!", "spanId": 3}]}]}]}},
)


@pytest.mark.parametrize("answer", NONSENSE, ids=str)
def test_whatever_it_answers_for_a_trace_is_named(answer: Any) -> None:
    (found,) = read(TempoServer(**{f"/api/v2/traces/{TRACE}": answer}))

    assert found == Unread(f"trace {TRACE}", "its answer has another form than expected, or is incomplete")


@pytest.mark.parametrize("answer", [[], {"traces": [{"traceID": 7}]}], ids=str)
def test_another_answer_than_a_list_of_traces_is_reported(answer: Any) -> None:
    with pytest.raises(ConfigurationError, match="another form than expected"):
        read(TempoServer(**{"/api/search": answer}))
