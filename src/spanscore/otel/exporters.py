"""OTEL_* variables → our own exporters and providers.

Everything of the SDK is imported on first use: metrics, logs and the OTLP exporters cost 100 to 300 ms.
"""

from __future__ import annotations

import importlib
import os
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from spanscore import semconv
from spanscore.otel.partial_success import PartialSuccess
from spanscore.otel.quiet_exporter import SIGNALS, QuietExporter, Signal

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

__all__ = [
    "OwnParts",
    "exporter_name",
    "has_endpoint",
    "is_sent_by_default",
    "otel_environment",
    "own_endpoints",
    "quiet_otlp_exporter",
    "sdk_disabled",
    "send_by_default_to",
]

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


class OwnParts:
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

        from spanscore.otel.hashed_resource import HashedResource

        told = Resource.create({"service.name": self._service_name} if self._service_name else {})
        instance = told.attributes.get("service.instance.id", str(uuid.uuid4()))  # the SDK gives one since 1.45
        return HashedResource({**told.attributes, "service.instance.id": instance}, told.schema_url)

    def reset(self) -> None:
        """Be another instance: in a forked child, for what is built from now on. Its parent's counters are not its own."""
        self.__dict__.pop("resource", None)

    def exporter(self, what: Signal) -> QuietExporter | None:
        """Return the exporter of a signal; None where ``OTEL_*_EXPORTER`` is ``none``.

        Raises:
            Exception: whatever the exporter raises for a variable it cannot read.
        """
        if what not in self._exporters:
            self._exporters[what] = None if exporter_name(what) == "none" else _exporter(what)
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


def _exporter(what: Signal) -> QuietExporter:
    transport = _transport(what)
    return quiet_otlp_exporter(what, _endpoint(what, transport), transport)


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
