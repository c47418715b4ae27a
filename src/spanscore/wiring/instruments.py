"""Makes the instruments and gauges of a scorer from its settings and parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from spanscore import semconv
from spanscore.outputs.aggregates import GaugeReading, Labels, checked_dimensions, refuse_too_many
from spanscore.outputs.instruments import Telemetry
from spanscore.pipeline.span_buffer import RELEASE_REASONS
from spanscore.wiring.accounts import models_of
from spanscore.wiring.durable import spool_of
from spanscore.wiring.feedback import FEEDBACK_RESULTS

if TYPE_CHECKING:
    from spanscore.wiring.build import Pipeline
    from spanscore.wiring.metrics import CheckedConfiguration


def telemetry_of(pipeline: Pipeline) -> Telemetry | None:
    """Return the instruments of a scorer, with every known series from the first collection on; None without instruments.

    The gauges are functions, because they read parts of the pipeline that are created after this call.

    Raises:
        ConfigurationError: metrics and dimensions are too many, or a dimension has the name of an attribute of spanscore.
    """
    settings = pipeline.settings
    if not settings.outputs.instruments:
        return None

    def points() -> Mapping[Hashable, GaugeReading]:
        """Return the gauges of the accounts, of the judge check, and of a further source of units (Kafka)."""
        judge_check_points = {} if pipeline.judge_check is None else pipeline.judge_check.points()
        return {**pipeline.accounts.points(), **judge_check_points, **pipeline.source_points()}

    gauges: dict[str, Callable[[], float | Mapping[str, float]]] = {
        semconv.QUEUE_SIZE: lambda: len(pipeline.queue),
        semconv.QUEUE_CAPACITY: lambda: pipeline.queue.capacity,
        semconv.HOLD_UNITS: lambda: len(pipeline.hold),
        semconv.HOLD_RELEASED: lambda: {**dict.fromkeys(RELEASE_REASONS, 0), **pipeline.hold.released},
        semconv.HOLD_LOST: lambda: pipeline.hold.lost,
        semconv.CAPTURE_REFUSED: lambda: pipeline.ledger.refused,
        semconv.HEAD_SAMPLING: lambda: pipeline.units.notes.head_sampling,
        semconv.REDELIVERED: lambda: pipeline.sum_of("redelivered") + getattr(pipeline.queue, "redelivered", 0),
    }

    def of_spool(field: str) -> Callable[[], float]:
        return lambda: 0.0 if (file := spool_of(pipeline.queue)) is None else getattr(file.state(), field)

    if settings.spool is not None:
        gauges |= {
            semconv.SPOOL_DEPTH: of_spool("depth"),
            semconv.SPOOL_BYTES: of_spool("bytes"),
            semconv.SPOOL_OLDEST: of_spool("oldest_s"),
            semconv.SPOOL_DEAD_LETTERS: of_spool("dead_letters"),
        }
    telemetry = Telemetry(
        None,
        pipeline,
        gauges,
        points=points,
        waits=lambda listener: pipeline.accounts.report_waits(listener),  # noqa: PLW0108  (a reload replaces these accounts)
        dimensions=settings.monitoring.dimensions,
        compared=pipeline.compared,
    )
    refuse_too_many_sums(pipeline.checked)
    declare_sums(telemetry, pipeline.checked)
    return telemetry


def sums_in_force(pipeline: Pipeline, telemetry: Telemetry, name: str) -> Mapping[Labels, float]:
    """Return the sums of one instrument, without those of evaluator versions that a reload replaced."""
    sums = telemetry.sums(name)
    if not pipeline.retired:
        return sums
    pairs = ((labels, dict(labels)) for labels in sums)
    return {
        labels: sums[labels]
        for labels, by_name in pairs
        if (by_name.get(semconv.EVALUATION_NAME), by_name.get(semconv.EVALUATOR_VERSION)) not in pipeline.retired
    }


def refuse_too_many_sums(checked: CheckedConfiguration) -> None:
    """Raise an error if metrics and dimensions have more attribute sets than an instrument keeps separate.

    Raises:
        ConfigurationError: there are too many; the message has the numbers.
    """
    settings = checked.settings
    feedback_metrics = 0 if settings.sampling.feedback is None else len(checked.of_units)
    refuse_too_many(
        [*checked.metrics.values()],
        checked_dimensions(settings.monitoring.dimensions),
        len(checked.shadowing) + feedback_metrics + sum(map(len, checked.of_inner.values())),
        compared=settings.compare is not None,
    )


def declare_sums(telemetry: Telemetry, checked: CheckedConfiguration) -> None:
    """Create with the value 0 the sums that do not exist yet: of metrics, second judges, units with feedback, inner units,
    feedback results and judge calls.
    """
    feedback_metrics = {} if checked.settings.sampling.feedback is None else checked.of_units
    telemetry.declare(checked.metrics.values())
    telemetry.declare(checked.shadowing.values(), semconv.SOURCE_SHADOW)
    telemetry.declare(feedback_metrics.values(), semconv.SOURCE_FEEDBACK)
    for group, names in checked.of_inner.items():
        telemetry.declare([checked.of_units[name] for name in names], group)
    for result in FEEDBACK_RESULTS if feedback_metrics else ():
        telemetry.count(semconv.FEEDBACK, ((semconv.RESULT, result),), 0)
    for name, metric in (*checked.metrics.items(), *checked.shadowing.items()):
        for model, price in models_of(metric).items():
            telemetry.declare_calls(name, model, have_price=price is not None)
