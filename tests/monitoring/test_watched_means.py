"""Alerts on the share of a category, which is one minus a mean, and on the means of inner units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
import yaml

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.config.units import InnerUnit
from spanscore.errors import ConfigurationError
from spanscore.metrics import Category, ExactMatch
from spanscore.monitoring.drops import plans_of
from spanscore.monitoring.rules import GRAFANA, RULES, rule_files
from spanscore.monitoring.watched_means import watched_mean, watched_means

INTENT = Category("lexical", name="intent", categories={"refund": "Money.", "order": "Goods.", "other": "The rest."})
MOOD = Category("lexical", name="mood", categories={"angry": "Angry.", "calm": "Calm."}, bad=["angry"])
ALERTS = {
    "intent": AlertSettings(share_of="refund", max=0.1, baseline=0.05, min_rise=0.1),
    "mood": AlertSettings(baseline=0.9, threshold=0.7),
}
SHARED = Monitoring(interval=1, windows=[20, 60], no_scores_after=30, dimensions={"tier": ["gold"]})
ONE_WINDOW = Monitoring(interval=1, windows=[20], no_scores_after=30)
SEGMENTED = ONE_WINDOW.model_copy(update={"dimensions": SHARED.dimensions})


ALSO = [
    InnerUnit(kind="agent", name="planner", alerts=ALERTS),
    InnerUnit(kind="retriever", alerts={"mood": AlertSettings(threshold=0.6, labels={"team": "search"})}),
    InnerUnit(kind="tool"),
]


def alerts_in(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(files[RULES])["groups"]
    return {rule["alert"]: rule for rule in group["rules"] if "alert" in rule}


def files(
    alerts: dict[str, AlertSettings] = ALERTS, also: Sequence[InnerUnit] = (), shared: Monitoring = SHARED
) -> dict[str, str]:
    return rule_files(alerts, [INTENT, MOOD], shared, also=also)


def test_a_share_is_watched_as_the_mean_of_the_units_without_it() -> None:
    mean = watched_mean(INTENT, ALERTS["intent"])

    assert (mean.name, mean.settings.baseline, mean.settings.least_change) == ("intent=refund", 0.95, 0.1)


def test_shares_and_drops_share_the_budget_of_false_alarms() -> None:
    both = plans_of(watched_means(ALERTS, [INTENT, MOOD]), SHARED)
    (alone,) = plans_of(watched_means({"intent": ALERTS["intent"]}, [INTENT]), SHARED)

    assert [plan.watched.name for plan in both] == ["intent=refund", "mood"]
    assert both[0].z > alone.z


def test_a_rise_and_a_share_above_its_max_have_alerts_of_the_metric_and_the_category() -> None:
    alerts = alerts_in(files())

    for name in ("SpanscoreShareRise", "SpanscoreShareAboveMax"):
        assert set(alerts[name]["labels"]) >= {"severity", "metric", "category"}
    assert "At most one false alarm in 30d" in alerts["SpanscoreShareRise"]["annotations"]["description"]


def test_without_a_share_there_is_no_alert_on_shares() -> None:
    assert not [name for name in alerts_in(files({"mood": ALERTS["mood"]})) if "Share" in name]


@pytest.mark.server
@pytest.mark.parametrize(
    ("alerts", "also", "shared"),
    [
        pytest.param(ALERTS, [], SEGMENTED, id="roots"),
        pytest.param(ALERTS, ALSO[1:], ONE_WINDOW, id="roots and inner units"),
        pytest.param({}, ALSO[:1], SEGMENTED, id="inner units"),
    ],
)
def test_prometheus_fires_on_the_watched_means_and_on_nothing_else(
    alerts: dict[str, AlertSettings],
    also: list[InnerUnit],
    shared: Monitoring,
    prometheus: ModuleType,
    tmp_path: Any,
) -> None:
    # promtool evaluates every rule at every step: each case has only some windows, segments and means
    for path, text in files(alerts, also, shared).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")

    prometheus.promtool("check", "rules", tmp_path / RULES)
    prometheus.promtool("test", "rules", tmp_path / "prometheus/spanscore.rules_test.yml")


def test_means_of_inner_units_have_names_of_their_own() -> None:
    means = watched_means(ALERTS, [INTENT, MOOD], ALSO)

    names = ["intent=refund", "mood", "intent (agent planner)=refund", "mood (agent planner)", "mood (retriever)"]
    assert [mean.name for mean in means] == names
    assert [plan.watched.name for plan in plans_of(means, SHARED)] == names[:4]


def test_inner_units_and_roots_share_the_budget_of_false_alarms() -> None:
    of_roots, every = (plans_of(watched_means(ALERTS, [INTENT, MOOD], also), SHARED) for also in ([], ALSO))

    assert every[0].z > of_roots[0].z


def test_an_alert_on_inner_units_has_the_labels_of_its_entry() -> None:
    labels = alerts_in(files(also=ALSO))["SpanscoreQualityBelowThreshold"]["labels"]

    assert labels["team"] == '{{ if eq $labels.gen_ai_evaluation_name "mood (retriever)" }}search{{ end }}'


def test_the_dashboard_of_an_alert_on_inner_units_is_that_of_the_metric() -> None:
    link = alerts_in(files(also=ALSO))["SpanscoreQualityDrop"]["annotations"]["dashboard_url"]
    units = re.compile(re.search(r'reReplaceAll "( .*?)" ""', link)[1])  # type: ignore[index]

    names = ["mood (agent planner)", "mood (retriever)", "mood (tool a (b))", "mood", "mood (angry)"]
    assert [units.sub("", name) for name in names] == [*["mood"] * 4, "mood (angry)"]


def test_without_alerts_on_inner_units_the_rules_are_those_of_the_roots() -> None:
    assert files(also=[InnerUnit(kind="tool")])[RULES] == files()[RULES]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "a=b", "alerts": {"mood": {"threshold": 0.5}}}, "its name 'a=b' contains ="),
        (
            {"alerts": {"mood": {"baseline": {"hour_of_week": "x"}}}},
            r"mood \(tool\)\.baseline\.hour_of_week: there is no file",
        ),
        ({"alerts": {"mod": {"threshold": 0.5}}}, r"units.also \(tool\): alerts names 'mod'"),
        ({"alerts": {"intent": {"baseline": 0.5}}}, "alerts.intent: its categories have no quality"),
        ({"alerts": {"intent": {"share_of": "refnd", "max": 0.5}}}, "alerts.intent.share_of is 'refnd'"),
    ],
)
def test_alerts_that_do_not_fit_inner_units_are_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        files(also=[InnerUnit(kind="tool", **entry)])


def test_grafana_has_the_same_alerts() -> None:
    rules = yaml.safe_load(files()[GRAFANA])["groups"][0]["rules"]

    assert {"SpanscoreShareRise", "SpanscoreShareAboveMax 20s"} <= {rule["title"] for rule in rules}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max": 0.1}, "max cannot be given without share_of: it is for a share"),
        ({"share_of": "refund"}, "share_of needs max, the highest acceptable share, or baseline"),
        ({"share_of": "refund", "max": 0.1, "threshold": 0.5}, "threshold cannot be given with share_of"),
        ({"share_of": "refund", "baseline": 0.1, "min_drop": 0.5}, "min_drop cannot be given with share_of"),
        ({"share_of": "refund", "baseline": 0.97}, "a share of 0.97 cannot rise by 0.05: lower min_rise"),
        ({"share_of": "refund", "baseline": {"hour_of_week": "x"}}, "the baseline of a share is a number"),
    ],
)
def test_settings_that_do_not_fit_a_share_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        AlertSettings(**wrong)


def test_an_unknown_category_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'refnd'; the categories are refund, order, other"):
        files({"intent": AlertSettings(share_of="refnd", max=0.1)})


def test_a_metric_without_categories_has_no_share() -> None:
    with pytest.raises(ConfigurationError, match="exact_match has no categories"):
        watched_mean(ExactMatch(), AlertSettings(share_of="refund", max=0.1))


def test_the_quality_of_categories_without_bad_ones_is_not_watched() -> None:
    with pytest.raises(ConfigurationError, match="name the bad ones in bad, or watch share_of: refund"):
        files({"intent": AlertSettings(baseline=0.9)})
