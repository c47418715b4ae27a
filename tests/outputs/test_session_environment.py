"""An export reads the environment's proxies and certificates once, and is sent as if it had read them each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from spanscore.outputs.exporters import prepare_once, read_environment_once


class Sent(HTTPAdapter):
    """Keeps how requests would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []
        self.prepared: list[PreparedRequest] = []

    def send(self, request: PreparedRequest, *_: Any, **how: Any) -> Response:
        self.requests.append(how)
        self.prepared.append(request)
        answer = Response()
        answer.status_code, answer.request, answer.url, answer._content = 200, request, str(request.url), b""
        return answer


def a_session(sent: Sent) -> Session:
    session = Session()
    session.mount("http://", sent)
    return session


ADDRESSES = ["http://collector:4318/v1/traces", "http://elsewhere:4318/v1/traces"]


def test_each_request_is_sent_as_a_session_of_requests_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "elsewhere")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/a/bundle.pem")
    ours, theirs = Sent(), Sent()
    session, plain = a_session(ours), a_session(theirs)
    read_environment_once(session)

    for one in (session, plain):
        for url in ADDRESSES * 2:
            one.post(url, data=b"x", timeout=5, verify=True)
            one.post(url, data=b"x", verify="/own.pem", cert=("/a.pem", "/a.key"), proxies={"http": "http://other:1"})

    assert ours.requests == theirs.requests
    assert ours.requests[0]["proxies"]["http"] == "http://proxy:3128"
    assert ours.requests[0]["verify"] == "/a/bundle.pem"


def test_the_environment_is_read_once_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    session = a_session(sent)
    asked: list[str] = []
    read: Any = session.merge_environment_settings

    def counted(url: str, *rest: Any) -> Any:
        asked.append(url)
        return read(url, *rest)

    monkeypatch.setattr(session, "merge_environment_settings", counted)
    read_environment_once(session)

    for url in ADDRESSES * 3:
        session.post(url, data=b"x")

    assert asked == ADDRESSES
    assert len(sent.requests) == 6


def what_is_sent(sent: Sent) -> list[tuple[Any, ...]]:
    return [(one.method, one.url, dict(one.headers), one.body) for one in sent.prepared]


def test_what_is_prepared_once_is_sent_as_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Logins of a file, headers of the session and of the request, other bodies, other kinds of request."""
    (netrc := tmp_path / "netrc").write_text("machine elsewhere login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    ours, theirs = Sent(), Sent()
    session, plain = a_session(ours), a_session(theirs)
    prepare_once(session)

    for one in (session, plain):
        one.headers["x-tenant"] = "shop"
        for url in ADDRESSES * 2:
            one.post(url, data=b"x", headers={"x-own": "1"})
            one.post(url, data=b"longer", headers={"x-own": "2"})
            one.post(url, data=b"")
            one.post(url, data={"a": "form"})
            one.post(url, data=b"x", params={"page": "2"}, auth=("other", "login"), cookies={"of": "mine"})
            one.get(url)

    assert what_is_sent(ours) == what_is_sent(theirs)
    assert "Authorization" in ours.prepared[6].headers


def test_a_cookie_that_a_backend_sets_comes_with_the_next_request() -> None:
    sent = Sent()
    session = a_session(sent)
    prepare_once(session)

    session.post(ADDRESSES[0], data=b"x")
    session.cookies.set("node", "7")
    session.post(ADDRESSES[0], data=b"x")
    session.cookies.set("node", "8")
    session.post(ADDRESSES[0], data=b"x")

    assert [one.headers.get("Cookie") for one in sent.prepared] == [None, "node=7", "node=8"]


def test_an_address_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    session = a_session(sent)
    asked: list[Any] = []
    prepare: Any = session.prepare_request

    def counted(one: Any) -> Any:
        asked.append(one.url)
        return prepare(one)

    monkeypatch.setattr(session, "prepare_request", counted)
    prepare_once(session)

    for number, url in enumerate(ADDRESSES * 3):
        session.post(url, data=b"x" * (number + 1))

    assert asked == ADDRESSES
    assert [one.headers["Content-Length"] for one in sent.prepared] == ["1", "2", "3", "4", "5", "6"]
