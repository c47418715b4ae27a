"""Makes the instruments and gauges of a scorer from its options and parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from spanscore import semconv
from spanscore.outputs.aggregates import GaugeReading, checked_dimensions, refuse_too_many
from spanscore.outputs.instruments import Telemetry
from spanscore.pipeline.span_buffer import RELEASE_REASONS
from spanscore.wiring.accounts import models_of
from spanscore.wiring.feedback import FEEDBACK_RESULTS
from spanscore.wiring.spool import spool_of

if TYPE_CHECKING:
    from spanscore.wiring.build import Pipeline

Gauges = Mapping[str, Callable[[], float | Mapping[str, float]]]


def _of_spool(line: Pipeline) -> Gauges:
    def read(field: str) -> Callable[[], float]:
        return lambda: 0.0 if (file := spool_of(line.queue)) is None else getattr(file.state(), field)

    return {
        semconv.SPOOL_DEPTH: read("depth"),
        semconv.SPOOL_BYTES: read("bytes"),
        semconv.SPOOL_OLDEST: read("oldest_s"),
        semconv.SPOOL_DEAD_LETTERS: read("dead_letters"),
    }


def telemetry_of(line: Pipeline) -> Telemetry | None:
    """Return the instruments of a scorer, with every known series from the first collection on; None without instruments.

    The gauges read parts that are made later.

    Raises:
        ConfigurationError: metrics and dimensions are too many, or a dimension has the name of an attribute of spanscore.
    """
    settings, metrics, shadowing = line.settings, line.metrics, line.shadowing
    if not settings.outputs.instruments:
        return None

    def points() -> Mapping[Hashable, GaugeReading]:
        checked = {} if line.judge_check is None else line.judge_check.points()
        return {**line.accounts.points(), **checked, **line.points_beside()}

    def tell_waits(listener: Callable[[str, str, float], None]) -> None:
        line.accounts.tell_waits(listener)

    gauges: Gauges = {
        semconv.QUEUE_SIZE: lambda: len(line.queue),
        semconv.QUEUE_CAPACITY: lambda: line.queue.capacity,
        semconv.HOLD_UNITS: lambda: len(line.hold),
        semconv.HOLD_RELEASED: lambda: {**dict.fromkeys(RELEASE_REASONS, 0), **line.hold.released},
        semconv.HOLD_LOST: lambda: line.hold.lost,
        semconv.CAPTURE_REFUSED: lambda: line.ledger.refused,
        semconv.HEAD_SAMPLING: lambda: line.units.notes.heads,
        semconv.REDELIVERED: lambda: line.sum_of("redelivered") + getattr(line.queue, "redelivered", 0),
    }
    dimensions = settings.monitoring.dimensions
    telemetry = Telemetry(
        None,
        line,
        {**gauges, **({} if settings.spool is None else _of_spool(line))},
        points=points,
        waits=tell_waits,
        dimensions=dimensions,
        compared=line.compared,
    )
    by_feedback = {} if settings.sampling.feedback is None else line.of_units
    declared = checked_dimensions(dimensions)
    refuse_too_many(
        [*metrics.values()], declared, len(shadowing) + len(by_feedback), compared=line.compared is not None
    )
    telemetry.declare(metrics.values())
    telemetry.declare(shadowing.values(), semconv.SOURCE_SHADOW)
    telemetry.declare(by_feedback.values(), semconv.SOURCE_FEEDBACK)
    for result in FEEDBACK_RESULTS if by_feedback else ():
        telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),), 0)
    for name, metric in (*metrics.items(), *shadowing.items()):
        for model, price in models_of(metric).items():
            telemetry.declare_calls(name, model, have_price=price is not None)
    return telemetry
