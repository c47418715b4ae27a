"""Instruments of scores and of sinks: values, labels and bounds, and a resource that is hashed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk import resources
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    InMemoryMetricReader,
    MetricsData,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from tests.outputs.builders import KEY, SPAN_ID, TRACE_ID, failed, score, undefined, unit
from tests.outputs.memory import FixedCounts, Memory, telemetry_of

from spanscore import semconv
from spanscore.core.codecs.sdk import HashedResource
from spanscore.core.job import Decision, UnitCounts
from spanscore.core.score import UNIT_INTERVAL, JudgeCall, Outcome, Scale, Score, Usage
from spanscore.core.span import Session, Unit, UnitKey
from spanscore.errors import ConfigurationError
from spanscore.monitoring.estimates import running_mean
from spanscore.outputs.aggregates import GaugeReading
from spanscore.outputs.exporters import BuiltProviders
from spanscore.outputs.instrument_table import POINTS
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.score_events import Instruments
from spanscore.outputs.score_spans import EvaluationSpans
from spanscore.pipeline.ledger import Ledger

OPEN = Scale(kind="ordinal", range=None)
MOMENTS = (
    "spanscore.weight",
    "spanscore.weight.quality",
    "spanscore.weight.quality2",
    "spanscore.weight2",
    "spanscore.weight2.quality",
    "spanscore.weight2.quality2",
)


@dataclass(frozen=True)
class Metric:
    name: str = "faithfulness"
    evaluator_version: str = "1+judge"
    scale: Scale = UNIT_INTERVAL


@pytest.fixture
def memory() -> Memory:
    return Memory()


def key(**attributes: str) -> tuple[tuple[str, str], ...]:
    names = {
        "name": "gen_ai.evaluation.name",
        "label": "gen_ai.evaluation.score.label",
        "evaluator_version": "spanscore.evaluator.version",
        "outcome": "spanscore.evaluation.outcome",
        "model": "gen_ai.request.model",
        "type": "spanscore.judge.token.type",
        "error": "error.type",
        "workflow": "gen_ai.workflow.name",
    }
    return tuple(sorted((names.get(short, short), value) for short, value in attributes.items()))


def with_root(**changes: object) -> Unit:
    of = unit()
    return replace(of, spans=tuple(replace(span, **changes) for span in of.spans))


PASSED = key(name="faithfulness", label="pass", evaluator_version="1+judge")
FAILED = key(name="faithfulness", label="fail", evaluator_version="1+judge")


def test_declared_sums_are_zero_in_the_first_collection(memory: Memory) -> None:
    telemetry = telemetry_of(memory)
    telemetry.declare([Metric(), Metric("style", scale=OPEN)])

    expected = {PASSED: 0, FAILED: 0, key(name="style", evaluator_version="1+judge"): 0}
    assert memory.values("spanscore.scored") == expected
    assert [memory.values(name) for name in MOMENTS] == [expected] * len(MOMENTS)
    losses = [str(outcome) for outcome in Outcome if outcome.missing]
    excluded = {key(name=name, outcome=outcome): 0 for name in ("faithfulness", "style") for outcome in losses}
    assert [memory.values(f"spanscore.missing.{power}") for power in ("weight", "weight2")] == [excluded, excluded]


def test_every_outcome_of_a_declared_metric_is_there_from_the_first_collection(memory: Memory) -> None:
    telemetry = Telemetry(memory.providers.meter(), FixedCounts(faithfulness=3))
    telemetry.declare([Metric()])

    outcomes = {key(name="faithfulness", outcome=str(outcome)): 0 for outcome in Outcome}
    scored = {key(name="faithfulness", outcome="scored"): 3}
    assert memory.values("spanscore.evaluations") == {**outcomes, **scored}
    assert memory.values("spanscore.eligible") == {key(name="faithfulness"): 3}
    assert memory.values("spanscore.evaluation.pending") == {key(name="faithfulness"): 0}


def test_what_a_fallback_judged_is_in_sums_of_its_own(memory: Memory) -> None:
    telemetry = telemetry_of(memory)

    telemetry.record(unit(), score(source="fallback", evaluator_version="1/other/1"))
    telemetry.record(unit(), replace(failed(), source="fallback"))
    telemetry.record(unit(), score(value=0.75))

    fallback = ("spanscore.evaluation.source", "fallback")
    scored = memory.values("spanscore.scored")
    assert [fallback in labels for labels, count in scored.items() if count] == [True, False]
    assert [fallback in labels for labels in memory.points("spanscore.quality")] == [True, False]
    mean = running_mean("faithfulness", UNIT_INTERVAL, telemetry.sums)
    assert mean is not None
    assert mean.mean == 0.75


def test_the_sums_are_the_additive_moments_of_quality_weighted_by_the_inverse_probability(memory: Memory) -> None:
    telemetry = telemetry_of(memory)

    telemetry.record(unit(), score(value=0.75, probability=0.5))
    telemetry.record(unit(), score(value=0.5, probability=0.25))

    sums = {name: memory.values(name)[PASSED] for name in ("spanscore.scored", *MOMENTS)}
    assert sums == {
        "spanscore.scored": 2,
        "spanscore.weight": 2 + 4,
        "spanscore.weight.quality": 2 * 0.75 + 4 * 0.5,
        "spanscore.weight.quality2": 2 * 0.75**2 + 4 * 0.25,
        "spanscore.weight2": 4 + 16,
        "spanscore.weight2.quality": 4 * 0.75 + 16 * 0.5,
        "spanscore.weight2.quality2": 4 * 0.75**2 + 16 * 0.25,
    }


def test_sums_take_quality_where_the_value_is_negative_or_lower_is_better(memory: Memory) -> None:
    telemetry = telemetry_of(memory)

    telemetry.record(None, score(value=-0.5, scale=Scale(range=(-1.0, 1.0)), probability=1.0))
    telemetry.record(None, score(value=0.25, scale=Scale(direction="lower"), probability=1.0))

    assert memory.values("spanscore.weight.quality") == {FAILED: 0.25, PASSED: 0.75}
    points = memory.points("spanscore.quality")
    assert {labels: point.sum for labels, point in points.items()} == {FAILED: 0.25, PASSED: 0.75}


def test_a_score_without_quality_is_counted_and_adds_to_no_mean(memory: Memory) -> None:
    telemetry_of(memory).record(None, score(value=17.0, scale=OPEN))

    unlabelled = key(name="faithfulness", evaluator_version="1+judge")
    assert memory.values("spanscore.scored") == {unlabelled: 1}
    assert [memory.values(name) for name in MOMENTS] == [{}] * len(MOMENTS)
    assert memory.points("spanscore.quality") == {}


def test_what_is_lost_is_reported_by_its_weight_and_its_square(memory: Memory) -> None:
    ledger = Ledger(["faithfulness"])
    Telemetry(memory.providers.meter(), ledger)
    for number in (1, 2):
        ledger.enter(UnitKey(1, number))
        ledger.record_probabilities(UnitKey(1, number), {"faithfulness": Decision(True, 0.1, 0)})
        ledger.settle(UnitKey(1, number), "faithfulness", Outcome.JUDGE_ERROR)

    assert memory.values("spanscore.missing.weight") == {key(name="faithfulness", outcome="judge_error"): 20}
    assert memory.values("spanscore.missing.weight2") == {key(name="faithfulness", outcome="judge_error"): 200}


def test_an_undefined_score_is_neither_a_score_nor_a_failure(memory: Memory) -> None:
    telemetry_of(memory).record(None, undefined())

    assert memory.values("spanscore.scored") == {}


def test_a_superseding_score_costs_and_does_not_count_twice(memory: Memory) -> None:
    telemetry = telemetry_of(memory)
    usage = Usage((JudgeCall(step="verify", model="judge"),))

    telemetry.record(None, score(usage=usage))
    telemetry.record(None, score(usage=usage, revision=1))

    assert memory.values("spanscore.scored") == {PASSED: 1}
    assert memory.values("spanscore.judge.calls") == {key(name="faithfulness", model="judge"): 2}


def test_judge_calls_are_counted_with_tokens_cost_duration_and_errors(memory: Memory) -> None:
    answered = JudgeCall(step="a", model="judge", input_tokens=10, output_tokens=2, cost_usd=0.5, duration_s=1.5)
    broken = JudgeCall(step="b", model="judge", duration_s=30.0, error_type="timeout")

    telemetry_of(memory).record(None, failed(usage=Usage((answered, broken))))

    by = {"name": "faithfulness", "model": "judge"}
    assert memory.values("spanscore.judge.calls") == {key(**by): 2}
    tokens = {"input": 10, "cached_input": 0, "cache_write": 0, "output": 2}
    assert memory.values("spanscore.judge.tokens") == {key(**by, type=kind): count for kind, count in tokens.items()}
    assert memory.values("spanscore.judge.cost") == {key(**by): 0.5}
    assert memory.values("spanscore.judge.errors") == {key(**by, error="timeout"): 1}
    assert memory.points("spanscore.judge.duration")[key(**by)].sum == 31.5


def test_a_call_that_was_answered_without_a_request_is_one_and_took_no_time_of_the_judge(memory: Memory) -> None:
    asked, cached = JudgeCall(step="a", model="judge", duration_s=1.5), JudgeCall(step="a", model="judge", cached=True)

    telemetry_of(memory).record(None, score(usage=Usage((asked, cached))))

    by = key(name="faithfulness", model="judge")
    assert memory.values("spanscore.judge.calls") == {by: 2}
    assert memory.points("spanscore.judge.duration")[by].count == 1


def test_a_call_without_a_model_is_the_scores_judge_or_unknown(memory: Memory) -> None:
    telemetry = telemetry_of(memory)
    usage = Usage((JudgeCall(step="a"),))

    telemetry.record(None, score(usage=usage, judge_model="configured"))
    telemetry.record(None, score(usage=usage))

    models = {dict(labels)["gen_ai.request.model"] for labels in memory.values("spanscore.judge.calls")}
    assert models == {"configured", "unknown"}


def test_the_histogram_tells_model_and_workflow_and_has_literal_buckets(memory: Memory) -> None:
    telemetry_of(memory).record(unit(**{semconv.REQUEST_MODEL: "app-model"}), score())

    ((labels, point),) = memory.points("spanscore.quality").items()
    assert dict(labels) == {
        **dict(PASSED),
        "gen_ai.request.model": "app-model",
        "gen_ai.workflow.name": "support",
    }
    assert point.explicit_bounds == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def test_an_agent_stands_for_a_workflow_that_is_not_there(memory: Memory) -> None:
    telemetry_of(memory).record(with_root(attributes={semconv.AGENT_NAME: "planner"}), score())

    ((labels, _),) = memory.points("spanscore.quality").items()
    assert dict(labels)["gen_ai.agent.name"] == "planner"


def test_segments_have_listed_values_and_other(memory: Memory) -> None:
    telemetry = telemetry_of(memory, dimensions={"user_tier": ("gold", "free")})
    telemetry.declare([Metric()])

    telemetry.record(unit(), score())
    telemetry.record(with_root(metadata={"user_tier": "a user's own text"}), score())
    telemetry.record(None, score())

    passed = {
        dict(labels)["user_tier"]: value
        for labels, value in memory.values("spanscore.scored").items()
        if "pass" in dict(labels).values()
    }
    assert passed == {"gold": 1, "free": 0, "other": 2}


def test_units_of_several_applications_are_distinguished_by_their_resource(memory: Memory) -> None:
    telemetry = telemetry_of(memory, dimensions={"service.namespace": ("shop", "bank")})
    shop = {"service.namespace": "shop"}

    telemetry.record(with_root(resource=shop), score())
    telemetry.record(with_root(resource=shop, attributes={"service.namespace": "bank"}), score())

    counted = memory.values("spanscore.scored").items()
    assert {dict(labels)["service.namespace"]: value for labels, value in counted} == {"shop": 1, "bank": 1}


@pytest.mark.parametrize(
    "ours",
    [
        "gen_ai.evaluation.name",
        "gen_ai.evaluation.score.label",
        "spanscore.evaluator.version",
        "service.name",
        "service_name",
    ],
)
def test_a_segment_cannot_take_the_place_of_an_attribute_of_ours(memory: Memory, ours: str) -> None:
    with pytest.raises(ConfigurationError, match=ours):
        telemetry_of(memory, dimensions={ours: ("gold",)})


def test_a_meter_that_comes_late_gets_the_sums_whole_and_histograms_from_then_on(memory: Memory) -> None:
    telemetry = Telemetry(None, FixedCounts(faithfulness=5))
    telemetry.record(None, score())

    telemetry.export_to(memory.providers.meter())
    telemetry.record(None, score())

    assert memory.values("spanscore.scored") == {PASSED: 2}
    assert memory.values("spanscore.eligible") == {key(name="faithfulness"): 5}
    assert memory.points("spanscore.quality")[PASSED].count == 1


def test_each_of_two_meters_gets_all_and_one_that_is_abandoned_no_more(memory: Memory) -> None:
    other = Memory()
    telemetry = telemetry_of(memory)
    telemetry.export_to(other.providers.meter())
    telemetry.record(None, score())

    assert [one.values("spanscore.scored")[PASSED] for one in (memory, other)] == [1, 1]
    telemetry.abandon(other.providers.meter())
    telemetry.record(None, score())

    assert [one.points("spanscore.quality")[PASSED].count for one in (memory, other)] == [2, 1]


TIERS = {"tier": ["a", "b", "c", "d", "e"], "lang": ["de", "en", "es", "fr", "it"]}


def test_every_declared_set_is_distinguished_also_by_the_sdk(memory: Memory) -> None:
    telemetry = telemetry_of(memory, dimensions=TIERS)
    telemetry.declare([Metric(f"metric_{number}") for number in range(17)])

    points = memory.values("spanscore.weight")
    assert (len(points), telemetry.overflowed) == (17 * 2 * 6 * 6, 0)
    assert all(("otel.metric.overflow", True) not in labels for labels in points)


def test_past_the_declared_sets_there_is_room_for_what_comes_later(memory: Memory) -> None:
    telemetry = telemetry_of(memory, dimensions=TIERS, max_sets=3)
    telemetry.declare([Metric()])

    for number in range(5):
        telemetry.record(unit(), score(evaluator_version=f"{number}+judge"))

    values = {dict(labels)["spanscore.evaluator.version"] for labels in memory.values("spanscore.scored")}
    assert values == {"1+judge", "0+judge", "2+judge", "3+judge", "other"}
    assert telemetry.overflowing == {"faithfulness": "spanscore.evaluator.version"}


def test_attribute_sets_are_bounded_and_what_was_folded_is_counted(memory: Memory) -> None:
    telemetry = telemetry_of(memory, max_sets=3)

    for n in range(10):
        telemetry.record(unit(**{semconv.REQUEST_MODEL: f"model-{n}"}), score())

    points = memory.points("spanscore.quality")
    overflowed = points[
        key(name="faithfulness", label="pass", evaluator_version="other", model="other", workflow="other")
    ]
    assert (len(points), overflowed.count, telemetry.overflowed) == (4, 7, 7)


def test_handed_in_readings_are_exported_and_a_failing_one_is_left_out(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> float:
        raise RuntimeError

    telemetry_of(
        memory,
        gauges={
            semconv.QUEUE_SIZE: lambda: 3,
            semconv.HOLD_RELEASED: lambda: {"scored": 7, "deadline": 1},
            semconv.HOLD_UNITS: broken,
        },
    )

    assert memory.values("spanscore.queue.size") == {(): 3}
    assert memory.values("spanscore.hold.released") == {(("reason", "deadline"),): 1, (("reason", "scored"),): 7}
    assert (memory.values("spanscore.hold.units"), memory.values("spanscore.queue.capacity")) == ({}, {})
    assert caplog.messages == []


class Busy(FixedCounts):
    """A unit enters, and another ends, whenever it is looked at."""

    def count_units(self) -> UnitCounts:
        self._eligible["faithfulness"] += 1
        return super().count_units()


def test_what_entered_is_what_ended_and_what_is_between_at_every_collection(memory: Memory) -> None:
    telemetry = Telemetry(memory.providers.meter(), Busy(faithfulness=0))

    for _ in range(3):
        data: Any = memory.reader.get_metrics_data()
        found = {
            metric.name: sum(getattr(point, "value", 0) for point in metric.data.data_points)
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
        }

        assert found[semconv.ELIGIBLE] == found[semconv.EVALUATIONS] + found[semconv.PENDING] > 0
    telemetry.close()


def test_two_scorers_on_one_meter_add_up(memory: Memory) -> None:
    for _ in range(2):
        telemetry = Telemetry(memory.providers.meter(), FixedCounts(faithfulness=5), {semconv.QUEUE_SIZE: lambda: 2})
        telemetry.record(None, score())

    assert memory.values("spanscore.scored") == {PASSED: 2}
    assert memory.values("spanscore.eligible") == {key(name="faithfulness"): 10}
    assert memory.values("spanscore.queue.size") == {(): 4}


def test_counters_keep_what_a_closed_scorer_counted_and_its_gauges_end(memory: Memory) -> None:
    telemetry = Telemetry(memory.providers.meter(), FixedCounts(faithfulness=5), {semconv.QUEUE_SIZE: lambda: 2})
    telemetry.record(None, score())

    telemetry.close()
    telemetry.close()

    assert memory.values("spanscore.scored") == {PASSED: 1}
    assert memory.values("spanscore.eligible") == {key(name="faithfulness"): 5}
    assert memory.values("spanscore.queue.size") == {}


def test_of_a_closed_scorer_it_is_reported_that_nothing_waits(memory: Memory) -> None:
    """A store shows the last value of a gauge for minutes: one of before the end would not add up with the last counts."""
    telemetry = Telemetry(memory.providers.meter(), FixedCounts(faithfulness=5))

    telemetry.close()

    assert memory.values(semconv.PENDING) == {key(name="faithfulness"): 0}


def account(model: str = "m", **values: float) -> GaugeReading:
    names = {
        "places": semconv.JUDGE_CONCURRENCY_LIMIT,
        "breaker": semconv.JUDGE_CIRCUIT_BREAKER_STATE,
        "retries": semconv.JUDGE_RETRIES,
    }
    return GaugeReading(
        ((semconv.PROVIDER_NAME, "openai"), (semconv.REQUEST_MODEL, model)),
        {names[name]: value for name, value in values.items()},
    )


def of_account(model: str = "m") -> tuple[tuple[str, str], ...]:
    return (("gen_ai.provider.name", "openai"), ("gen_ai.request.model", model))


def test_an_account_that_two_scorers_share_is_reported_once_and_two_of_one_name_add_up(memory: Memory) -> None:
    one, other = account(places=4, breaker=0, retries=2), account(places=3, breaker=2, retries=1)
    telemetry_of(memory, points=lambda: {"shared": one})
    telemetry_of(
        memory, points=lambda: {"shared": one, "of another key": other, "of another model": account("n", places=1)}
    )

    assert memory.values("spanscore.judge.concurrency.limit") == {of_account(): 7, of_account("n"): 1}
    assert memory.values("spanscore.judge.retries") == {of_account(): 3}
    assert memory.values("spanscore.judge.circuit_breaker.state") == {of_account(): 2}  # the worst


def test_the_lowest_factor_of_a_budget_stands_for_all(memory: Memory) -> None:
    window = ((semconv.BUDGET_UNIT, "usd"), (semconv.BUDGET_WINDOW, "1h"))
    for factor in (0.9, 0.4):
        point = GaugeReading(window, {semconv.BUDGET_FACTOR: factor, semconv.BUDGET_SPENT: 1.5})
        telemetry_of(memory, points=lambda point=point: {id(point): point})

    assert memory.values("spanscore.judge.budget.factor") == {window: 0.4}
    assert memory.values("spanscore.judge.budget.spent") == {window: 3.0}


def test_a_counter_of_an_account_does_not_go_back_when_a_scorer_ends_and_grows_when_another_asks_it(
    memory: Memory,
) -> None:
    retries = [2.0]
    first = telemetry_of(memory, points=lambda: {"account": account(places=4, retries=retries[0])})
    first.close()

    assert memory.values("spanscore.judge.retries") == {of_account(): 2}
    assert memory.values("spanscore.judge.concurrency.limit") == {}

    retries[0] = 5.0
    telemetry_of(memory, points=lambda: {"account": account(places=4, retries=retries[0])})

    assert memory.values("spanscore.judge.retries") == {of_account(): 5}


def test_accounts_that_cannot_be_read_are_left_out(memory: Memory) -> None:
    telemetry_of(memory, points=lambda: {"account": account(places=1 // 0)})

    assert memory.values("spanscore.judge.concurrency.limit") == {}


def test_a_wait_is_recorded_once_on_a_meter_that_two_scorers_share(memory: Memory) -> None:
    listeners = set[Callable[[str, str, float], None]]()
    for _ in range(2):
        telemetry_of(memory, waits=listeners.add)

    for listener in listeners:
        listener("openai", "m", 2.5)

    (point,) = memory.points("spanscore.judge.queue.duration").values()
    assert (point.count, point.sum, dict(point.attributes)) == (1, 2.5, dict(of_account()))


def test_no_wait_is_recorded_on_a_meter_that_was_abandoned(memory: Memory) -> None:
    listeners = list[Callable[[str, str, float], None]]()
    telemetry = telemetry_of(memory, waits=listeners.append)

    telemetry.abandon(memory.providers.meter())
    listeners[0]("openai", "m", 2.5)

    assert memory.points("spanscore.judge.queue.duration") == {}


@dataclass(frozen=True)
class Conditional(Metric):
    is_conditional: bool = True


def applied(applies: bool, **changes: Any) -> Score:
    return score(applies=applies, **changes) if applies else replace(undefined(), applies=applies, **changes)


APPLIES, DOES_NOT = (
    key(name="faithfulness", evaluator_version="1+judge", **{"spanscore.evaluation.applicable": said})
    for said in ("true", "false")
)


def test_whether_a_metric_applies_is_weighted_and_there_as_zero_only_where_there_is_a_condition(memory: Memory) -> None:
    telemetry = telemetry_of(memory)
    telemetry.declare([Conditional(), Metric("style")])
    telemetry.declare([Conditional()], semconv.SOURCE_SHADOW)
    assert memory.values("spanscore.applicable.weight") == {APPLIES: 0, DOES_NOT: 0}

    telemetry.record(unit(), applied(True, probability=0.25))
    for _ in range(2):
        telemetry.record(unit(), applied(False, probability=0.1))

    assert memory.values("spanscore.applicable.weight") == {APPLIES: 4, DOES_NOT: 20}
    assert memory.values("spanscore.applicable.weight2") == {APPLIES: 16, DOES_NOT: 200}


def test_what_is_in_no_mean_is_in_no_share_of_what_applies(memory: Memory) -> None:
    telemetry = telemetry_of(memory)
    telemetry.declare([Conditional()])
    going_on = replace(unit(), session=Session(UnitKey(1, 1), 2, "open"))

    telemetry.record(unit(), failed())
    telemetry.record(unit(), undefined())  # for another reason
    for applies in (True, False):
        telemetry.record(unit(), applied(applies, revision=1))
        telemetry.record(going_on, applied(applies))
        telemetry.record(unit(), applied(applies, source="fallback"))

    assert memory.values("spanscore.applicable.weight") == {APPLIES: 0, DOES_NOT: 0}


def test_of_two_scorers_what_applies_adds_up_and_a_closed_one_keeps_it(memory: Memory) -> None:
    for _ in range(2):
        telemetry = telemetry_of(memory)
        telemetry.declare([Conditional()])
        telemetry.record(unit(), applied(False))
        telemetry.close()

    assert memory.values("spanscore.applicable.weight") == {APPLIES: 0, DOES_NOT: 4}


def test_tokens_are_of_one_type_each_and_answers_without_a_count_are_counted(memory: Memory) -> None:
    metered = JudgeCall(
        step="a", model="m", input_tokens=100, cached_input_tokens=70, cache_write_tokens=10, output_tokens=7
    )
    silent = (JudgeCall(step="a", model="m"), JudgeCall(step="a", model="m", cached=True))
    failing = JudgeCall(step="a", model="m", error_type="timeout")

    telemetry_of(memory).record(None, score(usage=Usage((metered, *silent, failing))))

    types = {"input": 20, "cached_input": 70, "cache_write": 10, "output": 7}
    assert memory.values("spanscore.judge.tokens") == {
        key(name="faithfulness", model="m", type=kind): tokens for kind, tokens in types.items()
    }
    assert memory.values("spanscore.judge.calls_without_usage") == {key(name="faithfulness", model="m"): 1}


def test_what_a_judge_declines_is_counted_apart_from_other_failures(memory: Memory) -> None:
    telemetry = telemetry_of(memory)
    telemetry.declare([Metric(), Metric("style")])

    telemetry.record(None, failed(error_type="declined"))
    telemetry.record(None, failed(error_type="timeout"))

    assert memory.values("spanscore.declined") == {key(name="faithfulness"): 1, key(name="style"): 0}


def test_without_a_meter_everything_is_counted_and_nothing_exported() -> None:
    telemetry = Telemetry(None, FixedCounts())
    telemetry.declare([Metric()])

    telemetry.record(unit(), score())

    assert telemetry.sums("spanscore.scored")[next(iter(telemetry.sums("spanscore.scored")))] == 1


def test_a_delta_backend_gets_differences() -> None:
    delta = AggregationTemporality.DELTA
    reader = InMemoryMetricReader(preferred_temporality=dict.fromkeys(_counter_types(), delta))
    memory = Memory(reader=reader)
    telemetry = telemetry_of(memory)

    telemetry.record(None, score())
    first = memory.values("spanscore.scored")
    telemetry.record(None, score())
    telemetry.record(None, score())

    assert (first, memory.values("spanscore.scored")) == ({PASSED: 1}, {PASSED: 2})


def _counter_types() -> list[type]:
    from opentelemetry.sdk.metrics import Counter, ObservableCounter

    return [Counter, ObservableCounter]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_counts_from_zero(memory: Memory) -> None:
    telemetry = telemetry_of(memory)
    telemetry.record(None, score(applies=True))

    child = os.fork()
    if child == 0:
        telemetry.record(None, score(value=0.0))
        began_at_zero = [*telemetry.sums("spanscore.applicable.weight").values()] == [0]
        os._exit(0 if began_at_zero and telemetry.sums("spanscore.scored") == _child_sums() else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert memory.values("spanscore.scored") == {PASSED: 1}


def _child_sums() -> dict[tuple[tuple[str, str], ...], float]:
    name, evaluator_version = ("gen_ai.evaluation.name", "faithfulness"), ("spanscore.evaluator.version", "1+judge")
    label = "gen_ai.evaluation.score.label"
    return {(name, (label, "pass"), evaluator_version): 0, (name, (label, "fail"), evaluator_version): 1}


def test_every_instrument_of_semconv_is_there_with_its_kind_and_no_other(memory: Memory) -> None:
    every = {name: (lambda: 1.0) for name in _HANDED_IN}
    telemetry = Telemetry(
        memory.providers.meter(),
        FixedCounts(faithfulness=1),
        every,
        points=lambda: {"account": GaugeReading((), dict.fromkeys(POINTS, 1.0))},
        waits=lambda listener: listener("openai", "m", 1.0),
    )
    broken = JudgeCall(step="a", input_tokens=1, cost_usd=0.1, error_type="timeout")
    telemetry.declare([Conditional()])
    telemetry.record(None, score(usage=Usage((broken, JudgeCall(step="b"))), contradictions=1, applies=True))
    telemetry.record(None, failed())

    data = memory.reader.get_metrics_data()

    assert data is not None
    assert _kinds(data) == {**dict.fromkeys(_COUNTERS, "counter"), **dict.fromkeys(_GAUGES, "gauge"), **_HISTOGRAMS}


_HISTOGRAMS = dict.fromkeys(
    (semconv.QUALITY_HISTOGRAM, semconv.JUDGE_DURATION, semconv.JUDGE_QUEUE_DURATION), "histogram"
)
_LEVELS = {
    semconv.QUEUE_SIZE,
    semconv.QUEUE_CAPACITY,
    semconv.HOLD_UNITS,
    semconv.UNITS_OPEN,
    semconv.SPOOL_DEPTH,
    semconv.SPOOL_BYTES,
    semconv.SPOOL_OLDEST,
    semconv.SPOOL_DEAD_LETTERS,
}
_GAUGES = {
    semconv.PENDING,
    *_LEVELS,
    semconv.JUDGE_CONCURRENCY_LIMIT,
    semconv.JUDGE_ACTIVE_CALLS,
    semconv.JUDGE_QUEUE_SIZE,
    semconv.JUDGE_CIRCUIT_BREAKER_STATE,
    semconv.BUDGET_SPENT,
    semconv.BUDGET_LIMIT,
    semconv.BUDGET_FACTOR,
    semconv.JUDGE_CHECK_AGREEMENT,
    semconv.JUDGE_CHECK_FIRST_AGREEMENT,
    semconv.JUDGE_CHECK_P,
    semconv.WORKER_LAG,
    semconv.WORKER_TIME_LAG,
}
_HANDED_IN = {
    *_LEVELS,
    semconv.HOLD_RELEASED,
    semconv.HOLD_LOST,
    semconv.CAPTURE_UNITS,
    semconv.CAPTURE_REFUSED,
    semconv.CAPTURE_ABANDONED,
    semconv.RECEIVE_REQUESTS,
    semconv.RECEIVE_SPANS,
    semconv.RECEIVE_BYTES,
    semconv.RECEIVE_REFUSED,
    semconv.RECEIVE_REJECTED,
    semconv.RECEIVE_UNREAD,
    semconv.UNITS_ORPHANS,
    semconv.UNITS_LATE,
    semconv.WORKER_DROPPED,
    semconv.WORKER_SKIPPED,
    semconv.REDELIVERED,
}
_COUNTERS = {
    semconv.SCORED,
    *MOMENTS,
    semconv.MISSING_WEIGHT,
    semconv.MISSING_WEIGHT2,
    semconv.ELIGIBLE,
    semconv.EVALUATIONS,
    semconv.JUDGE_CALLS,
    semconv.JUDGE_TOKENS,
    semconv.JUDGE_COST,
    semconv.JUDGE_ERRORS,
    semconv.JUDGE_CALLS_WITHOUT_USAGE,
    semconv.JUDGE_THROTTLED,
    semconv.JUDGE_RETRIES,
    semconv.JUDGE_CACHE_HITS,
    semconv.DECLINED,
    semconv.JUDGE_SELF_CONTRADICTIONS,
    semconv.APPLICABLE_WEIGHT,
    semconv.APPLICABLE_WEIGHT2,
    *(_HANDED_IN - _GAUGES),
}


def _kinds(data: MetricsData) -> Mapping[str, str]:
    def kind(of: object) -> str:
        if isinstance(of, Histogram):
            return "histogram"
        return "counter" if isinstance(of, Sum) and of.is_monotonic else "gauge"

    return {m.name: kind(m.data) for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}


@pytest.mark.parametrize("claimed", [-0.1, 1.1, float("nan")])
def test_a_quality_that_cannot_be_adds_to_no_mean(memory: Memory, claimed: float) -> None:
    telemetry_of(memory).record(None, score(quality=claimed))

    assert (memory.values("spanscore.scored"), memory.values("spanscore.weight.quality")) == (
        {PASSED: 1},
        {},
    )


def test_the_exemplar_points_at_the_scored_span_also_inside_another_one(memory: Memory) -> None:
    sink = Instruments(telemetry_of(memory))

    with memory.tracer_provider.get_tracer("judge").start_as_current_span("chat judge"):
        sink.emit(unit(), [score()])

    (point,) = memory.points("spanscore.quality").values()
    assert [(exemplar.trace_id, exemplar.span_id) for exemplar in point.exemplars] == [(TRACE_ID, SPAN_ID)]


@pytest.mark.parametrize("of", [unit(flags=0), Unit(KEY, (), complete=False)], ids=["unsampled", "rootless"])
def test_a_trace_nobody_can_open_is_no_exemplar(memory: Memory, of: Unit) -> None:
    Instruments(telemetry_of(memory)).emit(of, [score()])

    (point,) = memory.points("spanscore.quality").values()
    assert (point.count, list(point.exemplars)) == (1, [])
    assert not trace.get_current_span().get_span_context().is_valid


def test_telemetry_outlives_its_sink(memory: Memory) -> None:
    sink = Instruments(telemetry_of(memory))
    sink.emit(unit(), [score()])

    sink.shutdown()

    assert list(memory.values("spanscore.scored").values()) == [1]


ATTRIBUTES = {"service.name": "shop", "ports": (80, 443)}


def test_it_is_found_where_the_sdks_own_is() -> None:
    kinds: list[type[Resource]] = [Resource, HashedResource]

    for kind, other in (kinds, reversed(kinds)):
        assert {kind(ATTRIBUTES, "https://schema"): 1}[other(ATTRIBUTES, "https://schema")] == 1
    assert Resource(ATTRIBUTES) not in {HashedResource({"service.name": "shop"}), HashedResource({})}


def test_its_attributes_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    def dumps(attributes: Any, **_: Any) -> str:
        written.append(attributes)
        return ""

    monkeypatch.setattr(resources, "dumps", dumps)
    hashed = HashedResource(ATTRIBUTES)

    assert len({hash(hashed) for _ in range(3)}) == len(written) == 1


def test_evaluation_spans_of_another_application_have_one() -> None:
    memory = Memory()

    EvaluationSpans(memory.providers).emit(unit(resource=ATTRIBUTES), [score()])

    assert [type(span.resource) for span in memory.spans] == [HashedResource]


def test_what_our_own_providers_send_has_one_whatever_the_sdk_says_of_the_instance() -> None:
    parts = BuiltProviders("shop")

    assert type(parts.resource) is type(parts.provider("traces").resource) is HashedResource
    assert parts.resource.attributes["service.name"] == "shop"
    assert parts.resource.attributes["service.instance.id"]
