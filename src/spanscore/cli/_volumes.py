"""Settings and metrics → how much traffic an alert needs: what ``check`` and ``rules`` tell is counted here, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from spanscore.line.options import Options
from spanscore.monitoring.alerts import DropPlan, plans_of
from spanscore.monitoring.budget import least_scores
from spanscore.protocols import Metric
from spanscore.settings.tree import AlertSettings, Settings

__all__ = ["Volume", "volumes_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What one window must hold.

    Attributes:
        rate: of the metric, [0, 1], without the rules that raise it.
        min_scores: effective scores before anything is said.
        min_requests: units the application must see for that; None = never, the rate is 0.
        scores_to_see: effective scores so that a drop of ``min_drop`` alarms half of the time; None = no drop is watched.
        requests_to_see: units for that; None = never, or no drop is watched.
    """

    rate: float
    min_scores: int
    min_requests: int | None
    scores_to_see: int | None
    requests_to_see: int | None


def volumes_of(settings: Settings, options: Options, metrics: Sequence[Metric]) -> dict[str, Volume]:
    """Return metric name → volume, for each metric that ``alerts`` names."""
    plans = {plan.metric: plan for plan in plans_of(settings.alerts, metrics, settings.monitoring)}
    return {
        metric.name: _volume(metric, plans.get(metric.name), settings.alerts[metric.name], options)
        for metric in metrics
        if metric.name in settings.alerts
    }


def _volume(metric: Metric, plan: DropPlan | None, alert: AlertSettings, options: Options) -> Volume:
    rate = options.rates.get(metric.name, options.sample_rate)
    least = alert.min_scores or least_scores(alert.baseline, binary=metric.scale.kind == "binary")
    seen = None if plan is None else max(least, ceil(plan.to_see))  # with fewer than the least nothing is said at all
    return Volume(
        rate=rate,
        min_scores=least,
        min_requests=_requests(least, rate),
        scores_to_see=seen,
        requests_to_see=None if seen is None else _requests(seen, rate),
    )


def _requests(scores: int, rate: float) -> int | None:
    return round(scores / rate) if rate else None
