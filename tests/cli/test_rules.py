"""``spanscore rules``: from a configuration to files, without asking a judge or needing its key."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.yaml_files import read_yaml
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError
from spanscore.monitoring.rules import RULES, RULES_TEST

SHIPPED = Path(__file__).parents[2] / "integrations"
DASHBOARDS = {f"grafana/dashboards/spanscore-{name}.json" for name in ("overview", "operators", "metric")}
MADE = {RULES, RULES_TEST, "alertmanager/alertmanager.yml", "grafana/alerting/spanscore.yaml"}


def ran(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app("rules"), ["rules", *map(str, arguments)], env={"COLUMNS": "200"})


def config(folder: Path, text: str) -> Path:
    file = folder / "spanscore.yaml"
    file.write_text(text)
    return file


def test_the_shipped_files_are_what_their_configuration_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    done = ran(SHIPPED / "prometheus" / "spanscore.yaml", "--out", tmp_path)

    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    assert (done.exit_code, written) == (0, MADE | DASHBOARDS)
    for path in written:
        assert (tmp_path / path).read_text() == (SHIPPED / path).read_text(), f"{path}: run spanscore rules again"


@pytest.mark.server
def test_the_shipped_rules_pass_their_unit_tests(prometheus: ModuleType) -> None:
    assert "SUCCESS" in prometheus.promtool("check", "rules", SHIPPED / RULES)
    assert "SUCCESS" in prometheus.promtool("test", "rules", SHIPPED / RULES_TEST)


def test_it_prints_what_a_drop_needs_and_how_to_get_a_baseline(tmp_path: Path) -> None:
    text = "metrics: [exact_match, faithfulness]\nalerts: {exact_match: {baseline: 0.85, min_drop: 0.05}}"

    done = ran(config(tmp_path, text), "--out", tmp_path / "out")

    assert all(word in done.stdout for word in ("5m, 15m, 1h, 6h, 1d", "4.16", "30", "1,773"))
    assert "1,773 requests" in done.stdout  # the rate is 1
    assert "z        standard errors below the tolerated mean" in done.stdout
    assert "faithfulness: no baseline" in done.stdout
    assert "alerts: {faithfulness: {baseline: <that mean>}}" in done.stdout


def test_alerts_on_inner_units_are_in_the_table_and_in_the_json(tmp_path: Path) -> None:
    entry = "{kind: tool, name: search, rate: 0.1, alerts: {exact_match: {baseline: 0.9, min_drop: 0.2}}}"
    file = config(tmp_path, f"metrics: [exact_match]\nunits: {{also: [{entry}]}}\n")

    table, answer = ran(file, "--out", tmp_path / "m"), ran(file, "--out", tmp_path / "m", "--json")

    assert table.exit_code == 0, table.output
    row = next(line for line in table.stdout.splitlines() if "exact_match (tool search)" in line)
    assert "30 scores" in row
    assert "300 inner units" in table.stdout
    assert "requests" not in table.stdout
    (drop,) = json.loads(answer.stdout)["drops"]
    assert (drop["metric"], drop["min_requests"], drop["units"]) == ("exact_match (tool search)", 300, "inner units")


def test_links_that_lead_nowhere_are_reported(tmp_path: Path) -> None:
    own = "monitoring: {dashboard_url: 'https://grafana.example/d/x', trace_url: 'https://tempo.example'}"

    default = ran(config(tmp_path, "metrics: [exact_match]"), "--out", tmp_path / "out").stdout
    output = ran(config(tmp_path, f"metrics: [exact_match]\n{own}"), "--out", tmp_path / "out").stdout

    assert "monitoring.dashboard_url is the default: alerts link to localhost:3000" in default
    assert "monitoring.trace_url is not set" in default
    assert "_url" not in output


def test_no_line_is_wider_than_the_terminal_and_how_to_get_a_baseline_is_reported_once(tmp_path: Path) -> None:
    text = "metrics: [exact_match, faithfulness, response_relevancy]\nalerts: {exact_match: {baseline: 0.4}}"
    out = tmp_path / "a" / "folder" / "with" / "a" / "long" / "way" / "to" / "it"

    done = CliRunner().invoke(
        app("rules"), ["rules", str(config(tmp_path, text)), "--out", str(out)], env={"COLUMNS": "80"}
    )

    lines = [line for line in done.stdout.splitlines() if str(out) not in line]
    assert max(map(len, lines)) <= 80
    assert "– faithfulness, response_relevancy: no baseline, so no drop is watched." in done.stdout
    assert " ".join(done.stdout.split()).count("After a week of normal traffic") == 1
    assert f"written to {out}:\n  prometheus/spanscore.rules.yml\n" in done.stdout


def test_a_program_reads_the_same(tmp_path: Path) -> None:
    text = "metrics: [faithfulness]\nalerts: {faithfulness: {baseline: 0.4}}\nmonitoring: {windows: [10m]}"

    document = json.loads(ran(config(tmp_path, text), "--out", tmp_path / "out", "--json").stdout)

    assert document["windows"] == ["10m"]
    assert document["drops"][0]["null"] == pytest.approx(0.3875)
    assert not document["drops"][0]["rate_holds"]
    assert "false alarms may be more frequent" in document["notes"][0]
    assert all(Path(file).is_file() for file in document["files"])


def objects(folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    file = config(folder, "metrics: [exact_match]\nalerts: {exact_match: {baseline: 0.85}}")
    assert ran(file, "--out", folder / "out", "--format", "operator", *arguments).exit_code == 0
    return {path.name: read_yaml(path.read_text()) for path in (folder / "out").rglob("*.*")}


def test_a_cluster_gets_objects_that_kubernetes_takes_and_a_prometheus_selects(tmp_path: Path) -> None:
    made = objects(tmp_path, "--label", "release=prometheus")

    kinds = {name: (one["apiVersion"], one["kind"]) for name, one in made.items()}
    coreos = "monitoring.coreos.com/v1"
    assert kinds == {
        "prometheusrule.yaml": (coreos, "PrometheusRule"),
        "podmonitor.yaml": (coreos, "PodMonitor"),
        "dashboard-spanscore-overview.yaml": ("v1", "ConfigMap"),
        "dashboard-spanscore-operators.yaml": ("v1", "ConfigMap"),
        "dashboard-spanscore-metric.yaml": ("v1", "ConfigMap"),
    }
    for one in made.values():
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", one["metadata"]["name"])
        assert one["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = made["podmonitor.yaml"]["spec"]["podMetricsEndpoints"]
    assert re.fullmatch(r"[a-z0-9-]{1,15}", endpoint["port"])
    assert made["podmonitor.yaml"]["spec"]["selector"]["matchLabels"]


def test_dashboards_of_a_cluster_are_those_that_are_shipped(tmp_path: Path) -> None:
    for name, made in objects(tmp_path).items():
        if made["kind"] == "ConfigMap":
            ((file, text),) = made["data"].items()
            assert text == (SHIPPED / "grafana" / "dashboards" / file).read_text(), name
            assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
            assert len(text.encode()) < 1_048_576  # size limit of a ConfigMap


@pytest.mark.server
def test_the_rules_of_a_cluster_are_those_of_a_file(prometheus: ModuleType, tmp_path: Path) -> None:
    groups = objects(tmp_path)["prometheusrule.yaml"]["spec"]
    (tmp_path / "extracted.yml").write_text(yaml.safe_dump(groups))

    ran(tmp_path / "spanscore.yaml", "--out", tmp_path / "plain")

    assert groups == read_yaml((tmp_path / "plain" / RULES).read_text())
    assert "SUCCESS" in prometheus.promtool("check", "rules", tmp_path / "extracted.yml")


@pytest.mark.parametrize("label", ["release", "a b=c", "release=-", "team=" + "x" * 64])
def test_a_label_that_kubernetes_refuses_is_refused_before_anything_is_written(tmp_path: Path, label: str) -> None:
    file = config(tmp_path, "metrics: [exact_match]")

    done = ran(file, "--out", tmp_path / "out", "--format", "operator", "--label", label)

    assert done.exit_code != 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metrics: [exact_match]\nalerts: {exactmatch: {baseline: 0.8}}", "exactmatch.*exact_match"),
        ("metrics: [exact_match]\nmonitoring: {windows: [90s]}", "4 evaluations"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    done = ran(config(tmp_path, text), "--out", tmp_path / "out")

    assert isinstance(done.exception, ConfigurationError)
    with pytest.raises(ConfigurationError, match=words):
        raise done.exception


def test_all_faults_of_the_configuration_are_reported_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    file = config(tmp_path, "metrics: [faithfullness]\nsampling: {rte: 3, rate: 5}\njudge: {model: 'nonesuch:x'}")

    done = ran(file, "--out", tmp_path / "out")

    assert str(done.exception).startswith(f"{file}: 4 wrong settings\n")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = config(tmp_path, "metrics: [exact_match]")

    done = ran(file, "--out", file)

    with pytest.raises(ConfigurationError, match="cannot be written"):
        raise done.exception


def test_a_metric_that_lacks_its_library_here_gets_no_rules_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)

    done = ran(config(tmp_path, "metrics: [non_llm_string_similarity, exact_match]"), "--out", tmp_path / "out")

    assert "non_llm_string_similarity cannot be made here, and the rules need each metric" in str(done.exception)
    assert "spanscore[text]" in str(done.exception)
    assert not (tmp_path / "out").exists()
