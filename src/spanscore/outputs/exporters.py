"""``OTEL_*`` variables → exporters and providers of ours, which print nothing and report rejected items."""

from __future__ import annotations

import importlib
import logging
import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from spanscore import semconv
from spanscore.core.log import log_once, type_name

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from requests import PreparedRequest, Request, Response, Session

# What all requests to an address share, done once: reading what the environment names, and preparing all but the body.
#
# ``requests`` goes through all variables, three times over, before it sends anything: two fifths of what a small export
# costs. A quarter of the rest is the preparation: the address is taken apart, a login is looked for in a file, headers are
# merged.


def read_environment_once(session: Session) -> None:
    """Have a session of ours remember what it found; variables that change later are those of another process."""
    read: Any = session.merge_environment_settings
    found: dict[Any, dict[str, Any]] = {}

    def remembered(url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> dict[str, Any]:
        if proxies:
            return dict(read(url, proxies, stream, verify, cert))
        asked = url, stream, verify, cert
        if asked not in found:
            found[asked] = read(url, proxies, stream, verify, cert)
        return {**found[asked], "proxies": found[asked]["proxies"].copy()}

    session.merge_environment_settings = remembered  # type: ignore[method-assign]


def prepare_once(session: Session) -> None:
    """Have a session of ours remember the prepared request of an address, and give it the body of each that follows.

    Not where a backend has set a cookie: it may change with each answer. The session's own headers are those of the first.
    """
    prepare = session.prepare_request
    made: dict[Any, PreparedRequest] = {}

    def prepared(request: Request) -> PreparedRequest:
        others = request.params, request.files, request.json, request.auth, request.cookies, session.cookies
        if any(others) or not isinstance(request.data, bytes) or not request.data:
            return prepare(request)
        asked = request.method, request.url, *(request.headers or {}).items()
        if asked not in made:
            made[asked] = prepare(request)
            made[asked].body = None  # as large as an export
        again = made[asked].copy()
        again.prepare_body(request.data, None)
        return again

    session.prepare_request = prepared  # type: ignore[method-assign]


# The SDK's exporters call that a success and hand the answer to nobody; over HTTP it is read on its way through their
# session. ``opentelemetry-proto``: ``Export<Signal>PartialSuccess``.

_CREDENTIAL_PROVIDER = "CREDENTIAL_PROVIDER"
"""How the SDK's variables end that name a session of the user's own; it is left alone, and its answers are not seen."""


class PartialSuccess:
    """The rejections by a backend since the last ``take``. The thread that exports.

    Attributes:
        is_known: whether answers are seen; False over gRPC, and of a session that is not ours.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._rejected = 0
        self._why = ""

    def session(self) -> Session | None:
        """Return a session for the ``session=`` of an OTLP/HTTP exporter; None where the environment names the user's own."""
        from requests import Session  # brought along by the OTLP exporters, as they send through it

        if any(name.startswith("OTEL_") and name.endswith(_CREDENTIAL_PROVIDER) for name in os.environ):
            return None
        self.is_known = True
        session = Session()
        session.hooks["response"].append(self._read)
        read_environment_once(session)
        prepare_once(session)
        return session

    def take(self) -> tuple[int, str]:
        """Return the number of rejected spans, points or events, and the message of the backend; count from 0 again."""
        taken = self._rejected, self._why
        self._rejected, self._why = 0, ""
        return taken

    def _read(self, response: Response, *_: Any, **__: Any) -> None:
        """Read one answer. One request of an export may come after another: they add up."""
        if response.ok and "protobuf" in response.headers.get("Content-Type", ""):
            rejected, why = rejected_in(response.content)
            self._rejected += rejected
            self._why = why or self._why


def rejected_in(answer: bytes) -> tuple[int, str]:
    """Return the number and the message; the three signals have them under the same field numbers."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        found = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:  # no answer of OTLP: it rejects nothing
        return 0, ""
    return max(0, found.rejected_spans), found.error_message


Signal = Literal["traces", "metrics", "logs"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")

MAX_WORDS = 100
"""Characters of an exporter's or a backend's own words in ``last()``, where they are none that we know."""
_THINGS: dict[Signal, str] = {"traces": "spans", "metrics": "points", "logs": "events"}
"""The things in an export of each signal, for people."""

_NOISY_LOGGERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http._common",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
    "urllib3.connectionpool",
)
"""Loggers of exports, in the SDK and the exporters, besides the modules of the exporter's own classes."""
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


class _LogFilter(logging.Filter):
    """Keeps off stderr what is logged while one of *our* exporters works; a user's exporters log as ever."""

    def filter(self, record: logging.LogRecord) -> bool:
        exporter = _exporting.get()
        if exporter is None:
            return True
        exporter.heard(record)
        return False


_hush = _LogFilter()


class _SuppressLogs:
    """The block of ``hushed``. A generator's takes three times as long, and every span that leaves goes through one."""

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
        on_success: called after an export that the backend took as a whole, on its thread.
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
        self.on_success: Callable[[], object] = object
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
    def is_sending(self) -> bool:
        """Whether an export is under way."""
        return bool(self._sending)

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
        return _SuppressLogs(self)

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
        if succeeded and not rejected:
            self.unreachable = False
            self.on_success()
            return
        self.failures += 1
        if succeeded:
            self.unreachable = False
            self.undelivered += rejected
            message = f" ({_shortened(why)})" if why else ""
            self._in_part = f"{rejected} of {size} {_THINGS[self._what]} rejected{message}"
            where = self._where()
            log_once(
                f"reject {where}",
                f"{where} rejects a part of what is exported: see scorer.status() for what is lost",
            )
            return
        if result is not None and _UNSUPPORTED.search(self._error):
            self._rejection = result
        if not self.unsupported or self._what == "traces":
            self.undelivered += size
            self._notice_unreachable()
            self._complain()

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
    """Return the number of spans, events or points in a batch."""
    if not hasattr(batch, "resource_metrics"):
        return len(batch)
    scopes = (scope for resource in batch.resource_metrics for scope in resource.scope_metrics)
    return sum(len(metric.data.data_points) for scope in scopes for metric in scope.metrics)


# Everything of the SDK is imported on first use: metrics, logs and the OTLP exporters cost 100 to 300 ms.

_OTLP_EXPORTERS: dict[Signal, tuple[str, str]] = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}
"""Signal → module and class, which HTTP and gRPC name alike."""

_SAY_WHERE = ("ENDPOINT", "PROTOCOL")
"""How variables end that choose whom an exporter talks to: where one is set, all of that is the user's."""


class _QuietProcessor:
    """A batch processor that does not print "Queue full" in the application while our collector is slow."""

    def __init__(self, inner: Any, exporter: QuietExporter) -> None:
        self._inner = inner
        self._exporter = exporter

    def on_end(self, span: Any) -> None:
        with self._exporter.hushed():
            self._inner.on_end(span)

    def on_emit(self, record: Any) -> None:
        with self._exporter.hushed():
            self._inner.on_emit(record)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class BuiltProviders:
    """Exporters and providers of our own, each built when first asked for, by the OTEL_* variables of this moment.

    Args:
        service_name: ``service.name``; None = ``OTEL_SERVICE_NAME``.
    """

    def __init__(self, service_name: str | None = None) -> None:
        self.environment = otel_environment()
        self._service_name = service_name
        self._exporters: dict[Signal, QuietExporter | None] = {}

    @cached_property
    def resource(self) -> Resource:
        """The resource of our providers; with an instance id, as counters of several replicas must not collide."""
        from opentelemetry.sdk.resources import Resource

        from spanscore.core.codecs.sdk import HashedResource

        told = Resource.create({"service.name": self._service_name} if self._service_name else {})
        instance = told.attributes.get("service.instance.id", str(uuid.uuid4()))  # the SDK gives one since 1.45
        return HashedResource({**told.attributes, "service.instance.id": instance}, told.schema_url)

    def begin_instance(self) -> None:
        """Be another instance in a forked child, for providers built from now on: the parent's counters are not its own."""
        self.__dict__.pop("resource", None)

    def exporter(self, what: Signal) -> QuietExporter | None:
        """Return the exporter of a signal; None where ``OTEL_*_EXPORTER`` is ``none``.

        Raises:
            Exception: whatever the exporter raises for a variable it cannot read.
        """
        if what not in self._exporters:
            transport = _transport(what)
            off = exporter_name(what) == "none"
            self._exporters[what] = None if off else quiet_otlp_exporter(what, _endpoint(what, transport), transport)
        return self._exporters[what]

    def provider(self, what: Signal) -> Any:
        """Make a provider with this exporter behind it. Its end is ours: the SDK's own exit hook has no deadline."""
        # Each takes Any, as ours is no subclass of the SDK's exporters: that would import the SDK, and it serves three signals.
        make = {"traces": self._tracer_provider, "metrics": self._meter_provider, "logs": self._logger_provider}
        return make[what](self.exporter(what))

    def _tracer_provider(self, exporter: Any) -> Any:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=self.resource, shutdown_on_exit=False)
        if exporter is not None:
            batches: Any = _QuietProcessor(BatchSpanProcessor(exporter), exporter)
            provider.add_span_processor(batches)
        return provider

    def _meter_provider(self, exporter: Any) -> Any:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        readers = [] if exporter is None else [PeriodicExportingMetricReader(exporter)]
        return MeterProvider(readers, resource=self.resource, shutdown_on_exit=False)

    def _logger_provider(self, exporter: Any) -> Any:
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        provider = LoggerProvider(resource=self.resource, shutdown_on_exit=False)
        if exporter is not None:
            batches: Any = _QuietProcessor(BatchLogRecordProcessor(exporter), exporter)
            provider.add_log_record_processor(batches)
        return provider


def otel_environment() -> dict[str, str]:
    """Return the OTEL_* variables as they are now."""
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}


def sdk_disabled() -> bool:
    """Whether ``OTEL_SDK_DISABLED`` says so."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def exporter_name(what: Signal) -> Literal["otlp", "none"]:
    """Return what ``OTEL_*_EXPORTER`` asks of us; OTLP is all we have, so everything but ``none`` is that."""
    return "none" if os.environ.get(f"OTEL_{what.upper()}_EXPORTER", "").strip().lower() == "none" else "otlp"


def is_sent_by_default(what: Signal) -> bool:
    """Whether no variable names the endpoint of a signal."""
    return not _setting(what, "ENDPOINT")


def has_endpoint() -> bool:
    """Whether it is said where to send, so that what is sent is meant to arrive: nobody chose the default address."""
    return any(name.startswith(semconv.OTLP_ENDPOINT_ENV_PREFIX) for name in os.environ)


def send_by_default_to(endpoint: str) -> None:
    """Have what exporters of this process send leave to an endpoint of OTLP over HTTP, unless a variable says where.

    It sets ``OTEL_EXPORTER_OTLP_ENDPOINT``; for a process of our own, before anything is exported.
    """
    prefix = semconv.OTLP_ENDPOINT_ENV_PREFIX
    if not any(value and name.startswith(prefix) and name.endswith(_SAY_WHERE) for name, value in os.environ.items()):
        os.environ[f"{prefix}ENDPOINT"] = endpoint


def own_endpoints() -> dict[Signal, str]:
    """Return signal → where an exporter of our own would send it now, without credentials; without signals that are off."""
    asked = [what for what in SIGNALS if what == "traces" or has_endpoint()]
    on = [] if sdk_disabled() else [what for what in asked if exporter_name(what) == "otlp"]
    return {what: _endpoint(what, _transport(what)) for what in on}


def quiet_otlp_exporter(
    what: Signal, where: str, transport: Literal["http", "grpc"] = "http", **options: Any
) -> QuietExporter:
    """Return an exporter of ours for a signal, with what the backend rejects read where it can be.

    Args:
        where: it sends to, for people.
        options: of the SDK's exporter.
    """
    module, name = _OTLP_EXPORTERS[what]
    partial = PartialSuccess()
    if transport == "http":
        options["session"] = partial.session()
    make = getattr(importlib.import_module(f"opentelemetry.exporter.otlp.proto.{transport}.{module}"), name)
    return QuietExporter(make(**options), where, what, partial)


def _transport(what: Signal) -> Literal["http", "grpc"]:
    return "grpc" if _setting(what, "PROTOCOL") == "grpc" else "http"


def _setting(what: Signal, name: str) -> str:
    """Return ``OTEL_EXPORTER_OTLP_[<SIGNAL>_]<NAME>``, the signal's own first; empty when neither is set."""
    prefix = semconv.OTLP_ENDPOINT_ENV_PREFIX
    return os.environ.get(f"{prefix}{what.upper()}_{name}") or os.environ.get(prefix + name) or ""


def _endpoint(what: Signal, transport: str) -> str:
    """Return where an exporter sends, as the specification derives it, for people: without user, password and query."""
    own = os.environ.get(f"{semconv.OTLP_ENDPOINT_ENV_PREFIX}{what.upper()}_ENDPOINT")
    default = "http://localhost:4317" if transport == "grpc" else "http://localhost:4318"
    url = own or _setting(what, "ENDPOINT") or default
    if not own and transport == "http":
        url = f"{url.removesuffix('/')}/v1/{what}"
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
