"""When a service is ready."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from spanscore.monitoring import scrape_endpoint
from spanscore.service.lifetime import start_scorer


def test_a_service_is_not_ready_from_the_first_request_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []

    class Asked(scrape_endpoint.ScrapeEndpoint):
        """Is asked as soon as it listens, when the rest of the scorer is yet to be made."""

        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(self.url.replace("/metrics", "/readyz"), timeout=10)
            answers.append((refused.value.code, refused.value.read()))

    monkeypatch.setattr(scrape_endpoint, "ScrapeEndpoint", Asked)
    file = tmp_path / "spanscore.yaml"
    file.write_text("{judge: {model: lexical}, metrics: [faithfulness], serve_metrics: {port: 0}}")

    start_scorer(file).shutdown(0)

    assert [(code, b"starting" in text) for code, text in answers] == [(503, True)]
