"""QuietExporter: an SDK exporter that prints nothing, remembers how it went, and stops where it is refused."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Literal

from spanscore import semconv
from spanscore.core.log import log_once, type_name
from spanscore.otel.partial_success import PartialSuccess

__all__ = ["SIGNALS", "QuietExporter", "Signal"]

Signal = Literal["traces", "metrics", "logs"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")

MAX_WORDS = 100
"""Characters of an exporter's or a backend's own words in ``last()``, where they are none that we know."""
_THINGS: dict[Signal, str] = {"traces": "spans", "metrics": "points", "logs": "events"}
"""What an export of each signal carries, for people."""

_NOISY_LOGGERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http._common",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
    "urllib3.connectionpool",
)
"""Where SDK and exporters log what an export went through, besides the modules of the exporter's own classes."""
_UNSUPPORTED = re.compile(r"code: (404|405|StatusCode\.UNIMPLEMENTED)\b")
"""How the exporters, HTTP and gRPC, word the answer of a backend that takes no such signal (a plain Jaeger: metrics, logs)."""
_UNREACHABLE = {
    "connection refused": re.compile(r"refused", re.IGNORECASE),
    "name not resolved": re.compile(
        r"failed to resolve|name resolution|name or service not known|getaddrinfo|nodename nor servname|DNS",
        re.IGNORECASE,
    ),
}
"""Clause → how urllib3, gRPC and the system word it. Known at the first try."""
_CODE = re.compile(r"code: (\d{3})\b")
_GRPC_CODE = re.compile(r"StatusCode\.([A-Z_]+)")
_TRANSIENT = re.compile(r"Transient error (.+?) encountered")
_PHRASES = {status.phrase.lower(): status.value for status in HTTPStatus}
_LATE = re.compile(r"timed? ?out|DEADLINE_EXCEEDED", re.IGNORECASE)
_QUEUE_FULL = "Queue full"
"""How the SDK's batch processors begin to say that they drop what comes."""

_exporting: ContextVar[QuietExporter | None] = ContextVar("spanscore_exporting", default=None)


class _Hush(logging.Filter):
    """Keeps off stderr what is logged while one of *our* exporters works; a user's exporters log as ever."""

    def filter(self, record: logging.LogRecord) -> bool:
        exporter = _exporting.get()
        if exporter is None:
            return True
        exporter.heard(record)
        return False


_hush = _Hush()


class _Hushed:
    """The block; a generator's would take three times as long, and every span that leaves goes through one."""

    __slots__ = ("_exporter", "_token")

    def __init__(self, exporter: QuietExporter) -> None:
        self._exporter = exporter

    def __enter__(self) -> None:
        self._token = _exporting.set(self._exporter)

    def __exit__(self, *_: object) -> None:
        _exporting.reset(self._token)


class QuietExporter:
    """An SDK exporter of any signal that prints nothing, remembers how it went, and stops when it is refused.

    It stops for good after the first 404, 405 (Phoenix) or UNIMPLEMENTED: the backend does not take this signal.

    Args:
        inner: a span, metric or log exporter; what is not defined here is asked of it.
        endpoint: for people, without credentials.
        what: the signal it carries.
        partial: reads what the backend rejects of an export that it takes; None = that is not known.

    Attributes:
        undelivered: spans, points or events of exports that failed, those that the backend rejected, and those dropped as too
            many were waiting.
        unreachable: whether no backend was there at the latest try; also while the exporter waits for its next.
        instead: returns where the signal is read otherwise, so that nothing is lost without this exporter; empty = nowhere.
    """

    def __init__(
        self, inner: Any, endpoint: str = "", what: Signal = "traces", partial: PartialSuccess | None = None
    ) -> None:
        self._inner = inner
        self._what: Signal = what
        self._partial = partial or PartialSuccess()
        self._in_part = ""
        self._sending = 0
        self._closing = False
        self._error = ""
        self._cause = ""
        self._rejection: Any = None
        self.endpoint = endpoint
        self.failures = 0
        self.undelivered = 0
        self.unreachable = False
        self.instead: Callable[[], str] = str
        self.last_ok: bool | None = None
        self.last_ns = 0
        modules = {kind.__module__ for kind in type(inner).__mro__ if kind.__module__.startswith("opentelemetry")}
        for name in (*modules, *_NOISY_LOGGERS):
            filters = logging.getLogger(name).filters
            if (
                _hush not in filters
            ):  # first: the SDK's DuplicateFilter would take an application's line for one of ours
                filters.insert(0, _hush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def unsupported(self) -> bool:
        """Whether the backend said that it does not take this signal; nothing is sent any more."""
        return self._rejection is not None

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Export through the inner exporter. Never raises, never logs; None is a failure too."""
        if self.unsupported:
            return self._rejection
        self._error = self._cause = self._in_part = ""
        self.unreachable = False
        self._sending = size = _size(args[0]) if args else 0
        with self.hushed():
            try:
                result = self._inner.export(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  (kept as the last result: the SDK would print it)
                self._error = f"{type_name(error)}: {error}"
                result = None
        self._sending = 0
        self._keep(result, size)
        return result

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Shut the inner exporter down, which interrupts a retry that is waiting."""
        self._closing = True
        if self._sending and self._cause:  # here, as the thread that is interrupted may not come to it at an exit
            self._complain()
        with self.hushed():
            self._inner.shutdown(*args, **kwargs)

    def heard(self, record: logging.LogRecord) -> None:
        """Keep a log line of an export that is under way: only there do the exporters tell why."""
        words = record.getMessage()
        if words.startswith(_QUEUE_FULL):
            self.undelivered += 1
        elif record.levelno >= logging.ERROR:
            self._error = words
        elif record.levelno == logging.WARNING and not self._closing:
            self._cause = words  # why it tries again; the error then only says that it gave up
            self._notice_unreachable()

    def hushed(self) -> AbstractContextManager[None]:
        """Keep off stderr what the SDK or an exporter logs on this thread inside the block."""
        return _Hushed(self)

    def delivered_since(self, failures: int) -> bool:
        """Whether nothing failed since ``failures`` was this exporter's count, nor in the last export before."""
        return bool(self.instead()) or (self.last_ok is not False and self.failures == failures)

    def last(self) -> str:
        """Return the last result in one clause, with its time and how much could not be delivered."""
        if self._sending and self.unreachable:
            return f"{self._clause()}, trying again{self._losses(self._sending)}"
        if self.last_ok is None:
            return f"nothing sent yet{self._losses()}"
        when = datetime.fromtimestamp(self.last_ns / 1e9, UTC).strftime("%H:%M:%S UTC")
        if self.last_ok:
            unseen = "" if self._partial.is_known else "; whether all was accepted is not known"
            return f"ok at {when}{self._losses()}{unseen}"
        if self._in_part:
            return f"accepted in part at {when}: {self._in_part}{self._losses()}"
        if self.unsupported:
            return f"stopped at {when}: the backend does not take this signal ({self._clause()})"
        return f"failed at {when}: {self._clause()}{self._losses()}"

    def _keep(self, result: Any, size: int) -> None:
        self.last_ns = time.time_ns()
        succeeded = getattr(result, "name", "") == "SUCCESS"
        rejected, why = self._partial.take()
        self.last_ok = succeeded and not rejected
        if succeeded:
            self.unreachable = False
            if rejected:
                self._keep_rejected(rejected, size, why)
            return
        self.failures += 1
        if result is not None and _UNSUPPORTED.search(self._error):
            self._rejection = result
        if not self.unsupported or self._what == "traces":
            self.undelivered += size
            self._notice_unreachable()
            self._complain()

    def _keep_rejected(self, rejected: int, size: int, why: str) -> None:
        self.failures += 1
        self.undelivered += rejected
        said = f" ({_shortened(why)})" if why else ""
        self._in_part = f"{rejected} of {size} {_THINGS[self._what]} rejected{said}"
        log_once(
            f"reject {self._where()}",
            f"{self._where()} rejects a part of what is exported: see scorer.status() for what is lost",
        )

    def _notice_unreachable(self) -> None:
        if self._clause() in _UNREACHABLE:
            self.unreachable = True
            self._complain()

    def _complain(self) -> None:
        """Tell the operator; the three signals of one endpoint are one cause."""
        if self.instead() or (self._closing and not self._cause):  # the latter: given up by us, not by the backend
            return
        where, clause = self._where(), self._clause()
        cannot = f"nothing can be exported to {where} ({clause})"
        remedy = "see scorer.status() for what is lost"
        if clause in _UNREACHABLE:
            endpoint = f"{semconv.OTLP_ENDPOINT_ENV_PREFIX}ENDPOINT"
            remedy = f"is a Collector there? Set {endpoint}, or OTEL_SDK_DISABLED=true, which ends scoring"
        elif clause in ("HTTP 401", "HTTP 403", "gRPC UNAUTHENTICATED", "gRPC PERMISSION_DENIED"):
            remedy = f"set {semconv.OTLP_ENDPOINT_ENV_PREFIX}HEADERS to what it asks for"
        elif self.unsupported:
            remedy = f"it takes no {self._what} there: correct {semconv.OTLP_ENDPOINT_ENV_PREFIX}ENDPOINT"
        log_once(f"export {where} {clause}", f"{cannot}: {remedy}")

    def _clause(self) -> str:
        known = next(filter(None, map(_condensed, (self._cause, self._error))), "")
        words = known or self._error or ("not sent before the end" if self._closing else "no reason given")
        return words if known else _shortened(words)

    def _where(self) -> str:
        """Return the endpoint that the three signals have in common."""
        return self.endpoint.removesuffix(f"/v1/{self._what}")

    def _losses(self, waiting: int = 0) -> str:
        if self.instead():
            return ""
        lost = f"; {self._counted(self.undelivered)} not delivered" if self.undelivered else ""
        return (f"; {self._counted(waiting)} waiting" if waiting else "") + lost

    def _counted(self, number: int) -> str:
        things = _THINGS[self._what]
        return f"{number} {things.removesuffix('s') if number == 1 else things}"


def _shortened(words: str) -> str:
    return words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}…"


def _condensed(words: str) -> str:
    """Return the one clause that an exporter's words come to; empty where they are none that we know."""
    for clause, pattern in _UNREACHABLE.items():
        if pattern.search(words):
            return clause
    if code := _CODE.search(words):
        return f"HTTP {code[1]}"
    transient = _TRANSIENT.search(words)
    if transient and transient[1].lower() in _PHRASES:
        return f"HTTP {_PHRASES[transient[1].lower()]}"
    if _LATE.search(words):
        return "timed out"
    grpc = _GRPC_CODE.search(words)
    return f"gRPC {grpc[1]}" if grpc else ""


def _size(batch: Any) -> int:
    found = getattr(batch, "resource_metrics", None)
    if found is None:
        return len(batch)
    return sum(len(metric.data.data_points) for one in found for scope in one.scope_metrics for metric in scope.metrics)
