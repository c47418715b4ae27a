"""A loopback server with OpenAI's chat completions and embeddings, and scripted answers.

with OpenAIServer(lambda request: '{"verdict": 1}') as server:
    ChatOpenAI(base_url=server.url, api_key="none")
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = Callable[[dict[str, Any]], "str | list[str] | dict[str, Any] | tuple[int, dict[str, str]]"]


class _Server(ThreadingHTTPServer):
    """Prints nothing of a client that hangs up, as one does with its connections when its process ends."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class LoopbackServer:
    """Serves HTTP on a free port of 127.0.0.1 inside a ``with`` block.

    Attributes:
        address: ``http://127.0.0.1:PORT``.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class OpenAIServer(LoopbackServer):
    """Serves ``POST /v1/chat/completions`` and ``POST /v1/embeddings`` on 127.0.0.1.

    Args:
        answer: request body → the assistant's text, or several of them, or its message (``called()``), or (status, headers)
            to fail with. One that asks for a stream gets it a word at a time.
        keep_alive: False hangs up after each answer, as some proxies do.

    Attributes:
        requests: every request body, in order of arrival.
        headers: the headers of every request, in the same order.
    """

    def __init__(self, answer: Answer, *, keep_alive: bool = True) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Message] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append(self.headers)
                said = answer(body)
                status, headers = said if isinstance(said, tuple) else (200, {})
                reply = {"error": {"message": "no"}} if isinstance(said, tuple) else _reply(said, body)
                streamed = status == 200 and body.get("stream", False)
                payload = _streamed(reply, body) if streamed else json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {
                    "Content-Type": "text/event-stream" if streamed else "application/json",
                    "Content-Length": str(len(payload)),
                    "Connection": "keep-alive" if keep_alive else "close",
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(Handler)
        self.url = f"{self.address}/v1"


def _reply(said: str | list[str] | dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    return completion(said, body) if "messages" in body else embedded(body)


def called(name: str, identity: str = "call-1", /, **arguments: Any) -> dict[str, Any]:
    """Return the message of an assistant that calls one tool."""
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _streamed(reply: dict[str, Any], body: dict[str, Any]) -> bytes:
    """Return a completion as server-sent events: text a word at a time, tool calls at once, usage if it was requested."""
    [choice] = reply["choices"]
    message, reason = choice["message"], choice["finish_reason"]
    deltas: list[dict[str, Any]] = [{"content": word} for word in re.findall(r"\S+\s*", message["content"] or "")]
    if "tool_calls" in message:
        deltas.append({"tool_calls": [{"index": at, **call} for at, call in enumerate(message["tool_calls"])]})
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": delta, "finish_reason": None}] for delta in ({"role": "assistant"}, *deltas)
    ]
    choices.append([{"index": 0, "delta": {}, "finish_reason": reason}])
    common = {**reply, "object": "chat.completion.chunk", "usage": None}
    events = [{**common, "choices": chosen} for chosen in choices]
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append({**common, "choices": [], "usage": reply["usage"]})
    lines = [json.dumps(event) for event in events]
    return "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()


def embedded(body: dict[str, Any]) -> dict[str, Any]:
    """Return the same vector for every text."""
    vectors = [{"object": "embedding", "index": place, "embedding": [1.0, 0.0]} for place in range(len(body["input"]))]
    usage = {"prompt_tokens": 20, "total_tokens": 20}
    return {"object": "list", "model": body.get("model", "fake"), "data": vectors, "usage": usage}


def completion(said: str | list[str] | dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion with this text, in one choice or in several; or with this message."""
    texts = said if isinstance(said, list) else [said]
    messages = [{"role": "assistant", "content": one} if isinstance(one, str) else one for one in texts]
    choices = [
        {"index": place, "finish_reason": "tool_calls" if "tool_calls" in message else "stop", "message": message}
        for place, message in enumerate(messages)
    ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body.get("model", "fake"),
        "choices": choices,
        "usage": {
            "prompt_tokens": 20,
            "completion_tokens": 5 * len(texts),
            "total_tokens": 20 + 5 * len(texts),
        },
    }


def judged(body: dict[str, Any]) -> str:
    """Answer any prompt of the judge, by the requested form, with a favourable verdict."""
    form = body.get("response_format", {}).get("json_schema", {}).get("name")
    if form == "Verdicts":
        return json.dumps({"statements": [{"statement": "It is so.", "reason": "it says so", "verdict": 1}]})
    if form == "Statements":
        return json.dumps({"statements": ["It is so."]})
    return json.dumps({"reason": "fine", "verdict": 1})
