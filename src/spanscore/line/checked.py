"""Metrics and their rates, as they were given → by name, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spanscore.config.tree import ScorerSettings
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.registry import by_name, under_current_names
from spanscore.protocols import Metric

__all__ = ["checked_metrics", "checked_rates"]


def checked_metrics(metrics: Sequence[Metric], settings: ScorerSettings) -> dict[str, Metric]:
    """Return the metrics of units, by name.

    Raises:
        ConfigurationError: nothing is to be scored, or two have one name.
    """
    if not metrics and not settings.sessions.metrics:
        raise ConfigurationError("a scorer needs at least one metric: OnlineScorer(metrics=[Faithfulness(llm)])")
    return by_name(metrics)


def checked_rates(configured: Mapping[str, float], metrics: Collection[str]) -> dict[str, float]:
    """Return the rates of metrics of their own, under the names that these have now.

    Raises:
        ConfigurationError: one is of no metric of the scorer.
    """
    rates = under_current_names(configured, metrics)
    unknown = sorted(rates.keys() - set(metrics))
    if unknown:
        names = ", ".join(metrics)
        raise ConfigurationError(
            f"sampling.rates names {unknown[0]!r}, which is no metric of this scorer; it has {names}"
        )
    return rates
