"""Makes spanscore's own OpenTelemetry exporters and providers from ``OTEL_*`` variables. They log little, and count losses."""

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
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal

from spanscore import semconv
from spanscore.config.credentials import public_address
from spanscore.core.log import log_once, type_name
from spanscore.core.printable import shorten

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from requests import Response, Session


_CREDENTIAL_PROVIDER = "CREDENTIAL_PROVIDER"
"""Ending of the SDK's variables that name a user's session. Such a session is not changed, and its answers are not read."""


class PartialSuccess:
    """Counts the items that a backend rejected since the last ``take``. Used by the exporting thread only.

    The SDK's exporters treat a partly rejected export as a success, and drop the answer (``Export<Signal>PartialSuccess`` in
    ``opentelemetry-proto``). So answers over HTTP are read from the exporter's session.

    Attributes:
        is_known: whether answers are read; False over gRPC, and for a session of the user.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._rejected = 0
        self._why = ""

    def session(self) -> Session | None:
        """Return a session for an OTLP/HTTP exporter's ``session=``; None if the environment names one of the user."""
        from requests import Session  # a dependency of the OTLP/HTTP exporters

        if any(name.startswith("OTEL_") and name.endswith(_CREDENTIAL_PROVIDER) for name in os.environ):
            return None
        self.is_known = True
        session = Session()
        session.hooks["response"].append(self._read)
        return session

    def take(self) -> tuple[int, str]:
        """Return the number of rejected spans, points or events, and the backend's message; reset number and message."""
        rejected, why = self._rejected, self._why
        self._rejected, self._why = 0, ""
        return rejected, why

    def _read(self, response: Response, *_: Any, **__: Any) -> None:
        """Add up the rejections in one answer; one export may take several requests."""
        if response.ok and "protobuf" in response.headers.get("Content-Type", ""):
            rejected, why = read_rejections(response.content)
            self._rejected += rejected
            self._why = why or self._why


def read_rejections(answer: bytes) -> tuple[int, str]:
    """Return the number of rejected items and the message of an answer; all three signals have the same field numbers."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:  # not an OTLP answer, so no rejection
        return 0, ""
    return max(0, partial.rejected_spans), partial.error_message


Signal = Literal["traces", "metrics", "logs"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")

MAX_CHARS = 100
"""Most characters of an unknown message of an exporter or a backend in ``last()``."""
_ITEMS: dict[Signal, str] = {"traces": "spans", "metrics": "points", "logs": "events"}
"""Signal → plural noun for its items."""

_NOISY_LOGGERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http._common",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
    "urllib3.connectionpool",
)
"""Loggers of exports in the SDK and the exporters, in addition to the modules of the exporters' classes."""
_UNSUPPORTED = re.compile(r"code: (404|405|StatusCode\.UNIMPLEMENTED)\b")
"""Pattern in the message of an exporter whose backend does not accept the signal; Jaeger accepts no metrics and logs."""
_UNREACHABLE = {
    "connection refused": re.compile(r"refused", re.IGNORECASE),
    "name not resolved": re.compile(
        r"(?i)failed to resolve|name resolution|name or service not known|getaddrinfo|nodename nor servname|DNS"
    ),
}
"""Clause → pattern of the messages of urllib3, gRPC and the system. After such an error, the backend is unreachable."""
_CODE = re.compile(r"code: (\d{3})\b")
_GRPC_CODE = re.compile(r"StatusCode\.([A-Z_]+)")
_TRANSIENT = re.compile(r"Transient error (.+?) encountered")
_PHRASES = {status.phrase.lower(): status.value for status in HTTPStatus}
_LATE = re.compile(r"timed? ?out|DEADLINE_EXCEEDED", re.IGNORECASE)
_QUEUE_FULL = "Queue full"
"""First words of the SDK's log line about an item that a batch processor dropped."""

_exporting: ContextVar[QuietExporter | None] = ContextVar("spanscore_exporting", default=None)


class _LogFilter(logging.Filter):
    """Drops the log lines of spanscore's own exporters. Log lines of a user's exporters are unchanged."""

    def filter(self, record: logging.LogRecord) -> bool:
        exporter = _exporting.get()
        if exporter is None:
            return True
        exporter.note_log_record(record)
        return False


_log_filter = _LogFilter()


class _SuppressLogs:
    """The context manager of ``suppressing_logs``. It is a class, because a generator takes three times as long per span."""

    __slots__ = ("_exporter", "_token")

    def __init__(self, exporter: QuietExporter) -> None:
        self._exporter = exporter

    def __enter__(self) -> None:
        self._token = _exporting.set(self._exporter)

    def __exit__(self, *_: object) -> None:
        _exporting.reset(self._token)


class QuietExporter:
    """An SDK exporter of any signal that keeps its last result, and logs a failure at most hourly.

    It sends nothing more after the first 404, 405 (Phoenix) or UNIMPLEMENTED: the backend does not accept this signal.

    Args:
        inner: span, metric or log exporter; all other attributes are read from it.
        endpoint: address without credentials, for messages.
        partial: reads the partial rejections of a backend.

    Attributes:
        failures: number of exports that failed, or that the backend rejected in part.
        undelivered: number of spans, points or events that were lost: in failed exports, rejected by the backend, or dropped
            because too many were waiting.
        unreachable: whether the backend was unreachable at the latest try; still True while the exporter waits for the next.
        readable_place: returns the place at which the signal can be read without this exporter, as a clause; empty = no such
            place. If there is one, a failure loses nothing.
        on_success: called after an export that the backend accepted as a whole, on its thread.
        last_ok: whether the last export succeeded as a whole; None = no export has ended yet.
        last_ns: end of the last export, Unix time in ns.
    """

    def __init__(self, inner: Any, endpoint: str, what: Signal, partial: PartialSuccess) -> None:
        self._inner = inner
        self._what: Signal = what
        self._partial = partial
        self._partial_failure = ""
        self._sending = 0
        self._closing = False
        self._error = ""  # the exporter's message about the export in progress, or the last one
        self._cause = ""  # its message about the latest try, before a retry; the final error lacks the reason
        self._rejection: Any = None
        self.endpoint = endpoint
        self.failures = 0
        self.undelivered = 0
        self.unreachable = False
        self.readable_place: Callable[[], str] = str
        self.on_success: Callable[[], object] = object
        self.last_ok: bool | None = None
        self.last_ns = 0
        modules = {kind.__module__ for kind in type(inner).__mro__ if kind.__module__.startswith("opentelemetry")}
        for name in (*modules, *_NOISY_LOGGERS):
            filters = logging.getLogger(name).filters
            if _log_filter not in filters:
                # first, because the SDK's DuplicateFilter drops an application's line that equals one of ours
                filters.insert(0, _log_filter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def is_sending(self) -> bool:
        """Whether an export is in progress."""
        return bool(self._sending)

    @property
    def unsupported(self) -> bool:
        """Whether the backend rejected this signal, so that no further export is sent."""
        return self._rejection is not None

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Export through the inner exporter. Never raises, never logs. A result of None counts as a failure."""
        if self.unsupported:
            return self._rejection
        self._error = self._cause = self._partial_failure = ""
        self.unreachable = False
        self._sending = size = _size(args[0]) if args else 0
        with self.suppressing_logs():
            try:
                result = self._inner.export(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  (it becomes the last result; the SDK would print it)
                self._error = f"{type_name(error)}: {error}"
                result = None
        self._sending = 0
        self._record_result(result, size)
        return result

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Shut the inner exporter down, which interrupts the wait before a retry."""
        self._closing = True
        if self._sending and self._cause:  # at exit, the exporting thread may end before it logs this
            self._log_failure()
        with self.suppressing_logs():
            self._inner.shutdown(*args, **kwargs)

    def note_log_record(self, record: logging.LogRecord) -> None:
        """Keep a log line of the export in progress, because exporters report the reason of a failure only in the log."""
        words = record.getMessage()
        if words.startswith(_QUEUE_FULL):
            self.undelivered += 1
        elif record.levelno >= logging.ERROR:
            self._error = words
        elif record.levelno == logging.WARNING and not self._closing:
            self._cause = words
            self._check_reachability()

    def suppressing_logs(self) -> AbstractContextManager[None]:
        """Return a context manager that drops log lines of the SDK and the exporters on this thread."""
        return _SuppressLogs(self)

    def has_delivered_since(self, failures: int) -> bool:
        """Return whether the last export succeeded, and none has failed since ``failures`` had this value."""
        return bool(self.readable_place()) or (self.last_ok is not False and self.failures == failures)

    def last(self) -> str:
        """Return the last result in one clause, with its time and the number of undelivered items."""
        if self._sending and self.unreachable:
            return f"{self._reason()}, trying again{self._losses(self._sending)}"
        if self.last_ok is None:
            return f"nothing sent yet{self._losses()}"
        when = datetime.fromtimestamp(self.last_ns / 1e9, UTC).strftime("%H:%M:%S UTC")
        if self.last_ok:
            unseen = "" if self._partial.is_known else "; whether all was accepted is not known"
            return f"ok at {when}{self._losses()}{unseen}"
        if self._partial_failure:
            return f"accepted in part at {when}: {self._partial_failure}{self._losses()}"
        if self.unsupported:
            return f"stopped at {when}: the backend does not take this signal ({self._reason()})"
        return f"failed at {when}: {self._reason()}{self._losses()}"

    def _record_result(self, result: Any, size: int) -> None:
        self.last_ns = time.time_ns()
        succeeded = getattr(result, "name", "") == "SUCCESS"
        rejected, why = self._partial.take()
        self.last_ok = succeeded and not rejected
        if succeeded:
            self.unreachable = False
        if self.last_ok:
            self.on_success()
            return
        self.failures += 1
        if succeeded:
            self.undelivered += rejected
            message = f" ({shorten(why, MAX_CHARS)})" if why else ""
            self._partial_failure = f"{rejected} of {size} {_ITEMS[self._what]} rejected{message}"
            endpoint = self._base_endpoint()
            log_once(
                f"reject {endpoint}",
                f"{endpoint} rejects a part of each export: see scorer.status() for the number of lost items",
            )
            return
        if result is not None and _UNSUPPORTED.search(self._error):
            self._rejection = result
        if not self.unsupported or self._what == "traces":
            self.undelivered += size
            self._check_reachability()
            self._log_failure()

    def _check_reachability(self) -> None:
        if self._reason() in _UNREACHABLE:
            self.unreachable = True
            self._log_failure()

    def _log_failure(self) -> None:
        """Log the failure, at most hourly per endpoint and reason, because all signals of an endpoint fail for one reason."""
        was_interrupted = self._closing and not self._cause
        if self.readable_place() or was_interrupted:
            return
        endpoint, reason = self._base_endpoint(), self._reason()
        remedy = "see scorer.status() for the number of lost items"
        if reason in _UNREACHABLE:
            variable = f"{semconv.OTLP_ENDPOINT_ENV_PREFIX}ENDPOINT"
            remedy = f"is a Collector there? Set {variable}, or OTEL_SDK_DISABLED=true, which ends scoring"
        elif reason in ("HTTP 401", "HTTP 403", "gRPC UNAUTHENTICATED", "gRPC PERMISSION_DENIED"):
            remedy = f"set {semconv.OTLP_ENDPOINT_ENV_PREFIX}HEADERS to the credentials of the backend"
        elif self.unsupported:
            remedy = f"it does not accept {self._what}: correct {semconv.OTLP_ENDPOINT_ENV_PREFIX}ENDPOINT"
        log_once(f"export {endpoint} {reason}", f"nothing can be exported to {endpoint} ({reason}): {remedy}")

    def _reason(self) -> str:
        """Return the reason of the last failure, or of the latest try, as one clause."""
        reason = condense(self._cause) or condense(self._error)
        unknown = "not sent before the end" if self._closing else "no reason given"
        return reason or shorten(self._error or unknown, MAX_CHARS)

    def _base_endpoint(self) -> str:
        return self.endpoint.removesuffix(f"/v1/{self._what}")

    def _losses(self, waiting: int = 0) -> str:
        if self.readable_place():
            return ""
        lost = f"; {self._format_items(self.undelivered)} not delivered" if self.undelivered else ""
        return (f"; {self._format_items(waiting)} waiting" if waiting else "") + lost

    def _format_items(self, number: int) -> str:
        noun = _ITEMS[self._what]
        return f"{number} {noun.removesuffix('s') if number == 1 else noun}"


def condense(words: str) -> str:
    """Return the reason in an exporter's message as one clause; empty if the message is unknown."""
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
    if not hasattr(batch, "resource_metrics"):
        return len(batch)
    scopes = (scope for resource in batch.resource_metrics for scope in resource.scope_metrics)
    return sum(len(metric.data.data_points) for scope in scopes for metric in scope.metrics)


_OTLP_EXPORTERS: dict[Signal, tuple[str, str]] = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}
"""Signal → module and class; HTTP and gRPC use the same names."""

_DESTINATION = ("ENDPOINT", "PROTOCOL")
"""Endings of the variables with which a user chooses an exporter's destination."""


@dataclass(eq=False)
class _QuietProcessor:
    """A batch processor that logs no "Queue full" if the backend is slow; the exporter counts the dropped items."""

    _inner: Any
    _exporter: QuietExporter

    def on_end(self, span: Any) -> None:
        with self._exporter.suppressing_logs():
            self._inner.on_end(span)

    def on_emit(self, record: Any) -> None:
        with self._exporter.suppressing_logs():
            self._inner.on_emit(record)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class BuiltProviders:
    """Our own exporters and providers. Each is built at its first use, from the OTEL_* variables at that time.

    The SDK is imported at the first use, too, because metrics, logs and the OTLP exporters take 100 to 300 ms.

    Args:
        service_name: ``service.name``; None = ``OTEL_SERVICE_NAME``.
    """

    def __init__(self, service_name: str | None = None) -> None:
        self.environment = otel_environment()
        self._service_name = service_name
        self._exporters: dict[Signal, QuietExporter | None] = {}

    @cached_property
    def resource(self) -> Resource:
        """Resource of spanscore's providers, with an instance id, so that counters of several replicas do not collide."""
        from opentelemetry.sdk.resources import Resource

        from spanscore.core.codecs.sdk import HashedResource

        resource = Resource.create({"service.name": self._service_name} if self._service_name else {})
        instance = resource.attributes.get("service.instance.id", str(uuid.uuid4()))  # the SDK sets one since 1.45
        return HashedResource({**resource.attributes, "service.instance.id": instance}, resource.schema_url)

    def begin_instance(self) -> None:
        """Get a new instance id in a forked child, for later providers, because the child's counters are not the parent's."""
        self.__dict__.pop("resource", None)

    def exporter(self, what: Signal) -> QuietExporter | None:
        """Return the exporter of a signal; None if ``OTEL_*_EXPORTER`` is ``none``.

        Raises:
            Exception: any error of the exporter about a variable that it cannot read.
        """
        if what not in self._exporters:
            transport = _transport(what)
            self._exporters[what] = (
                None if is_off(what) else quiet_otlp_exporter(what, _endpoint(what, transport), transport)
            )
        return self._exporters[what]

    def provider(self, what: Signal) -> Any:
        """Return a new provider with the exporter of a signal. It has no exit hook, because the SDK's has no deadline."""
        exporter: Any = self.exporter(what)
        if what == "metrics":
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

            readers = [] if exporter is None else [PeriodicExportingMetricReader(exporter)]
            return MeterProvider(readers, resource=self.resource, shutdown_on_exit=False)
        provider: Any
        processor: Any
        if what == "traces":
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            provider = TracerProvider(resource=self.resource, shutdown_on_exit=False)
            add, processor = provider.add_span_processor, BatchSpanProcessor
        else:
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

            provider = LoggerProvider(resource=self.resource, shutdown_on_exit=False)
            add, processor = provider.add_log_record_processor, BatchLogRecordProcessor
        if exporter is not None:
            add(_QuietProcessor(processor(exporter), exporter))
        return provider


def otel_environment() -> dict[str, str]:
    """Return the present OTEL_* variables."""
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}


def sdk_disabled() -> bool:
    """Return whether ``OTEL_SDK_DISABLED`` is true."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def is_off(what: Signal) -> bool:
    """Return whether ``OTEL_*_EXPORTER`` is ``none``; any other value is OTLP."""
    return os.environ.get(f"OTEL_{what.upper()}_EXPORTER", "").strip().lower() == "none"


def is_sent_by_default(what: Signal) -> bool:
    """Return whether no variable sets the endpoint of a signal."""
    return not _setting(what, "ENDPOINT")


def has_endpoint() -> bool:
    """Return whether a variable configures OTLP. If not, the user may not expect a delivery to the default address."""
    return any(name.startswith(semconv.OTLP_ENDPOINT_ENV_PREFIX) for name in os.environ)


def send_by_default_to(endpoint: str) -> None:
    """Set the default OTLP/HTTP endpoint of exporters in this process, unless a variable sets one.

    It sets ``OTEL_EXPORTER_OTLP_ENDPOINT``. Only for a process of spanscore, before the first export.
    """
    prefix = semconv.OTLP_ENDPOINT_ENV_PREFIX
    if not any(value and name.startswith(prefix) and name.endswith(_DESTINATION) for name, value in os.environ.items()):
        os.environ[f"{prefix}ENDPOINT"] = endpoint


def own_endpoints() -> dict[Signal, str]:
    """Return signal → endpoint that spanscore's exporter would use now, without credentials; no disabled signals."""
    if sdk_disabled():
        return {}
    exported = [what for what in SIGNALS if (what == "traces" or has_endpoint()) and not is_off(what)]
    return {what: _endpoint(what, _transport(what)) for what in exported}


def quiet_otlp_exporter(
    what: Signal, where: str, transport: Literal["http", "grpc"] = "http", **options: Any
) -> QuietExporter:
    """Return spanscore's exporter for a signal, which reads partial rejections over HTTP.

    Args:
        what: the signal.
        where: endpoint for messages, without credentials.
        transport: ``http`` or ``grpc``.
        options: options of the SDK's exporter.
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
    """Return ``OTEL_EXPORTER_OTLP_[<SIGNAL>_]<NAME>``, the signal's own variable first; empty if neither is set."""
    prefix = semconv.OTLP_ENDPOINT_ENV_PREFIX
    return os.environ.get(f"{prefix}{what.upper()}_{name}") or os.environ.get(prefix + name) or ""


DEFAULT_ENDPOINTS: Final = {"grpc": "http://localhost:4317", "http": "http://localhost:4318"}
"""Transport → the specification's default endpoint."""


def _endpoint(what: Signal, transport: str) -> str:
    """Return an exporter's endpoint by the specification's rules, for messages: without user, password and query."""
    own = os.environ.get(f"{semconv.OTLP_ENDPOINT_ENV_PREFIX}{what.upper()}_ENDPOINT")
    url = own or _setting(what, "ENDPOINT") or DEFAULT_ENDPOINTS[transport]
    if not own and transport == "http":
        url = f"{url.removesuffix('/')}/v1/{what}"
    return public_address(url)
