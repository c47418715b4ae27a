"""An alert as plain values, before any tool's own format: what is asked, how long it must hold, what a person is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from spanscore.monitoring import promql
from spanscore.monitoring.names import label
from spanscore.settings.alerting import AlertSettings, MonitoringSettings

__all__ = [
    "ALL",
    "PATIENCE",
    "SEGMENT",
    "Alert",
    "Figure",
    "Stream",
    "filled",
    "labels_of",
    "literal",
    "recorded_where",
    "steady_window",
    "streams_of",
    "suffix_of",
]

PATIENCE = 1
"""Intervals for which a condition must hold, so at two evaluations: near a series' start ``increase()`` errs at one."""
SEGMENT = "segment"
ALL = "all"
"""The metric label of an alert that is about none in particular."""
_HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Stream:
    """All units, or those of one segment."""

    key: str = ""
    value: str = ""

    @property
    def name(self) -> str:
        """``user_tier=gold``; empty for all units."""
        return f"{self.key}={self.value}" if self.key else ""

    @property
    def labels(self) -> dict[str, str]:
        """The label of its counters; none for all units."""
        return {label(self.key): self.value} if self.key else {}

    @property
    def where(self) -> str:
        """The matcher on the counters; empty for all units."""
        return promql.matching(self.labels)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that is asked for when an alert is told.

    Attributes:
        expression: one value; ``promql.OWN`` among its matchers = of the service and series that the alert is about.
        form: of ``printf``. Where there is no value nothing is said, the form neither.
    """

    expression: str
    form: str = "%.3g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert: what must be wrong for ``PATIENCE`` intervals.

    Attributes:
        expression: returns the value where something is wrong, and nothing elsewhere.
        labels: severity, metric, window; segment where it is for one, reason where there are several. As they are.
        summary: for people, in one line; a template, so what comes from outside is ``literal`` in it.
        text: for people, a template as well; ``{value}`` (``{count}`` where it is whole, ``{lasting}`` where it is seconds),
            ``{service}`` and ``{<figure>}`` are what each tool puts in.
        figures: name → what the text says besides the value.
        runbook: address of what to do; empty = none.
        keep_s: seconds for which it stays on when its condition holds no more.
    """

    name: str
    expression: str
    labels: Mapping[str, str]
    summary: str
    text: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    runbook: str = ""
    keep_s: float = 0.0


def literal(text: str) -> str:
    """Return a template that says just this: no brace in it opens an action, no dollar is a variable of Grafana's."""
    return re.sub(r"[{$]", lambda found: f'{{{{ "\\x{ord(found[0]):02x}" }}}}', text)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with the parts in the place of their names in braces."""
    return _PLACE.sub(lambda found: parts.get(found[1], found[0]), template)


_PLACE = re.compile(r"\{(\w+)\}")


def streams_of(shared: MonitoringSettings) -> list[Stream]:
    """Return all units, then each listed segment."""
    return [Stream(), *(Stream(key, value) for key, values in shared.segments.items() for value in values)]


def steady_window(shared: MonitoringSettings) -> str:
    """Return the shortest window of an hour or more, else the shortest: over it shares and plain thresholds are looked at."""
    return promql.duration(min((one for one in shared.windows if one >= _HOUR_S), default=min(shared.windows)))


def recorded_where(metric: str, alert: AlertSettings, stream: Stream) -> str:
    """Return the matchers on what is recorded of a metric in a stream."""
    pinned = {promql.SERIES: alert.series} if alert.series else {}
    return promql.matching({promql.METRIC: metric, **pinned, SEGMENT: stream.name})


def labels_of(severity: str, metric: str, window: str, stream: Stream | None = None) -> dict[str, str]:
    """Return an alert's labels."""
    segment = {SEGMENT: stream.name} if stream is not None and stream.key else {}
    return {"severity": severity, "metric": metric, "window": window, **segment}


def suffix_of(stream: Stream) -> str:
    """Return what stands behind the metric's name in a template; empty for all units."""
    return f" for {literal(stream.name)}" if stream.key else ""
