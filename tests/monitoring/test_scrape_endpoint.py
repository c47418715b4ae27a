"""``serve_metrics``: a page that a scraper reads, whichever providers the application uses."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from tests.live import Grounded, Trace, a_line, a_trace, run_rag
from tests.servers.otlp import OtlpReceiver

from spanscore import ConfigurationError, OnlineScorer
from spanscore.config import Outputs
from spanscore.monitoring.scrape_endpoint import ScrapeEndpoint

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@contextmanager
def serving(**options: Any) -> Iterator[tuple[OnlineScorer, Trace, int]]:
    trace = options.pop("trace", None) or a_trace(resource=Resource({"service.name": "bot"}))
    with a_line(trace=trace, **options) as (scorer, _):
        yield scorer, trace, scorer.serve_metrics(0)


def ask(
    port: int, path: str = "/metrics", *, method: str = "GET", accept: str = OPENMETRICS
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={"Accept": accept})
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def samples(port: int) -> dict[str, list[Any]]:
    """The page, read by the strict parser: name → samples."""
    found: dict[str, list[Any]] = {}
    for family in openmetrics(ask(port)[1]):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_health_and_readiness_stand_beside_the_metrics() -> None:
    with serving() as (scorer, _, port):
        assert scorer.metrics_endpoint is not None
        up = [ask(port, path)[0].status for path in ("/healthz", "/readyz", "/readyz?x=1")]
        scorer.metrics_endpoint.unready = lambda: "draining"
        response, result = ask(port, "/readyz")

        assert up == [200, 200, 200]
        assert (response.status, result) == (503, "draining\n")
        assert ask(port, "/healthz")[0].status == 200


def test_pages_of_who_serves_stand_beside_the_metrics_and_a_wrong_question_is_reported() -> None:
    with serving() as (scorer, _, port):
        assert scorer.metrics_endpoint is not None
        before = ask(port, "/explain/7")[0].status
        scorer.metrics_endpoint.pages = {
            "status": lambda _: "all is well",
            "explain": lambda of: f"{scorer.explain(of)}",
        }
        asked = [ask(port, path) for path in ("/status", "/explain/7", f"/explain/{7:032x}?x=1", "/other")]

    assert before == 404
    assert [(response.status, rows) for response, rows in asked[:3]] == [
        (200, "all is well\n"),
        (400, "'7' is not a trace id; allowed are 32 hex digits, or the number\n"),
        (200, "[]\n"),
    ]
    assert asked[3][0].status == 404


def test_every_sum_is_there_as_zero_before_the_first_run() -> None:
    with serving() as (_, _, port):
        page = samples(port)

    assert {
        (one.value, one.labels["gen_ai_evaluation_score_label"]) for one in page["spanscore_weight_quality_total"]
    } == {
        (0, "pass"),
        (0, "fail"),
    }
    assert {one.value for one in page["spanscore_evaluations_total"]} == {0}
    assert page["spanscore_evaluation_pending"][0].labels == {
        "gen_ai_evaluation_name": "grounded",
        "service_name": "bot",
        "otel_scope_name": "spanscore",
        "otel_scope_version": version("spanscore"),
    }


def test_a_score_is_counted_and_its_exemplar_is_the_scored_trace() -> None:
    with serving() as (scorer, trace, port):
        run_rag(scorer)
        page = samples(port)

    (root,) = trace.roots
    (exemplar,) = [one.exemplar for one in page["spanscore_quality_bucket"] if one.exemplar]
    assert exemplar.labels == {"trace_id": f"{root.context.trace_id:032x}", "span_id": f"{root.context.span_id:016x}"}
    assert exemplar.value == 1.0
    assert sum(one.value for one in page["spanscore_scored_total"]) == 1


def test_an_exemplar_is_there_for_a_second_scraper_too() -> None:
    with serving() as (scorer, _, port):
        run_rag(scorer)
        first, second = ([one.exemplar for one in samples(port)["spanscore_quality_bucket"]] for _ in range(2))

    assert first == second
    assert any(first)


def test_bounds_are_written_as_floats() -> None:
    with serving() as (scorer, _, port):
        run_rag(scorer)
        bounds = [one.labels["le"] for one in samples(port)["spanscore_quality_bucket"]]

    assert bounds == ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0", "+Inf"]


def test_every_series_names_the_service() -> None:
    with serving() as (scorer, _, port):
        run_rag(scorer)

        assert {one.labels["service_name"] for found in samples(port).values() for one in found} == {"bot"}


def test_a_scraper_that_knows_no_openmetrics_gets_the_plain_text_without_exemplars() -> None:
    with serving() as (scorer, _, port):
        run_rag(scorer)
        response, text = ask(port, accept="text/plain;version=0.0.4")

    assert response.getheader("Content-Type", "").startswith("text/plain; version=0.0.4")
    assert " # {" not in text
    assert "spanscore_scored_total" in {sample.name for family in plain(text) for sample in family.samples}


def test_head_is_the_page_without_its_text_and_other_paths_say_where_it_is() -> None:
    with serving() as (_, _, port):
        (page, _), (head, nothing), (lost, words) = ask(port), ask(port, method="HEAD"), ask(port, "/")

    assert (page.status, head.status, lost.status) == (200, 200, 404)
    assert page.getheader("Content-Type") == head.getheader("Content-Type")
    assert "openmetrics" in str(head.getheader("Content-Type"))
    assert (nothing, "/metrics" in words) == ("", True)


def test_the_applications_meter_provider_gets_all_of_it_too() -> None:
    reader = InMemoryMetricReader()
    with serving(meter_provider=MeterProvider([reader], shutdown_on_exit=False)) as (scorer, _, port):
        run_rag(scorer)
        data, page = reader.get_metrics_data(), samples(port)

    theirs = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert sum(point.value for point in theirs["spanscore.scored"].data.data_points) == 1
    assert [point.count for point in theirs["spanscore.quality"].data.data_points] == [1]
    assert sum(one.value for one in page["spanscore_scored_total"]) == 1
    assert [one.value for one in page["spanscore_quality_count"]] == [1]


def test_a_provider_of_our_own_exports_all_of_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        with OnlineScorer([Grounded()], service_name="shop") as scorer:
            port = scorer.serve_metrics(0)
            run_rag(scorer)
            page = samples(port)
        scored = [point.value for point in receiver.points_of("spanscore.scored")]

    assert 1 in scored
    assert {one.labels["service_name"] for one in page["spanscore_scored_total"]} == {"shop"}
    assert sum(one.value for one in page["spanscore_scored_total"]) == 1


def test_called_late_it_tells_all_sums() -> None:
    with a_line() as (scorer, _):
        run_rag(scorer)

        page = samples(scorer.serve_metrics(0))

    assert sum(one.value for one in page["spanscore_scored_total"]) == 1


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with (
        serving() as (_, _, port),
        a_line() as (second, _),
        pytest.raises(ConfigurationError, match=f":{port}.*worker"),
    ):
        second.serve_metrics(port)


def test_a_host_that_is_not_there_is_a_clear_error() -> None:
    with a_line() as (scorer, _), pytest.raises(ConfigurationError, match=r"192\.0\.2\.1"):
        scorer.serve_metrics(0, host="192.0.2.1")  # reserved for documentation


def test_it_serves_once() -> None:
    with serving() as (scorer, _, port), pytest.raises(ConfigurationError, match=str(port)):
        scorer.serve_metrics(0)


def test_it_ends_with_the_scorer_and_does_not_begin_after_it() -> None:
    with serving() as (scorer, _, port):
        scorer.shutdown(2)

        with pytest.raises(ConnectionRefusedError):
            ask(port)
        with pytest.raises(ConfigurationError, match="shut down"):
            scorer.serve_metrics(port)
    with a_line() as (next_one, _):
        assert next_one.serve_metrics(port) == port


def test_without_instruments_there_is_nothing_to_serve() -> None:
    with (
        a_line(outputs=Outputs(evaluation_span=False, event=False, instruments=False)) as (scorer, _),
        pytest.raises(ConfigurationError, match=r"outputs\.instruments is false"),
    ):
        scorer.serve_metrics(0)


def test_the_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with a_line() as (scorer, _), pytest.raises(ConfigurationError, match=r"spanscore\[prometheus\]"):
        scorer.serve_metrics(0)


def test_a_client_that_hangs_up_is_no_news_to_the_application(capfd: pytest.CaptureFixture[str]) -> None:
    of_others = set(threading.enumerate())  # servers of other tests may have clients that keep their connections
    with serving() as (_, _, port):
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        client.send(b"GET /metrics HTTP/1.1\r\n")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
        client.close()
        ask(port)  # is accepted after it
        for answering in [one for one in set(threading.enumerate()) - of_others if "process_request" in one.name]:
            answering.join(10)

    assert capfd.readouterr().err == ""


def test_a_collection_that_fails_is_an_error_on_the_page_alone(capfd: pytest.CaptureFixture[str]) -> None:
    endpoint = ScrapeEndpoint(lambda: str(1 / 0), port=0, host="127.0.0.1")
    try:
        response, words = ask(endpoint.port)
    finally:
        endpoint.close()

    assert (response.status, words) == (500, "The metrics could not be read\n")
    assert capfd.readouterr().err == ""


def test_a_file_may_ask_for_it(tmp_path: Any) -> None:
    file = tmp_path / "spanscore.yaml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file.write_text(f"metrics: [exact_match]\nserve_metrics: {port}\n")

        with pytest.raises(ConfigurationError, match=str(port)):
            OnlineScorer.from_config(file, tracer_provider=a_trace().provider)
    file.write_text(f"metrics: [exact_match]\nserve_metrics: {{port: {port}, host: 127.0.0.1}}\n")
    with OnlineScorer.from_config(file, tracer_provider=a_trace().provider):
        assert "spanscore_scored_total" in samples(port)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_keeps_no_port_and_may_serve_on_its_own() -> None:
    with serving() as (scorer, _, port):
        run_rag(scorer)
        result, tell = os.pipe()
        go, wait = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                own = scorer.serve_metrics(0)
                run_rag(scorer)
                counts = [one.value for one in samples(own)["spanscore_quality_count"]]
                scored = sum(one.value for one in samples(own)["spanscore_scored_total"])
                os.write(tell, f"{own} {counts} {scored}".encode())
                os.read(go, 1)
            finally:
                os._exit(0)
        os.close(tell)  # a failing child ends the read
        own, _, words = os.read(result, 200).decode().partition(" ")
        assert sum(one.value for one in samples(port)["spanscore_scored_total"]) == 1
        scorer.shutdown(2)

        with pytest.raises(ConnectionRefusedError):
            ask(port)
        os.write(wait, b".")
        os.waitpid(child, 0)

    assert own != str(port)
    assert words == "[1.0] 1.0"
