"""The recording rules in promtool: the estimates of ``estimates.py``, drops beyond z²."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.core.score import BINARY, Scale
from spanscore.monitoring import estimates
from spanscore.monitoring.rules import RULES, rule_files

pytestmark = pytest.mark.server
MINUTES = 60


@dataclass(frozen=True)
class Metric:
    name: str = "polite"
    scale: Scale = BINARY


def moments(scores: Sequence[tuple[float, float]]) -> estimates.Moments:
    """Return the sums of (quality, probability)."""
    return estimates.moments(scores)


def counters(of: estimates.Moments, **labels: str) -> list[dict[str, str]]:
    """Return counters that grow by these sums in each ten minutes."""
    names = {
        "weight": of.w,
        "weight_quality": of.wy,
        "weight2": of.w2,
        "weight2_quality": of.w2y,
        "weight2_quality2": of.w2y2,
    }
    shown = "".join(f',{name}="{value}"' for name, value in labels.items())
    return [
        {
            "series": f'spanscore_{name}_total{{gen_ai_evaluation_name="polite",job="bot",'
            f'spanscore_evaluator_version="1"{shown}}}',
            "values": f"0+{total / 10!r}x{MINUTES}",
        }
        for name, total in {"scored": of.w, **names}.items()
    ]


def check(
    prometheus: ModuleType,
    folder: Path,
    series: Sequence[Mapping[str, str]],
    expected: Mapping[str, int],
    alert: AlertSettings | None = None,
    **shared: Any,
) -> None:
    """Check how many series each expression returns after an hour."""
    alerts = {} if alert is None else {"polite": alert}
    settings = Monitoring(interval=60, windows=[600], **shared)
    (folder / "r.yml").write_text(rule_files(alerts, [Metric()], settings)[RULES])
    asked = [
        {
            "expr": f"count({expression}) or vector(0)",
            "eval_time": f"{MINUTES}m",
            "exp_samples": [{"labels": "{}", "value": count}],
        }
        for expression, count in expected.items()
    ]
    test = {"interval": "1m", "input_series": list(series), "promql_expr_test": asked}
    tree = {"rule_files": ["r.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "t.yml").write_text(yaml.safe_dump(tree))
    assert "SUCCESS" in prometheus.promtool("test", "rules", folder / "t.yml")


SKEWED = moments([(0.9, 0.2)] * 60 + [(0.5, 1.0)] * 40 + [(1.0, 0.05)] * 20)


def test_the_recorded_estimates_are_those_of_python(prometheus: ModuleType, tmp_path: Path) -> None:
    expected = {
        f"abs(spanscore:{name} - {getattr(estimates, name)(SKEWED)!r}) < 1e-6": 1
        for name in ("mean", "standard_error", "n_eff")
    }

    check(prometheus, tmp_path, counters(SKEWED), expected)


def test_a_mean_after_a_restart_is_at_most_1(prometheus: ModuleType, tmp_path: Path) -> None:
    """For two samples of a new process, ``increase()`` reaches back to 0 for one counter and not for the other."""
    (tmp_path / "r.yml").write_text(rule_files({}, [Metric()], Monitoring(interval=60, windows=[300]))[RULES])
    names = {"spanscore_weight_total": "_x4 100 180", "spanscore_weight_quality_total": "_x4 80 155"}
    series = [
        {"series": f'{name}{{gen_ai_evaluation_name="polite"}}', "values": values} for name, values in names.items()
    ]
    raw = "increase(spanscore_weight_quality_total[5m]) / increase(spanscore_weight_total[5m])"
    asked = [
        {"expr": expression, "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for expression in (f"count({raw} > 1.2)", "count(spanscore:mean == 1)")
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": asked}
    tree = {"rule_files": ["r.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "t.yml").write_text(yaml.safe_dump(tree))

    assert "SUCCESS" in prometheus.promtool("test", "rules", tmp_path / "t.yml")


def test_the_sums_of_a_window_are_recorded_by_one_rule() -> None:
    """All are increases over the same samples, even if a scrape arrives while the rules are evaluated."""
    group = yaml.safe_load(rule_files({}, [Metric()], Monitoring(windows=[300, 3_600]))[RULES])["groups"][0]

    sums = [rule["expr"] for rule in group["rules"] if rule.get("record") == "spanscore:sums"]
    assert len(sums) == 2
    assert all("spanscore_weight_total" in one and "spanscore_weight_quality_total" in one for one in sums)


def test_a_segment_has_estimates_of_its_own_and_what_is_not_listed_has_none(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    series = counters(SKEWED, tier="gold") + counters(SKEWED, tier="none of ours")

    expected = {'spanscore:mean{segment="tier=gold"}': 1, 'spanscore:mean{segment=""}': 1, "spanscore:mean": 2}
    check(prometheus, tmp_path, series, expected, dimensions={"tier": ["gold", "silver"]})


@pytest.mark.parametrize("baseline", [0.85, 0.97])
def test_a_window_sees_a_drop_where_the_deviance_is_beyond_z2_and_not_before(
    prometheus: ModuleType, tmp_path: Path, baseline: float
) -> None:
    of = moments([(0.9, 0.2)] * 60 + [(0.4, 1.0)] * 140 + [(0.8, 0.2)] * 20)
    p, null, n = estimates.mean(of), baseline - 0.025, estimates.n_eff(of)
    size = min(p * (1 - p) / estimates.standard_error(of) ** 2, 16 * n)
    z = sqrt(2 * size * (p * log(p / null) + (1 - p) * log((1 - p) / (1 - null))))

    for share, seen in ((0.98, 1), (1.02, 0)):
        alert = AlertSettings(baseline=baseline, min_drop=0.1, z=share * z)
        check(prometheus, tmp_path, counters(of), {"spanscore:dropped": seen}, alert)


@pytest.mark.parametrize(("least", "seen"), [(None, 0), (29, 1)])
def test_a_window_of_29_scores_sees_a_drop_only_if_the_settings_let_it(
    prometheus: ModuleType, tmp_path: Path, least: int | None, seen: int
) -> None:
    alert = AlertSettings(baseline=0.9, min_scores=least)

    check(prometheus, tmp_path, counters(moments([(0.1, 1.0)] * 29)), {"spanscore:dropped": seen}, alert)


def test_thirty_failures_are_no_drop_from_a_baseline_where_they_happen_by_chance(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    """Without one pass the scores do not vary either: their error is no sign of a sure mean."""
    alert = AlertSettings(baseline=0.1, min_drop=0.05)  # (1 − 0.0875) ^ 30 = 0.06

    check(
        prometheus, tmp_path, counters(moments([(0.0, 1.0)] * 30)), {"spanscore:dropped": 0, "spanscore:mean": 1}, alert
    )


def test_a_pinned_series_is_the_only_one_that_is_watched(prometheus: ModuleType, tmp_path: Path) -> None:
    low = counters(moments([(0.1, 1.0)] * 60))

    for pinned, seen in (("1", 1), ("2", 0)):
        alert = AlertSettings(baseline=0.9, evaluator_version=pinned, threshold=0.5)
        firing = 'ALERTS{alertname="SpanscoreQualityBelowThreshold",alertstate="firing"}'
        check(prometheus, tmp_path, low, {"spanscore:dropped": seen, firing: seen}, alert)


def test_metrics_with_other_rates_of_false_alarms_have_other_limits(prometheus: ModuleType, tmp_path: Path) -> None:
    alerts = {"polite": AlertSettings(baseline=0.9, z=3.0), "terse": AlertSettings(baseline=0.9)}
    rules = rule_files(alerts, [Metric(), Metric("terse")], Monitoring())[RULES]

    assert '0 * spanscore:tolerance{gen_ai_evaluation_name=~"polite"} + 9' in rules
    (tmp_path / "r.yml").write_text(rules)
    assert "SUCCESS" in prometheus.promtool("check", "rules", tmp_path / "r.yml")
