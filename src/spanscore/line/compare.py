"""What is configured of a comparison → the parts that tell releases apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spanscore.config.tree import ScorerSettings
from spanscore.outputs.aggregates import ComparedValues
from spanscore.pipeline.ledger import ComparedLedger, Ledger
from spanscore.protocols import Metric

__all__ = ["compared_values_of", "ledger_of"]


def compared_values_of(
    settings: ScorerSettings,
    metrics: Mapping[str, Metric],
    resource: Callable[[], Mapping[str, Any]],
    shown: Callable[[str], str | None],
) -> ComparedValues | None:
    """Return what tells the compared value of units; None where nothing is compared, or nobody would read it.

    Args:
        resource: gives that of the application.
        shown: of a value that somebody may have typed, returns what may leave.
    """
    if settings.compare is None or not settings.outputs.instruments:
        return None
    evaluator_versions = {name: metric.evaluator_version for name, metric in metrics.items()}
    return ComparedValues(settings.compare.by, resource, evaluator_versions, shown)


def ledger_of(metrics: Iterable[str], compared: ComparedValues | None) -> Ledger:
    """Return a ledger: one that tells losses apart by release where these are compared."""
    return Ledger(metrics) if compared is None else ComparedLedger(metrics, compared.of_unit, compared.of_loss)
