"""Options and parts → the instruments and gauges of a scorer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spanscore import semconv
from spanscore.config.tree import ScorerSettings
from spanscore.outputs.aggregates import ComparedValues, Points, checked_dimensions, refuse_too_many
from spanscore.outputs.instruments import Reading, Telemetry
from spanscore.pipeline.span_buffer import RELEASE_REASONS
from spanscore.protocols import Counts, Metric
from spanscore.wiring.accounts import Accounts, models_of
from spanscore.wiring.spool import spool_of

if TYPE_CHECKING:
    from spanscore.wiring.build import Pipeline

__all__ = ["gauges_of", "telemetry_of"]

Gauges = Mapping[str, Callable[[], float | Mapping[str, float]]]


def gauges_of(line: Pipeline, *, has_spool: bool) -> dict[str, Callable[[], float | Mapping[str, float]]]:
    """Return instrument → a function that reads its value; the parts that it reads are made later."""
    own: Gauges = {
        semconv.QUEUE_SIZE: lambda: len(line.queue),
        semconv.QUEUE_CAPACITY: lambda: line.queue.capacity,
        semconv.HOLD_UNITS: lambda: len(line.hold),
        semconv.HOLD_RELEASED: lambda: {**dict.fromkeys(RELEASE_REASONS, 0), **line.hold.released},
        semconv.HOLD_LOST: lambda: line.hold.lost,
        semconv.CAPTURE_REFUSED: lambda: line.ledger.refused,
        semconv.HEAD_SAMPLING: lambda: line.units.notes.heads,
        semconv.REDELIVERED: lambda: line.sum_of("redelivered") + getattr(line.queue, "redelivered", 0),
    }
    return {**own, **(_of_spool(line) if has_spool else {})}


def _of_spool(line: Pipeline) -> Gauges:
    def read(field: str) -> Callable[[], float]:
        return lambda: 0.0 if (file := spool_of(line.queue)) is None else getattr(file.state(), field)

    return {
        semconv.SPOOL_DEPTH: read("depth"),
        semconv.SPOOL_BYTES: read("bytes"),
        semconv.SPOOL_OLDEST: read("oldest_s"),
        semconv.SPOOL_DEAD_LETTERS: read("dead_letters"),
    }


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
    """Return the instruments of a scorer, with every series that is shown from the first collection on; None without any.

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
