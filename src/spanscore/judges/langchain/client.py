"""Copy the client of a user's model for judges: own connections, no retries, a deadline, and threads for blocking calls."""

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
from spanscore.judges.langchain.errors import ParameterRefused, refusal_in
from spanscore.judges.langchain.message import Exchange, HeldRequest, StoredAnswer, exchange, is_believable, limits_in

T = TypeVar("T")

_NO_BOUND = 1_000_000
"""No limit, because the account limiters bound the open calls. A limit here would make one judge wait for another."""
_IDLE_S = 2.0


_make_threads = partial(DaemonPool, name="spanscore-judge", idle_s=_IDLE_S)
_shared = _make_threads(_NO_BOUND)


class BlockingCalls:
    """Daemon threads for one judge's blocking calls, so that a call that hangs delays no other judge and no exit.

    A chat model's asynchronous HTTP client belongs to the loop that first used it. Integrations share one client between all
    models of an address (``langchain_openai`` caches it). A judge on spanscore's loop left connections in the pool, on which
    the *application's* own ``ainvoke`` then failed with "bound to a different event loop" or "Event loop is closed". The
    blocking client belongs to no loop and is safe in any thread.

    Judges share their threads: one for each open call, plus the threads that were busy within the last two seconds.

    Args:
        at_once: most concurrent calls, on separate threads, for a model that runs in this process. None = the shared threads.
    """

    def __init__(self, at_once: int | None = None) -> None:
        self._threads = _shared if at_once is None else _make_threads(at_once)
        self._async_only = False

    async def run(self, call: Callable[[], T], otherwise: Callable[[], Awaitable[T]]) -> T:
        """Run a call on a thread, in the caller's context. If cancelled, it waits until the thread's call has ended.

        The caller thus waits until its place is free. If cancelled twice, it ends immediately.

        Args:
            call: the blocking call.
            otherwise: the asynchronous call, used after the model has turned out to have no blocking call.
        """
        if not self._async_only:
            try:
                return await _await_end(self._start(call))
            except (NotImplementedError, TypeError) as error:
                # A model without ``_generate``, and LangChain's "Cannot invoke a coroutine function synchronously".
                if not isinstance(error, NotImplementedError) and "synchronously" not in str(error):
                    raise
                self._async_only = True
        return await otherwise()

    async def on_a_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call that has no asynchronous form, in the caller's context. If cancelled, the call is abandoned."""
        return await self._start(call)

    def _start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, _raising, call)


async def _await_end(call: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        # Fetched: otherwise asyncio logs that it was never retrieved.
        call.add_done_callback(lambda late: late.cancelled() or late.exception())
        await asyncio.wait({call})
        raise


def _raising(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:  # a future takes it for the end of a generator and never completes
        raise RuntimeError("StopIteration") from error


_PARTS = ("_connections", "_requests", "_optional_thread_lock", "_network_backend")
"""Fields of httpcore's pools, which have no public copy; a pool without these fields is used unchanged."""


def own_connections(transport: Any) -> Any:
    """Return a transport with the same settings and its own connections; ``transport`` itself if its pool is of unknown kind.

    A judge that hangs thus uses no connection of the application, and a forked child no connection of its parent. No step on
    these connections outlives the call's deadline. HTTP clients only have timeouts per read: a response whose headers arrive
    byte by byte outlives these for hours. No hook of a client can end it; a network backend, between pool and sockets, can.
    """
    pool = getattr(transport, "_pool", None)
    if pool is None or not all(hasattr(pool, part) for part in _PARTS):
        return transport
    mine = copy(transport)
    mine._pool = copy(pool)
    mine._pool._network_backend = _TimedBackend(pool._network_backend)
    _as_new(mine._pool)
    call_in_child(mine._pool, _as_new)
    return mine


def _as_new(pool: Any) -> None:
    pool._connections, pool._requests = [], []
    pool._optional_thread_lock = type(pool._optional_thread_lock)()


class _TimedBackend:
    """httpcore's network backend with streams that end at the call's deadline."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, *address: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.connect_tcp(*address, timeout=_left_s(timeout), **options))

    def connect_unix_socket(self, *address: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.connect_unix_socket(*address, timeout=_left_s(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _TimedStream:
    """httpcore's network stream, on which no step outlives the call's deadline."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._inner.read(max_bytes, timeout=_left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=_left_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, *settings: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.start_tls(*settings, timeout=_left_s(timeout), **options))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left_s(timeout_s: float | None) -> float | None:
    current = exchange()
    return timeout_s if current is None else current.left_s(timeout_s)


_ENCODINGS = "gzip, deflate"
"""Requested content encodings. The standard library can inflate each of them up to a limit."""
_ANY_ZLIB = zlib.MAX_WBITS | 32
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Matches a string at each quote, closed or not: no part of a text is scanned twice."""
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class GuardedTransport:
    """A transport around another transport that reads whole responses, within the call's deadline and size limit. Thread-safe.

    It wraps any transport of httpx or of httpx2 and imports neither.

    Args:
        inner: the transport that sends.
        is_ours: whether closing this transport closes ``inner``; False if the application owns it.
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
            JudgeError: ``http_307`` and the like, instead of a redirect to another scheme, host or port: the prompt would
                be sent there, or a response from there would be trusted.
            JudgeTimeout: the response was not complete at the deadline.
            ParameterRefused: the provider refused a parameter of the request.
        """
        current = exchange()
        if current is None:
            return self._inner.handle_request(request)
        if current.is_held:
            current.request = HeldRequest(request.url.path, request.read(), request.headers.get("anthropic-beta", ""))
            raise JudgeError("the request is kept for a batch")
        if current.stored is not None:
            return _replay(current.stored, request, current)
        origin = (request.url.scheme, request.url.host, request.url.port)
        if current.is_led_away(origin):
            raise JudgeError(
                "the judge's provider pointed to another scheme, host or port", error_type=f"http_{current.status}"
            )
        current.sent(origin)
        request.headers["Accept-Encoding"] = _ENCODINGS
        waits = request.extensions.get("timeout") or {}
        limited = {step: current.left_s(waits.get(step)) for step in ("connect", "read", "write", "pool")}
        request.extensions = {**request.extensions, "timeout": limited}
        answer = self._inner.handle_request(request)
        try:
            current.status, current.headers = answer.status_code, limits_in(answer.headers)
            _keep(current, _read(answer, current))
        finally:
            answer.close()
        _raise_refused(current)
        kept = [(name, value) for name, value in answer.headers.multi_items() if name.lower() not in _OF_THE_BODY]
        return type(answer)(answer.status_code, headers=kept, content=current.body, extensions=answer.extensions)

    def close(self) -> None:
        """Close the connections, if this transport owns them."""
        if self._is_ours:
            self._inner.close()


def _replay(stored: StoredAnswer, request: Any, exchange: Exchange) -> Any:
    """Return the answer of a batch as the response to a request, of the response class of the request's library."""
    if len(stored.body) > exchange.max_bytes:
        raise JudgeError(f"the answer has more than {exchange.max_bytes} bytes", error_type="too_big")
    exchange.status = stored.status
    _keep(exchange, stored.body)
    _raise_refused(exchange)
    library = import_module(module_of(type(request)).partition(".")[0])
    return library.Response(stored.status, headers={"content-type": "application/json"}, content=exchange.body)


def _raise_refused(exchange: Exchange) -> None:
    """Raise for a refused parameter, before ``langchain_openai`` prints a warning about it to stderr."""
    refusal = refusal_in(exchange)
    if refusal is not None and refusal.parameter is not None:
        raise ParameterRefused(refusal.parameter, refusal.status)


def _keep(asked: Exchange, body: bytes) -> None:
    """Record a response without implausible token counts: integrations raise on them, and a good verdict would be lost."""
    if _parts(body) > asked.max_parts and _parts(_STRING.sub(b"", body)) > asked.max_parts:
        raise JudgeError(f"the answer has more than {asked.max_parts} parts", error_type="too_big")
    document: dict[str, Any] = {}
    if body.lstrip()[:1] == b"{":
        with suppress(ValueError, RecursionError):  # the client raises its own error
            document = json.loads(body)
    usage = document.get("usage")
    if usage is not None and not (isinstance(usage, dict) and is_believable(usage)):
        document = {**document, "usage": None}
        body = json.dumps(document).encode()
    asked.answered(body, document)


def _parts(body: bytes) -> int:
    """Return an upper bound of the number of JSON values. A client takes up to 24 µs to read one, or 3 s for 2 MB of them."""
    return sum(map(body.count, (b",", b"[", b"{")))


def _read(answer: Any, current: Exchange) -> bytes:
    chunks, size = [], 0
    for chunk in _decompress(answer, current.max_bytes + 1):
        size += len(chunk)
        if size > current.max_bytes:
            raise JudgeError(f"the answer has more than {current.max_bytes} bytes", error_type="too_big")
        if current.is_late:
            raise JudgeTimeout("the answer was not whole at its deadline")
        chunks.append(chunk)
    return b"".join(chunks)


def _decompress(answer: Any, at_most: int) -> Iterator[bytes]:
    """Yield a response's bytes in chunks of at most ``at_most``: a kilobyte of gzip may be a megabyte."""
    encoding = answer.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        yield from answer.stream
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise JudgeError("the answer came in an encoding that was not asked for", error_type="unparseable")
    inflater = zlib.decompressobj(_ANY_ZLIB)
    try:
        for chunk in answer.stream:
            yield inflater.decompress(chunk, at_most)
            if inflater.unconsumed_tail:  # more than the limit
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

    The object itself is returned if its client is of unknown kind. The user's object and its clients are never changed: the
    application uses them. Known kinds, by the integrations' source:

    - clients generated by Stainless, copied with other options: ChatOpenAI, AzureChatOpenAI, their embeddings and their
      subclasses; ChatAnthropic; ChatGroq
    - an HTTP client, or an object that contains one: ChatMistralAI; ChatOllama
    - ``max_retries`` is read at call time: ChatGoogleGenerativeAI, ChatMistralAI, CohereEmbeddings

    Args:
        timeout_s: timeout of one attempt.
    """
    if (made_of_others := _copy_composite(model, timeout_s)) is not None:
        return made_of_others
    try:
        mine, switched_off = _copy_model(model, timeout_s)
    except Exception:  # noqa: BLE001  (an unknown kind of client may raise anything in the calls above)
        mine, switched_off = model, False
    retries = getattr(model, "max_retries", None)
    if switched_off or not isinstance(retries, int) or retries < 1:
        return OwnClient(mine)
    note = f"the own retries of {type_name(model)} could not be switched off: an attempt may be {retries + 1} requests"
    return OwnClient(mine, retries + 1, (note,))


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
    mine, made = model.model_copy(), dict[int, Any]()
    _set_first(mine, ("streaming",), False)  # an answer is read whole
    for name in _CLIENTS:
        theirs = getattr(mine, name, None)
        if theirs is not None and (own := _copy_once(theirs, timeout_s, made)) is not None:
            setattr(mine, name, own)
    by_client = any(hasattr(own, "max_retries") for own in made.values())
    library = module_of(type(model)).partition(".")[0]
    if not by_client and library not in _ATTEMPTS_AT_CALL_TIME:
        return mine, False
    _set_first(mine, ("max_retries",), 0 if by_client else 1)
    _set_first(mine, _TIMEOUTS, timeout_s)
    return mine, True


def _copy_once(theirs: Any, timeout_s: float, made: dict[int, Any]) -> Any:
    """Return spanscore's copy of an application's client, the same copy at each call; None if its kind is unknown."""
    if id(theirs) not in made:
        made[id(theirs)] = _copy_client(theirs, timeout_s, made)
    return made[id(theirs)]


def _copy_client(theirs: Any, timeout_s: float, made: dict[int, Any]) -> Any:
    if _is_http(theirs):
        return _guard_client(theirs)
    inside = getattr(theirs, "_client", None)
    if _is_http(inside) and callable(getattr(theirs, "with_options", None)):
        return theirs.with_options(max_retries=0, timeout=timeout_s, http_client=_guard_client(inside))
    own = None if inside is None else _copy_once(inside, timeout_s, made)
    if own is None:
        return None
    if hasattr(theirs, "_post"):  # a resource of a client, such as its ``chat.completions``
        return type(theirs)(own)
    mine = copy(theirs)
    mine._client = own
    return mine


def _is_http(client: Any) -> bool:
    """Whether the object is a client of httpx or httpx2, by its fields, because either library may be loaded."""
    return {"_transport", "_mounts"} <= getattr(client, "__dict__", {}).keys()


def _guard_client(theirs: Any) -> Any:
    """Return a copy of an HTTP client, cookies and hooks included, with guarded transports."""
    mine = copy(theirs)
    mine.max_redirects = min(mine.max_redirects, _MAX_REDIRECTS)
    mine._transport = _guard_transport(theirs._transport)
    mine._mounts = {pattern: transport and _guard_transport(transport) for pattern, transport in theirs._mounts.items()}
    return mine


def _guard_transport(transport: Any) -> GuardedTransport:
    own = own_connections(transport)
    return GuardedTransport(own, is_ours=own is not transport)


def _set_first(model: Any, names: tuple[str, ...], value: Any) -> None:
    """Set the first of these fields that a model has."""
    for name in names:
        if name in type(model).model_fields:
            setattr(model, name, value)
            return
