"""A configuration → what ``spanscore serve`` would do with it, and what keeps it from that; of one that says how to serve."""

from __future__ import annotations

from dataclasses import replace

from spanscore.cli._config_report import ConfigReport
from spanscore.errors import NotReadyError
from spanscore.service.plan import problems, told
from spanscore.settings.serving import ServeSettings
from spanscore.settings.tree import Settings

__all__ = ["listener_lines", "with_listeners"]


def listener_lines(settings: Settings) -> tuple[str, ...]:
    """Return what it would do, a line each; none where the configuration does not say how to serve."""
    return tuple(told(settings.serve)) if settings.serve != ServeSettings() else ()


def with_listeners(report: ConfigReport) -> ConfigReport:
    """Return a report with what is wrong about how to serve, and what this environment lacks of it."""
    if report.settings.serve == ServeSettings():
        return report
    found = [*problems(report.settings.serve)]
    wrong = [str(one) for one in found if not isinstance(one, NotReadyError)]
    missing = [str(one) for one in found if isinstance(one, NotReadyError)]
    shown = report.as_written
    return replace(report, errors=(*report.errors, *map(shown, wrong)), missing=(*report.missing, *map(shown, missing)))
