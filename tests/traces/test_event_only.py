"""OpenTelemetry's instrumentation of OpenAI gives the same samples with content in log records as with content on spans."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.openai_api import OpenAIServer
from tests.traces.said import answer

pytest.importorskip("opentelemetry.instrumentation.genai.openai")
ROOT = Path(__file__).parents[2]


def samples(mode: str, url: str) -> list[str]:
    """Return the samples of the application in a process of its own, with its content in this place."""
    switches = {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": mode,
    }
    command = [sys.executable, "-m", "tests.traces.event_only", url]
    done = subprocess.run(
        command, env={**os.environ, **switches}, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout.splitlines()


def test_content_in_log_records_gives_the_samples_of_content_on_spans() -> None:
    with OpenAIServer(answer) as server:
        on_spans, in_records = samples("SPAN_ONLY", server.url), samples("EVENT_ONLY", server.url)

    assert len(on_spans) >= 4
    assert in_records == on_spans
