"""What is configured of a comparison → the parts that tell releases apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spanscore.line.options import Options
from spanscore.otel.compared_values import ComparedValues
from spanscore.otel.providers import Providers
from spanscore.protocols import Metric
from spanscore.units.compared_ledger import ComparedLedger
from spanscore.units.ledger import Ledger

__all__ = ["compared_values_of", "ledger_of"]


def compared_values_of(options: Options, metrics: Mapping[str, Metric], providers: Providers) -> ComparedValues | None:
    """Return what tells the compared value of units; None where nothing is compared, or nobody would read it."""
    if options.compare is None or "instruments" not in options.attach:
        return None
    series = {name: metric.series for name, metric in metrics.items()}
    return ComparedValues(options.compare.by, providers.resource, series)


def ledger_of(metrics: Iterable[str], compared: ComparedValues | None) -> Ledger:
    """Return a ledger: one that tells losses apart by release where these are compared."""
    return Ledger(metrics) if compared is None else ComparedLedger(metrics, compared.of_unit, compared.of_loss)
