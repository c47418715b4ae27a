"""A client's connections → connections of a judge's own, on which no step outlives the call's deadline.

The timeouts of HTTP clients are per read: an answer whose headers come byte by byte outlives them for hours, and no hook of a
client sees it. What is between a pool and its sockets does. Own connections, too, so that a judge that hangs takes none of
the application's, and a forked child none of its parent's.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from spanscore.core.threads import reset_in_child
from spanscore.judges.langchain.exchange import exchange

__all__ = ["own_connections"]

_PARTS = ("_connections", "_requests", "_optional_thread_lock", "_network_backend")
"""Of httpcore's pools. It has no public way to a copy of one; a pool without these stays as it is."""


def own_connections(transport: Any) -> Any:
    """Return a transport set up as this one, with connections of its own; the same one where its pool is not known."""
    pool = getattr(transport, "_pool", None)
    if pool is None or not all(hasattr(pool, part) for part in _PARTS):
        return transport
    mine = copy(transport)
    mine._pool = copy(pool)
    mine._pool._network_backend = _TimedBackend(pool._network_backend)
    _as_new(mine._pool)
    reset_in_child(mine._pool, _as_new)
    return mine


def _as_new(pool: Any) -> None:
    pool._connections, pool._requests = [], []
    pool._optional_thread_lock = type(pool._optional_thread_lock)()


class _TimedBackend:
    """httpcore's network backend: what it opens ends with the call."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, *address: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.connect_tcp(*address, timeout=_left_s(timeout), **options))

    def connect_unix_socket(self, *address: Any, timeout: float | None = None, **options: Any) -> Any:
        return _TimedStream(self._inner.connect_unix_socket(*address, timeout=_left_s(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _TimedStream:
    """httpcore's network stream, likewise."""

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
    asked = exchange()
    return timeout_s if asked is None else asked.left_s(timeout_s)
