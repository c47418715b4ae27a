"""Chat models that answer without a provider, and a provider that answers without a model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel, Field

from spanscore.core.prompt import Prompt, Reply

CRITIQUE_JSON = '{"reason": "polite", "verdict": 1}'


class Answer(BaseModel):
    """A verdict with its reason."""

    reason: str = ""
    verdict: int


QUESTION = Prompt(step="critique", instruction="Is it polite?", evidence={"response": "Good morning."}, output=Answer)


class PlainModel(BaseChatModel):
    """A model without tools or structured output. ``before`` runs inside the call."""

    text: str = CRITIQUE_JSON
    before: Callable[[], None] = lambda: None
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    model_name: str = "plain-1"

    @property
    def _llm_type(self) -> str:
        return "plain"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.before()
        self.seen.append(messages)
        return _result(AIMessage(self.text, usage_metadata=_usage(), response_metadata={"model_name": "plain-1-0601"}))


class ToolModel(PlainModel):
    """A model with tool calls as structured output. ``error`` is raised by every structured call."""

    args: dict[str, Any] = Field(default_factory=lambda: {"reason": "polite", "verdict": 1})
    error: Exception | None = None
    tools_seen: list[Any] = Field(default_factory=list)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=list(tools))

    def _generate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> ChatResult:
        if "tools" not in kwargs:
            return super()._generate(messages)
        self.before()
        self.tools_seen.append(kwargs["tools"])
        if self.error:
            raise self.error
        call = {"name": kwargs["tools"][0]["title"], "args": self.args, "id": "1", "type": "tool_call"}
        return _result(AIMessage("", tool_calls=[call], usage_metadata=_usage()))


class RefusingModel(PlainModel):
    """A model that raises."""

    error: Exception

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise self.error


class ProviderError(Exception):
    """An exception of providers' clients: a status, and a response with headers."""

    def __init__(
        self, status_code: int, headers: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> None:
        super().__init__("the prompt was: SECRET")
        self.status_code = status_code
        self.body = body
        self.response = type("Response", (), {"headers": headers or {}, "status_code": status_code})()


class Answers:
    """A judge that gives prepared replies or raises prepared errors, in order; the last one for ever."""

    model = "answers"

    def __init__(self, *answers: str | BaseException) -> None:
        self._answers = list(answers)
        self.asked: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return Reply(text=answer, model="answers-1", input_tokens=10, output_tokens=2)


@contextmanager
def openai_server() -> Iterator[str]:
    """Serve OpenAI's chat completions on loopback; yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps(_COMPLETION).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


_COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o-mini-2024-07-18",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": CRITIQUE_JSON}}],
    "usage": {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48},
}


def _usage() -> Any:
    return {"input_tokens": 30, "output_tokens": 5, "total_tokens": 35}


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])
