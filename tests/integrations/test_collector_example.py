"""``examples/collector_tee`` works as its README describes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tests.integrations.serving import free_ports, serving
from tests.servers.server import free_port, poll

EXAMPLE = Path(__file__).parents[2] / "examples" / "collector_tee"


@pytest.mark.server
def test_the_collectors_terminal_shows_a_verdict_of_each_answer(collector: ModuleType, tmp_path: Path) -> None:
    ports, port = free_ports(), free_port()
    endpoint = f"http://127.0.0.1:{port}"
    here = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"otlp_http/spanscore": {"endpoint": f"http://127.0.0.1:{ports['http']}"}},
    }
    (changes := tmp_path / "ports.yaml").write_text(json.dumps(here))
    settings = yaml.safe_load((EXAMPLE / "spanscore.yaml").read_text(encoding="utf-8"))

    with (
        collector.running(tmp_path, EXAMPLE / "otelcol.yaml", changes) as terminal,
        serving(tmp_path / "serve", settings, scores_to=endpoint, ports=ports),
    ):
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        subprocess.run([sys.executable, str(EXAMPLE / "app.py")], env=environment, check=True, timeout=60)

        for verdict in ("pass", "fail"):
            poll(
                lambda verdict=verdict: f"spanscore.verdict={verdict}" in terminal.log.read_text(),
                deadline_s=40,
                what=f"an evaluation with the verdict {verdict}",
            )
    assert terminal.log.read_text().count("evaluation faithfulness") == 2
