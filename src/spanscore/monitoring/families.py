"""The SDK's metrics data → metric families as a scraper names them, with the exemplars that led to them.

The SDK forgets its exemplars with each collection; a scraper that comes second, or a person who looks, would see none. The
latest one of each bucket is kept here, as the Prometheus client libraries do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from spanscore.monitoring import names

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric, MetricsData

__all__ = ["Exemplar", "Families", "Family", "Sample"]

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
SCOPE_NAME, SCOPE_VERSION = "otel_scope_name", "otel_scope_version"
"""The labels by which the OpenTelemetry specification tells the meter, as far as remote write has them too."""

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One measurement and the span it was made for.

    Attributes:
        labels: ``trace_id`` (32 hex digits) and ``span_id`` (16).
        time_s: since the epoch.
    """

    labels: Mapping[str, str]
    value: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the text."""

    name: str
    labels: Labels
    value: float
    exemplar: Exemplar | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one instrument.

    Attributes:
        name: without ``_total`` or ``_bucket``.
        samples: those of one label set together, buckets in ascending order.
    """

    name: str
    kind: Kind
    about: str
    samples: Sequence[Sample]


class Families:
    """Turns one collection after another into families; not for two threads at once."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, Labels], Exemplar] = {}

    def of(self, collected: MetricsData | None, common: Mapping[str, str]) -> list[Family]:
        """Return the families of a collection.

        Args:
            collected: cumulative; None = nothing was recorded yet.
            common: labels that every series carries.
        """
        scopes = [
            scope for resource in (collected.resource_metrics if collected else ()) for scope in resource.scope_metrics
        ]
        return [
            self._family(metric, {SCOPE_NAME: scope.scope.name, SCOPE_VERSION: scope.scope.version or "", **common})
            for scope in scopes
            for metric in scope.metrics
        ]

    def _family(self, metric: Metric, common: Mapping[str, str]) -> Family:
        name, kind = names.family(metric.name, metric.unit or ""), _kind(metric.data)
        samples: Iterable[Sample] = (
            sample for point in metric.data.data_points for sample in self._samples(name, kind, point, common)
        )
        return Family(name, kind, metric.description or "", list(samples))

    def _samples(self, name: str, kind: Kind, point: Any, common: Mapping[str, str]) -> Iterator[Sample]:
        told = {**{names.label(key): str(value) for key, value in (point.attributes or {}).items()}, **common}
        labels = tuple(told.items())
        if kind == "histogram":
            yield from self._buckets(f"{name}_bucket", labels, point)
            yield Sample(f"{name}_count", labels, point.count)
            yield Sample(f"{name}_sum", labels, point.sum)
        else:
            yield Sample(f"{name}_total" if kind == "counter" else name, labels, point.value)

    def _buckets(self, name: str, labels: Labels, point: HistogramDataPoint) -> Iterator[Sample]:
        bounds = [str(float(bound)) for bound in point.explicit_bounds] + ["+Inf"]
        for one in point.exemplars:
            if one.trace_id and one.span_id:
                bound = bounds[bisect_left(point.explicit_bounds, one.value)]
                ids = {"trace_id": f"{one.trace_id:032x}", "span_id": f"{one.span_id:016x}"}
                self._latest[name, (*labels, ("le", bound))] = Exemplar(ids, one.value, one.time_unix_nano / 1e9)
        for bound, count in zip(bounds, accumulate(point.bucket_counts), strict=True):
            within = (*labels, ("le", bound))
            yield Sample(name, within, count, self._latest.get((name, within)))


def _kind(data: Any) -> Kind:
    """Tell by the form of the data, as its classes would have to be imported."""
    if hasattr(data, "is_monotonic"):
        return "counter" if data.is_monotonic else "gauge"
    return "histogram" if hasattr(data, "aggregation_temporality") else "gauge"
