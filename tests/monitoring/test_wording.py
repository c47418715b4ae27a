"""The texts and links of alerts: also on the metric's own scale, and for any name or segment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tests.yaml_files import read_yaml

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.core.score import BINARY, Scale
from spanscore.errors import ConfigurationError
from spanscore.monitoring.rules import GRAFANA, RULES, RULES_TEST, rule_files

HOSTILE = [
    "{{ $labels.job }}",
    "}} {{",
    '"quoted" and \\ behind',
    "two\nlines",
    "{value}",
    "a {",
    "$HOME ${HOME} %d %!q",
    "\u2028\t'",
    "# no: comment",
]


@dataclass(frozen=True)
class Metric:
    name: str
    scale: Scale


HEDGING = Metric("hedging", Scale(direction="lower"))
TONE = Metric("tone", Scale(range=(-1.0, 1.0)))
STARS = Metric("stars", Scale(kind="ordinal", range=(1.0, 5.0)))
PASSED = Metric("passed", BINARY)


def files_of(metrics: list[Metric], **shared: object) -> dict[str, str]:
    alerts = {metric.name: AlertSettings(baseline=0.9, min_drop=0.1) for metric in metrics}
    return rule_files(alerts, metrics, Monitoring(interval=1, windows=[20], no_scores_after=30, **shared))  # type: ignore[arg-type]


def alert_texts(
    prometheus: ModuleType,
    folder: Path,
    files: Mapping[str, str],
    alert: str = "SpanscoreQualityDrop",
    case: str = "a drop is seen",
) -> list[str]:
    """Return the annotations that promtool got of an alert in one of the written test cases."""
    tests = read_yaml(files[RULES_TEST])
    (drop,) = [one for one in tests["tests"] if one["name"].startswith(case)]
    nothing = {"eval_time": drop.pop("promql_expr_test")[0]["eval_time"], "alertname": alert, "exp_alerts": []}
    tests["tests"] = [{**drop, "alert_rule_test": [nothing]}]
    (folder / "spanscore.rules.yml").write_text(files[RULES])
    (folder / "spanscore.rules_test.yml").write_text(yaml.safe_dump(tests))
    with pytest.raises(ValueError, match="got") as found:
        prometheus.promtool("test", "rules", folder / "spanscore.rules_test.yml")
    got = str(found.value)[str(found.value).rindex("got:") :]
    return [json.loads(f'"{text}"') for text in re.findall(r'="((?:[^"\\]|\\.)*)"', got)]


@pytest.mark.server
def test_a_mean_is_reported_on_the_scale_of_its_metric_too(prometheus: ModuleType, tmp_path: Path) -> None:
    said = " ".join(alert_texts(prometheus, tmp_path, files_of([HEDGING, TONE, STARS, PASSED])))

    drop = "fell from 0.9 (its baseline) to 0.775, since 1969-12-31 23:59 UTC, over 20s (service bot; 20000 scores)."
    assert f"Quality of hedging (lower is better; raw mean 0.22) {drop}" in said
    assert f"Quality of tone (higher is better, -1 to 1; raw mean 0.55) {drop}" in said
    assert f"Quality of stars (higher is better, 1 to 5; raw mean 4.10) {drop}" in said
    assert f"Quality of passed {drop}" in said


@pytest.mark.server
def test_a_mean_of_which_much_is_missing_says_so(prometheus: ModuleType, tmp_path: Path) -> None:
    files = files_of([PASSED])
    lost = {
        "series": 'spanscore_missing_weight_total{gen_ai_evaluation_name="passed",job="bot"}',
        "values": "0+250x40",
    }
    tests = read_yaml(files[RULES_TEST])
    for case in tests["tests"]:
        case["input_series"].append(lost)

    said = " ".join(alert_texts(prometheus, tmp_path, {**files, RULES_TEST: yaml.safe_dump(tests)}))

    assert "for a release at that time. At worst 0.62, if all units without a score failed. At most" in said


@pytest.mark.parametrize("file", [RULES, GRAFANA])
def test_no_place_is_left_open_in_what_an_alert_says(file: str) -> None:
    alerts = {"passed": AlertSettings(baseline=0.9, min_drop=0.1, threshold=0.7)}

    written = rule_files(alerts, [PASSED], Monitoring(dimensions={"tier": ["gold"]}))[file]

    rules = read_yaml(written)["groups"][0]["rules"]
    said = " ".join(text for rule in rules for text in rule.get("annotations", {}).values())
    assert "{{ with $labels.segment }} for {{ . }}{{ end }}" in said
    assert re.findall(r"\{\w+\}", said) == []


@pytest.mark.parametrize("reason", ["unscored", "queue_full"])
def test_units_are_reported_as_whole_numbers(reason: str) -> None:
    rules = read_yaml(files_of([PASSED])[RULES])["groups"][0]["rules"]

    (text,) = [
        one["annotations"]["description"]
        for one in rules
        if "alert" in one and (reason in one["labels"].values() or reason in one["expr"])
    ]

    assert '{{ $value | printf "%.0f" }}' in text  # %.3g makes 2.1e+04 of 21,000


@pytest.mark.server
def test_another_judge_is_reported_with_both_names(prometheus: ModuleType, tmp_path: Path) -> None:
    said = alert_texts(
        prometheus, tmp_path, files_of([PASSED]), "SpanscoreNewEvaluatorVersion", "another judge is announced"
    )

    assert "info" in said
    (text,) = [one for one in said if one.startswith("passed has")]
    assert text == (
        "passed has a new evaluator version (service bot): version 1+a → 1+a, judge m/x → m/y, votes 1 → 1. "
        "Its scores cannot be compared with earlier ones: no drop. "
        "After a week of it set alerts.passed.baseline to its mean on the dashboard. "
        "This notice ends by itself after 20s."
    )


@pytest.mark.server
def test_a_link_leads_to_metric_service_and_time(prometheus: ModuleType, tmp_path: Path) -> None:
    said = alert_texts(prometheus, tmp_path, files_of([Metric("tone & all", PASSED.scale)]))

    link = "http://localhost:3000/d/spanscore-metric?var-metric=tone+%26+all&var-service=bot&from=-3619000&to=now"
    assert (
        link in said
    )  # promtool's clock begins at 0: the drop is seen 1 s after it, over 20 s; and an hour before that


@pytest.mark.server
def test_names_and_segments_with_signs_of_templates_are_reported_as_they_are(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    name = " ".join(HOSTILE)
    files = files_of([Metric(name, BINARY)], dimensions={"tier": HOSTILE})

    said = alert_texts(prometheus, tmp_path, files)

    for value in HOSTILE:
        assert f"Quality of {name} for tier={value} fell from 0.9 (its baseline) to 0.775" in " ".join(said)
    tests = read_yaml(files[RULES_TEST])
    tests["tests"] = [
        one for one in tests["tests"] if one["promql_expr_test"][0]["eval_time"] == "22s"
    ]  # the short ones
    (tmp_path / "spanscore.rules_test.yml").write_text(yaml.safe_dump(tests))
    assert "SUCCESS" in prometheus.promtool("test", "rules", tmp_path / "spanscore.rules_test.yml")


@pytest.mark.parametrize("value", HOSTILE)
def test_in_grafanas_file_a_dollar_is_no_variable_and_a_brace_opens_no_template(value: str) -> None:
    files = files_of([Metric(f"m {value}", BINARY)], dimensions={"tier": [value]})

    for rule in read_yaml(files[GRAFANA])["groups"][0]["rules"]:
        assert "$" not in rule["title"].replace("$$", "")
        assert "$" not in "".join(rule["labels"].values()).replace("$$labels.gen_ai_evaluation_name", "")
        assert "{value}" not in rule["annotations"]["description"]


def test_severity_labels_and_runbook_are_those_of_the_metric() -> None:
    settings = AlertSettings(baseline=0.9, severity="page", labels={"team": "rag"}, runbook="https://wiki/{x}")
    rules = read_yaml(rule_files({"passed": settings}, [PASSED])[RULES])["groups"][0]["rules"]

    own = [one for one in rules if "alert" in one and "urlquery }}&var-service" in one["annotations"]["dashboard_url"]]
    own = [one for one in own if "team" in one["labels"]]
    severities = {one["alert"]: one["labels"]["severity"] for one in own}
    assert severities["SpanscoreQualityDrop"] == "page"
    assert severities["SpanscoreNoScores"] == "critical"
    assert {one["labels"]["team"] for one in own} == {"rag"}
    assert {one["annotations"]["runbook_url"] for one in own} == {'https://wiki/{{ "\\x7b" }}x}'}


@pytest.mark.parametrize("address", ["javascript:alert(1)", "ftp://host/x", "//host", "localhost:3000", "http://a\nb"])
def test_an_address_that_is_none_of_the_web_is_refused(address: str) -> None:
    for settings in ({"dashboard_url": address}, {"trace_url": address}):
        with pytest.raises(ConfigurationError, match="http"):
            Monitoring(**settings)
    with pytest.raises(ConfigurationError, match="http"):
        AlertSettings(runbook=address)


@pytest.mark.parametrize("name", ["severity", "a-b", "1st", "", "team\n"])
def test_a_label_that_is_taken_or_no_word_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a label"):
        AlertSettings(labels={name: "x"})
