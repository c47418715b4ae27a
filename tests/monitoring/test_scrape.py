"""A real Prometheus reads the page and finds the trace behind a score; the names are those of the Collector's remote write."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.live import Grounded, a_line, a_trace, run_rag
from tests.servers.server import free_port, poll

from spanscore import OnlineScorer, metric
from spanscore.config import Monitoring, Units
from spanscore.config.monitoring import AlertSettings
from spanscore.config.units import InnerUnit
from spanscore.monitoring.rules import RULES, rule_files

SCRAPE = """
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: scrape, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""
COLLECTOR = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{debug: {{}}, prometheus_remote_write: {{endpoint: "{to}"}}}}
service:
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus_remote_write]}}
    traces: {{receivers: [otlp], exporters: [debug]}}
    logs: {{receivers: [otlp], exporters: [debug]}}
"""
ONE_WAY = {"job", "instance", "service_name"}
"""Labels that a scrape and remote write fill differently; rules and dashboards are grouped by service_name and job."""

pytestmark = pytest.mark.server


def test_an_exemplar_in_prometheus_is_the_scored_trace(prometheus: ModuleType, tmp_path: Path) -> None:
    trace = a_trace()
    with a_line(trace=trace) as (scorer, _):
        port = scorer.serve_metrics(0)
        run_rag(scorer)
        with prometheus.running(tmp_path, SCRAPE.format(port=port)) as server:
            (found,) = poll(lambda: server.exemplars("spanscore_quality_bucket"), deadline_s=20, what="an exemplar")
            (scored,) = server.query('spanscore_scored_total{gen_ai_evaluation_score_label="pass"}')

    assert found["exemplars"][0]["labels"]["trace_id"] == f"{trace.roots[0].context.trace_id:032x}"
    assert scored["value"][1] == "1"


def test_a_scrape_and_remote_write_give_the_same_names_and_labels(
    prometheus: ModuleType, collector: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prometheus").mkdir()
    with prometheus.running(tmp_path / "prometheus") as server:
        config, port = tmp_path / "otelcol.yaml", free_port()
        config.write_text(COLLECTOR.format(port=port, to=server.remote_write))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        with (
            collector.running(tmp_path, config),
            OnlineScorer(
                [Grounded()], service_name="shop", monitoring=Monitoring(dimensions={"user_tier": ["gold"]})
            ) as scorer,
        ):
            scrape = SCRAPE.format(port=scorer.serve_metrics(0))
            (server.folder / "prometheus.yml").write_text(scrape)
            server.reload()
            run_rag(scorer)
            poll(lambda: histograms(series(server, "scrape")), deadline_s=20, what="a scrape after the run")
            poll(lambda: histograms(series(server, "shop")), deadline_s=20, what="remote write")
            by_scrape, by_write = series(server, "scrape"), series(server, "shop")

    assert by_scrape == by_write
    assert "spanscore_capture_units_total" in {dict(one)["__name__"] for one in by_scrape}


def test_an_alert_on_inner_units_fires_on_them_alone(prometheus: ModuleType, tmp_path: Path) -> None:
    @metric
    def answered(sample: Any) -> bool:
        return sample.response is not None  # true for the chain, false for its retriever

    low = AlertSettings(threshold=0.5, min_scores=5)
    also = [InnerUnit(kind="retriever", alerts={"answered": low})]
    rules = rule_files({"answered": low}, [answered], Monitoring(interval=1, windows=[20]), also=also)[RULES]
    with a_line(answered, units=Units(also=also)) as (scorer, _):
        config = SCRAPE.format(port=scorer.serve_metrics(0))
        with prometheus.running(tmp_path, config, {"rules.yml": rules}) as server:

            def firing() -> list[dict[str, str]]:
                run_rag(scorer)
                every = [alert["labels"] for alert in server.alerts() if alert["state"] == "firing"]
                return [labels for labels in every if labels["alertname"] == "SpanscoreQualityBelowThreshold"]

            alerts = poll(firing, deadline_s=60, what="the alert")

    assert [alert["metric"] for alert in alerts] == ["answered (retriever)"]


def series(server: Any, job: str) -> set[tuple[tuple[str, str], ...]]:
    found = [one["metric"] for one in server.query(f'{{__name__=~"spanscore_.+",job="{job}"}}')]
    return {
        tuple(sorted((key, plain(key, value)) for key, value in one.items() if key not in ONE_WAY)) for one in found
    }


def plain(key: str, value: str) -> str:
    """A scrape writes ``le="1.0"``, remote write ``le="1"``: PromQL reads both as numbers."""
    return str(float(value)) if key == "le" else value


def histograms(found: set[tuple[tuple[str, str], ...]]) -> bool:
    return any(("__name__", "spanscore_quality_bucket") in one for one in found)
