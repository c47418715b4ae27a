"""What ``scorer.status()`` says that no table holds: only when there is something to say."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.judges.models import Answers
from tests.line import QUESTION, Grounded, a_line, rag

from spanscore import ConfigurationError, OnlineScorer, metric
from spanscore.judges import judge
from spanscore.metrics import AspectCritic

GOOD = '{"reason": "r", "verdict": 1}'
COST = (10 * 0.15 + 2 * 0.60) / 1e6


def config(scorer):
    return {"callbacks": [scorer.handler]}


def harmless(**prices):
    asked = judge(Answers(GOOD), prices={model.replace("_", "-"): price for model, price in prices.items()} or None)
    return AspectCritic(asked, name="harmless", definition="Is it harmless?")


def test_a_price_becomes_a_cost_on_the_evaluation_span_and_in_the_sum():
    reader = InMemoryMetricReader()
    with a_line(harmless(answers_1=(0.15, 0.60)), meter_provider=MeterProvider([reader])) as (scorer, trace):
        rag().invoke(QUESTION, config=config(scorer))
        assert scorer.flush(5)

        assert sums(reader)["spanscore.judge.cost"] == pytest.approx(COST)
        assert (scorer.status().unpriced, scorer.status().folded) == ([], 0)
        assert "price" not in str(scorer.status())
        assert "other" not in str(scorer.status())
    assert trace.evaluations[0].attributes["spanscore.judge.cost_usd"] == pytest.approx(COST)


@pytest.mark.parametrize("prices", [{}, {"another": (1, 2)}], ids=["no prices", "another's"])
def test_a_model_without_a_price_is_named_and_has_no_cost(prices):
    reader = InMemoryMetricReader()
    with a_line(harmless(**prices), meter_provider=MeterProvider([reader])) as (scorer, trace):
        rag().invoke(QUESTION, config=config(scorer))
        assert scorer.flush(5)

        assert scorer.status().unpriced == ["answers-1"]
        assert "no price of answers-1: " in str(scorer.status())
        assert "spanscore.judge.cost" not in sums(reader)
    assert "spanscore.judge.cost_usd" not in trace.evaluations[0].attributes


def test_folded_measurements_are_told():
    users = [f"user-{number}" for number in range(600)]  # with pass and fail more sets than an instrument may have
    with a_line(segments={"user": users}) as (scorer, _):
        status = scorer.status()

    assert status.folded > 0
    assert f"{status.folded} measurements are told as 'other'" in " ".join(str(status).split())


@pytest.mark.parametrize("taken", ["id", "revision"])
def test_a_metric_cannot_take_the_name_of_an_attribute_of_every_score(taken):
    makers = (
        lambda: OnlineScorer([Grounded(taken)]),
        lambda: metric(name=taken)(lambda sample: 1.0),
        lambda: AspectCritic("lexical", name=taken, definition="Is it harmless?"),
    )
    for make in makers:
        with pytest.raises(ConfigurationError, match=f"'{taken}': spanscore.score.{taken} is an attribute"):
            make()


def sums(reader):
    return {
        metric.name: sum(point.value for point in metric.data.data_points)
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if hasattr(metric.data, "is_monotonic") and metric.data.data_points
    }
