"""Changes: another judge, prompt or model speaks of a metric now. A notice, no page: what it says is no drop."""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.monitoring import promql
from spanscore.monitoring.alert import OF_METRIC, Alert, labels_of, listed, of_metric
from spanscore.monitoring.recorded import WRITTEN, steady_window

__all__ = ["WAS", "changed"]

WAS = "was"
"""The label that tells the evaluator version that was written most before."""
MEMORY = "7d"
"""An evaluator version that was written within it is no new one: so no notice comes each Monday, nor of two that are written by
turns.
"""


def changed(settings: Mapping[str, AlertSettings], shared: Monitoring) -> Alert:
    """Return the notice that an evaluator version is new beside another one; it ends by itself after ``steady_window``.

    Args:
        settings: metric → its alerts, for every metric.
    """
    window = steady_window(shared)
    before = f"last_over_time({WRITTEN}[{MEMORY}] offset {window})"
    group = ", ".join(promql.GROUP)
    named = f'label_replace({before}, "{WAS}", "$1", "{promql.EVALUATOR_VERSION}", "(?s)(.*)")'
    return Alert(
        name="SpanscoreNewEvaluatorVersion",
        expression=f"({WRITTEN}{{{listed(settings)}}}\nunless on ({', '.join(promql.BY_EVALUATOR)}) {before})\n"
        f"* on ({group}) group_left ({WAS}) topk by ({group}) (1, {named})",
        labels=labels_of("info", OF_METRIC, window),
        summary=f"{OF_METRIC} is scored in another way",
        text=f"{OF_METRIC} has a new evaluator version ({{service}}):{_CHANGES} Its scores cannot be compared with those "
        f"before: no drop.{of_metric({metric: _next(one) for metric, one in settings.items()})} This notice ends by itself "
        f"after {window}.",
    )


def _next(settings: AlertSettings) -> str:
    if settings.baseline is None:
        return ""
    pinned = f", and .series to {{{{ $labels.{promql.EVALUATOR_VERSION} }}}}" if settings.evaluator_version else ""
    return f" After a week of it set alerts.{OF_METRIC}.baseline to its mean, as the dashboard tells it{pinned}."


_PARTS = r"^([^/]*)/(.*)/([^/]*)\n([^/]*)/(.*)/([^/]*)$"
_CHANGES = (
    f'{{{{ printf "%s\\n%s" $labels.{WAS} $labels.{promql.EVALUATOR_VERSION} '
    f'| reReplaceAll "{_PARTS}" " version $1 → $4, judge $2 → $5, votes $3 → $6." }}}}'
)
"""An evaluator version is ``version/judge/votes``, and a judge's name may hold slashes."""
