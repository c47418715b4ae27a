"""Changes: another judge, prompt or model speaks of a metric now. A notice, no page: what it says is no drop."""

from __future__ import annotations

from spanscore.monitoring import promql
from spanscore.monitoring.alert import Alert, labels_of, literal, steady_window
from spanscore.protocols import Metric
from spanscore.settings.alerting import AlertSettings, MonitoringSettings

__all__ = ["WAS", "changed"]

WAS = "was"
"""The label that tells the series that was written most before."""
MEMORY = "7d"
"""A series that was written within it is no new one: so no notice comes each Monday, nor of two that are written by turns."""


def changed(metric: Metric, settings: AlertSettings, shared: MonitoringSettings) -> Alert:
    """Return the notice that a series is new beside another one; it ends by itself after ``steady_window``."""
    window = steady_window(shared)
    written = f"{promql.WRITTEN}{{{promql.matching({promql.METRIC: metric.name})}}}"
    before = f"last_over_time({written}[{MEMORY}] offset {window})"
    group = ", ".join(promql.GROUP)
    named = f'label_replace({before}, "{WAS}", "$1", "{promql.SERIES}", "(?s)(.*)")'
    return Alert(
        name="SpanscoreNewSeries",
        expression=f"({written}\nunless on ({', '.join(promql.BY_SERIES)}) {before})\n"
        f"* on ({group}) group_left ({WAS}) topk by ({group}) (1, {named})",
        labels=labels_of("info", metric.name, window),
        summary=f"{literal(metric.name)} is scored in another way",
        text=f"{literal(metric.name)} has a new series ({{service}}):{_CHANGES} Its scores cannot be compared with those "
        f"before: no drop.{_next(metric.name, settings)} This notice ends by itself after {window}.",
    )


def _next(metric: str, settings: AlertSettings) -> str:
    if settings.baseline is None:
        return ""
    pinned = f", and .series to {{{{ $labels.{promql.SERIES} }}}}" if settings.series else ""
    return f" After a week of it set alerts.{literal(metric)}.baseline to its mean, as the dashboard tells it{pinned}."


def _change(what: str, part: int) -> str:
    was, now = (f'(reReplaceAll "^([^/]*)/(.*)/([^/]*)$" "${part}" $labels.{name})' for name in (WAS, promql.SERIES))
    return f"{{{{ if ne {was} {now} }}}} {what} {{{{ {was} }}}} → {{{{ {now} }}}}.{{{{ end }}}}"


_CHANGES = _change("version of metric and prompt", 1) + _change("judge", 2) + _change("votes", 3)
"""A series is ``version/judge/votes``, and a judge's name may hold slashes."""
