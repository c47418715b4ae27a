"""The real Prometheus and Alertmanager keep their modules' promises: scrape, rule, exemplar, alert, on loopback only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from tests.servers.server import listening, poll

pytestmark = pytest.mark.server

PAGE = """# TYPE asked counter
# HELP asked Questions.
asked_total{metric="grounded"} 7.0 # {trace_id="0af7651916cd43dd8448eb211c80319c"} 1.0
# EOF
"""
RULES = """
groups:
  - name: test
    rules:
      - {record: "asked:twice", expr: "2 * asked_total"}
      - {alert: Asked, expr: "asked_total > 5", labels: {severity: page}}
"""
ROUTE = "route: {receiver: nobody, group_wait: 1s}\nreceivers: [{name: nobody}]\n"


@contextmanager
def exposed(text: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_what_is_scraped_is_queried_ruled_and_alerted(
    prometheus: ModuleType, alertmanager: ModuleType, tmp_path: Path
) -> None:
    with exposed(PAGE) as target, alertmanager.running(tmp_path / "am", ROUTE) as manager:
        config = f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs: [{{job_name: app, static_configs: [{{targets: ["{target}"]}}]}}]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{manager.target}"]}}]}}]}}
"""
        with prometheus.running(tmp_path / "prom", config, {"rules.yml": RULES}) as server:
            (found,) = poll(lambda: server.query("asked:twice"), deadline_s=30, what="the recorded series")
            (alert,) = poll(manager.alerts, deadline_s=30, what="the alert in Alertmanager")

            assert found["value"][1] == "14"
            (exemplar,) = server.exemplars("asked_total")
            assert exemplar["exemplars"][0]["labels"] == {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
            assert (alert["labels"]["alertname"], alert["labels"]["severity"]) == ("Asked", "page")
            assert [one["state"] for one in server.alerts()] == ["firing"]
            assert {rule["health"] for rule in server.rules()} == {"ok"}


def test_a_rule_that_is_changed_is_there_after_a_reload(prometheus: ModuleType, tmp_path: Path) -> None:
    with prometheus.running(tmp_path, rules={"rules.yml": RULES}) as server:
        (tmp_path / "rules.yml").write_text(RULES.replace("asked:twice", "asked:again"))

        server.reload()

        assert [rule["name"] for rule in server.rules()] == ["asked:again", "Asked"]


def test_what_is_refused_says_why(prometheus: ModuleType, alertmanager: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES.replace("2 *", "2 * *"))
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: nobody}\n")

    with pytest.raises(ValueError, match="parse error"):
        prometheus.promtool("check", "rules", tmp_path / "rules.yml")
    with pytest.raises(ValueError, match="nobody"):
        alertmanager.amtool("check-config", tmp_path / "alertmanager.yml")
    with prometheus.running(tmp_path / "prom") as server, pytest.raises(RuntimeError, match="parse error"):
        server.query("sum(")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_they_listen_on_loopback_only(prometheus: ModuleType, alertmanager: ModuleType, tmp_path: Path) -> None:
    with (
        prometheus.running(tmp_path / "prom") as server,
        alertmanager.running(tmp_path / "am", alertmanager.NOBODY) as manager,
    ):
        assert listening(server.pid) | listening(manager.pid) == {"127.0.0.1"}
