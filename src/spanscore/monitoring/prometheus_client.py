"""Families → the text that a scraper asked for, by prometheus-client: OpenMetrics with exemplars, or Prometheus' own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spanscore.errors import MissingExtraError
from spanscore.monitoring.families import Family

__all__ = ["render", "require"]


def require() -> None:
    """Raise unless the library is there.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import prometheus_client  # noqa: F401  (only whether it is there)
    except ImportError as error:
        raise MissingExtraError("prometheus-client", "prometheus") from error


def render(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """Return the text and its content type.

    Args:
        families: what there is to tell.
        accept: the request's ``Accept``; exemplars go out under ``application/openmetrics-text`` only.
    """
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    return encode(_Collected(families)), content_type


class _Collected:
    """What the library calls a registry."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Any]:
        from prometheus_client import Metric
        from prometheus_client.samples import Exemplar

        for family in self._families:
            metric = Metric(family.name, family.about, family.kind)
            for sample in family.samples:
                seen = sample.exemplar
                exemplar = None if seen is None else Exemplar(dict(seen.labels), seen.value, seen.time_s)
                metric.add_sample(sample.name, dict(sample.labels), sample.value, exemplar=exemplar)
            yield metric
