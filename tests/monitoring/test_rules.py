"""The files for an operator: shipped files equal generated ones, the real tools accept them, and their unit tests can fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.monitoring.needed_rules import needed_for
from tests.yaml_files import read_yaml

from spanscore.config.monitoring import AlertSettings, JudgeCheck, Monitoring
from spanscore.core.score import BINARY, UNIT_INTERVAL, Scale
from spanscore.errors import ConfigurationError
from spanscore.metrics import AspectCritic
from spanscore.monitoring import estimates
from spanscore.monitoring.alert import METRIC_NAME
from spanscore.monitoring.drops import plans_of
from spanscore.monitoring.rules import ALERTMANAGER, GRAFANA, RULES, RULES_TEST, alerts_of, links_of, rule_files
from spanscore.monitoring.watched_means import watched_means

SHIPPED = Path(__file__).parents[2] / "integrations"


@dataclass(frozen=True)
class Metric:
    name: str
    scale: Scale


FAITHFUL = Metric("faithfulness", UNIT_INTERVAL)
METRICS = [
    FAITHFUL,
    Metric("harmless", BINARY),
    Metric("noise", Scale(direction="lower")),
    Metric("tone", Scale(kind="ordinal", range=(1.0, 5.0))),
    Metric("words", Scale(range=None)),
]
ALERTS = {
    "faithfulness": AlertSettings(baseline=0.85, min_drop=0.1, threshold=0.7),
    "harmless": AlertSettings(baseline=0.97, evaluator_version="1/judge"),
    "noise": AlertSettings(baseline=0.4, z=4.0),
    "tone": AlertSettings(threshold=0.6),
}
QUICK = Monitoring(
    interval=1,
    windows=[20, 60],
    no_scores_after=30,
    dimensions={"user_tier": ["gold", 'a "free" one']},
    dashboard_url="http://grafana/d/x?var-metric={metric}",
    trace_url="http://jaeger/search?tags={metric}",
)


JUDGE_CHECK = JudgeCheck(golden_set="labelled.jsonl", every=2.5 * 3_600, metrics=["faithfulness", "tone"])


def made(shared: Monitoring = QUICK, alerts: Mapping[str, AlertSettings] = ALERTS) -> dict[str, str]:
    return rule_files(alerts, METRICS, shared, JUDGE_CHECK)


def alerts_in(files: Mapping[str, str]) -> list[dict[str, Any]]:
    groups = read_yaml(files[RULES])["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def test_z_is_of_how_often_a_sliding_window_begins_to_alarm() -> None:
    month = {"interval_s": 60, "every_s": 30 * 86_400}
    z = {window: estimates.critical_z(window_s=window, shares=5, **month) for window in (300, 3_600, 86_400)}

    assert z == pytest.approx({300: 4.06, 3_600: 4.08, 86_400: 3.42}, abs=0.02)
    assert estimates.critical_z(window_s=3_600, shares=50, **month) == pytest.approx(4.61, abs=0.01)


def test_a_window_needs_30_scores_unless_the_settings_name_another_number() -> None:
    alerts = {**ALERTS, "noise": AlertSettings(baseline=0.4, min_scores=7)}

    plans = plans_of(watched_means(alerts, METRICS), QUICK)

    assert [plan.least for plan in plans] == [30, 30, 7]  # faithfulness, harmless, noise


def test_metrics_and_segments_share_the_budget() -> None:
    one, two = {"harmless": ALERTS["harmless"]}, {name: ALERTS[name] for name in ("harmless", "faithfulness")}
    (alone,) = plans_of(watched_means(one, METRICS), Monitoring())
    both = plans_of(watched_means(two, METRICS), Monitoring(dimensions={"user_tier": ["gold"]}))

    assert alone.windows[3_600] == pytest.approx(4.08, abs=0.01)
    assert [plan.windows[3_600] for plan in both] == [pytest.approx(4.4, abs=0.01)] * 2  # four streams


def test_services_that_are_listed_share_the_budget() -> None:
    one = {"harmless": ALERTS["harmless"]}
    (of_ten,) = plans_of(watched_means(one, METRICS), Monitoring(services=[f"bot-{number}" for number in range(10)]))

    assert of_ten.windows[3_600] == pytest.approx(4.61, abs=0.01)  # as of 50 windows of one service


@pytest.mark.parametrize(
    ("baseline_sd", "promise"),
    [(None, "in 30d, if quality does not vary by itself."), (0.01, "in 30d, of this service.")],
)
def test_the_number_of_false_alarms_is_promised_of_a_learned_baseline_alone(
    baseline_sd: float | None, promise: str
) -> None:
    files = made(alerts={"harmless": AlertSettings(baseline=0.9, baseline_sd=baseline_sd)})
    (drop,) = [alert for alert in alerts_in(files) if alert["alert"] == "SpanscoreQualityDrop"]

    assert promise in drop["annotations"]["description"]


def test_every_alert_tells_metric_window_and_where_to_click() -> None:
    for alert in alerts_in(made()):
        assert {"severity", "metric"} <= alert["labels"].keys()
        assert ("window" in alert["labels"]) is (alert["alert"] != "SpanscoreQualityDrop")
        assert alert["for"] == "1s"
        assert {"summary", "description", "dashboard_url", "trace_url"} == alert["annotations"].keys()
        assert "{metric}" not in alert["annotations"]["dashboard_url"]


@pytest.mark.parametrize(
    ("url", "general"),
    [
        ("http://g/d/x?var-metric={metric}", "http://g/d/x"),
        ("http://g/d/x?orgId=1&var-metric={metric}#top", "http://g/d/x?orgId=1#top"),
        ("http://g/d/x?var-metric={metric}&orgId=1", "http://g/d/x?orgId=1"),
        ("http://g/{metric}/x", "http://g//x"),
    ],
)
def test_an_alert_over_all_metrics_links_without_an_empty_variable(url: str, general: str) -> None:
    shared = Monitoring(dashboard_url=url)

    links = {
        one.labels["metric"]: links_of(one, shared)
        for one in alerts_of(plans_of(watched_means(ALERTS, METRICS), shared), watched_means(ALERTS, METRICS), shared)
    }

    assert links["all"] == {"dashboard_url": general}
    named = url.replace("{metric}", "{{ $labels.gen_ai_evaluation_name | urlquery }}")
    assert links[METRIC_NAME] == {"dashboard_url": named}


def test_each_alert_is_written_once_whatever_the_number_of_metrics_and_segments() -> None:
    one = rule_files({"faithfulness": ALERTS["faithfulness"]}, [FAITHFUL], Monitoring())
    many = made(Monitoring(dimensions=QUICK.dimensions))

    names = [[rule["alert"] for rule in alerts_in(files)] for files in (one, many)]
    assert set(names[1]) - set(names[0]) == {"SpanscoreJudgeChanged"}
    assert sorted(names[1]) == sorted([*names[0], "SpanscoreJudgeChanged"])


def files_of(metrics: int, dimensions: int, **alert: Any) -> dict[str, str]:
    watched = [Metric(f"metric_{number}", UNIT_INTERVAL) for number in range(metrics)]
    shared = Monitoring(dimensions={"tier": [f"s{number}" for number in range(dimensions)]} if dimensions else {})
    return rule_files(
        {one.name: AlertSettings(baseline=0.85, min_drop=0.1, **alert) for one in watched}, watched, shared
    )


def test_the_files_stay_small_with_many_metrics_and_segments() -> None:
    one, many = files_of(1, 0), files_of(10, 5)

    assert len(one[RULES].encode()) <= 33_000
    assert len(many[RULES].encode()) <= 41_000
    assert len(many[GRAFANA].encode()) <= 50_000


def test_the_alert_on_a_condition_is_there_if_a_metric_has_one() -> None:
    conditional = AspectCritic("lexical", definition="Is it kind?", applies_when="A person complains.")

    names = [{one["alert"] for one in alerts_in(rule_files({}, [one]))} for one in (FAITHFUL, conditional)]

    assert names[1] - names[0] == {"SpanscoreNeverApplies"}


def test_a_drop_is_one_alert_without_a_window() -> None:
    (drop,) = [one for one in alerts_in(made()) if one["alert"] == "SpanscoreQualityDrop"]

    assert drop["expr"] == 'min without (window) (spanscore:drop{gen_ai_evaluation_name!~".+=.+"})'
    assert drop["labels"].keys() == {"severity", "metric"}


def test_only_metrics_with_a_threshold_have_one() -> None:
    recorded = [rule for group in read_yaml(made()[RULES])["groups"] for rule in group["rules"]]

    thresholds = {
        one["labels"]["gen_ai_evaluation_name"] for one in recorded if one.get("record") == "spanscore:threshold"
    }
    assert thresholds == {"faithfulness", "tone"}


def test_a_metric_whose_rate_of_false_alarms_is_not_shown_has_another_text() -> None:
    (drop,) = [one for one in alerts_in(made()) if one["alert"] == "SpanscoreQualityDrop"]

    text = drop["annotations"]["description"]
    assert '{{ if eq $labels.gen_ai_evaluation_name "faithfulness" "harmless" }}At most one' in text
    assert '{{ else if eq $labels.gen_ai_evaluation_name "noise" }}Baseline below 0.5: for a continuous metric' in text


@pytest.mark.parametrize(
    ("alerts", "words"),
    [
        ({"faithfullness": AlertSettings()}, "faithfullness.*harmless"),
        ({"words": AlertSettings(baseline=0.5)}, "words.*parameter range"),
        ({"words": AlertSettings(threshold=0.5)}, "words.*parameter range"),
    ],
)
def test_what_cannot_be_watched_is_named(alerts: dict[str, AlertSettings], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        made(alerts=alerts)


def test_segments_that_cannot_all_be_distinguished_are_refused() -> None:
    shared = Monitoring(dimensions={"user": [f"user-{number}" for number in range(800)]})

    with pytest.raises(ConfigurationError, match=r"801 of user \(other included\) make .* 1,500 fit"):
        made(shared)


def test_grafana_gets_the_same_alerts_with_ids_of_their_own() -> None:
    files = made()
    rules = read_yaml(files[GRAFANA])["groups"][0]["rules"]

    assert [rule["data"][0]["model"]["expr"] for rule in rules] == [one["expr"] for one in alerts_in(files)]
    assert len({rule["uid"] for rule in rules}) == len({rule["title"] for rule in rules}) == len(rules)
    for rule in rules:
        steps = {step["refId"]: step for step in rule["data"]}
        assert [steps[ref]["datasourceUid"] for ref in "ABC"] == ["prometheus", "__expr__", "__expr__"]
        assert [steps[ref]["model"].get("type") for ref in "ABC"] == [None, "reduce", "threshold"]
        assert (rule["condition"], rule["noDataState"]) == ("C", "OK")
        assert "{scores}" not in str(rule["annotations"])


@pytest.mark.server
@pytest.mark.parametrize(
    "shared",
    [
        QUICK,
        Monitoring(interval=60, windows=[600], no_scores_after=600),
    ],  # and the shipped ones: tests/cli
)
def test_every_alert_fires_on_what_it_is_for_and_none_on_good_traffic(
    prometheus: ModuleType, tmp_path: Path, shared: Monitoring
) -> None:
    folder = write(tmp_path, made(shared))

    assert "SUCCESS" in prometheus.promtool("check", "rules", folder / RULES)
    assert "SUCCESS" in prometheus.promtool("test", "rules", folder / RULES_TEST)


@pytest.mark.server
def test_rules_that_see_no_drop_fail_their_unit_tests(prometheus: ModuleType, tmp_path: Path) -> None:
    blind = {name: one.model_copy(update={"z": 1_000.0}) for name, one in ALERTS.items()}
    tests = read_yaml(made()[RULES_TEST])
    tests["tests"] = [one for one in tests["tests"] if one["name"].startswith("a drop is seen")]
    rules = needed_for({"SpanscoreQualityDrop"}, made(alerts=blind)[RULES])
    folder = write(tmp_path, {RULES_TEST: yaml.safe_dump(tests), RULES: rules})

    with pytest.raises(ValueError, match=r"a drop is seen|SpanscoreQualityDrop"):
        prometheus.promtool("test", "rules", folder / RULES_TEST)


@pytest.mark.server
def test_an_alert_says_how_far_from_how_many_scores_and_whose(prometheus: ModuleType, tmp_path: Path) -> None:
    files = made()
    tests = read_yaml(files[RULES_TEST])
    (drop,) = [one for one in tests["tests"] if one["name"].startswith("a drop is seen")]
    nothing = {"eval_time": drop.pop("promql_expr_test")[0]["eval_time"], "alertname": "SpanscoreQualityDrop"}
    tests["tests"] = [
        {**drop, "alert_rule_test": [{**nothing, "exp_alerts": []}]}
    ]  # so that promtool prints its actual values
    folder = write(tmp_path, {**files, RULES_TEST: yaml.safe_dump(tests)})

    with pytest.raises(ValueError, match="got") as raised:
        prometheus.promtool("test", "rules", folder / RULES_TEST)

    text = (
        "Quality of faithfulness for user_tier=gold fell from 0.85 (its baseline) to 0.725, since 1969-12-31 23:59 UTC, over "
        "20s 1m (service bot; 21000 scores). Check first for a release at that time."
    )
    assert text in str(raised.value)
    assert 'trace_url=\\"http://jaeger/search?tags=faithfulness' in str(raised.value).replace('"', '\\"')


@pytest.mark.server
def test_alertmanager_takes_the_route(alertmanager: ModuleType, tmp_path: Path) -> None:
    folder = write(tmp_path, made())

    assert "SUCCESS" in alertmanager.amtool("check-config", folder / ALERTMANAGER)
