"""The category of a score is the label on spans, events and instruments; its weights give its share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.outputs.builders import failed, score, unit
from tests.outputs.memory import FixedCounts, Memory

from spanscore import semconv
from spanscore.core.codecs.job import json_of_scores, scores_of
from spanscore.core.score import Scale, Score, categorical, unit_attributes
from spanscore.errors import ConfigurationError
from spanscore.monitoring.estimates import MeanInterval, mean_interval, running_mean, running_shares
from spanscore.outputs.aggregates import refuse_too_many
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.score_events import EvaluationEvents
from spanscore.outputs.score_spans import EvaluationSpans

PLAIN = categorical("intent", ["refund", "order", "other"])
JUDGED = categorical("intent", ["refund", "order", "other"], ["refund"])


def chosen(word: str, scale: Scale = PLAIN, **changes: Any) -> Score:
    return score("intent", word, scale=scale, **changes)


@dataclass(frozen=True)
class Metric:
    name: str = "intent"
    evaluator_version: str = "1+judge"
    scale: Scale = PLAIN


def test_the_units_span_has_the_word_as_label_and_no_number() -> None:
    assert unit_attributes([chosen("order")]) == {
        "spanscore.label.intent": "order",
        "spanscore.probability.intent": 0.5,
        "spanscore.status": "scored",
    }


def test_a_bad_category_fails_the_unit() -> None:
    attributes = unit_attributes([chosen("refund", JUDGED)])

    assert (attributes["spanscore.label.intent"], attributes["spanscore.verdict"]) == ("refund", "fail")


def test_the_evaluation_span_has_the_conventions_label_and_all_categories() -> None:
    memory = Memory()

    EvaluationSpans(memory.providers).emit(unit(), [chosen("refund", JUDGED)])

    attributes = dict(memory.spans[0].attributes or {})
    assert attributes["gen_ai.evaluation.score.label"] == "refund"
    assert "gen_ai.evaluation.score.value" not in attributes
    assert attributes["spanscore.metric.kind"] == "categorical"
    assert attributes["spanscore.metric.categories"] == ("refund", "order", "other")
    assert (attributes["spanscore.quality"], attributes["spanscore.verdict"]) == (0.0, "fail")
    assert attributes["evaluations.0.evaluation.label"] == "refund"


def test_the_event_has_the_word_as_label() -> None:
    memory = Memory()

    EvaluationEvents(memory.providers).emit(unit(), [chosen("order")])

    (event,) = memory.events
    assert event.attributes["gen_ai.evaluation.score.label"] == "order"
    assert "gen_ai.evaluation.score.value" not in event.attributes
    assert "spanscore.metric.direction" not in event.attributes


def test_words_are_counted_with_their_weights_from_zero_on() -> None:
    telemetry = Telemetry(None, FixedCounts())
    telemetry.declare([Metric()])  # type: ignore[list-item]  # as much of a metric as is read

    for word in ("refund", "refund", "order"):
        telemetry.record(unit(), chosen(word))

    def by_word(name: str) -> dict[str, float]:
        return {dict(labels)[semconv.EVALUATION_SCORE_LABEL]: value for labels, value in telemetry.sums(name).items()}

    assert by_word(semconv.SCORED) == {"refund": 2, "order": 1, "other": 0}
    assert by_word(semconv.WEIGHT) == {"refund": 4.0, "order": 2.0, "other": 0.0}
    assert by_word(semconv.WEIGHT2) == {"refund": 8.0, "order": 4.0, "other": 0.0}
    assert telemetry.sums(semconv.WEIGHT_QUALITY) == {}


def test_categories_without_a_quality_have_shares_and_no_mean() -> None:
    telemetry = Telemetry(None, FixedCounts())
    units = [("refund", 1.0), ("refund", 0.1), ("order", 0.5), ("other", 0.25)]

    for word, chance in units:
        telemetry.record(unit(), chosen(word, probability=chance))
    telemetry.record(unit(), chosen("other", source="fallback"))

    shares = running_shares("intent", PLAIN, telemetry.sums)
    assert running_mean("intent", PLAIN, telemetry.sums) is None
    for word in PLAIN.categories:
        expected = mean_interval((float(own == word), chance) for own, chance in units)
        assert expected is not None
        assert shares[word] == pytest.approx(expected, rel=1e-9)


def test_the_quality_of_categories_with_bad_ones_has_a_mean() -> None:
    telemetry = Telemetry(None, FixedCounts())
    for word in ("refund", "order", "order", "order"):
        telemetry.record(unit(), chosen(word, JUDGED))

    mean = running_mean("intent", JUDGED, telemetry.sums)

    assert isinstance(mean, MeanInterval)
    assert mean.mean == pytest.approx(0.75)


def test_the_words_count_towards_the_limit_of_attribute_sets() -> None:
    many = [Metric(name=f"m{n}", scale=categorical("m", [f"w{word}" for word in range(50)])) for n in range(31)]

    with pytest.raises(ConfigurationError, match="their categories"):
        refuse_too_many(many, {})  # type: ignore[arg-type]  # as much of a metric as is read


def test_a_category_survives_the_spool() -> None:
    scores = [chosen("refund", JUDGED), failed("intent", scale=JUDGED)]

    assert scores_of(json_of_scores(scores)) == tuple(scores)
