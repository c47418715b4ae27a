"""Settings → what collects failing units, where that is asked for; and the row that ``status()`` has of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spanscore import semconv
from spanscore.config.collect import Collect
from spanscore.core.printable import did_you_mean, format_count
from spanscore.errors import ConfigurationError
from spanscore.outputs.collected_cases import FOLDED, LOST, WRITTEN, CaseCollector, CollectState
from spanscore.outputs.instruments import Telemetry
from spanscore.protocols import Metric

__all__ = ["check_conditions", "collect_rows", "collector_of", "read_collect_state"]


def collector_of(
    collect: Collect | None, metrics: Mapping[str, Metric], telemetry: Telemetry | None
) -> CaseCollector | None:
    """Return what collects; None where nothing is to be.

    Raises:
        ConfigurationError: a condition is of no metric.
    """
    if collect is None:
        return None
    check_conditions(collect, metrics)
    requires = {name: metric.requires for name, metric in metrics.items()}
    if telemetry is None:
        return CaseCollector(collect, requires)
    for result in (WRITTEN, FOLDED, LOST):
        telemetry.count(semconv.COLLECTED_CASES, ((semconv.RESULT, result),), 0)
    return CaseCollector(
        collect,
        requires,
        counted=lambda result, number: telemetry.count(semconv.COLLECTED_CASES, ((semconv.RESULT, result),), number),
    )


def check_conditions(collect: Collect, metrics: Mapping[str, Metric]) -> None:
    """Make sure that each condition is of a metric.

    Raises:
        ConfigurationError: one is of none.
    """
    for condition in collect.conditions:
        if condition.metric not in metrics:
            meant = did_you_mean(condition.metric, metrics) or f"there are {', '.join(metrics)}"
            raise ConfigurationError(f"collect.when names {condition.metric}, which is no metric here: {meant}")


def read_collect_state(collector: CaseCollector | None) -> CollectState | None:
    """Return how it stands; None where nothing is collected."""
    return None if collector is None else collector.state()


def collect_rows(state: CollectState) -> Iterator[str]:
    """Yield what has been collected, and why it cannot be written now."""
    written, folded, lost = (state.cases.get(result, 0) for result in (WRITTEN, FOLDED, LOST))
    parts = [f"collected: {format_count(written, 'case')} to {state.path}"]
    parts += [f"{folded:,} with a question that is in there"] if folded else []
    parts += [f"{lost:,} lost"] if lost else []
    yield "; ".join(parts)
    if state.fault:
        yield f"cases cannot be written now ({state.fault}): {state.waiting:,} wait, and are tried again"
