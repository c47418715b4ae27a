"""Python and PromQL give equal results for equal sums, in a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from integrations.grafana import formulas
from tests.monitoring import backfill
from tests.outputs.builders import score, unit
from tests.outputs.memory import FixedCounts

from spanscore import semconv
from spanscore.core.score import Outcome, categorical
from spanscore.monitoring import estimates, promql
from spanscore.monitoring import promql as names
from spanscore.monitoring.releases import at_one_look
from spanscore.outputs.aggregates import ComparedValues
from spanscore.outputs.instrument_table import MOMENTS
from spanscore.outputs.instruments import Telemetry

SUMS = (semconv.SCORED, *MOMENTS)
LOST = {Outcome.JUDGE_ERROR: [0.25] * 3, Outcome.QUEUE_FULL: [0.05, 0.1]}
"""Outcome → probabilities."""

pytestmark = pytest.mark.server


def scores() -> list[tuple[float, float]]:
    rng = np.random.default_rng(5)
    return [(float(y), float(p)) for y, p in zip(rng.beta(8, 2, 400), rng.choice([0.05, 0.2, 1.0], 400), strict=True)]


INTENT = categorical("intent", ["refund", "order", "other"])


def words() -> list[tuple[str, float]]:
    dice = np.random.default_rng(7)
    drawn = zip(
        dice.choice(["refund", "order", "other"], 300, p=[0.1, 0.6, 0.3]), dice.choice([0.05, 1.0], 300), strict=True
    )
    return [(str(word), float(p)) for word, p in drawn]


EVERY = estimates.moments(scores(), lost=[p for lost in LOST.values() for p in lost])


@pytest.fixture(scope="module")
def server(prometheus: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two replicas that scored the same traffic between them."""
    replicas = {name: Telemetry(None, FixedCounts()) for name in ("a", "b")}
    for n, (y, p) in enumerate(scores()):
        replicas["ab"[n % 2]].record(None, score(value=y, probability=p, metric="polite"))
    for n, (word, p) in enumerate(words()):
        replicas["ab"[n % 2]].record(None, score(value=word, scale=INTENT, probability=p, metric="intent"))
    of = {promql.METRIC: "polite", "instance": "a", "job": "bot"}
    grown = backfill.read(replicas, SUMS)
    for instrument, power in ((semconv.MISSING_WEIGHT, 1), (semconv.MISSING_WEIGHT2, 2)):
        grown[names.series(instrument)] = [
            ({**of, names.label(semconv.OUTCOME): outcome}, sum(p**-power for p in lost))
            for outcome, lost in LOST.items()
        ]
    grown |= delegated()
    folder = tmp_path_factory.mktemp("prometheus")
    backfill.write(prometheus, folder, grown)
    with prometheus.running(folder) as running:
        yield running


def delegated() -> dict[str, list[tuple[dict[str, str], float]]]:
    """An application that had 100 units and kept none of the 30 that the sampler took, and the worker that scored these."""

    def ended(instance: str, outcome: Outcome) -> dict[str, str]:
        return {**of, "instance": instance, names.label(semconv.OUTCOME): outcome}

    of = {promql.METRIC: "shared", "job": "bot"}
    ends = {("app", Outcome.NOT_SAMPLED): 70, ("app", Outcome.DELEGATED): 30, ("worker", Outcome.SCORED): 30}
    return {
        names.series(semconv.ELIGIBLE): [({**of, "instance": "app"}, 100), ({**of, "instance": "worker"}, 30)],
        names.series(semconv.EVALUATIONS): [(ended(*how), count) for how, count in ends.items()],
    }


def test_a_unit_that_another_process_scores_has_entered_once(server: Any) -> None:
    entered = formulas.entered("1h", 'gen_ai_evaluation_name="shared"')

    assert value(server, entered) == pytest.approx(100, rel=1e-9)


def value(server: Any, expression: str) -> float:
    (found,) = server.query(expression, at=backfill.END)
    return float(found["value"][1])


LIVE = promql.increases("1h", 'gen_ai_evaluation_name="polite"')


def test_the_sums_of_all_replicas_and_labels_arrive(server: Any) -> None:
    assert value(server, LIVE(semconv.SCORED)) == pytest.approx(400, rel=1e-9)
    assert value(server, LIVE(semconv.WEIGHT2_QUALITY2)) == pytest.approx(EVERY.w2y2, rel=1e-9)


@pytest.mark.parametrize("word", INTENT.categories)
def test_the_share_of_a_category_and_its_interval_are_those_of_the_estimates(server: Any, word: str) -> None:
    sums = formulas.category_shares("1h", 'gen_ai_evaluation_name="intent"')

    def of_word(expression: str) -> float:
        (found,) = [one for one in server.query(expression, at=backfill.END) if one["metric"][promql.CATEGORY] == word]
        return float(found["value"][1])

    expected = estimates.category_shares(words(), INTENT.categories)[word]
    assert [of_word(formulas.mean(sums)), *map(of_word, formulas.interval(sums))] == pytest.approx(
        list(expected), rel=1e-6
    )


@pytest.mark.parametrize("estimate", ["mean", "standard_error", "n_eff"])
def test_an_estimate_is_the_same_in_both(server: Any, estimate: str) -> None:
    expected = getattr(estimates, estimate)(EVERY)

    assert value(server, getattr(formulas, estimate)(LIVE)) == pytest.approx(expected, rel=1e-8)


def test_the_intervals_are_the_same_in_both(server: Any) -> None:
    for pair, expected in (
        (formulas.interval(LIVE), estimates.interval(EVERY)),
        (formulas.interval(LIVE, level=0.8), estimates.interval(EVERY, level=0.8)),
        (formulas.missing_bounds(LIVE), estimates.missing_bounds(EVERY)),
    ):
        assert [value(server, end) for end in pair] == pytest.approx(list(expected), rel=1e-8)


def test_the_share_of_what_is_lost_is_weighted(server: Any) -> None:
    where = 'gen_ai_evaluation_name="polite"'

    assert value(server, promql.missing_share("1h", where)) == pytest.approx(42 / (42 + EVERY.w), rel=1e-9)


def test_the_share_of_failures_is_weighted_unless_there_are_no_weights(server: Any) -> None:
    where = 'gen_ai_evaluation_name="polite"'

    assert value(server, promql.failed_share("1h", where)) == pytest.approx(12 / (12 + EVERY.w), rel=1e-9)


def test_two_releases_differ_by_the_same_in_both(releases: Any) -> None:
    server, sides = releases
    a, b = (formulas.release_sums(value, "1h", by=[promql.METRIC]) for value in sides)
    low, high = formulas.difference_interval(a, b)
    expected = at_one_look(*sides.values())

    found = [value(server, one) for one in (formulas.difference(a, b), low, high)]

    assert found == pytest.approx(list(expected), rel=1e-7)
    worst, best = ([of(side) for side in sides.values()] for of in (estimates.if_worst, estimates.if_best))
    bounds = at_one_look(best[0], worst[1]).low, at_one_look(worst[0], best[1]).high
    assert [value(server, one) for one in formulas.difference_bounds(a, b)] == pytest.approx(bounds, rel=1e-7)
    assert value(server, formulas.missing_of(b)) == pytest.approx(estimates.missing_share(sides["1.5"]), rel=1e-8)


@pytest.fixture(scope="module")
def releases(prometheus: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two releases of one service, each with a replica, and their comparison by ``estimates``."""
    every = scores()
    sides = {
        "1.4": estimates.moments(every[:250], lost=[0.5] * 20),
        "1.5": estimates.moments([(y * y, p) for y, p in every[250:]], lost=[0.25] * 9),
    }
    replicas = {value: Telemetry(None, FixedCounts(), compared=ComparedValues("service.version")) for value in sides}
    for n, (y, p) in enumerate(every):
        release = "1.4" if n < 250 else "1.5"
        result = score(value=y if n < 250 else y * y, probability=p, metric="polite")
        replicas[release].record(unit(resource={"service.version": release}), result)
    grown = backfill.read(replicas, SUMS)
    for instrument, field in ((semconv.COMPARED_MISSING_WEIGHT, "lost"), (semconv.COMPARED_MISSING_WEIGHT2, "lost2")):
        grown[names.series(instrument)] = [
            ({promql.METRIC: "polite", promql.RELEASE: release, "instance": release, "job": "bot"}, getattr(of, field))
            for release, of in sides.items()
        ]
    folder = tmp_path_factory.mktemp("releases")
    backfill.write(prometheus, folder, grown)
    with prometheus.running(folder) as running:
        yield running, sides
