"""To how much of traffic a metric with a condition applies: from sums, by simulation, in words, and in the rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml
from integrations.grafana import formulas
from tests.monitoring import backfill
from tests.outputs.builders import score
from tests.outputs.memory import FixedCounts
from tests.yaml_files import read_yaml

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.core.job import Weights
from spanscore.core.score import BINARY, Outcome, Scale, Score
from spanscore.monitoring import promql
from spanscore.monitoring.health import ENOUGH, MIN_UNITS_DUE, applicability, running_applicability
from spanscore.monitoring.rule_tests import RuleTest, series_of, unit_test
from spanscore.monitoring.rules import RULES, RULES_TEST, rule_files
from spanscore.outputs.instrument_table import APPLICABLE
from spanscore.outputs.instruments import Telemetry

PROBABILITIES, OF_TRAFFIC, TIMES = (0.1, 0.3, 1.0), (0.7, 0.2, 0.1), (0.8, 1.2, 2.0)
"""Rules take some units more often, and these are the ones to which the metric applies more often than to others."""


def sampled(share: float, seed: int, units: int = 2_000) -> list[tuple[bool, float]]:
    """Return whether it applies, and the probability, of those units of some traffic that the sampler took."""
    rng = np.random.default_rng(seed)
    rule = rng.choice(3, units, p=OF_TRAFFIC)
    applies = rng.random(units) < share * np.array(TIMES)[rule]
    probability = np.array(PROBABILITIES)[rule]
    taken = rng.random(units) < probability
    return [(bool(y), float(p)) for y, p in zip(applies[taken], probability[taken], strict=True)]


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_interval_holds_the_share_of_all_traffic(share: float) -> None:
    true = share * float(np.dot(OF_TRAFFIC, TIMES))
    found = [applicability(sampled(share, seed)) for seed in range(300)]
    plain = [np.mean([applies for applies, _ in sampled(share, seed)]) for seed in range(300)]

    assert true == pytest.approx(share)
    assert sum(one is not None and one.low <= share <= one.high for one in found) / 300 >= 0.93
    assert np.mean([one.share for one in found if one is not None]) == pytest.approx(share, rel=0.03)
    assert np.mean(plain) > 1.2 * share  # the reason for weights


def of(applies: bool, probability: float = 0.5, **changes: object) -> Score:
    given = {"metric": "refunds", "probability": probability, "applies": applies, **changes}
    return score(**given) if applies else score(value=None, outcome=Outcome.NOT_APPLICABLE, **given)  # type: ignore[arg-type]


def test_the_sums_of_a_scorer_say_what_the_units_say() -> None:
    units = sampled(0.3, 1, 300)
    telemetry = Telemetry(None, FixedCounts())
    for applies, probability in units:
        telemetry.record(None, of(applies, probability))
    lost = Weights(20.0, 200.0)

    share = running_applicability("refunds", telemetry.sums, lost)

    assert share == pytest.approx(applicability(units, [0.1, 0.1]), rel=1e-9)
    assert running_applicability("refunds", telemetry.sums, Weights()) == pytest.approx(applicability(units), rel=1e-9)
    assert running_applicability("other", telemetry.sums, lost) is None


def test_it_is_reported_with_what_it_lacks() -> None:
    decided = [(n < 12, 0.5) for n in range(100)]

    assert str(applicability(decided)) == "applies to 12 % of traffic, 5–19 %"
    assert str(applicability([(False, 0.5)] * 400)) == "applies to 0.0 % of traffic, 0.0–0.7 %"
    of_part = str(applicability(decided, [0.5] * 25))
    assert of_part == "applies to 12 % of traffic, 4–38 % (undecided for 20 % of the sampled units)"
    assert applicability([], [0.5]) is None


def test_the_rule_of_three_is_what_the_alert_says() -> None:
    none = applicability([(False, 1.0)] * ENOUGH)

    assert none is not None
    assert 0.008 < none.high < 0.012


@dataclass(frozen=True)
class Conditional:
    name: str = "refunds"
    scale: Scale = BINARY
    evaluator_version: str = "1"
    is_conditional: bool = True


@dataclass(frozen=True)
class Plain:
    name: str = "harmless"
    scale: Scale = BINARY
    evaluator_version: str = "1"


SHARED = Monitoring()


def ruled(folder: Path, *cases: RuleTest, metrics: tuple[object, ...] = (Conditional(), Plain())) -> Path:
    """Write the rules, with these tests in place of their own."""
    files = rule_files({}, metrics, SHARED)  # type: ignore[arg-type]
    tests = read_yaml(files[RULES_TEST])
    (folder / "prometheus").mkdir()
    (folder / RULES).write_text(files[RULES], encoding="utf-8")
    tests["tests"] = [unit_test(case, SHARED) for case in cases]
    (folder / RULES_TEST).write_text(yaml.safe_dump(tests), encoding="utf-8")
    return folder / RULES_TEST


@pytest.mark.server
def test_what_a_condition_leaves_out_is_no_silence(prometheus: ModuleType, tmp_path: Path) -> None:
    undefined = {"spanscore_evaluation_outcome": "not_applicable"}
    traffic = [
        {"series": series_of(name, {promql.METRIC: metric, **more}), "values": f"0+{step}x30"}
        for metric in ("refunds", "harmless")
        for name, more, step in ((semconv.EVALUATIONS, undefined, MIN_UNITS_DUE), (semconv.SCORED, {}, 0))
    ]
    fires = {"alertname": "SpanscoreNoScores", "metric": "harmless", "window": "1h", "reason": "unscored"}
    file = ruled(tmp_path, RuleTest("undefined", traffic, [fires], of="SpanscoreNoScores"))

    assert "SUCCESS" in prometheus.promtool("test", "rules", file)


@pytest.mark.server
def test_prometheus_says_the_same(prometheus: ModuleType, tmp_path: Path) -> None:
    replicas = {name: Telemetry(None, FixedCounts()) for name in ("a", "b")}
    units = sampled(0.3, 2, 300)
    for n, (applies, probability) in enumerate(units):
        replicas["ab"[n % 2]].record(None, of(applies, probability))
    backfill.write(prometheus, tmp_path, backfill.read(replicas, APPLICABLE))
    expected = applicability(units)
    sums = formulas.applying("1h", 'gen_ai_evaluation_name="refunds"')

    with prometheus.running(tmp_path) as server:
        found = [
            float(one["value"][1])
            for expression in (formulas.mean(sums), *formulas.interval(sums))
            for one in server.query(expression, at=backfill.END)
        ]

    assert expected is not None
    assert found == pytest.approx(expected[:3], rel=1e-8)
