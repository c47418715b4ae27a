"""A loopback server that plays OpenAI's and Anthropic's batch endpoints.

with BatchServer(judged) as server:
    spanscore evaluate … --batch, with OPENAI_BASE_URL=server.openai_url or ANTHROPIC_BASE_URL=server.url
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.servers.openai_api import LoopbackServer, completion

Fate = Callable[["Batch", dict[str, Any]], str | int]
"""The fate of a question: ``answered``, ``expired``, ``cancelled``, ``missing``, or the HTTP status of its error."""

_ERRORS = {400: "invalid_request_error", 429: "rate_limit_error", 500: "api_error"}


@dataclass
class Batch:
    """A batch that was created.

    Attributes:
        number: 1 for the first one.
        questions: id → request.
        is_cancelled: whether its cancellation was asked for.
        looks: number of times that its state was read.
    """

    number: int
    endpoint: str
    questions: dict[str, dict[str, Any]]
    is_cancelled: bool = False
    looks: int = 0
    refusal: str = ""
    file: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        return f"batch_{self.number}"


class BatchServer(LoopbackServer):
    """Serves files and batches of OpenAI, and message batches of Anthropic, on 127.0.0.1.

    Args:
        answer: request → the model's text.
        fate: the fate of a question when its batch ends.
        looks: number of times that a batch's state is read until it ends.

    Attributes:
        go_on: batches end when their state is read while it is set; cleared, they stay open.
        refuses: code with which every new batch of OpenAI fails; empty = none does.
        has_batches: whether the server has batch endpoints at all.
        batches: in order of their creation.
        sent_at_once: requests outside of batches.
        statuses: HTTP statuses of the next answers to a GET, before the true ones.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], str],
        fate: Fate = lambda batch, question: "answered",
        *,
        looks: int = 1,
    ) -> None:
        self.answer = answer
        self.looks = looks
        self.fate = fate
        self.go_on = threading.Event()
        self.go_on.set()
        self.refuses = ""
        self.has_batches = True
        self.batches: list[Batch] = []
        self.sent_at_once: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.changed = threading.Condition()
        self._files: dict[str, bytes] = {}
        super().__init__(_handler(self))
        self.url = self.address
        self.openai_url = f"{self.url}/v1"

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that a request may change."""
        with self.changed:
            assert self.changed.wait_for(condition, 60)

    def questions(self) -> list[int]:
        """Return the number of questions of each batch."""
        return [len(batch.questions) for batch in self.batches]

    # --- requests ----------------------------------------------------------------------------------------------

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """Answer a POST."""
        with self.changed:
            self.changed.notify_all()
            if path.endswith("/cancel"):
                batch = self._named(path.rpartition("/")[0])
                batch.is_cancelled = True
                return 200, self._state(path, batch)
            if path in ("/v1/files", "/v1/batches", "/v1/messages/batches") and self.has_batches:
                return 200, self._create(path, body)
            if path.startswith("/v1/files"):
                return 404, {"error": {"message": "no such path"}}
            request = json.loads(body)
            self.sent_at_once.append(request)
            return 200, completion([self.answer(request)] * request.get("n", 1), request)

    def _create(self, path: str, body: bytes) -> Any:
        if path == "/v1/files":
            name = f"file_{len(self._files)}"
            self._files[name] = body
            return {"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "a", "purpose": "batch"} | {
                "status": "processed"
            }
        request = json.loads(body)
        if path == "/v1/batches":
            lines = re.findall(rb'^\{"custom_id".*\}', self._files[request["input_file_id"]], re.MULTILINE)
            read = [json.loads(line) for line in lines]
            assert {line["url"] for line in read} == {request["endpoint"]}
            questions = {line["custom_id"]: line["body"] for line in read}
        else:
            questions = {line["custom_id"]: line["params"] for line in request["requests"]}
        batch = Batch(len(self.batches) + 1, request.get("endpoint", ""), questions, refusal=self.refuses)
        self.batches.append(batch)
        return self._state(path, batch)

    def get(self, path: str) -> tuple[int, Any]:
        """Answer a GET."""
        with self.changed:
            self.changed.notify_all()
            if self.statuses:
                return self.statuses.pop(0), {"error": {"message": "not now"}}
            if path.startswith("/v1/files/"):
                return 200, self._files[path.split("/")[3]]
            batch = self._named(path.removesuffix("/results"))
            if path.endswith("/results"):
                return 200, self._results(batch)
            batch.looks += 1
            return 200, self._state(path, batch)

    def _named(self, path: str) -> Batch:
        return self.batches[int(path.rpartition("_")[2]) - 1]

    def _has_ended(self, batch: Batch) -> bool:
        return batch.is_cancelled or (batch.looks >= self.looks and self.go_on.is_set())

    def _state(self, path: str, batch: Batch) -> Any:
        ended = self._has_ended(batch)
        if path.startswith("/v1/messages"):
            fates = [self._fate(batch, request) for request in batch.questions.values()] if ended else []
            counts = {"processing": 0 if ended else len(batch.questions), "succeeded": fates.count("answered")}
            counts |= {"expired": fates.count("expired"), "canceled": fates.count("cancelled")}
            counts["errored"] = sum(isinstance(fate, int) for fate in fates)
            dates = {"created_at": "2026-11-28T00:00:00Z", "expires_at": "2026-11-29T00:00:00Z"}
            url = f"{self.url}/v1/messages/batches/{batch.id}/results" if ended else None
            status = "ended" if ended else "in_progress"
            state = {"id": batch.id, "type": "message_batch", "processing_status": status, "results_url": url}
            return {**state, **dates, "request_counts": counts}
        status = "in_progress" if not ended else "cancelled" if batch.is_cancelled else "completed"
        state = {"id": batch.id, "object": "batch", "endpoint": batch.endpoint, "created_at": 1, "input_file_id": "a"}
        state |= {
            "completion_window": "24h",
            "request_counts": {"total": len(batch.questions), "completed": 0, "failed": 0},
        }
        if batch.refusal:
            return {**state, "status": "failed", "errors": {"object": "list", "data": [{"code": batch.refusal}]}}
        if ended:
            for kind, of_errors in (("output", False), ("error", True)):
                name = f"{kind}_{batch.id}"
                self._files[name] = self._file(batch, errors=of_errors)
                state[f"{kind}_file_id"] = name
            state["request_counts"] = {"total": len(batch.questions), "completed": len(batch.questions), "failed": 0}
        return {**state, "status": status}

    def _fate(self, batch: Batch, request: dict[str, Any]) -> str | int:
        return "cancelled" if batch.is_cancelled else self.fate(batch, request)

    def _file(self, batch: Batch, *, errors: bool) -> bytes:
        """Return the lines of OpenAI's output or error file, the last question first."""
        lines = []
        for question, request in reversed(batch.questions.items()):
            fate = self._fate(batch, request)
            line: dict[str, Any] = {"id": f"r_{question}", "custom_id": question, "response": None, "error": None}
            if fate == "answered":
                said = [self.answer(request)] * request.get("n", 1)
                line["response"] = {"status_code": 200, "body": completion(said, request)}
            elif isinstance(fate, int):
                error = {"message": "no", "type": _ERRORS[fate], "param": None, "code": None}
                line["response"] = {"status_code": fate, "body": {"error": error}}
            else:
                line["error"] = {"code": f"batch_{fate}", "message": "it was not processed"}
            if fate != "missing" and errors == (fate != "answered"):
                lines.append(json.dumps(line))
        return "\n".join(lines).encode()

    def _results(self, batch: Batch) -> bytes:
        """Return the lines of Anthropic's result file, the last question first."""
        lines = []
        for question, request in reversed(batch.questions.items()):
            fate = self._fate(batch, request)
            result: dict[str, Any] = {"type": "canceled" if fate == "cancelled" else fate}
            if fate == "answered":
                result = {"type": "succeeded", "message": _message(self.answer(request), request)}
            elif isinstance(fate, int):
                error = {"type": "error", "error": {"type": _ERRORS[fate], "message": "no"}}
                result = {"type": "errored", "error": error}
            if fate != "missing":
                lines.append(json.dumps({"custom_id": question, "result": result}))
        return "\n".join(lines).encode()


def _message(text: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return Anthropic's message with this text, by the tool that was asked for, if one was."""
    content: dict[str, Any] = {"type": "text", "text": text}
    if tools := request.get("tools"):
        content = {"type": "tool_use", "id": "t", "name": tools[0]["name"], "input": json.loads(text)}
    usage = {"input_tokens": 20, "output_tokens": 5}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "usage": usage}
    return {**about, "content": [content], "stop_reason": "end_turn", "stop_sequence": None}


def _handler(server: BatchServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self._send(*server.post(self._path(), self.rfile.read(int(self.headers.get("Content-Length") or 0))))

        def do_GET(self) -> None:
            self._send(*server.get(self._path()))

        def _path(self) -> str:
            return self.path.partition("?")[0]

        def _send(self, status: int, answer: Any) -> None:
            payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
