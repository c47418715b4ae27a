"""Clients that are slow, hang up, or send invalid requests: each costs little, and none affects the others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, NotConnected, RemoteDisconnected
from pathlib import Path

import grpc
import pytest
from tests.servers.server import poll
from tests.service.listening import PROTOBUF, Running, a_request, listening

from spanscore.service import uvicorn_server
from spanscore.service.uvicorn_server import CONNECTIONS, UNAUTHENTICATED

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
HEAD = b"POST /v1/traces HTTP/1.1\r\nhost: h\r\ncontent-type: application/x-protobuf\r\n"


def connected(up: Running) -> socket.socket:
    host, _, port = up.http.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


# --- slow ones ---


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/tra", HEAD, HEAD + b"content-length: 100\r\n\r\nten bytes."],
    ids=["", "path", "head", "body"],
)
def test_a_connection_on_which_no_whole_request_comes_is_closed(sent: bytes) -> None:
    with listening(read_s=0.2) as up, closing(connected(up)) as slow:
        slow.sendall(sent)

        assert slow.recv(100) == b""
        assert up.post(a_request("a")).status == 200


def test_idle_connections_without_a_token_leave_room_for_who_has_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    knows = PROTOBUF | {"authorization": "Bearer s3cret"}
    with listening(token_file=str(tmp_path / "token")) as up, ExitStack() as open_ones:
        idle = [open_ones.enter_context(closing(connected(up))) for _ in range(CONNECTIONS + 5)]
        codes = [up.post(a_request("a"), knows).status for _ in range(3)]
        left = 0
        for one in idle:
            one.settimeout(0.001)
            with suppress(TimeoutError):
                assert one.recv(1) == b""
                continue
            left += 1

    assert codes == [200] * 3
    assert 0 < left <= UNAUTHENTICATED


def test_one_connection_too_many_is_refused_and_the_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "CONNECTIONS", 2)

    def post(client: HTTPConnection) -> int:
        client.request("POST", "/v1/traces", a_request("a"), PROTOBUF)
        with client.getresponse() as answer:
            answer.read()
            return answer.status

    with listening() as up, ExitStack() as open_ones:
        first, second, third = (open_ones.enter_context(closing(HTTPConnection(up.http))) for _ in range(3))
        codes = [post(first), post(second), post(third), post(first), post(second)]
        second.close()
        poll(lambda: post(third) == 200, deadline_s=30, what="a place for the third")

    assert codes == [200, 200, 503, 200, 200]


@pytest.mark.parametrize(("token", "codes"), [("s3cret", [200, 200]), ("guessed", [401])])
def test_a_connection_is_kept_between_requests_for_who_has_the_token(
    token: str, codes: list[int], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret")
    given = []
    with (
        listening(read_s=0.2, token_file=str(tmp_path / "token")) as up,
        closing(HTTPConnection(up.http)) as client,
        suppress(RemoteDisconnected, NotConnected, ConnectionError),
    ):
        for _ in range(2):
            client.request("POST", "/v1/traces", a_request("a"), PROTOBUF | {"authorization": f"Bearer {token}"})
            client.auto_open = 0  # type: ignore[assignment]  # the same connection, or none
            with client.getresponse() as answer:
                answer.read()
                given.append(answer.status)
            time.sleep(0.6)

    assert given == codes


def test_a_head_without_end_is_not_kept() -> None:
    with listening() as up, closing(connected(up)) as endless:
        endless.sendall(HEAD + b"x: ")

        with pytest.raises(OSError, match=r"reset|pipe"):
            poll(lambda: endless.sendall(b"x" * 60_000), deadline_s=30, what="its end", every_s=0.0)


def test_what_is_being_read_of_all_clients_together_is_bounded_and_the_next_is_to_send_again() -> None:
    with listening(limits={"request": 1_000}) as up:
        slow = [connected(up) for _ in range(17)]
        for one in slow:
            one.sendall(HEAD + b"content-length: 1000\r\n\r\n" + bytes(999))
        poll(lambda: up.post(a_request("a")).status == 429, deadline_s=30, what="a refusal")
        for one in slow:
            one.close()

        assert poll(lambda: up.post(a_request("a")).status == 200, deadline_s=30, what="room")
        assert up.receiver.counts.refused["hung_up"] == 17


def test_a_call_whose_message_never_comes_is_given_up_and_holds_up_no_other() -> None:
    never = threading.Event()

    def nothing() -> Iterator[bytes]:
        never.wait(60)
        yield b""

    with listening(read_s=0.3) as up, grpc.insecure_channel(up.grpc) as channel:
        slow = [channel.stream_unary(EXPORT).future(nothing()) for _ in range(60)]
        taken = channel.unary_unary(EXPORT)(a_request("a"), timeout=30)
        codes = {one.exception(timeout=30).code() for one in slow}
        never.set()

    assert (taken, codes) == (b"", {grpc.StatusCode.DEADLINE_EXCEEDED})
    assert up.receiver.counts.refused == {"slow": 60}


def test_a_call_without_a_message_is_refused_and_one_of_no_bytes_is_a_request_without_spans() -> None:
    with listening() as up, grpc.insecure_channel(up.grpc) as channel:
        taken = channel.unary_unary(EXPORT)(b"", timeout=30)
        refused = channel.stream_unary(EXPORT).future(iter(())).exception(timeout=30)

    assert (taken, refused.code()) == (b"", grpc.StatusCode.INVALID_ARGUMENT)
    assert up.receiver.counts.refused == {"unreadable": 1}


def test_a_client_that_hangs_up_amid_its_body_is_counted_and_nothing_is_taken() -> None:
    with listening() as up:
        with closing(connected(up)) as leaving:
            leaving.sendall(HEAD + b"content-length: 100\r\n\r\nten bytes.")
        assert poll(lambda: up.receiver.counts.refused, deadline_s=30, what="the hang-up") == {"hung_up": 1}

        assert up.receiver.spans == []
