"""Faults of a model provider, or of a server in front of it: each is a function that plays one exchange.

    server.faults = [Fault(status(429, retry_after=5), until_s=30), Fault(hang, share=0.2)]

A play gets the exchange, and answers it or does not. Which one is played is the server's choice (``faulty_openai``).
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import inf
from typing import Any

from tests.servers.openai_api import completion

Play = Callable[["Exchange"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A play, for a share of the requests, in a window of the server's time (``FaultyOpenAI.now_s``)."""

    play: Play
    share: float = 1.0
    from_s: float = 0.0
    until_s: float = inf


@dataclass(slots=True)
class ServedRequest:
    """One request as the server saw it.

    Attributes:
        question: a hash of the messages, or of the texts to embed.
        at_s, ended_s: the server's time; None while it goes on.
        status: status of the response; 0 without a response.
        input_tokens, output_tokens: billed tokens.
    """

    question: str
    at_s: float
    ended_s: float | None = None
    status: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def answered(self, status: int, usage: Mapping[str, int]) -> None:
        self.status = status
        if status == 200:
            self.input_tokens, self.output_tokens = usage["prompt_tokens"], usage.get("completion_tokens", 0)


@dataclass(slots=True)
class Exchange:
    """One request and the connection that its answer goes to.

    Attributes:
        reply: text of a successful answer.
        asked: record of the request.
        limit_headers: headers of every response: the rest of the limits.
    """

    body: dict[str, Any]
    path: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    reply: dict[str, Any]
    asked: ServedRequest
    limit_headers: Mapping[str, str] = field(default_factory=dict)
    keeps_alive: bool = True

    async def send(self, payload: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer whole: bytes as they are, all else as JSON."""
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        await self.begin(status, {"Content-Length": str(len(raw)), **(headers or {})})
        await self.write(raw)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status line and the headers."""
        self.asked.answered(status, self.reply["usage"])  # first: whoever has the answer finds it here
        lines = {"Content-Type": "application/json", **self.limit_headers, **headers}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self.write(f"HTTP/1.1 {status} Told\r\n{text}\r\n".encode())

    async def write(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the client hangs up."""
        self.keeps_alive = False
        while await self.reader.read(1 << 16):
            pass


async def well(exchange: Exchange) -> None:
    """Answer."""
    await exchange.send(exchange.reply)


def status(
    number: int,
    *,
    code: str | None = None,
    kind: str | None = None,
    message: str = "no",
    retry_after: float | str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Play:
    """Fail with a status, in OpenAI's form of an error.

    Args:
        code, kind: ``error.code`` and ``error.type``.
        retry_after: the header's value: seconds, or a date.
    """
    error = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    text = {} if retry_after is None else {"Retry-After": f"{retry_after}"}

    async def play(exchange: Exchange) -> None:
        await exchange.send(error, number, {**text, **(headers or {})})

    return play


out_of_quota = status(
    429, code="insufficient_quota", kind="insufficient_quota", message="You exceeded your current quota."
)
not_allowed = status(401, code="invalid_api_key", kind="invalid_request_error", message="Incorrect API key provided.")
forbidden = status(403, code="permission_denied", kind="invalid_request_error", message="Not for you.")
no_such_model = status(404, code="model_not_found", kind="invalid_request_error", message="The model does not exist.")
filtered_question = status(
    400, code="content_filter", kind="invalid_request_error", message="The response was filtered by the policy."
)
too_long = status(
    400,
    code="context_length_exceeded",
    kind="invalid_request_error",
    message="This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
)
no_such_format = status(
    400,
    kind="invalid_request_error",
    message="Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
)


def says(text: str | None, *, finish: str = "stop", refusal: str | None = None) -> Play:
    """Answer with this text instead of the planned one.

    Args:
        finish: ``finish_reason``: ``length`` is an answer cut, ``content_filter`` one withheld.
        refusal: the model's own, in the field for it.
    """

    async def play(exchange: Exchange) -> None:
        reply = completion("", exchange.body)
        reply["choices"][0].update(finish_reason=finish)
        reply["choices"][0]["message"].update(content=text, refusal=refusal)
        await exchange.send({**reply, "usage": exchange.reply["usage"]})

    return play


def with_usage(**usage: Any) -> Play:
    """Answer well, with these entries in the usage: numbers that cannot be, words, details."""

    async def play(exchange: Exchange) -> None:
        await exchange.send({**exchange.reply, "usage": {**exchange.reply["usage"], **usage}})

    return play


def body(raw: bytes | str, *, kind: str = "text/html") -> Play:
    """Answer 200 with something that is no answer of this API."""
    payload = raw.encode() if isinstance(raw, str) else raw

    async def play(exchange: Exchange) -> None:
        await exchange.send(payload, headers={"Content-Type": kind})

    return play


async def no_choices(exchange: Exchange) -> None:
    """Answer with an empty list of choices."""
    await exchange.send({**exchange.reply, "choices": []})


async def hang(exchange: Exchange) -> None:
    """Accept, and never answer."""
    await exchange.gone()


def slow(seconds: float) -> Play:
    """Answer well, after so long."""

    async def play(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await well(exchange)

    return play


def drip(every_s: float = 1.0) -> Play:
    """Send the answer a byte at a time."""

    async def play(exchange: Exchange) -> None:
        raw = json.dumps(exchange.reply).encode()
        await exchange.begin(200, {"Content-Length": str(len(raw))})
        for place in range(len(raw)):
            await exchange.write(raw[place : place + 1])
            await asyncio.sleep(every_s)

    return play


async def cut_connection(exchange: Exchange) -> None:
    """Send half of the answer, and hang up."""
    raw = json.dumps(exchange.reply).encode()
    await exchange.begin(200, {"Content-Length": str(len(raw))})
    await exchange.write(raw[: len(raw) // 2])
    exchange.writer.transport.abort()
    exchange.keeps_alive = False


async def redirect_loop(exchange: Exchange) -> None:
    """Redirect the client to the same address."""
    await exchange.send({}, 307, {"Location": exchange.path})


def big(size: int = 10_000_000) -> Play:
    """Answer with so many bytes of prose."""
    raw = json.dumps(
        completion("It is so. " * (size // 10), {})
    ).encode()  # once: its duration does not depend on the client
    return body(raw, kind="application/json")


async def endless(exchange: Exchange) -> None:
    """Send a body without end, as fast as it is taken."""
    await exchange.begin(200, {"Transfer-Encoding": "chunked"})
    blanks = b" " * (1 << 16)
    while not exchange.writer.transport.is_closing():
        await exchange.write(b"%x\r\n%s\r\n" % (len(blanks), blanks))


def gzip_bomb(size: int = 512_000_000) -> Play:
    """Answer with a small body that inflates to so many bytes of blanks."""
    head, block, tail, blocks = _bomb(max(1, size // 1_000_000))

    async def play(exchange: Exchange) -> None:
        length = len(head) + blocks * len(block) + len(tail)
        await exchange.begin(200, {"Content-Encoding": "gzip", "Content-Length": str(length)})
        for part in chain([head], repeat(block, blocks), [tail]):
            await exchange.write(part)

    return play


def _bomb(blocks: int) -> tuple[bytes, bytes, bytes, int]:
    """Return a gzip stream in parts: a megabyte of blanks, flushed, may be sent again and again."""
    blanks = b" " * 1_000_000
    deflating = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = deflating.compress(blanks) + deflating.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(blocks):
        check = zlib.crc32(blanks, check)
    head = b"\x1f\x8b\x08" + bytes(7)
    tail = deflating.flush() + check.to_bytes(4, "little") + (blocks * len(blanks) % 2**32).to_bytes(4, "little")
    return head, block, tail, blocks
