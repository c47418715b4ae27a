"""A client's HTTP transport → one that reads an answer whole, within the call's deadline, and no further than its bound.

It takes any transport of httpx or of httpx2 and imports neither: which one a client is built on is the client's affair.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from spanscore.errors import JudgeError, JudgeTimeout
from spanscore.judges.langchain.exchange import Exchange, exchange, limits_in
from spanscore.judges.langchain.refusal import ParameterRefused, refusal_in
from spanscore.judges.langchain.usage import is_believable

__all__ = ["GuardedTransport"]

_ENCODINGS = "gzip, deflate"
"""What is asked for, and what can be inflated to a bound with the standard library."""
_ANY_ZLIB = zlib.MAX_WBITS | 32
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Matches at each quote, closed or not: it never goes over a text twice."""
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class GuardedTransport:
    """Hands requests to another transport, and gives their answers back read and inflated. Any thread.

    Args:
        inner: the transport that sends.
        is_ours: whether its connections end with this one; else it stays its owner's, and open.
    """

    def __init__(self, inner: Any, *, is_ours: bool = False) -> None:
        self._inner = inner
        self._is_ours = is_ours

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be exiting
            self.close()

    def handle_request(self, request: Any) -> Any:
        """Send a request; outside of an exchange as it is.

        Raises:
            JudgeError: ``too_big``, as soon as that is known; ``unparseable`` for an encoding nobody asked for.
            JudgeError: ``http_307`` and the like, instead of a redirect to another scheme, host or port: the prompt would
                go there, or an answer from there would be believed.
            JudgeTimeout: the answer was not whole at the deadline.
            ParameterRefused: the provider does not know how it was asked.
        """
        asked = exchange()
        if asked is None:
            return self._inner.handle_request(request)
        origin = (request.url.scheme, request.url.host, request.url.port)
        if asked.is_led_away(origin):
            raise JudgeError(
                "the judge's provider pointed to another scheme, host or port", error_type=f"http_{asked.status}"
            )
        asked.sent(origin)
        request.headers["Accept-Encoding"] = _ENCODINGS
        waits = request.extensions.get("timeout") or {}
        limited = {step: asked.left_s(waits.get(step)) for step in ("connect", "read", "write", "pool")}
        request.extensions = {**request.extensions, "timeout": limited}
        answer = self._inner.handle_request(request)
        try:
            asked.status, asked.headers = answer.status_code, limits_in(answer.headers)
            _keep(asked, _read(answer, asked))
        finally:
            answer.close()
        _raise_for_parameter(asked)
        kept = [(name, value) for name, value in answer.headers.multi_items() if name.lower() not in _OF_THE_BODY]
        return type(answer)(answer.status_code, headers=kept, content=asked.body, extensions=answer.extensions)

    def close(self) -> None:
        """Let go of the connections, where they are ours."""
        if self._is_ours:
            self._inner.close()


def _raise_for_parameter(asked: Exchange) -> None:
    """Raise where the provider does not know how it was asked: ``langchain_openai`` prints a warning of it to stderr."""
    refusal = refusal_in(asked)
    if refusal is not None and refusal.parameter is not None:
        raise ParameterRefused(refusal.parameter, refusal.status)


def _keep(asked: Exchange, body: bytes) -> None:
    """Keep the answer, without tokens that cannot be: integrations raise over them, and a good verdict would be lost."""
    if _parts(body) > asked.max_parts and _parts(_STRING.sub(b"", body)) > asked.max_parts:
        raise JudgeError(f"the answer has more than {asked.max_parts} parts", error_type="too_big")
    said = _json(body)
    usage = said.get("usage")
    if usage is not None and not (isinstance(usage, dict) and is_believable(usage)):
        said = {**said, "usage": None}
        body = json.dumps(said).encode()
    asked.answered(body, said)


def _parts(body: bytes) -> int:
    """Return how many values JSON has at most. A client takes up to 24 µs to read each, which is 3 s for 2 MB of them."""
    return sum(map(body.count, (b",", b"[", b"{")))


def _json(body: bytes) -> dict[str, Any]:
    if body.lstrip()[:1] != b"{":
        return {}
    try:
        said: dict[str, Any] = json.loads(body)
    except (ValueError, RecursionError):  # the client's to say
        return {}
    return said


def _read(answer: Any, asked: Exchange) -> bytes:
    chunks, size = [], 0
    for chunk in _inflated(answer, asked.max_bytes + 1):
        size += len(chunk)
        if size > asked.max_bytes:
            raise JudgeError(f"the answer has more than {asked.max_bytes} bytes", error_type="too_big")
        if asked.is_late:
            raise JudgeTimeout("the answer was not whole at its deadline")
        chunks.append(chunk)
    return b"".join(chunks)


def _inflated(answer: Any, at_most: int) -> Iterator[bytes]:
    """Yield an answer's bytes, no chunk longer than what is asked for: a kilobyte of gzip may be a megabyte."""
    encoding = answer.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return iter(answer.stream)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise JudgeError("the answer came in an encoding that was not asked for", error_type="unparseable")
    return _unzipped(answer.stream, at_most)


def _unzipped(chunks: Iterable[bytes], at_most: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj(_ANY_ZLIB)
    try:
        for chunk in chunks:
            yield inflater.decompress(chunk, at_most)
            if inflater.unconsumed_tail:  # more than may be read
                yield b" " * at_most
    except zlib.error as error:
        raise JudgeError("the answer could not be inflated", error_type="unparseable") from error
