"""The values that distinguish releases: few, the first ones, and never empty."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.live import Grounded
from tests.outputs.builders import score, unit
from tests.outputs.memory import FixedCounts

from spanscore import semconv
from spanscore.core.span import SpanData, Unit
from spanscore.outputs.aggregates import MOST_VALUES, OTHER, UNKNOWN, ComparedValues
from spanscore.outputs.instruments import Telemetry


def of_version(version: Any) -> Unit:
    return unit(resource={"service.version": version})


def recorded(telemetry: Telemetry, *units: Unit, **changes: Any) -> dict[str, float]:
    for one in units:
        telemetry.record(one, score("grounded", evaluator_version="1+judge", **changes))
    return by_value(telemetry, semconv.SCORED)


def by_value(telemetry: Telemetry, instrument: str) -> dict[str, float]:
    found: Counter[str] = Counter()
    for labels, value in telemetry.sums(instrument).items():
        found[dict(labels)[semconv.COMPARED]] += value
    return dict(found)


def test_the_first_eight_values_are_distinguished_and_stay_and_the_rest_is_other() -> None:
    telemetry = Telemetry(None, FixedCounts(), compared=ComparedValues("service.version"))

    found = recorded(telemetry, *(of_version(f"1.{n}") for n in (*range(20), 0, 7, 8)))

    assert found == {**{f"1.{n}": 1.0 for n in range(1, 7)}, "1.0": 2.0, "1.7": 2.0, OTHER: 13.0}
    assert len(found) == MOST_VALUES + 1


@pytest.mark.parametrize("nothing", [None, "", "  ", ["1.4"]])
def test_a_unit_without_a_value_is_reported_as_that_also_when_all_places_are_taken(nothing: Any) -> None:
    telemetry = Telemetry(None, FixedCounts(), compared=ComparedValues("service.version"))
    recorded(telemetry, *(of_version(str(n)) for n in range(9)))

    assert recorded(telemetry, of_version(nothing), unit(resource={}))[UNKNOWN] == 2.0


def test_a_value_that_is_a_text_of_somebody_takes_no_place() -> None:
    telemetry = Telemetry(None, FixedCounts(), compared=ComparedValues("service.version"))

    assert recorded(telemetry, of_version("x" * 200), of_version("1.4")) == {OTHER: 1.0, "1.4": 1.0}


@pytest.mark.parametrize(
    ("by", "value"),
    [
        ("user_tier", "gold"),
        (semconv.WORKFLOW_NAME, "support"),
        (semconv.PROMPT_VERSION, "7"),
        (semconv.REQUEST_MODEL, "small"),
        ("service.version", "1.4"),
    ],
)
def test_metadata_attributes_model_and_resource_can_tell_also_when_content_has_gone(by: str, value: str) -> None:
    root = unit(resource={"service.version": "1.4"}).root
    assert root is not None
    asked: SpanData = replace(
        root,
        span_id=7,
        parent_id=root.span_id,
        attributes={
            semconv.OPERATION_NAME: semconv.CHAT,
            semconv.REQUEST_MODEL: "small",
            semconv.PROMPT_VERSION: "7",
        },
    )
    whole = Unit(unit().key, (root, asked))
    values = ComparedValues(by)

    assert [values.of_unit(one) for one in (whole, whole.without_content())] == [value, value]


def test_a_unit_of_this_process_has_the_resource_of_its_provider() -> None:
    values = ComparedValues("service.version", lambda: {"service.version": "1.5"})

    assert values.of_unit(unit()) == "1.5"
    assert values.of_unit(None) == "1.5"
    assert values.of_unit(unit(resource={})) == UNKNOWN


def test_series_are_distinguished_per_metric() -> None:
    telemetry = Telemetry(
        None,
        FixedCounts(),
        compared=ComparedValues(semconv.EVALUATOR_VERSION, evaluator_versions={"grounded": "1+judge"}),
    )

    for metric in ("grounded", "polite"):
        for n in range(9):
            telemetry.record(unit(), score(metric, evaluator_version=f"{n}+judge"))

    found = by_value(telemetry, semconv.SCORED)
    assert found == {**{f"{n}+judge": 2.0 for n in range(8)}, OTHER: 2.0}


def test_all_values_together_are_the_sums_without_them() -> None:
    result, plain = (Telemetry(None, FixedCounts(), compared=one) for one in (ComparedValues("service.version"), None))
    for n, one in enumerate((of_version("1.4"), of_version("1.5"), unit(resource={}), of_version("1.5"))):
        for telemetry in (result, plain):
            telemetry.record(one, score("grounded", value=n / 4, probability=1 / (n + 1)))

    for instrument in (semconv.WEIGHT, semconv.WEIGHT_QUALITY, semconv.WEIGHT2_QUALITY2):
        assert sum(result.sums(instrument).values()) == pytest.approx(sum(plain.sums(instrument).values()))
        assert not any(semconv.COMPARED in dict(labels) for labels in plain.sums(instrument))


def test_with_the_first_score_of_a_value_both_labels_are_there_and_the_other_is_0() -> None:
    telemetry = Telemetry(None, FixedCounts(), compared=ComparedValues("service.version"))
    telemetry.declare([Grounded()])

    telemetry.record(of_version("1.5"), score("grounded", label="pass", evaluator_version=Grounded().evaluator_version))

    of_release = {
        dict(labels)[semconv.EVALUATION_SCORE_LABEL]: value
        for labels, value in telemetry.sums(semconv.SCORED).items()
        if dict(labels)[semconv.COMPARED] == "1.5"
    }
    assert of_release == {"pass": 1.0, "fail": 0.0}
