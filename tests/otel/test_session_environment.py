"""An export reads the environment's proxies and certificates once, and is sent as if it had read them each time."""

from __future__ import annotations

from typing import Any

import pytest
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from spanscore.otel.session_environment import read_environment_once


class Sent(HTTPAdapter):
    """Keeps how requests would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []

    def send(self, request: PreparedRequest, *_: Any, **how: Any) -> Response:
        self.requests.append(how)
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
