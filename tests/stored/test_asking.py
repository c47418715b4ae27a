"""StoreClient: three tries, the waits that a store asks for, and no answer that is not whole."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from tests.servers.answering import answering
from tests.stored.stores import StoreDouble, served

from spanscore import ConfigurationError
from spanscore.stored.trace_stores import JaegerStore, StoreClient, StoreNotFound, StoreUnavailable, TempoStore

PATH = "/api/v3/services"


class Asked:
    """A store, its client, and the client's waiting time."""

    def __init__(self, url: str, store: StoreDouble) -> None:
        self.store, self.waited = store, list[float]()
        self._client = StoreClient(url, sleep=self.waited.append, timeout_s=5)

    def services(self, *faults: object) -> list[str]:
        self.store.faults[PATH] = [*faults]
        return self._client.ask(PATH, {}, lambda answer: list(answer["services"]))


@pytest.fixture
def asked() -> Iterator[Asked]:
    store = StoreDouble([])
    with served(store) as url:
        yield Asked(url, store)


@pytest.mark.parametrize("fault", [500, 503, "half"])
def test_a_third_try_is_made_after_longer_waits(asked: Asked, fault: object) -> None:
    assert asked.services(fault, fault) == ["bot"]
    assert asked.waited == [1.0, 2.0]


def test_a_store_that_is_overloaded_is_left_alone_for_as_long_as_it_says(asked: Asked) -> None:
    assert asked.services((429, 7), (429, 3_600)) == ["bot"]
    assert asked.waited == [7.0, 60.0]


def test_it_may_say_so_by_a_date(asked: Asked) -> None:
    assert asked.services((503, formatdate(0, usegmt=True)), (429, "soon")) == ["bot"]
    assert asked.waited == [0.0, 2.0]


@pytest.mark.parametrize(("fault", "because"), [(500, "500"), ("half", "no complete answer"), ((429, 1), "429")])
def test_after_three_it_is_given_up_and_says_why(asked: Asked, fault: object, because: str) -> None:
    with pytest.raises(StoreUnavailable, match=because):
        asked.services(fault, fault, fault)

    assert len(asked.store.asked) == 3


def test_what_is_not_there_is_asked_for_once(asked: Asked) -> None:
    with pytest.raises(StoreNotFound, match="404"):
        asked.services(404)

    assert len(asked.store.asked) == 1


def test_a_store_that_refuses_is_a_fault_of_the_configuration(asked: Asked) -> None:
    with pytest.raises(ConfigurationError, match=r"http://127.0.0.1:\d+: it answers 403"):
        asked.services(403)


def test_nobody_there_is_reported_after_three_tries() -> None:
    with served(StoreDouble([])) as url:
        pass
    waited = list[float]()

    with pytest.raises(StoreUnavailable, match="refused"):
        StoreClient(url, sleep=waited.append).ask(PATH, {}, len)

    assert waited == [1.0, 2.0]


@pytest.mark.parametrize("kind", [JaegerStore, TempoStore])
def test_a_store_that_is_not_there_is_a_fault_of_the_configuration(kind: Any) -> None:
    with served(StoreDouble([])) as url:
        pass
    store = kind(StoreClient(url, sleep=lambda _: None), {}, 0, 1)

    with pytest.raises(ConfigurationError, match="refused"):
        next(store.traces())


NO_STORE = [b"<html>Sign in</html>", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000]


@pytest.mark.parametrize("kind", [JaegerStore, TempoStore])
@pytest.mark.parametrize("body", NO_STORE, ids=["html", "bytes", "list", "null", "deep"])
def test_a_server_that_is_no_store_is_named(kind: Any, body: bytes) -> None:
    with answering(body) as url, pytest.raises(ConfigurationError, match=url):
        next(kind(StoreClient(url, sleep=lambda _: None), {}, 0, 1).traces())


@pytest.mark.parametrize(
    "url", ["localhost:3200", "ftp://host", "", "http://ada:secret@host", "http://ada:secret@[::1"]
)
def test_an_address_that_is_none_is_refused_and_no_password_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        StoreClient(url)

    assert "secret" not in str(refused.value)
