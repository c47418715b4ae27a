"""The page of a labelling session answers its own browser only: it checks token, host and origin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.stored.label_builders import draw_some, make_cases, open_session

from spanscore.core.codecs.annotation_file import read_annotations
from spanscore.errors import ConfigurationError
from spanscore.service.label_page import LabelPage


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def content(self) -> Any:
        return json.loads(self.text)


class Client(NamedTuple):
    """A client of one page."""

    page: LabelPage
    thread: Thread
    path: Path

    def send(self, method: str, target: str, body: Any = None, **headers: str) -> Response:
        """Send a request as the page does; an empty header is left out."""
        port = urlsplit(self.page.url).port or 0
        own = {"Authorization": f"Bearer {self.page.token}", "Host": f"127.0.0.1:{port}"}
        own |= {"Origin": self.page.origin} if method == "POST" else {}
        sent = {name: value for name, value in (own | headers).items() if value}
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, target, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        response = Response(answer.status, dict(answer.getheaders()), answer.read().decode())
        connection.close()
        return response

    @property
    def case(self) -> str:
        """Key of the present case."""
        return str(self.send("GET", "/state").content["case"]["key"])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    path = tmp_path / "labels.jsonl"
    page = LabelPage(open_session(path, draw_some(make_cases(5))), lambda nonce: f"<script nonce={nonce}>", 0)
    thread = Thread(target=page.serve, daemon=True)
    thread.start()
    yield Client(page, thread, path)
    if thread.is_alive():
        page.stop()
    thread.join()


def test_a_choice_is_answered_with_the_verdict_and_the_next_case(client: Client) -> None:
    key = client.case

    answer = client.send("POST", "/choose", {"case": key, "choice": 1, "comment": "No."}).content

    assert (answer["chosen"], answer["next"]["done"]) == ("fail", 1)
    assert answer["next"]["case"]["key"] != key
    (label,) = read_annotations(client.path)
    assert label.human is False


def test_note_skip_and_undo_reach_the_session(client: Client) -> None:
    key = client.case
    client.send("POST", "/choose", {"case": key, "choice": 0})

    assert client.send("POST", "/note", {"case": key, "comment": "Yes."}).status == 200
    skipped = client.send("POST", "/skip", {"case": client.case}).content
    undone = client.send("POST", "/undo", {}).content

    assert (skipped["skipped"], undone["skipped"], undone["done"]) == (1, 0, 1)


def test_finish_returns_the_summary_and_ends_the_server(client: Client) -> None:
    assert client.send("POST", "/finish", {}).content == {"summary": ["0 labels"]}

    client.thread.join(30)
    assert not client.thread.is_alive()


@pytest.mark.parametrize(
    ("method", "target", "headers", "error"),
    [
        ("GET", "/?token=wrong", {}, "token"),
        ("GET", "/", {}, "token"),
        ("GET", "/state", {"Authorization": ""}, "token"),
        ("GET", "/state", {"Authorization": "Bearer ü"}, "token"),
        ("GET", "/state", {"Host": "evil.example"}, "another host"),
        ("GET", "/state", {"Host": "localhost"}, "another host"),
        ("POST", "/undo", {"Authorization": "Bearer wrong"}, "token"),
        ("POST", "/undo", {"Origin": "http://evil.example"}, "another page"),
        ("POST", "/undo", {"Origin": ""}, "another page"),
    ],
)
def test_a_request_of_another_page_is_refused(
    client: Client, method: str, target: str, headers: dict[str, str], error: str
) -> None:
    response = client.send(method, target, {} if method == "POST" else None, **headers)

    assert (response.status, error in response.content["error"]) == (403, True)
    assert "Question" not in response.text


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        ("/choose", {"case": "another", "choice": 0}, 409),
        ("/choose", {"choice": 0}, 400),
        ("/choose", {"case": "k", "choice": "x"}, 400),
        ("/choose", [], 400),
        ("/choose", {"comment": "x" * 100_000}, 413),
        ("/other", {}, 404),
    ],
)
def test_a_wrong_request_changes_nothing(client: Client, target: str, body: Any, status: int) -> None:
    assert client.send("POST", target, body).status == status
    assert not client.path.exists()


def test_the_page_may_load_nothing_and_its_address_goes_nowhere(client: Client) -> None:
    response = client.send("GET", f"/?token={client.page.token}", Authorization="")

    policy = response.headers["Content-Security-Policy"]
    nonce = response.text.removeprefix("<script nonce=").removesuffix(">")
    assert "default-src 'none'" in policy
    assert f"script-src 'nonce-{nonce}'" in policy
    assert "unsafe" not in policy
    assert (response.headers["Referrer-Policy"], response.headers["Cache-Control"]) == ("no-referrer", "no-store")
    assert client.send("GET", f"/other?token={client.page.token}").status == 404


def test_a_label_that_cannot_be_written_is_an_error_on_the_page(client: Client) -> None:
    key = client.case
    client.path.mkdir()

    response = client.send("POST", "/choose", {"case": key, "choice": 0})

    assert (response.status, "cannot be written" in response.content["error"]) == (500, True)
    assert client.case == key


def test_a_taken_port_is_refused(client: Client) -> None:
    port = urlsplit(client.page.url).port or 0

    with pytest.raises(ConfigurationError, match=f"--port {port} cannot be listened on"):
        LabelPage(client.page.session, str, port)
