"""Prometheus' records of a calibrated metric: the corrected rate of its evaluator version only, equal to Python's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.monitoring import backfill
from tests.outputs.builders import score
from tests.outputs.memory import FixedCounts
from tests.yaml_files import read_yaml

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.errors import ConfigurationError
from spanscore.metrics import ExactMatch, StringPresence
from spanscore.monitoring import calibration as rules
from spanscore.monitoring import promql
from spanscore.monitoring.calibration import AnnotatedPair, Calibration, SavedCalibration
from spanscore.monitoring.estimates import moments
from spanscore.monitoring.promql import series
from spanscore.monitoring.rules import RULES, rule_files
from spanscore.outputs.instrument_table import MOMENTS
from spanscore.outputs.instruments import Telemetry

COUNTS = {(True, True): 150, (True, False): 12, (False, True): 9, (False, False): 29}
CALIBRATION = Calibration.of(AnnotatedPair(*verdicts) for verdicts, count in COUNTS.items() for _ in range(count))
METRIC = ExactMatch()
SCORES = [(1.0, 0.1)] * 30 + [(1.0, 1.0)] * 20 + [(0.0, 0.25)] * 20
"""Quality and probability."""


@pytest.fixture
def shared(tmp_path: Path) -> Monitoring:
    saved = SavedCalibration(METRIC.name, "calibrated", CALIBRATION)
    (tmp_path / "c.json").write_text(saved.text)
    return Monitoring(interval=60, windows=[600, 3_600], calibrations=[str(tmp_path / "c.json")])


@pytest.mark.server
def test_python_and_promql_say_the_same(prometheus: ModuleType, tmp_path: Path) -> None:
    telemetry = Telemetry(None, FixedCounts())
    for quality, probability in SCORES:
        telemetry.record(None, score(value=quality, probability=probability, metric="polite"))
    backfill.write(prometheus, tmp_path, backfill.read({"a": telemetry}, (semconv.SCORED, *MOMENTS)))
    every, passed = (promql.increases("1h", f'{promql.METRIC}="polite"{more}') for more in ("", f",{PASSED}"))
    share = f"({rules.smoothed_share(passed, every)})"
    ends = rules.corrected_ends(CALIBRATION, share, rules.smoothed_variance(passed, every, share))

    with prometheus.running(tmp_path) as server:
        found = [
            float(server.query(one, at=backfill.END)[0]["value"][1])
            for one in (rules.corrected_rate(CALIBRATION, passed, every), *ends)
        ]

    assert found == pytest.approx(list(CALIBRATION.corrected(moments(SCORES))), rel=1e-7)


PASSED = 'gen_ai_evaluation_score_label="pass"'


def sums(of: str, label: str, growth: str) -> list[Mapping[str, str]]:
    labels = (
        f'{promql.METRIC}="exact_match",gen_ai_evaluation_score_label="{label}",{promql.EVALUATOR_VERSION}="{of}",job="bot",'
        'spanscore_evaluation_source=""'
    )
    names = (semconv.SCORED, semconv.WEIGHT, semconv.WEIGHT2)
    return [{"series": f"{series(name)}{{{labels}}}", "values": growth} for name in names]


@pytest.mark.server
def test_the_rate_is_recorded_until_another_series_is_written(
    prometheus: ModuleType, tmp_path: Path, shared: Monitoring
) -> None:
    (tmp_path / "rules.yml").write_text(rule_files({}, [METRIC], shared)[RULES])
    before, after = "0+{}x60 {}x60", "_x60 0+{}x60"
    traffic = [
        *sums("calibrated", "pass", before.format(79, 79 * 60)),
        *sums("calibrated", "fail", before.format(21, 21 * 60)),
        *sums("another", "pass", after.format(79)),
        *sums("another", "fail", after.format(21)),
    ]
    labels = f'{{{promql.METRIC}="exact_match",job="bot",{promql.EVALUATOR_VERSION}="calibrated",window="1h"}}'
    corrected = CALIBRATION.corrected(moments([(1.0, 1.0)] * 79 * 55 + [(0.0, 1.0)] * 21 * 55))
    rate = {"labels": labels, "value": round(corrected.value, 6)}
    ends = {rules.LOW: corrected.low, rules.HIGH: corrected.high}  # they hang on how far Prometheus extrapolates
    near = [f"count(abs({name}{labels} - {value}) < 0.005)" for name, value in ends.items()]
    asked = [
        {"expr": f"round({rules.CORRECTED}, 1e-6)", "eval_time": "55m", "exp_samples": [rate]},
        *({"expr": one, "eval_time": "55m", "exp_samples": [{"labels": "{}", "value": 1}]} for one in near),
        *({"expr": name, "eval_time": "90m", "exp_samples": []} for name in (rules.CORRECTED, rules.LOW, rules.HIGH)),
    ]
    test = {"interval": "1m", "input_series": traffic, "promql_expr_test": asked}
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]})
    )

    assert "SUCCESS" in prometheus.promtool("check", "rules", tmp_path / "rules.yml")
    assert "SUCCESS" in prometheus.promtool("test", "rules", tmp_path / "test.yml")


@pytest.mark.server
def test_a_judge_that_has_passed_nothing_yet_has_a_rate(
    prometheus: ModuleType, tmp_path: Path, shared: Monitoring
) -> None:
    (tmp_path / "rules.yml").write_text(rule_files({}, [METRIC], shared)[RULES])
    labels = f'{{{promql.METRIC}="exact_match",job="bot",{promql.EVALUATOR_VERSION}="calibrated",window="1h"}}'
    none = {"labels": f"{rules.CORRECTED}{labels}", "value": 0}
    asked = [{"expr": rules.CORRECTED, "eval_time": "55m", "exp_samples": [none]}]
    test = {"interval": "1m", "input_series": sums("calibrated", "fail", "0+21x60"), "promql_expr_test": asked}
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]})
    )

    assert "SUCCESS" in prometheus.promtool("test", "rules", tmp_path / "test.yml")


def records(shared: Monitoring) -> list[dict[str, Any]]:
    (group,) = read_yaml(rule_files({}, [METRIC, StringPresence()], shared)[RULES])["groups"]
    return [rule for rule in group["rules"] if str(rule.get("record", "")).startswith(rules.CORRECTED)]


def test_only_what_is_calibrated_is_corrected(shared: Monitoring) -> None:
    assert [rule["record"] for rule in records(shared)] == [rules.CORRECTED, rules.LOW, rules.HIGH]
    assert records(shared.model_copy(update={"calibrations": []})) == []


def test_a_calibration_of_a_metric_that_there_is_not_is_refused(shared: Monitoring) -> None:
    with pytest.raises(ConfigurationError, match="one is for 'exact_match', not a metric of this scorer"):
        rule_files({}, [StringPresence()], shared)
