"""The example from a message to a better judge, with keys typed in a browser, and the means asked of Prometheus."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.servers.chromium import Browser
from tests.servers.server import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "from_a_message_to_a_better_judge.py"
ANSWER = "[...document.querySelectorAll('#case .said')].at(-1).textContent"
IS_REVEALED = "!document.getElementById('verdict').hidden"
VERSION = "spanscore_evaluator_version"
MEANS = f"sum by ({VERSION}) (spanscore_weight_quality_total) / sum by ({VERSION}) (spanscore_weight_total) >= 0"

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_the_loop_closes_in_a_browser_and_in_prometheus(
    chromium: Browser, prometheus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_KEY", "none")
    example, port = runpy.run_path(str(EXAMPLE)), free_port()
    labelled: list[str] = []

    def type_keys(url: str) -> None:
        with chromium.tab() as tab:
            tab.open(url)
            tab.until("document.documentElement.dataset.ready")
            while tab.evaluate("!document.getElementById('case').hidden"):
                labelled.append(tab.evaluate(ANSWER))
                tab.press("1" if example["is_polite"](labelled[-1]) else "2")
                tab.until(IS_REVEALED)
                tab.press("Enter")
                tab.until(f"!({IS_REVEALED})")
            tab.evaluate("[...document.querySelectorAll('#actions button')].at(-1).click()")
            tab.until("!document.getElementById('over').hidden")
            assert tab.problems == []

    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "desk", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    with prometheus.running(tmp_path / "prometheus", json.dumps(config)) as watch:

        def means(_port: int) -> dict[str, float]:
            series = watch.query(MEANS)
            return {each["metric"][VERSION]: float(each["value"][1]) for each in series}

        folder = tmp_path / "desk"
        folder.mkdir()
        code = example["main"](folder, use_page=type_keys, port=port, means=means)

    assert code == 0
    assert len(labelled) == example["REQUESTS"]
    assert len((folder / "labels.jsonl").read_text("utf-8").splitlines()) == example["REQUESTS"]
