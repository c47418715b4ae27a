"""A line's options and parts → its instruments, with what they are to show from the first collection on."""

from __future__ import annotations

from collections.abc import Mapping

from spanscore import semconv
from spanscore.config.tree import ScorerSettings
from spanscore.line.accounts import Accounts, models_of
from spanscore.outputs.aggregates import ComparedValues, Points, checked_dimensions, refuse_too_many
from spanscore.outputs.instruments import Reading, Telemetry
from spanscore.protocols import Counts, Metric

__all__ = ["telemetry_of"]


def telemetry_of(
    settings: ScorerSettings,
    counts: Counts,
    gauges: Mapping[str, Reading],
    *,
    metrics: Mapping[str, Metric],
    shadowing: Mapping[str, Metric],
    accounts: Accounts,
    points: Points,
    compared: ComparedValues | None,
) -> Telemetry | None:
    """Return the instruments of a line; None where scores are not attached to any.

    Raises:
        ConfigurationError: metrics and dimensions are too many, or a dimension has the name of an attribute of ours.
    """
    if not settings.outputs.instruments:
        return None
    dimensions = settings.monitoring.dimensions
    telemetry = Telemetry(
        None, counts, gauges, points=points, waits=accounts.tell_waits, dimensions=dimensions, compared=compared
    )
    of_sessions = {metric.name for metric in settings.sessions.metrics}
    beside = 0 if settings.sampling.feedback is None else len(metrics.keys() - of_sessions)
    declared = checked_dimensions(dimensions)
    refuse_too_many([*metrics.values()], declared, len(shadowing) + beside, compared=compared is not None)
    telemetry.declare(metrics.values())
    telemetry.declare(shadowing.values(), semconv.SOURCE_SHADOW)
    for name, metric in (*metrics.items(), *shadowing.items()):
        for model, price in models_of(metric).items():
            telemetry.declare_calls(name, model, have_price=price is not None)
    return telemetry
