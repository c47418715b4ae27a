"""Makes the instruments and gauges of a scorer from its options and parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from spanscore import semconv
from spanscore.outputs.aggregates import GaugeReading, Labels, checked_dimensions, refuse_too_many
from spanscore.outputs.instruments import Telemetry
from spanscore.pipeline.span_buffer import RELEASE_REASONS
from spanscore.wiring.accounts import models_of
from spanscore.wiring.feedback import FEEDBACK_RESULTS
from spanscore.wiring.spool import spool_of

if TYPE_CHECKING:
    from spanscore.wiring.build import Pipeline
    from spanscore.wiring.metrics import CheckedConfiguration

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
    settings = line.settings
    if not settings.outputs.instruments:
        return None

    def points() -> Mapping[Hashable, GaugeReading]:
        checked = {} if line.judge_check is None else line.judge_check.points()
        return {**line.accounts.points(), **checked, **line.points_beside()}

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
    telemetry = Telemetry(
        None,
        line,
        {**gauges, **({} if settings.spool is None else _of_spool(line))},
        points=points,
        waits=lambda listener: line.accounts.tell_waits(listener),  # noqa: PLW0108  (a reload replaces these accounts)
        dimensions=settings.monitoring.dimensions,
        compared=line.compared,
    )
    refuse_too_many_sums(line.checked)
    declare_sums(telemetry, line.checked)
    return telemetry


def sums_in_force(line: Pipeline, telemetry: Telemetry, name: str) -> Mapping[Labels, float]:
    """Return one instrument's sums without those of evaluator versions that a reload replaced."""
    sums = telemetry.sums(name)
    if not line.retired:
        return sums
    pairs = ((labels, dict(labels)) for labels in sums)
    return {
        labels: sums[labels]
        for labels, by_name in pairs
        if (by_name.get(semconv.EVALUATION_NAME), by_name.get(semconv.EVALUATOR_VERSION)) not in line.retired
    }


def refuse_too_many_sums(checked: CheckedConfiguration) -> None:
    """Refuse metrics and dimensions with more attribute sets than an instrument keeps separate.

    Raises:
        ConfigurationError: there are too many; the message has the numbers.
    """
    settings = checked.settings
    by_feedback = 0 if settings.sampling.feedback is None else len(checked.of_units)
    refuse_too_many(
        [*checked.metrics.values()],
        checked_dimensions(settings.monitoring.dimensions),
        len(checked.shadowing) + by_feedback + sum(map(len, checked.of_inner.values())),
        compared=settings.compare is not None,
    )


def declare_sums(telemetry: Telemetry, checked: CheckedConfiguration) -> None:
    """Create the sums of metrics and second judges with the value 0, if they do not exist."""
    by_feedback = {} if checked.settings.sampling.feedback is None else checked.of_units
    telemetry.declare(checked.metrics.values())
    telemetry.declare(checked.shadowing.values(), semconv.SOURCE_SHADOW)
    telemetry.declare(by_feedback.values(), semconv.SOURCE_FEEDBACK)
    for group, names in checked.of_inner.items():
        telemetry.declare([checked.of_units[name] for name in names], group)
    for result in FEEDBACK_RESULTS if by_feedback else ():
        telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),), 0)
    for name, metric in (*checked.metrics.items(), *checked.shadowing.items()):
        for model, price in models_of(metric).items():
            telemetry.declare_calls(name, model, have_price=price is not None)
