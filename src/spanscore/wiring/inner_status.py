"""``InnerStatus``: counts and mean of one metric on the inner units of one entry of ``units.also``, for ``status()``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spanscore import semconv
from spanscore.core.span import InnerGroup, InnerKind
from spanscore.monitoring.estimates import MeanInterval, ReadSums, running_mean
from spanscore.outputs.aggregates import within
from spanscore.pipeline.ledger import Notes
from spanscore.wiring.build import Pipeline
from spanscore.wiring.instruments import sums_in_force


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerStatus:
    """The state of one metric on the inner units of one entry of ``units.also``.

    Attributes:
        metric: name of the metric.
        kind: kind of the units.
        name: name of their tool, agent, retriever or model; None if the entry has no name.
        rate: share of the units below recorded roots that the metric scores, [0, 1]; None if only another process's
            configuration has the entry, or if a reload removed the metric.
        eligible: number of units below recorded roots.
        pending: number of units without an outcome yet.
        outcomes: outcome → units.
        mean: mean quality so far, of the metric's present evaluator version, and both ends of its 95 % interval, [0, 1]; None
            without scores, or if a reload removed the metric.
        reason: latest reason for a missing score; empty if each unit has a score.
        trace: trace id (32 hex digits) of that unit; empty without a reason.
    """

    metric: str
    kind: InnerKind
    name: str | None
    rate: float | None
    eligible: int
    pending: int
    outcomes: Mapping[str, int]
    mean: MeanInterval | None
    reason: str
    trace: str

    def __str__(self) -> str:
        counts = [f"{outcome} {units:,}" for outcome, units in sorted(self.outcomes.items())]
        counts += [f"pending {self.pending:,}"] if self.pending else []
        mean = "no mean yet" if self.mean is None else f"{self.mean[0]:.2f} ({self.mean[1]:.2f}–{self.mean[2]:.2f})"
        rate = "" if self.rate is None else f", rate {self.rate:g}"
        line = f"{InnerGroup(self.kind, self.name)}: {self.metric} {mean}{rate}; {self.eligible:,} eligible"
        return f"{line}{': ' if counts else ''}{', '.join(counts)}{f'; latest {self.reason}' if self.reason else ''}"


def read_inner(pipeline: Pipeline) -> Iterator[InnerStatus]:
    """Yield the state of each entry and metric, in the order of the configuration."""
    rates = {entry.group: entry.rate for entry in pipeline.settings.units.also}
    for group, books in pipeline.units.inner_books.items():
        counted, sums = books.ledger.count_units(), _sums_of(group, pipeline)
        for metric, eligible in counted.eligible.items():
            reason, trace = _find_reason(metric, books.notes)
            own = pipeline.of_units.get(metric)
            yield InnerStatus(
                metric=metric,
                kind=group.kind,
                name=group.name,
                rate=rates.get(group) if metric in books.metrics else None,
                eligible=eligible,
                pending=counted.pending[metric],
                outcomes={end.value: units for (name, end, _), units in counted.outcomes.items() if name == metric},
                mean=None if sums is None or own is None else running_mean(metric, own.scale, sums),
                reason=reason,
                trace=trace,
            )


def _find_reason(metric: str, notes: Notes) -> tuple[str, str]:
    """Return the latest reason of a metric for a missing score, and the trace id of the unit; empty without a reason."""
    of_metric = [(end, *why) for (name, end), why in notes.reasons.copy().items() if name == metric]
    if not of_metric:
        return "", ""
    outcome, reason, unit = of_metric[-1]
    return f"{outcome}: {reason}", f"{unit.trace_id:032x}"


def _sums_of(group: InnerGroup, pipeline: Pipeline) -> ReadSums | None:
    """Return the sums of an entry's units as if they were those of sampled traffic; None without instruments."""
    telemetry, own = pipeline.telemetry, frozenset(within(group))
    if telemetry is None:
        return None
    keys = {semconv.EVALUATION_SOURCE, semconv.UNIT_KIND, semconv.UNIT_NAME}

    def read(instrument: str) -> Mapping[tuple[tuple[str, str], ...], float]:
        return {
            tuple(label for label in labels if label[0] not in keys): value
            for labels, value in sums_in_force(pipeline, telemetry, instrument).items()
            if {label for label in labels if label[0] in keys} == own
        }

    return read
