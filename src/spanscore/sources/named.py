"""What an operator writes as SOURCE → the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from spanscore.config.kinds import seconds_of
from spanscore.errors import ConfigurationError
from spanscore.sources.asking import StoreClient
from spanscore.sources.files import OtlpFiles
from spanscore.sources.jaeger import JaegerStore
from spanscore.sources.stored import TraceStore
from spanscore.sources.tempo import TempoStore

__all__ = ["store_of", "time_of"]

_STORES: Final[Mapping[str, tuple[str, Callable[..., TraceStore]]]] = {
    "jaeger": ("service", JaegerStore),
    "tempo": ("q", TempoStore),
}
"""How a store is written → the parameter that it needs, and what asks it."""
_PATIENCE_S: Final = 7 * 86_400.0
"""How far back a store is asked, where nobody says."""


def store_of(source: str, *, since_s: float | None, until_s: float | None) -> TraceStore:
    """Return what reads a source.

    Args:
        source: a path, ``jaeger:http://host:16686?service=NAME`` or ``tempo:http://host:3200?q={…}``.
        since_s: since the epoch; None = of a store seven days ago, of files everything.
        until_s: likewise; None = now.

    Raises:
        ConfigurationError: it is none of these.
    """
    kind, _, address = source.partition(":")
    if kind not in _STORES:
        return OtlpFiles(Path(source))
    needed, make = _STORES[kind]
    url, _, asked = address.partition("?")
    query = _query(asked)
    if not query.get(needed):
        raise ConfigurationError(
            f"{source!r} does not say {needed}; write {kind}:{url or 'http://HOST:PORT'}?{needed}=…"
        )
    end_s = time.time() if until_s is None else until_s
    start_s = end_s - _PATIENCE_S if since_s is None else since_s
    return make(StoreClient(url), query, start_s, end_s)


def _query(asked: str) -> dict[str, str]:
    """Return the parameters; ``q`` is the last of them, as TraceQL has an ``&&`` of its own."""
    before, q, traceql = f"&{asked}".partition("&q=")
    given = dict(parse_qsl(before.strip("&"), keep_blank_values=True))
    return given | {"q": unquote(traceql)} if q else given


def time_of(text: str, now_s: float) -> float:
    """Return seconds since the epoch: of so long ago (``7d``), or of a date, with or without a time; without a zone it is UTC.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return now_s - seconds_of(text)
    except ValueError:
        pass
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no time; write how long ago, such as 7d or 12h, or 2026-07-01T12:00:00Z"
        ) from None
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
