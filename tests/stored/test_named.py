"""SOURCE, as an operator writes it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.stored.stores import StoreDouble, served

from spanscore import ConfigurationError
from spanscore.stored.trace_stores import store_of, time_of
from spanscore.stored.traces import OtlpFiles

NOW_S = datetime(2026, 7, 8, tzinfo=UTC).timestamp()


def asked_of(source: str) -> dict[str, str]:
    """Return the parameters of the first search that a source leads to."""
    store = StoreDouble([])
    with served(store) as url:
        list(store_of(source.format(url=url), since_s=0, until_s=3_600).traces())
    return next(given for path, given in store.asked if path.endswith(("search", "traces")))


def test_what_a_store_searches_by_is_handed_on_as_it_is_written() -> None:
    jaeger = asked_of('jaeger:{url}?service=my bot&tags={{"tier":"gold"}}&operation=ask')
    tempo = asked_of('tempo:{url}?q={{ span.x = "a b" && duration > 1s }}')

    assert jaeger.items() >= {"service": "my bot", "tags": '{"tier":"gold"}', "operation": "ask"}.items()
    assert tempo["q"] == '{ span.x = "a b" && duration > 1s }'


@pytest.mark.parametrize("source", ["jaeger:http://h:1", "tempo:http://h:1?service=x", "jaeger:"])
def test_what_a_store_needs_to_be_known_is_asked_for(source: str) -> None:
    with pytest.raises(ConfigurationError, match="has no"):
        store_of(source, since_s=None, until_s=None)


def test_anything_else_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").touch()

    assert isinstance(store_of(str(tmp_path), since_s=None, until_s=None), OtlpFiles)


TIMES = {
    "7d": "2026-07-01T00:00:00+00:00",
    "12h": "2026-07-07T12:00:00+00:00",
    "2026-07-01": "2026-07-01T00:00:00+00:00",
    "2026-07-01T12:00:00Z": "2026-07-01T12:00:00+00:00",
    "2026-07-01T12:00:00+02:00": "2026-07-01T10:00:00+00:00",
}


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_so_long_ago_or_a_date(text: str) -> None:
    assert datetime.fromtimestamp(time_of(text, NOW_S), UTC).isoformat() == TIMES[text]


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'last week' is not a time; write how long ago, such as 7d"):
        time_of("last week", NOW_S)
