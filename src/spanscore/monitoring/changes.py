"""Changes: another judge, prompt or model speaks of a metric now. A notice, no page: what it says is no drop."""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.monitoring import promql
from spanscore.monitoring.alert import OF_METRIC, Alert, labels_of, listed, of_metric
from spanscore.monitoring.recorded import WRITTEN, steady_window
from spanscore.settings.alerting import AlertSettings, MonitoringSettings

__all__ = ["WAS", "changed"]

WAS = "was"
"""The label that tells the series that was written most before."""
MEMORY = "7d"
"""A series that was written within it is no new one: so no notice comes each Monday, nor of two that are written by turns."""


def changed(settings: Mapping[str, AlertSettings], shared: MonitoringSettings) -> Alert:
    """Return the notice that a series is new beside another one; it ends by itself after ``steady_window``.

    Args:
        settings: metric → its alerts, for every metric.
    """
    window = steady_window(shared)
    before = f"last_over_time({WRITTEN}[{MEMORY}] offset {window})"
    group = ", ".join(promql.GROUP)
    named = f'label_replace({before}, "{WAS}", "$1", "{promql.SERIES}", "(?s)(.*)")'
    return Alert(
        name="SpanscoreNewSeries",
        expression=f"({WRITTEN}{{{listed(settings)}}}\nunless on ({', '.join(promql.BY_SERIES)}) {before})\n"
        f"* on ({group}) group_left ({WAS}) topk by ({group}) (1, {named})",
        labels=labels_of("info", OF_METRIC, window),
        summary=f"{OF_METRIC} is scored in another way",
        text=f"{OF_METRIC} has a new series ({{service}}):{_CHANGES} Its scores cannot be compared with those "
        f"before: no drop.{of_metric({metric: _next(one) for metric, one in settings.items()})} This notice ends by itself "
        f"after {window}.",
    )


def _next(settings: AlertSettings) -> str:
    if settings.baseline is None:
        return ""
    pinned = f", and .series to {{{{ $labels.{promql.SERIES} }}}}" if settings.series else ""
    return f" After a week of it set alerts.{OF_METRIC}.baseline to its mean, as the dashboard tells it{pinned}."


_PARTS = r"^([^/]*)/(.*)/([^/]*)\n([^/]*)/(.*)/([^/]*)$"
_CHANGES = (
    f'{{{{ printf "%s\\n%s" $labels.{WAS} $labels.{promql.SERIES} '
    f'| reReplaceAll "{_PARTS}" " version $1 → $4, judge $2 → $5, votes $3 → $6." }}}}'
)
"""A series is ``version/judge/votes``, and a judge's name may hold slashes."""
