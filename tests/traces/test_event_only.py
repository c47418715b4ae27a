"""OpenTelemetry's instrumentation of OpenAI gives the same samples with content in log records as with content on spans."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.servers.openai_api import OpenAIServer
from tests.traces.event_only import FORMS, SAMPLES, SAMPLES_ENV, SPANS, run
from tests.traces.said import answer

pytest.importorskip("opentelemetry.instrumentation.genai.openai")


@pytest.mark.parametrize("form", [form for form in FORMS if form != SPANS])
def test_content_in_log_records_gives_the_samples_of_content_on_spans(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = {}
    with OpenAIServer(answer) as server:
        for place in (SPANS, form):
            monkeypatch.setenv(SAMPLES_ENV, str(tmp_path / place))
            run(place, server.url)
            samples[place] = sorted((tmp_path / place).read_text().splitlines())

    assert len(samples[SPANS]) == SAMPLES
    assert samples[form] == samples[SPANS]
