"""ResolvedProvider: the provider that is used for a signal, whose it is, and whether what it holds came through."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from opentelemetry import metrics, trace

from spanscore.otel.exporters import exporter_name, sdk_disabled
from spanscore.otel.quiet_exporter import QuietExporter, Signal

__all__ = [
    "DELTA",
    "IN_POD_ONLY",
    "NO_METRICS",
    "Page",
    "ProviderRow",
    "ResolvedProvider",
    "global_provider",
    "no_provider",
]

Origin = Literal["given", "global", "own", "none"]

NO_METRICS = (
    "no metrics, so no alerts: set a MeterProvider, or call scorer.serve_metrics(9464), in a pod with host='0.0.0.0'"
)
IN_POD_ONLY = (
    "the metrics are served on this pod's loopback address alone, where no Prometheus reads them: "
    'serve_metrics: {port: 9464, host: "0.0.0.0"}'
)
NO_LOGS = "no provider is set"
DELTA = (
    "metrics are sent as delta: the rules need cumulative; the Collector file of integrations/collector makes them so"
)

_log = logging.getLogger("spanscore")


class Page(Protocol):
    """Where the metrics are served to a Prometheus."""

    @property
    def is_loopback(self) -> bool:
        """Whether it is reachable from this machine, or pod, only."""


class ProviderRow(NamedTuple):
    """One line of ``describe()``.

    Attributes:
        what: ``traces``, ``metrics`` or ``logs``.
        which: ``given`` as argument, ``global``, ``own``, ``none``, or ``served``, to a Prometheus.
        endpoint: where our own exporter sends, without credentials; empty for providers that are not ours.
        last: the last result with its time, or why nothing is sent; empty for providers that are not ours.
    """

    what: str
    which: str
    endpoint: str
    last: str

    def served(self, url: str) -> ProviderRow:
        """Return the row; of metrics that no provider exports, but a page serves, it says where. An empty ``url`` = no page."""
        if not url or self.what != "metrics" or self.which != "none":
            return self
        return self._replace(which="served", endpoint=url, last="")


@dataclass(frozen=True, slots=True)
class ResolvedProvider:
    """One provider, whose it is, and our exporter behind it where it is ours and exports."""

    what: Signal
    provider: Any
    which: Origin
    exporter: QuietExporter | None = None
    note: str = ""

    @property
    def is_exported(self) -> bool:
        """Whether our own exporter sends to a backend that takes this signal."""
        return self.exporter is not None and not self.exporter.unsupported

    def flush(self) -> bool:
        """Flush, without a deadline. For our own: whether everything came through."""
        return self._delivers(getattr(self.provider, "force_flush", lambda: True))

    def close(self) -> bool:
        """Shut down, without a deadline; what is still held is exported first. Whether everything came through."""
        return self._delivers(self.provider.shutdown)

    def interrupt(self) -> None:
        """End an export that waits for its next try."""
        if self.exporter is not None:
            self.exporter.shutdown()

    def row(self) -> ProviderRow:
        """Return the line for people."""
        if self.exporter is None:
            return ProviderRow(self.what, self.which, "", self.note)
        instead = "" if self.exporter.last_ok else self.exporter.instead()
        last = f"not needed: {instead}" if instead else self.exporter.last()
        return ProviderRow(self.what, self.which, self.exporter.endpoint, last)

    def sends_deltas(self) -> bool:
        """Whether counters that are read from us leave as differences; False also where it cannot be seen.

        The SDK tells it nowhere in public; its readers and exporters keep what they were given under this name.
        """
        config = getattr(self.provider, "_sdk_config", None)
        readers = getattr(self.provider, "_metric_readers", None) or getattr(config, "metric_readers", None) or ()
        preferred = [getattr(reader, "_preferred_temporality", None) or {} for reader in readers]
        return any(
            kind.__name__ == "ObservableCounter" and temporality.name == "DELTA"
            for given in preferred
            for kind, temporality in given.items()
        )

    def _delivers(self, send: Callable[[], Any]) -> bool:
        failures = self.exporter.failures if self.exporter else 0
        try:
            said = send() is not False
        except Exception as error:  # noqa: BLE001  (the SDK raises for readers out of time: it is this call's answer)
            _log.debug("%s were not all sent: %s", self.what, error)
            return False
        if self.exporter is None:
            return said
        if self.exporter.unsupported:
            return self.what != "traces"  # metrics and logs that the backend does not take are not waited for
        return said and self.exporter.delivered_since(failures)


def global_provider(what: Signal) -> Any:
    """Return the provider that the application set globally; None when it set none. Never sets one."""
    provider = _of_api(what)
    is_proxy = type(provider).__module__.startswith("opentelemetry.") and "Proxy" in type(provider).__name__
    return None if is_proxy else provider


def no_provider(what: Signal, note: str = "") -> ResolvedProvider:
    """Return the API's own no-op; for metrics and logs its proxy, which a provider set later still fills."""
    if sdk_disabled():
        note = "OTEL_SDK_DISABLED=true"
    elif exporter_name(what) == "none":
        note = f"OTEL_{what.upper()}_EXPORTER=none"
    if what == "traces":
        return ResolvedProvider(what, trace.NoOpTracerProvider(), "none", note=note)
    return ResolvedProvider(what, _of_api(what), "none", note=note or (NO_METRICS if what == "metrics" else NO_LOGS))


def _of_api(what: Signal) -> Any:
    if what == "traces":
        return trace.get_tracer_provider()
    if what == "metrics":
        return metrics.get_meter_provider()
    from opentelemetry import _logs

    return _logs.get_logger_provider()
