"""Where an alert links to: the dashboard of its metric, service and time, traces of it, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spanscore.config.kinds import seconds_of
from spanscore.config.monitoring import Monitoring
from spanscore.monitoring import promql
from spanscore.monitoring.alert import ALL, Alert, Figure, literal

__all__ = ["links_of", "times_of"]

SERVICE = '{{ or $labels.job "$__all" | urlquery }}'
"""By the label that dashboards tell services apart by; of an alert about none, all of them."""
BEFORE = 2
"""Windows that a link shows: that of the alert, and the one before."""


def links_of(alert: Alert, shared: Monitoring) -> dict[str, str]:
    """Return annotation → address, a template, for those that are set; ``{from}`` and ``{to}`` are left to fill in.

    An alert over all metrics has no ``{metric}`` parameter.
    """
    links = {"dashboard_url": shared.dashboard_url, "trace_url": shared.trace_url}
    is_general = alert.labels.get("metric", ALL) == ALL
    found = {name: _about(url, is_general=is_general) for name, url in links.items() if url}
    return found | ({"runbook_url": alert.runbook} if alert.runbook else {})


def times_of(alert: Alert) -> Mapping[str, Figure]:
    """Return ``{from}`` and ``{to}``: Unix times in milliseconds, from before the alert's window until now.

    An alert without a window has a figure ``from`` of its own.
    """
    if "window" not in alert.labels:
        return {"to": Figure("1000 * time()", "%.0f")}
    back = BEFORE * seconds_of(alert.labels["window"])
    return {"from": Figure(f"1000 * (time() - {back:g})", "%.0f"), "to": Figure("1000 * time()", "%.0f")}


def _about(url: str, *, is_general: bool) -> str:
    if is_general:  # an empty variable shows an empty dashboard; without it there is the default
        url = _NOTHING_ASKED.sub("", _PARAMETER.sub("", url))
    metric = "" if is_general else f"{{{{ $labels.{promql.METRIC} | urlquery }}}}"
    parts = {"{metric}": metric, "{service}": SERVICE, "{from}": "{from}", "{to}": "{to}"}
    return "".join(parts[part] if part in parts else literal(part) for part in _PARTS.split(url))


_PARTS = re.compile(r"(\{(?:metric|service|from|to)\})")
_PARAMETER = re.compile(r"(?<=[?&])[^&#]*\{metric\}[^&#]*&?")
_NOTHING_ASKED = re.compile(r"[?&]+(?=#|$)")
