"""``compare``: the sums of a scorer, and the missing scores of its means, are kept per release."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from tests.live import QUESTION, Failing, Grounded, Held, a_line, a_trace, rag
from tests.wiring.test_received import Answered, agent, send

from spanscore import ConfigurationError, OnlineScorer, SingleTurnSample, semconv
from spanscore.config import Compare, Limits
from spanscore.scorer import pipeline_of


def collected(scorer: OnlineScorer, reader: InMemoryMetricReader, instrument: str) -> dict[Any, float]:
    """Return (metric, compared value) → an instrument's sum."""
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[Any, float] = {}
    points = (
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for one in scope.metrics
        if one.name == instrument
        for point in one.data.data_points
    )
    for point in points:
        at = point.attributes[semconv.EVALUATION_NAME], point.attributes.get(semconv.COMPARED)
        found[at] = found.get(at, 0) + point.value
    return found


def scored(reader: InMemoryMetricReader, *metrics: Any, **options: Any) -> OnlineScorer:
    trace = a_trace(resource=Resource({"service.version": "1.5", "service.name": "shop"}))
    meters = MeterProvider(metric_readers=[reader])
    with a_line(*metrics, trace=trace, meter_provider=meters, **options) as (scorer, _):
        for tier in ("gold", "free", "free"):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler], "metadata": {"tier": tier}})
        assert scorer.flush(5)
    return scorer


def test_the_release_of_a_process_is_that_of_its_resource() -> None:
    reader = InMemoryMetricReader()

    scorer = scored(reader, Grounded(), compare=Compare(by="service.version"))

    assert collected(scorer, reader, semconv.WEIGHT)["grounded", "1.5"] == 3.0


def test_a_key_of_the_metadata_tells_releases_apart() -> None:
    reader = InMemoryMetricReader()

    scorer = scored(reader, Grounded(), compare=Compare(by="tier"))

    sums = collected(scorer, reader, semconv.SCORED)
    assert (sums["grounded", "gold"], sums["grounded", "free"]) == (1, 2)


def test_without_it_no_sum_has_a_release() -> None:
    reader = InMemoryMetricReader()

    scorer = scored(reader, Grounded())

    assert collected(scorer, reader, semconv.SCORED) == {("grounded", None): 3}
    assert collected(scorer, reader, semconv.COMPARED_MISSING_WEIGHT) == {}


def test_what_a_release_lost_is_weighed_as_its_own() -> None:
    reader = InMemoryMetricReader()

    scorer = scored(reader, Grounded(), Failing(ValueError("no")), compare=Compare(by="tier"))

    lost = collected(scorer, reader, semconv.COMPARED_MISSING_WEIGHT)
    assert (lost["failing", "gold"], lost["failing", "free"], lost["grounded", "free"]) == (1.0, 2.0, 0.0)
    assert sum(collected(scorer, reader, semconv.MISSING_WEIGHT).values()) == sum(lost.values())


def test_a_unit_that_finds_no_room_is_lost_to_its_release_with_its_weight() -> None:
    go_on, reader = threading.Event(), InMemoryMetricReader()
    trace = a_trace(resource=Resource({"service.version": "1.5"}))
    options: dict[str, Any] = {
        "sample_rate": 0.25,
        "limits": Limits(queue_size=1),
        "compare": Compare(by="service.version"),
    }
    with a_line(Held(go_on), trace=trace, meter_provider=MeterProvider([reader]), **options) as (scorer, _):
        for _ in range(60):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        go_on.set()
        assert scorer.flush(5)
        not_attempted = scorer.status().outcomes["held"]["queue_full"]

    assert not_attempted > 0
    assert collected(scorer, reader, semconv.COMPARED_MISSING_WEIGHT)["held", "1.5"] == not_attempted / 0.25
    assert collected(scorer, reader, semconv.COMPARED_MISSING_WEIGHT2)["held", "1.5"] == not_attempted / 0.25**2


def test_the_ledger_forgets_the_release_of_what_has_ended() -> None:
    with a_line(Grounded(), compare=Compare(by="tier")) as (scorer, _):
        for _ in range(5):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler], "metadata": {"tier": "gold"}})
            scorer.submit(SingleTurnSample(user_input="q", response="a"))
        assert scorer.flush(5)

        assert pipeline_of(scorer).ledger.compared_values == {}


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("", r"'' is no name; write the attribute that differs: 'service\.version'"),
        ("  ", r"'  ' is no name; write the attribute that differs: 'service\.version'"),
        (None, r"is no text \(given: None\)"),
        (5, r"is no text \(given: 5\)"),
        ("input.value", r"'input\.value' has texts of users"),
    ],
)
def test_what_cannot_tell_releases_apart_is_refused(by: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"compare\.by: {message}"):
        Compare(by=by)


def test_a_name_in_place_of_the_object_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"write keys with values, such as compare: \{by: service\.version\}"):
        OnlineScorer([Grounded()], compare="service.version")


def test_what_somebody_may_have_typed_is_redacted_before_it_is_a_label() -> None:
    asked: list[str] = []

    def without_names(text: str) -> str:
        asked.append(text)
        return "***" if text == "gold" else text

    reader = InMemoryMetricReader()

    scorer = scored(reader, Grounded(), compare=Compare(by="tier"), redactor=without_names)

    assert {value for _, value in collected(scorer, reader, semconv.SCORED)} == {"***", "free", "other"}
    assert (asked.count("gold"), asked.count("free")) == (1, 1)


def test_a_redactor_that_fails_leaves_nothing_of_a_value() -> None:
    def broken(text: str) -> str:
        if text in ("gold", "free"):
            raise ValueError(text)
        return text

    reader = InMemoryMetricReader()

    scorer = scored(reader, Grounded(), compare=Compare(by="tier"), redactor=broken)

    assert {value for _, value in collected(scorer, reader, semconv.SCORED)} == {"other"}


def test_over_the_wire_the_release_is_that_of_the_resource_that_came() -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    with a_line(Answered(), meter_provider=meters, compare=Compare(by="service.version")) as (scorer, _):
        for version in ("1.4", "1.5", "1.5", None):
            resource = {"service.name": "shop", **({} if version is None else {"service.version": version})}
            send(scorer, agent(resource=resource))
        assert scorer.flush(10)

    sums = collected(scorer, reader, semconv.SCORED)
    assert {value: n for (_, value), n in sums.items() if n} == {"1.4": 1, "1.5": 2, "unknown": 1}
