"""Converts metrics data of the SDK to the text for a scraper, in OpenMetrics with exemplars or in Prometheus' own format.

The SDK drops its exemplars at each collection, so a second scraper, or a browser, would get none. Like the Prometheus client
libraries, this module keeps the latest exemplar of each bucket.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from spanscore.errors import MissingExtraError
from spanscore.monitoring import promql as names

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric as Collected
    from opentelemetry.sdk.metrics.export import MetricsData
    from prometheus_client import Metric
    from prometheus_client.samples import Exemplar

SCOPE_NAME, SCOPE_VERSION = "otel_scope_name", "otel_scope_version"
"""Labels that identify the meter, by the OpenTelemetry specification. Its other labels are left out, as in remote write."""


class Exposition:
    """Converts one collection after another. Not thread-safe.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client  # noqa: F401  (only whether it is there)
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "prometheus") from error
        self._latest: dict[tuple[str, ...], Exemplar] = {}

    def text(self, collected: MetricsData | None, common: Mapping[str, str], accept: str) -> tuple[bytes, str]:
        """Return the text and its content type.

        Args:
            collected: cumulative data; None = nothing was recorded yet.
            common: labels for every series.
            accept: the request's ``Accept`` header; exemplars need ``application/openmetrics-text``.
        """
        from prometheus_client.exposition import choose_encoder

        families = [
            self._family(metric, {SCOPE_NAME: scope.scope.name, SCOPE_VERSION: scope.scope.version or "", **common})
            for resource in (collected.resource_metrics if collected else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        encode, content_type = choose_encoder(accept)
        registry: Any = SimpleNamespace(collect=lambda: families)  # ``encode`` uses nothing else of a registry
        return encode(registry), content_type

    def _family(self, collected: Collected, common: Mapping[str, str]) -> Metric:
        from prometheus_client import Metric

        name, kind = names.family(collected.name, collected.unit or ""), _kind(collected.data)
        family = Metric(name, collected.description or "", kind)
        points: Iterable[Any] = collected.data.data_points
        for point in points:
            labels = {names.label(key): str(value) for key, value in (point.attributes or {}).items()} | dict(common)
            if kind == "histogram":
                self._add_histogram(family, labels, point)
            else:
                family.add_sample(f"{name}_total" if kind == "counter" else name, labels, point.value)
        return family

    def _add_histogram(self, family: Metric, labels: dict[str, str], point: Any) -> None:
        from prometheus_client.samples import Exemplar

        bounds = [str(float(bound)) for bound in point.explicit_bounds] + ["+Inf"]
        series = [{**labels, "le": bound} for bound in bounds]
        keys = [(family.name, *chain.from_iterable(own.items())) for own in series]
        for exemplar in point.exemplars:
            if exemplar.trace_id and exemplar.span_id:
                ids = {"trace_id": f"{exemplar.trace_id:032x}", "span_id": f"{exemplar.span_id:016x}"}
                key = keys[bisect_left(point.explicit_bounds, exemplar.value)]
                self._latest[key] = Exemplar(ids, exemplar.value, exemplar.time_unix_nano / 1e9)
        for own, key, count in zip(series, keys, accumulate(point.bucket_counts), strict=True):
            family.add_sample(f"{family.name}_bucket", own, count, exemplar=self._latest.get(key))
        family.add_sample(f"{family.name}_count", labels, point.count)
        family.add_sample(f"{family.name}_sum", labels, point.sum)


def _kind(data: Any) -> Literal["counter", "gauge", "histogram"]:
    """Return the kind by the attributes of the data, because a check of its class would need an import."""
    if hasattr(data, "is_monotonic"):
        return "counter" if data.is_monotonic else "gauge"
    return "histogram" if hasattr(data, "aggregation_temporality") else "gauge"
