"""A loopback server of OpenAI's API that limits, fails, hangs and lies, on one thread however many connections hang.

with FaultyOpenAI(limits=Limits(requests_per_s=10), latency_s=0.3) as server:
    ChatOpenAI(base_url=server.url, api_key="none")
    server.faults = [Fault(status(503), share=0.3)]     # openai_faults has the faults
    server.refuse()                                     # no listener until server.accept()
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from time import monotonic
from typing import Any

from tests.servers.openai_api import Answer, completion, embedded, judged
from tests.servers.openai_faults import Exchange, Fault, Play, ServedRequest, status, well

_OVERLOADED = "Rate limit reached for requests"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the provider; None = no limit.

    Attributes:
        places: requests at once; 429 beyond.
        queue: whether those beyond ``places`` wait, instead.
        requests_per_s, tokens_per_s: the pace of a bucket; tokens are those of the question, and of an answer of usual length.
        burst_s: seconds' worth that a bucket holds.
        tells: whether the headers of every response have the rest of the limits.
        retry_after_s: of a refusal's header; None = no header.
    """

    places: int | None = None
    queue: bool = False
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    burst_s: float = 1.0
    tells: bool = False
    retry_after_s: float | None = None


class FaultyOpenAI:
    """Serves ``POST …/chat/completions`` and ``…/embeddings`` on 127.0.0.1.

    Args:
        answer: request body → the assistant's text, or several of them.
        latency_s: from the request to its answer; a place is held as long.
        keep_bodies: False for a long run.

    Attributes:
        faults: the first fault with a matching window and share is played; may be replaced at any time.
        asked: every request, in order of arrival.
        requests: their bodies.
        inflight: requests that have no whole answer yet.
        most_inflight: the most of them at once.
    """

    def __init__(
        self,
        answer: Answer = judged,
        *,
        latency_s: float = 0.0,
        limits: Limits | None = None,
        faults: Sequence[Fault] = (),
        seed: int = 0,
        keep_bodies: bool = True,
    ) -> None:
        self.latency_s = latency_s
        self.faults = faults
        self.asked: list[ServedRequest] = []
        self.requests: list[dict[str, Any]] = []
        self.inflight = self.most_inflight = 0
        self._answer, self._keep_bodies, self._random = answer, keep_bodies, Random(seed)
        self._began_s = monotonic()
        self._limiter = _Limiter(limits or Limits())
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        # Holds the port while the server does not listen, so that no other process gets it and no client connects to itself.
        self._port_holder = socket.socket()
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind(("127.0.0.1", 0))
        self.port: int = self._port_holder.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-openai", daemon=True)

    def __enter__(self) -> FaultyOpenAI:
        self._thread.start()
        self.accept()
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._port_holder.close()

    def now_s(self) -> float:
        """Return seconds since ``begin()``: the time of faults and of requests."""
        return monotonic() - self._began_s

    def begin(self) -> None:
        """Have the time begin now."""
        self._began_s = monotonic()

    def limit(self, limits: Limits) -> None:
        """Allow this from now on."""
        self._limiter = _Limiter(limits)

    def refuse(self) -> None:
        """Close all connections, and stop listening."""
        self._do(self._stop_listening())

    def accept(self) -> None:
        """Listen, again."""
        self._do(self._listen())

    @property
    def per_question(self) -> Counter[str]:
        """How often each question was asked."""
        return Counter(one.question for one in list(self.asked))

    def answered(self) -> list[ServedRequest]:
        """Return the requests that were answered well."""
        return [one for one in list(self.asked) if one.status == 200]

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        if self._listener is None or not self._listener.is_serving():
            self._listener = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=1024)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _end(self) -> None:
        await self._stop_listening()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchanged(reader, writer):
                pass
        self._writers.discard(writer)
        writer.close()

    async def _exchanged(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Play one exchange; return whether the connection may have another."""
        path, raw = await _request(reader)
        asking = json.loads(raw)
        asked = ServedRequest(_question(asking), self.now_s())
        exchange = Exchange(asking, path, reader, writer, self._reply(asking), asked)
        self.asked.append(asked)
        if self._keep_bodies:
            self.requests.append(asking)
        with _Counted(self, asked):
            async with self._limiter.admitted(exchange.reply["usage"]["total_tokens"]) as refused:
                exchange.limit_headers = self._limiter.limit_headers()
                await self._play(exchange, refused)
        return exchange.keeps_alive

    async def _play(self, exchange: Exchange, refused: Play | None) -> None:
        if refused is not None:
            await refused(exchange)
            return
        play = self._chosen()
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        await play(exchange)

    def _chosen(self) -> Play:
        now_s = self.now_s()
        for fault in self.faults:
            if fault.from_s <= now_s < fault.until_s and self._random.random() < fault.share:
                return fault.play
        return well

    def _reply(self, asking: dict[str, Any]) -> dict[str, Any]:
        """Return the planned answer with its usage: a token for four characters."""
        if "messages" not in asking:
            tokens = sum(_tokens(text) for text in asking["input"])
            return {**embedded(asking), "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
        said = self._answer(asking)
        assert not isinstance(said, tuple), "a status is a fault: openai_faults.status()"
        tokens = _tokens(*(f"{message['content']}" for message in asking["messages"]))
        spoken = _tokens(*([said] if isinstance(said, str) else said))
        usage = {"prompt_tokens": tokens, "completion_tokens": spoken, "total_tokens": tokens + spoken}
        return {**completion(said, asking), "usage": usage}


@dataclass(slots=True)
class _Counted:
    """Counts a request in and, however it ends, out."""

    server: FaultyOpenAI
    asked: ServedRequest

    def __enter__(self) -> None:
        self.server.inflight += 1
        self.server.most_inflight = max(self.server.most_inflight, self.server.inflight)

    def __exit__(self, *_: object) -> None:
        self.server.inflight -= 1
        self.asked.ended_s = self.server.now_s()


class _Limiter:
    """Applies the limits: it admits, queues or rejects requests."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        self._limits, self._inside = limits, 0
        self._requests = _Bucket(limits.requests_per_s, limits.burst_s, clock)
        self._tokens = _Bucket(limits.tokens_per_s, limits.burst_s, clock)
        self._queue = asyncio.Semaphore(limits.places) if limits.queue and limits.places else None

    @asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncIterator[Play | None]:
        """Admit one request for the block; yields the refusal to play if it was rejected."""
        if self._refuses(tokens):
            yield status(
                429, code="rate_limit_exceeded", message=_OVERLOADED, retry_after=_text(self._limits.retry_after_s)
            )
            return
        self._inside += 1
        try:
            if self._queue is None:
                yield None
            else:
                async with self._queue:
                    yield None
        finally:
            self._inside -= 1

    def limit_headers(self) -> dict[str, str]:
        if not self._limits.tells:
            return {}
        return {**self._requests.limit_headers("requests"), **self._tokens.limit_headers("tokens")}

    def _refuses(self, tokens: int) -> bool:
        places = None if self._limits.queue else self._limits.places
        if places is not None and self._inside >= places:
            return True
        if not (self._requests.has(1) and self._tokens.has(tokens)):
            return True
        self._requests.take(1)
        self._tokens.take(tokens)
        return False


class _Bucket:
    """A pace; one without a limit is never empty."""

    def __init__(self, per_s: float | None, burst_s: float, clock: Callable[[], float]) -> None:
        self._per_s, self._clock = per_s, clock
        self._holds = 0.0 if per_s is None else max(1.0, per_s * burst_s)
        self._left, self._at_s = self._holds, clock()

    def has(self, amount: float) -> bool:
        return self._per_s is None or self._now() >= min(amount, self._holds)

    def take(self, amount: float) -> None:
        self._left = self._now() - amount

    def limit_headers(self, what: str) -> dict[str, str]:
        """Return it as OpenAI's headers."""
        if self._per_s is None:
            return {}
        left, prefix = self._now(), "x-ratelimit"
        return {
            f"{prefix}-limit-{what}": f"{self._holds:.0f}",
            f"{prefix}-remaining-{what}": f"{max(0, int(left))}",
            f"{prefix}-reset-{what}": f"{(self._holds - left) / self._per_s:.3f}s",
        }

    def _now(self) -> float:
        now_s = self._clock()
        if self._per_s is not None:
            self._left = min(self._holds, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return self._left


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Read one request: its path, and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    return head[0].split(" ")[1], await reader.readexactly(int(headers.get("content-length", 0)))


def _question(asking: dict[str, Any]) -> str:
    what = json.dumps(asking.get("messages", asking.get("input")), sort_keys=True)
    return blake2b(what.encode(), digest_size=8).hexdigest()


def _tokens(*texts: str) -> int:
    return sum(len(text) // 4 + 1 for text in texts)


def _text(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:g}"
