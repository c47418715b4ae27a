"""Copy the client of a user's model for a judge, with own connections, no retries and a deadline; and run blocking calls."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import copy_context
from copy import copy
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from spanscore.core.log import module_of, type_name
from spanscore.core.threads import DaemonPool, call_in_child
from spanscore.errors import JudgeError, JudgeTimeout
from spanscore.judges.langchain.errors import ParameterRefused, find_refusal
from spanscore.judges.langchain.message import (
    BatchAnswer,
    Exchange,
    UnsentRequest,
    current_exchange,
    is_plausible,
    rate_limit_headers,
)

T = TypeVar("T")

_UNLIMITED = 1_000_000
"""Number of threads that is never reached: the account limiters bound the open calls, and no judge waits for another."""
_IDLE_S = 2.0
"""Seconds after which an idle thread ends."""

_make_threads = partial(DaemonPool, name="spanscore-judge", idle_s=_IDLE_S)
_shared = _make_threads(_UNLIMITED)


class BlockingCalls:
    """Daemon threads for one judge's blocking calls, so that a call that hangs delays no other judge and no exit.

    A chat model's asynchronous HTTP client belongs to the loop that first used it, and integrations share one client between
    all models of an address (``langchain_openai`` caches it). If a judge used this client on spanscore's loop, the
    *application's* own ``ainvoke`` would fail with "bound to a different event loop" or "Event loop is closed". The blocking
    client belongs to no loop and is safe in any thread.

    Judges share their threads: one for each open call, plus the threads that were busy within the last two seconds.

    Args:
        at_once: most concurrent calls, on separate threads, for a model that runs in this process. None = the shared threads.
    """

    def __init__(self, at_once: int | None = None) -> None:
        self._threads = _shared if at_once is None else _make_threads(at_once)
        self._async_only = False

    async def run(self, call: Callable[[], T], otherwise: Callable[[], Awaitable[T]]) -> T:
        """Run a call on a thread, in the caller's context.

        A cancelled task waits until the call has ended, because the call occupies a place of the account. A task that is
        cancelled twice ends immediately.

        Args:
            otherwise: the asynchronous call, used after the model has turned out to have no blocking call.
        """
        if not self._async_only:
            try:
                return await _await_end(self.on_a_thread(call))
            except (NotImplementedError, TypeError) as error:
                # A model without ``_generate``, and LangChain's "Cannot invoke a coroutine function synchronously".
                if not isinstance(error, NotImplementedError) and "synchronously" not in str(error):
                    raise
                self._async_only = True
        return await otherwise()

    def on_a_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking call that has no asynchronous form, in the caller's context. A cancelled task abandons the call."""
        return asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, _call_safely, call)


async def _await_end(call: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        # Fetched: otherwise asyncio logs that it was never retrieved.
        call.add_done_callback(lambda late: late.cancelled() or late.exception())
        await asyncio.wait({call})
        raise


def _call_safely(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:  # a future takes it for the end of a generator and never completes
        raise RuntimeError("StopIteration") from error


_POOL_FIELDS = ("_connections", "_requests", "_optional_thread_lock", "_network_backend")
"""Private fields of httpcore's pools, which cannot be copied otherwise; a pool without these fields is used unchanged."""


def own_connections(transport: Any) -> Any:
    """Return a transport with the same settings and its own connections; ``transport`` itself if its pool is of unknown kind.

    A judge that hangs thus uses no connection of the application, and a forked child no connection of its parent. Each step on
    these connections ends at the call's deadline. The timeout of an HTTP client is one of each read: a response whose headers
    arrive byte by byte may take hours. Only a network backend, between pool and sockets, can end it.
    """
    pool = getattr(transport, "_pool", None)
    if pool is None or not all(hasattr(pool, part) for part in _POOL_FIELDS):
        return transport
    own = copy(transport)
    own._pool = copy(pool)
    own._pool._network_backend = _TimedBackend(pool._network_backend)
    _clear_pool(own._pool)
    call_in_child(own._pool, _clear_pool)
    return own


def _clear_pool(pool: Any) -> None:
    pool._connections, pool._requests = [], []
    pool._optional_thread_lock = type(pool._optional_thread_lock)()


class _TimedBackend:
    """httpcore's network backend with streams that end at the call's deadline."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, *address: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.connect_tcp(*address, timeout=_step_timeout(timeout), **options))

    def connect_unix_socket(self, *address: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.connect_unix_socket(*address, timeout=_step_timeout(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _TimedStream:
    """httpcore's network stream, on which no step outlives the call's deadline."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._inner.read(max_bytes, timeout=_step_timeout(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=_step_timeout(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, *settings: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.start_tls(*settings, timeout=_step_timeout(timeout), **options))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _step_timeout(timeout_s: float | None) -> float | None:
    current = current_exchange()
    return timeout_s if current is None else current.left_s(timeout_s)


_ENCODINGS = "gzip, deflate"
"""Requested content encodings. The standard library can decompress each of them up to a limit."""
_ANY_ZLIB = zlib.MAX_WBITS | 32
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Matches a string at each quote, closed or not: no part of a text is scanned twice."""
_ENCODING_HEADERS = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class GuardedTransport:
    """A transport around another transport that reads whole responses, within the call's deadline and size limit. Thread-safe.

    It wraps a transport of httpx or of httpx2, and imports neither.

    Args:
        is_ours: whether closing this transport closes ``inner``; False if the application owns ``inner``.
    """

    def __init__(self, inner: Any, *, is_ours: bool = False) -> None:
        self._inner = inner
        self._is_ours = is_ours

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be exiting
            self.close()

    def handle_request(self, request: Any) -> Any:
        """Send a request, and return its response; outside of an exchange it is passed on unchanged.

        Raises:
            JudgeError: ``too_big``, as soon as the limit is exceeded; ``unparseable`` for an encoding that was not requested.
            JudgeError: ``http_307`` and other redirects to another scheme, host or port, which might read the prompt or forge
                the response.
            JudgeTimeout: the response was not complete at the deadline.
            ParameterRefused: the provider refused a parameter of the request.
        """
        current = current_exchange()
        if current is None:
            return self._inner.handle_request(request)
        if current.keeps_request:
            current.request = UnsentRequest(request.url.path, request.read(), request.headers.get("anthropic-beta", ""))
            raise JudgeError("the request is kept for a batch")
        if current.batch_answer is not None:
            return _replay(current.batch_answer, request, current)
        origin = (request.url.scheme, request.url.host, request.url.port)
        if current.is_redirected_away(origin):
            raise JudgeError(
                "the judge's provider pointed to another scheme, host or port", error_type=f"http_{current.status}"
            )
        current.begin_request(origin)
        request.headers["Accept-Encoding"] = _ENCODINGS
        timeouts = request.extensions.get("timeout") or {}
        limited = {step: current.left_s(timeouts.get(step)) for step in ("connect", "read", "write", "pool")}
        request.extensions = {**request.extensions, "timeout": limited}
        response = self._inner.handle_request(request)
        try:
            current.status, current.headers = response.status_code, rate_limit_headers(response.headers)
            _record(current, _read_body(response, current))
        finally:
            response.close()
        _raise_refused(current)
        headers = [item for item in response.headers.multi_items() if item[0].lower() not in _ENCODING_HEADERS]
        return type(response)(
            response.status_code, headers=headers, content=current.body, extensions=response.extensions
        )

    def close(self) -> None:
        """Close the connections, if this transport owns them."""
        if self._is_ours:
            self._inner.close()


def _replay(answer: BatchAnswer, request: Any, exchange: Exchange) -> Any:
    """Return the answer of a batch as the response to a request, of the response class of the request's library."""
    if len(answer.body) > exchange.max_bytes:
        raise JudgeError(f"the answer has more than {exchange.max_bytes} bytes", error_type="too_big")
    exchange.status = answer.status
    _record(exchange, answer.body)
    _raise_refused(exchange)
    library = import_module(module_of(type(request)).partition(".")[0])
    return library.Response(answer.status, headers={"content-type": "application/json"}, content=exchange.body)


def _raise_refused(exchange: Exchange) -> None:
    """Raise for a refused parameter, before ``langchain_openai`` prints a warning about it to stderr."""
    refusal = find_refusal(exchange)
    if refusal is not None and refusal.parameter is not None:
        raise ParameterRefused(refusal.parameter, refusal.status)


def _record(exchange: Exchange, body: bytes) -> None:
    """Record a response without implausible token counts: integrations raise on them, and a good verdict would be lost."""
    if _count_values(body) > exchange.max_parts and _count_values(_STRING.sub(b"", body)) > exchange.max_parts:
        raise JudgeError(f"the answer has more than {exchange.max_parts} parts", error_type="too_big")
    document: dict[str, Any] = {}
    if body.lstrip()[:1] == b"{":
        with suppress(ValueError, RecursionError):  # the client raises its own error
            document = json.loads(body)
    usage = document.get("usage")
    if usage is not None and not (isinstance(usage, dict) and is_plausible(usage)):
        document = {**document, "usage": None}
        body = json.dumps(document).encode()
    exchange.record_response(body, document)


def _count_values(body: bytes) -> int:
    """Return an upper bound of the number of JSON values. A client takes up to 24 µs to read one, or 3 s for 2 MB of them."""
    return sum(map(body.count, (b",", b"[", b"{")))


def _read_body(response: Any, exchange: Exchange) -> bytes:
    chunks, size = [], 0
    for chunk in _decompress(response, exchange.max_bytes + 1):
        size += len(chunk)
        if size > exchange.max_bytes:
            raise JudgeError(f"the answer has more than {exchange.max_bytes} bytes", error_type="too_big")
        if exchange.is_late:
            raise JudgeTimeout("the answer was not whole at its deadline")
        chunks.append(chunk)
    return b"".join(chunks)


def _decompress(response: Any, at_most: int) -> Iterator[bytes]:
    """Yield a response's bytes in chunks of at most ``at_most``: a kilobyte of gzip may be a megabyte."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        yield from response.stream
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise JudgeError("the answer came in an encoding that was not asked for", error_type="unparseable")
    inflater = zlib.decompressobj(_ANY_ZLIB)
    try:
        for chunk in response.stream:
            yield inflater.decompress(chunk, at_most)
            if inflater.unconsumed_tail:  # there are more bytes: a further chunk, of any bytes, exceeds the limit
                yield b" " * at_most
    except zlib.error as error:
        raise JudgeError("the answer could not be inflated", error_type="unparseable") from error


_MAX_REDIRECTS = 3
_CLIENTS = ("root_client", "client", "_client")
_TIMEOUTS = ("request_timeout", "default_request_timeout", "timeout")
_MODEL_PARTS, _MODEL_LISTS = ("bound", "first", "last", "runnable", "default"), ("middle", "fallbacks")
"""Fields of LangChain's bindings, sequences, runnables with fallbacks, and configurable runnables that contain models."""
_ATTEMPTS_AT_CALL_TIME = frozenset({"langchain_google_genai", "langchain_mistralai", "langchain_cohere"})
"""Packages whose ``max_retries`` is a number of attempts: 1 means no retry (Google's documentation agrees)."""


class OwnClient(NamedTuple):
    """A copy of a model whose client belongs to the judge.

    Attributes:
        model: the chat model or the embeddings.
        attempts: most requests of one call.
        notes: limitations of the copy, a sentence each.
    """

    model: Any
    attempts: int = 1
    notes: tuple[str, ...] = ()


def own_client(model: Any, timeout_s: float) -> OwnClient:
    """Return a copy of a chat model or embeddings, without its own retries, limited in time and size.

    The object itself is returned if its client is of unknown kind. The user's object and its clients are never changed, because
    the application uses them. Known kinds, by the source code of the integrations:

    - clients generated by Stainless, copied with other options: ChatOpenAI, AzureChatOpenAI, their embeddings and their
      subclasses; ChatAnthropic; ChatGroq
    - an HTTP client, or an object that contains one: ChatMistralAI; ChatOllama
    - ``max_retries`` is read at call time: ChatGoogleGenerativeAI, ChatMistralAI, CohereEmbeddings
    """
    if (composite := _copy_composite(model, timeout_s)) is not None:
        return composite
    try:
        own, has_no_retries = _copy_model(model, timeout_s)
    except Exception:  # noqa: BLE001  (an unknown kind of client may raise anything in the calls above)
        own, has_no_retries = model, False
    retries = getattr(model, "max_retries", None)
    if has_no_retries or not isinstance(retries, int) or retries < 1:
        return OwnClient(own)
    note = f"the own retries of {type_name(model)} could not be switched off: an attempt may be {retries + 1} requests"
    return OwnClient(own, retries + 1, (note,))


def _copy_composite(model: Any, timeout_s: float) -> OwnClient | None:
    """Return a copy of a runnable that contains models, with copies of these; None for any other runnable."""
    has: Mapping[str, Any] = getattr(model, "__dict__", {})
    single = {name: own_client(has[name], timeout_s) for name in _MODEL_PARTS if hasattr(has.get(name), "ainvoke")}
    if not single:
        return None
    copies: dict[str, Any] = {name: own.model for name, own in single.items()}
    parts = [*single.values()]
    for name in filter(has.__contains__, _MODEL_LISTS):
        several = [own_client(part, timeout_s) for part in has[name]]
        copies[name] = [own.model for own in several]
        parts += several
    notes = dict.fromkeys(chain.from_iterable(part.notes for part in parts))
    return OwnClient(model.model_copy(update=copies), max(part.attempts for part in parts), tuple(notes))


def _copy_model(model: Any, timeout_s: float) -> tuple[Any, bool]:
    """Return a copy with its own clients, and whether its retries are off."""
    if not callable(getattr(model, "model_copy", None)):
        return model, False
    copied, copies = model.model_copy(), dict[int, Any]()
    _set_first(copied, ("streaming",), False)  # an answer is read whole
    for name in _CLIENTS:
        client = getattr(copied, name, None)
        if client is not None and (own := _copy_once(client, timeout_s, copies)) is not None:
            setattr(copied, name, own)
    by_client = any(hasattr(own, "max_retries") for own in copies.values())
    library = module_of(type(model)).partition(".")[0]
    if not by_client and library not in _ATTEMPTS_AT_CALL_TIME:
        return copied, False
    _set_first(copied, ("max_retries",), 0 if by_client else 1)
    _set_first(copied, _TIMEOUTS, timeout_s)
    return copied, True


def _copy_once(client: Any, timeout_s: float, copies: dict[int, Any]) -> Any:
    """Return the copy of an application's client; None if its kind is unknown. ``copies`` has the copies made so far, by id."""
    if id(client) not in copies:
        copies[id(client)] = _copy_client(client, timeout_s, copies)
    return copies[id(client)]


def _copy_client(client: Any, timeout_s: float, copies: dict[int, Any]) -> Any:
    if _is_http(client):
        return _guard_client(client)
    inside = getattr(client, "_client", None)
    if _is_http(inside) and callable(getattr(client, "with_options", None)):
        return client.with_options(max_retries=0, timeout=timeout_s, http_client=_guard_client(inside))
    inner = None if inside is None else _copy_once(inside, timeout_s, copies)
    if inner is None:
        return None
    if hasattr(client, "_post"):  # a resource of a client, such as its ``chat.completions``
        return type(client)(inner)
    own = copy(client)
    own._client = inner
    return own


def _is_http(client: Any) -> bool:
    """Whether the object is a client of httpx or httpx2, by its fields, because either library may be loaded."""
    return {"_transport", "_mounts"} <= getattr(client, "__dict__", {}).keys()


def _guard_client(client: Any) -> Any:
    """Return a copy of an HTTP client, cookies and hooks included, with guarded transports."""
    own = copy(client)
    own.max_redirects = min(own.max_redirects, _MAX_REDIRECTS)
    own._transport = _guard_transport(client._transport)
    own._mounts = {pattern: transport and _guard_transport(transport) for pattern, transport in client._mounts.items()}
    return own


def _guard_transport(transport: Any) -> GuardedTransport:
    own = own_connections(transport)
    return GuardedTransport(own, is_ours=own is not transport)


def _set_first(model: Any, names: tuple[str, ...], value: Any) -> None:
    for name in names:
        if name in type(model).model_fields:
            setattr(model, name, value)
            return
