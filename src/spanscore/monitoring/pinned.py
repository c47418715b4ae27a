"""Pinned: the one evaluator version that an alert is to watch, which a metric must be able to have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spanscore.config.monitoring import AlertSettings
from spanscore.protocols import Metric

__all__ = ["refused_evaluator_versions"]


def refused_evaluator_versions(
    alerts: Mapping[str, AlertSettings], metrics: Iterable[Metric], shadows: Iterable[Metric] = ()
) -> Iterator[str]:
    """Yield which alerts watch an evaluator version that their metric does not have, as they would never fire.

    Args:
        metrics: with the judges that will be asked.
        shadows: with their second judges.
    """
    beside = {shadow.name: shadow.evaluator_version for shadow in shadows}
    for metric in metrics:
        pinned = alerts[metric.name].evaluator_version if metric.name in alerts else None
        if pinned is not None and pinned != metric.evaluator_version:
            shadow = ", and this is its shadow's, which no alert reads" if pinned == beside.get(metric.name) else ""
            yield (
                f"alerts.{metric.name}.evaluator_version: {pinned!r} is of no configured metric; "
                f"{metric.name} has {metric.evaluator_version!r}{shadow}"
            )
