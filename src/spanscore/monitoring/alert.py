"""An alert as plain values, before any tool's own format: what is asked, how long it must hold, what a person is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.names import label
from spanscore.settings.tree import AlertSettings, MonitoringSettings

__all__ = [
    "ALL",
    "PATIENCE",
    "SEGMENT",
    "SERIES",
    "Alert",
    "Stream",
    "labels_of",
    "links_of",
    "recorded_where",
    "streams_of",
    "suffix_of",
]

PATIENCE = 2
"""Evaluations for which a condition must hold: ``increase()`` errs near a series' start, for one evaluation."""
SERIES = label(semconv.SERIES)
SEGMENT = "segment"
ALL = "all"
"""The metric label of an alert that is about none in particular."""


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
    def where(self) -> str:
        """The matcher on the counters; empty for all units."""
        return promql.matching({label(self.key): self.value}) if self.key else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert: what must be wrong for ``PATIENCE`` evaluations.

    Attributes:
        expression: returns the value where something is wrong, and nothing elsewhere.
        labels: severity, metric, window; segment where it is for one, reason where there are several.
        text: for people; ``{value}``, ``{scores}``, ``{drop}`` and ``{service}`` stand for what each tool puts in.
        scores: expression of the effective number of scores behind it; empty = none.
        drop: expression of how far it is below the baseline; empty = it has none.
    """

    name: str
    expression: str
    labels: Mapping[str, str]
    summary: str
    text: str
    scores: str = ""
    drop: str = ""

    def message(self, **parts: str) -> str:
        """Return the text with what a tool fills in at run time."""
        text = self.text
        for name, part in parts.items():
            text = text.replace(f"{{{name}}}", part)
        return text


def streams_of(shared: MonitoringSettings) -> list[Stream]:
    """Return all units, then each listed segment."""
    return [Stream(), *(Stream(key, value) for key, values in shared.segments.items() for value in values)]


def links_of(alert: Alert, shared: MonitoringSettings) -> dict[str, str]:
    """Return annotation → address, for those that are set. An alert over all metrics has no ``{metric}`` parameter."""
    links = {"dashboard_url": shared.dashboard_url, "trace_url": shared.trace_url}
    return {name: _about(url, alert.labels["metric"]) for name, url in links.items() if url}


def _about(url: str, metric: str) -> str:
    if metric != ALL:
        return url.replace(_PLACE, metric)
    general = _PARAMETER.sub("", url)  # an empty variable shows an empty dashboard; without it there is the default
    return _NOTHING_ASKED.sub("", general).replace(_PLACE, "")


_PLACE = "{metric}"
_PARAMETER = re.compile(r"(?<=[?&])[^&#]*\{metric\}[^&#]*&?")
_NOTHING_ASKED = re.compile(r"[?&]+(?=#|$)")


def recorded_where(metric: str, alert: AlertSettings, stream: Stream) -> str:
    """Return the matchers on what is recorded of a metric in a stream."""
    pinned = {SERIES: alert.series} if alert.series else {}
    return promql.matching({promql.METRIC: metric, **pinned, SEGMENT: stream.name})


def labels_of(severity: str, metric: str, window: str, stream: Stream | None = None) -> dict[str, str]:
    """Return an alert's labels."""
    segment = {SEGMENT: stream.name} if stream is not None and stream.key else {}
    return {"severity": severity, "metric": metric, "window": window, **segment}


def suffix_of(stream: Stream) -> str:
    """Return what stands behind the metric's name in a text; empty for all units."""
    return f" for {stream.name}" if stream.key else ""
