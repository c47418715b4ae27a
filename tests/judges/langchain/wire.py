"""A loopback server with each answer written by the test, byte by byte, and langchain-openai's requests to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.servers.openai_api import LoopbackServer, completion

Answer = Callable[["Exchanged"], None]


class Exchanged(BaseHTTPRequestHandler):
    """One request and its connection, for the test to answer."""

    protocol_version = "HTTP/1.1"
    body: dict[str, Any]

    def send(self, status: int, payload: bytes | dict[str, Any], **headers: str) -> None:
        """Answer whole; ``retry_after="2"`` is the header ``retry-after``."""
        body = json.dumps(payload).encode() if isinstance(payload, dict) else payload
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **named}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def say(self, text: str, finish: str = "stop", usage: Any = None, **headers: str) -> None:
        """Answer with a completion of one choice."""
        said = completion(text, self.body)
        said["choices"][0]["finish_reason"] = finish
        self.send(200, {**said, "usage": usage or said["usage"]}, **headers)

    def answer_with(self, choices: Any) -> None:
        """Answer with these choices."""
        self.send(200, {**completion("", self.body), "choices": choices})

    def refuse(self, status: int, message: str = "no", **about: Any) -> None:
        """Answer with an error as OpenAI writes it; ``headers`` are sent."""
        headers = about.pop("headers", {})
        self.send(
            status, {"error": {"message": message, "type": None, "param": None, "code": None, **about}}, **headers
        )

    def log_message(self, *_: Any) -> None:
        pass


class Wire(LoopbackServer):
    """Serves ``POST`` on 127.0.0.1 with the test's answers.

    Attributes:
        requests: every request body, in order of arrival.
        headers: headers of every request, in order.
        closing: set at the end, for an answer that goes on until then.
    """

    def __init__(self, answer: Answer) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        outer = self

        class Handler(Exchanged):
            def do_POST(self) -> None:
                self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(self.body)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                answer(self)

        super().__init__(Handler)
        self.url = f"{self.address}/v1"

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        super().__exit__()


def chat(wire: Wire, **settings: Any) -> Any:
    """Return a ``ChatOpenAI`` with the client's defaults, on this server."""
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(**{"model": "gpt-4o-mini", "base_url": wire.url, "api_key": "sk-secret", **settings})
