"""A configuration → the evaluator version of its metrics, and which alerts watch one that no metric can have. No judge is asked
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spanscore.cli._cost_plan import asked_model
from spanscore.config.judging import AskedSettings
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.configured import entries, metrics_of, shadow_settings, shadows_of
from spanscore.metrics.catalog.registry import create
from spanscore.monitoring.health import refused_evaluator_versions
from spanscore.protocols import Metric

__all__ = ["StandIn", "evaluator_version_problems", "present_evaluator_versions"]


@dataclass(frozen=True, slots=True)
class StandIn:
    """Stands for a chat model that is not made: of a metric with it, all but what it would answer can be looked at."""

    model: str = "any"

    async def ask(self, prompt: Any) -> Any:
        """Answer nothing."""
        raise NotImplementedError


def evaluator_version_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield each alert whose evaluator version its metric cannot have.

    Where the judge cannot be made here, its model's name says what it would be called; of a metric that compares by embeddings
    nothing can be said then.
    """
    if all(alert.evaluator_version is None for alert in settings.alerts.values()):
        return
    try:
        metrics, shadows = metrics_of(settings), shadows_of(settings)
    except ConfigurationError:  # why is told where they are looked at
        metrics, shadows = _stand_ins(settings)
    yield from map(ConfigurationError, refused_evaluator_versions(settings.alerts, metrics, shadows))


def present_evaluator_versions(settings: Configuration) -> dict[str, str]:
    """Return metric → the evaluator version of its scores; empty where its judge cannot be made here."""
    try:
        return {metric.name: metric.evaluator_version for metric in metrics_of(settings)}
    except ConfigurationError:
        return {}


def _stand_ins(settings: Configuration) -> tuple[list[Metric], list[Metric]]:
    try:
        own = [_make_metric(name, parameters, settings.judge, settings) for name, parameters in entries(settings)]
        beside = [
            _make_metric(name, parameters, judge, settings) for name, parameters, judge in shadow_settings(settings)
        ]
    except ConfigurationError:
        return [], []
    return [metric for metric in own if not hasattr(metric, "embeddings")], beside


def _make_metric(name: str, parameters: Mapping[str, Any], judge: AskedSettings, settings: Configuration) -> Metric:
    if judge.model == "lexical":
        return create(name, judge="lexical", **parameters)
    alert = settings.alerts.get(str(parameters.get("name", name)))
    _, _, rest = ((alert and alert.evaluator_version) or "").partition("/")
    pinned, model = rest.rpartition("/")[0], asked_model(judge)
    # Some integrations put a path before it: models/gemini-2.5-pro.
    return create(
        name, judge=StandIn(pinned if pinned.endswith(f"/{model}") else model), embeddings="lexical", **parameters
    )
