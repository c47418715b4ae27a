"""Results of other evaluators are found in spans and log records in every form, and in no others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.capture.otlp.results import EVALUATOR, logs, make_span, put, result, taken_of

from spanscore import semconv
from spanscore.capture.otlp.external_scores import MARKS, ExternalResult, contains_mark, results_in_logs, results_on
from spanscore.core.codecs.otlp_request import UnreadableRequest

OPENINFERENCE = {
    **EVALUATOR,
    "evaluations.0.evaluation.name": "grounded",
    "evaluations.0.evaluation.score": 0.5,
    "evaluations.0.evaluation.label": "partly",
    "evaluations.0.evaluation.explanation": "it quotes",
    "trace.evaluations.0.evaluation.name": "solved",
    "trace.evaluations.0.evaluation.score": 1,
    "annotations.0.annotation.name": "thumb",
    "annotations.0.annotation.label": "up",
}
PHOENIX = {**EVALUATOR, "score": 0.25, "label": "poor", "explanation": "it quotes"}


def plain_results_on(span: Any, scope: str = "an.app") -> list[ExternalResult]:
    return [one._replace(origin=None) for one in results_on(taken_of(span, scope=scope).spans[0])]


def test_an_event_of_a_span_is_a_result() -> None:
    span = make_span({}, result("tone", 0.75, "calm"), result("length", 12))

    assert plain_results_on(span) == [
        ExternalResult("tone", 0.75, "calm", 1.0),
        ExternalResult("length", 12.0, None, 1.0),
    ]


def test_each_result_of_an_openinference_evaluator_is_one() -> None:
    assert plain_results_on(make_span(OPENINFERENCE)) == [
        ExternalResult("grounded", 0.5, "partly", 1.0),
        ExternalResult("solved", 1.0, None, 1.0),
        ExternalResult("thumb", None, "up", 1.0),
    ]


def test_an_evaluator_of_phoenix_is_named_by_its_span() -> None:
    assert plain_results_on(make_span(PHOENIX, name="Evaluation: relevance")) == [
        ExternalResult("relevance", 0.25, "poor", 1.0)
    ]


def test_an_evaluator_that_says_nothing_has_no_result() -> None:
    assert plain_results_on(make_span(EVALUATOR, name="judge")) == []


def test_what_no_evaluator_says_is_no_result() -> None:
    held = {name: value for name, value in OPENINFERENCE.items() if name not in EVALUATOR}

    assert plain_results_on(make_span({**held, **result("tone", 0.5)})) == []


def test_what_an_evaluator_says_twice_is_one_result() -> None:
    span = make_span({**OPENINFERENCE, **result("grounded", 0.5)}, result("grounded", 0.5))

    assert plain_results_on(span) == [ExternalResult("grounded", 0.5, None, 1.0)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "0.8", [1.0]], ids=str)
def test_a_value_that_is_no_finite_number_is_none(value: Any) -> None:
    span = make_span({}, result("tone", None, "calm"))
    into = span.events[0].attributes.add(key=semconv.EVALUATION_SCORE_VALUE).value
    if isinstance(value, list):
        into.array_value.values.add(double_value=1.0)
    elif isinstance(value, str):
        into.string_value = value
    else:
        into.double_value = value

    assert plain_results_on(span) == [ExternalResult("tone", None, "calm", 1.0)]


@pytest.mark.parametrize(
    ("state", "threshold", "expected"),
    [
        ("ot=th:8", None, 0.5),
        ("ot=th:8", "c0000000000000", 0.25),
        ("", "c0000000000000", 0.25),
        ("", None, 1.0),
        ("ot=th:zz", "-1", 1.0),
        ("ot=th:0", "ffffffffffffffffffffff", 1.0),
    ],
)
def test_it_stands_for_the_traffic_that_its_sampler_left_out(
    state: str, threshold: str | None, expected: float
) -> None:
    span = make_span({}, result("tone", 0.5, **{semconv.SAMPLING_THRESHOLD: threshold}), state=state)

    assert [one.probability for one in plain_results_on(span)] == [expected]


def test_an_evaluation_of_another_spanscore_is_its_quality_with_its_series() -> None:
    held = {**EVALUATOR, **result("latency", 3.5, "pass"), semconv.QUALITY: 0.9, semconv.EVALUATOR_VERSION: "1/gpt/1"}

    assert plain_results_on(make_span(held), semconv.SCOPE) == [ExternalResult("latency", 0.9, "pass", 1.0, "1/gpt/1")]


@pytest.mark.parametrize(
    "beside",
    [
        {semconv.EVALUATION_SOURCE: semconv.SOURCE_SHADOW},
        {semconv.SCORE_REVISION: 1},
        {semconv.SESSION_END: "open"},
        {semconv.ANNOTATOR: semconv.ANNOTATOR_HUMAN},
    ],
    ids=lambda beside: next(iter(beside)),
)
def test_what_is_in_no_mean_of_another_spanscore_is_in_none_here(beside: dict[str, Any]) -> None:
    held = {**result("tone", 0.5), semconv.QUALITY: 0.5, semconv.SCORE_REVISION: 0, **beside}

    assert plain_results_on(make_span(held), semconv.SCOPE) == []


def test_a_span_that_cannot_be_read_says_so() -> None:
    (span,) = taken_of(make_span()).spans

    with pytest.raises(UnreadableRequest):
        results_on(span._replace(raw=span.raw + b"J\x01\xff"))


def test_a_log_record_is_a_result_by_its_event_new_or_old() -> None:
    old = logs({**result("tone", 0.5), semconv.EVENT_NAME: semconv.EVALUATION_EVENT}, event="")

    found = [results_in_logs(body) for body in (logs(result("tone", 0.5)), old)]

    assert [[one._replace(origin=None) for _, one in of.results] for of in found] == [
        [ExternalResult("tone", 0.5, None, 1.0)]
    ] * 2


def test_other_records_are_left_alone_and_those_of_spanscore_come_as_spans() -> None:
    other = logs(result("tone", 0.5), event="exception")

    assert results_in_logs(other) == ([], {}, [])
    assert results_in_logs(other + logs(result("tone", 0.5), scope=semconv.SCOPE)) == ([], {}, [])


@pytest.mark.parametrize("name", [None, "", "  ", 7], ids=repr)
def test_a_record_without_a_name_is_rejected(name: Any) -> None:
    assert results_in_logs(logs(result(name, 0.5))) == ([], {"an evaluation that has no name": 1}, [])


def test_a_record_that_says_neither_when_nor_of_what_cannot_be_known_again() -> None:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ExportLogsServiceRequest()
    put(
        request.resource_logs.add().scope_logs.add().log_records.add(event_name=semconv.EVALUATION_EVENT),
        result("tone", 0.5),
    )

    assert [known_by for known_by, _ in results_in_logs(request.SerializeToString()).results] == [b""]


def test_a_request_that_is_none_says_so() -> None:
    with pytest.raises(UnreadableRequest, match="ExportLogsServiceRequest"):
        results_in_logs(b"\xff\xff" + semconv.EVALUATION_EVENT.encode())


@given(st.binary(max_size=400), st.sampled_from(MARKS), st.binary(max_size=400), st.integers(0, 3))
def test_a_mark_is_found_wherever_it_is_and_nowhere_else(before: bytes, mark: bytes, behind: bytes, times: int) -> None:
    body = before + (mark[:1] * 50 + mark[:4]) * times + behind

    assert contains_mark(body, mark) == (mark in body)
    assert contains_mark(before + mark[:1] * 300 + mark + behind, mark)


@given(st.binary(max_size=300))
def test_nothing_but_unreadable_comes_of_any_bytes(noise: bytes) -> None:
    (span,) = taken_of(make_span(OPENINFERENCE, result("tone", 0.5))).spans
    for read, given_bytes in (
        (results_on, span._replace(raw=span.raw + noise)),
        (results_in_logs, logs(result("t", 1)) + noise),
    ):
        try:
            read(given_bytes)  # type: ignore[operator]
        except UnreadableRequest:
            continue
