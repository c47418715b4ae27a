"""PrometheusApi: a server that is no Prometheus is named, whatever it answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.servers.answering import answering

from spanscore.errors import ConfigurationError
from spanscore.monitoring.prometheus_api import PrometheusApi, RangeSeries

OTHERS = {
    "html": b"<html>Sign in</html>",
    "bytes": b"\xff\xfe",
    "list": b"[1]",
    "null": b"null",
    "number": b"1" * 5_000,
    "deep": b"[" * 100_000,
    "no data": b'{"status": "success"}',
    "data is null": b'{"status": "success", "data": null}',
    "result is no list": b'{"status": "success", "data": {"result": 5}}',
    "no values": b'{"status": "success", "data": {"result": [{"metric": {}}]}}',
    "half a point": b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1]]}]}}',
    "a point without a number": b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1, "x"]]}]}}',
    "labels are a list": b'{"status": "success", "data": {"result": [{"metric": [1], "values": []}]}}',
}


def asked(url: str) -> Any:
    return PrometheusApi(url).query_range("up", start_s=0, end_s=1, step_s=1)


def test_the_series_are_read() -> None:
    body = b'{"status": "success", "data": {"result": [{"metric": {"a": "b"}, "values": [[1, "NaN"], [2, "0.5"]]}]}}'

    with answering(body) as url:
        (series,) = asked(url)

    assert (series.labels, series.points[1]) == RangeSeries({"a": "b"}, (2.0, 0.5))


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_what_is_no_prometheus_is_named(body: bytes) -> None:
    with (
        answering(body) as url,
        pytest.raises(ConfigurationError, match=f"the server at {re.escape(url)} is not a Prometheus"),
    ):
        asked(url)


def test_an_answer_that_breaks_off_is_named() -> None:
    with (
        answering(b"{", promised=100) as url,
        pytest.raises(ConfigurationError, match=f"{re.escape(url)} gave an incomplete answer"),
    ):
        asked(url)


def test_an_address_that_cannot_be_read_is_refused_and_no_password_shown() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: Invalid IPv6 URL") as refused:
        PrometheusApi("http://ada:secret@[::1")

    assert "secret" not in str(refused.value)
