"""The alert on a changed judge: its share of the false alarms, and its mention in the alert on a drop."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.monitoring.test_rules import FAITHFUL, METRICS, write
from tests.yaml_files import read_yaml

from spanscore.config.monitoring import AlertSettings, JudgeCheck, Monitoring
from spanscore.errors import ConfigurationError
from spanscore.monitoring.drops import plans_of
from spanscore.monitoring.judge_check import judge_check_plans
from spanscore.monitoring.rules import GRAFANA, RULES, RULES_TEST, rule_files
from spanscore.monitoring.watched_means import watched_means

DROPS = {"faithfulness": AlertSettings(baseline=0.85, min_drop=0.1)}
JUDGE_CHECK = JudgeCheck(golden_set="labelled.jsonl", metrics=["faithfulness", "tone"])
SHORT = Monitoring(interval=1, windows=[20, 60], no_scores_after=30)
P = (
    'spanscore_judge_check_p{{job="bot",gen_ai_evaluation_name="faithfulness",'
    'spanscore_evaluation_source="judge_check",spanscore_evaluator_version="{}"}}'
)


def described(file: str) -> list[str]:
    files = rule_files(DROPS, METRICS, SHORT, JUDGE_CHECK)
    rules = read_yaml(files[file])["groups"][0]["rules"]
    drops = (rule for rule in rules if "SpanscoreQualityDrop" in (rule.get("alert") or rule.get("title") or ""))
    return [rule["annotations"]["description"] for rule in drops]


def test_drops_and_canaries_share_the_false_alarms() -> None:
    plans = judge_check_plans(JUDGE_CHECK, watched_means(DROPS, METRICS), Monitoring())
    (drop,) = plans_of(watched_means(DROPS, METRICS), Monitoring(), plans)
    (alone,) = plans_of(watched_means(DROPS, METRICS), Monitoring())

    shares = 5 + 2  # windows of a drop, and the judges of two metrics
    runs = 30 * 4
    assert [plan.below for plan in plans] == [pytest.approx(1 / (runs * shares))] * 2
    assert drop.z > alone.z


def test_where_runs_are_rare_a_change_is_still_no_coin_toss() -> None:
    rare = JudgeCheck(golden_set="labelled.jsonl", every="30d", metrics=["tone"])

    assert judge_check_plans(rare, watched_means({}, METRICS), Monitoring())[0].below == 0.05


def test_without_a_judge_check_nothing_is_said_of_one() -> None:
    written = str(rule_files(DROPS, METRICS, SHORT))

    assert "JudgeChanged" not in written
    assert "(judge_check" not in written


@pytest.mark.parametrize("file", [RULES, GRAFANA])
def test_the_alert_on_a_drop_asks_what_the_judge_is_at(file: str) -> None:
    assert described(file)
    for text in described(file):
        assert "as at first (judge check, p = " in text
        assert "differently than at first (judge check, p = " in text


@pytest.mark.parametrize("metrics", [["words"], ["spam"], []])
def test_what_no_judge_check_can_watch_is_refused(metrics: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"judge.check"):
        rule_files({}, METRICS, SHORT, JudgeCheck(golden_set="labelled.jsonl", metrics=metrics))


def test_another_metrics_drop_says_nothing_of_the_judge_check() -> None:
    alerts = {"harmless": AlertSettings(baseline=0.97)}
    files = rule_files(alerts, METRICS, SHORT, JudgeCheck(golden_set="labelled.jsonl", metrics=[FAITHFUL.name]))
    drops = [rule for rule in read_yaml(files[RULES])["groups"][0]["rules"] if "Drop" in rule.get("alert", "")]

    assert drops
    assert "judge_check" not in str(drops)


@pytest.mark.server
@pytest.mark.parametrize(
    ("p", "said"),
    [("1", "as at first (judge check, p = 1)"), ("1e-06", "differently than at first (judge check, p = 1e-06)")],
)
def test_a_drop_says_whether_the_judge_has_changed(prometheus: ModuleType, tmp_path: Any, p: str, said: str) -> None:
    files = rule_files(DROPS, METRICS, SHORT, JUDGE_CHECK)
    tests = read_yaml(files[RULES_TEST])
    (drop,) = [one for one in tests["tests"] if one["name"] == "a drop is seen in every window and segment"]
    drop["input_series"].append({"series": P.format("1"), "values": f"{p}x100"})
    drop["promql_expr_test"] = []
    drop["alert_rule_test"] = [{"eval_time": "20s", "alertname": "SpanscoreQualityDrop", "exp_alerts": []}]
    tests["tests"] = [drop]
    folder = write(tmp_path, {**files, RULES_TEST: yaml.safe_dump(tests)})

    with pytest.raises(ValueError, match="SpanscoreQualityDrop") as raised:
        prometheus.promtool("test", "rules", folder / RULES_TEST)

    assert said in str(raised.value)
