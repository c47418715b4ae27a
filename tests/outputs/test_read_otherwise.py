"""A signal that is read without an export loses nothing if no server listens at the unconfigured default endpoint."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.live import QUESTION, Grounded, rag
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port

from spanscore import OnlineScorer, semconv
from spanscore.config import Outputs
from spanscore.outputs import exporters


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> str:
    nowhere = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setitem(exporters.DEFAULT_ENDPOINTS, "http", nowhere)
    return nowhere


def rows(scorer: OnlineScorer) -> dict[str, str]:
    return {what: last for what, _, _, last in scorer.status().providers}


def run(scorer: OnlineScorer) -> bool:
    rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
    return scorer.flush(10)


def scrape(scorer: OnlineScorer) -> str:
    with urlopen(f"http://127.0.0.1:{scorer.serve_metrics(0)}/metrics") as answer:
        return answer.read().decode()


def test_metrics_that_are_scraped_are_not_lost_at_the_default_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    with OnlineScorer([Grounded()], outputs=Outputs(spans_to="/dev/null/none")) as scorer:
        run(scorer)
        assert "spanscore_eligible" in scrape(scorer)
        caplog.clear()
        scorer.shutdown(0.5)  # exports once more: this process has no such endpoint
        metrics = rows(scorer)["metrics"]

    assert metrics.endswith("/metrics")
    assert "read at http://127.0.0.1" in metrics
    assert "not delivered" not in metrics


def test_a_page_that_nobody_scrapes_replaces_no_export() -> None:
    with OnlineScorer([Grounded()]) as scorer:
        run(scorer)
        scorer.serve_metrics(0)
        scorer.shutdown(0.5)  # exports once more: this process has no such endpoint
        metrics = rows(scorer)["metrics"]

    assert "not delivered" in metrics


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"])
def test_a_push_to_a_configured_endpoint_is_reported(
    variable: str, nobody_listens: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, nobody_listens)
    with OnlineScorer([Grounded()]) as scorer:
        run(scorer)
        scrape(scorer)
        scorer.shutdown(0.5)  # exports once more: this process has no such endpoint
        metrics = rows(scorer)["metrics"]

    assert "not delivered" in metrics
    assert f"nothing can be exported to {nobody_listens}" in caplog.text


def test_spans_that_go_to_a_file_are_not_lost_at_the_default_endpoint(
    tmp_path: Path, nobody_listens: str, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "spans.jsonl"
    with OnlineScorer([Grounded()], outputs=Outputs(spans_to=out)) as scorer:
        flushed = [run(scorer), run(scorer)]  # at the second one the first still tries again
        result = rows(scorer)
        assert scorer.shutdown(5)

    assert flushed == [True, True]
    assert result["traces"].endswith(f"written to {out}")
    assert result["logs"].endswith(f"written to {out}")
    assert result["metrics"].endswith(f"the scores are in {out}; alerts need an endpoint")
    assert "not delivered" not in str(scorer.status())
    assert f"exported to {nobody_listens}" not in caplog.text  # an exporter of an earlier test may still try another


def test_a_flush_waits_for_the_signal_that_has_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpReceiver() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{backend.endpoint}/v1/metrics")
        with OnlineScorer([Grounded()], outputs=Outputs(spans_to=tmp_path / "spans.jsonl")) as scorer:
            assert run(scorer)
            assert backend.points_of(semconv.ELIGIBLE)


def test_a_flush_is_false_if_the_signal_that_has_an_endpoint_did_not_arrive(
    tmp_path: Path, nobody_listens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{nobody_listens}/v1/metrics")
    with OnlineScorer([Grounded()], outputs=Outputs(spans_to=tmp_path / "spans.jsonl")) as scorer:
        assert not run(scorer)


def test_spans_that_cannot_be_written_either_are_reported(
    tmp_path: Path, nobody_listens: str, caplog: pytest.LogCaptureFixture
) -> None:
    with OnlineScorer([Grounded()], outputs=Outputs(spans_to=tmp_path / "none" / "spans.jsonl")) as scorer:
        assert [run(scorer), run(scorer)] == [False, False]

    assert f"nothing can be exported to {nobody_listens}" in caplog.text
