"""A configuration → what ``serve`` and ``worker`` would do with it, and what keeps them from that; of one that says how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spanscore.cli._config_report import ConfigReport
from spanscore.config.serving import ServeSettings
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.service import plan, worker_plan

__all__ = ["service_lines", "with_services"]


def service_lines(settings: Configuration) -> dict[str, tuple[str, ...]]:
    """Return ``serve`` and ``worker`` → what each would do, a line each; none where the configuration does not say how."""
    works = (f"spanscore worker: {line}" for line in worker_plan.told(settings))
    return {
        "serve": tuple(plan.told(settings.serve)) if _serves(settings) else (),
        "worker": tuple(works) if worker_plan.reads(settings) else (),
    }


def with_services(report: ConfigReport) -> ConfigReport:
    """Return a report with what is wrong about how to serve or to work, and what this environment lacks of it."""
    problems = [*_problems(report.settings)]
    wrong = [str(problem) for problem in problems if not isinstance(problem, NotReadyError)]
    missing = [str(problem) for problem in problems if isinstance(problem, NotReadyError)]
    shown = report.as_written
    return replace(report, errors=(*report.errors, *map(shown, wrong)), missing=(*report.missing, *map(shown, missing)))


def _problems(settings: Configuration) -> Iterator[ConfigurationError]:
    if _serves(settings):
        yield from plan.problems(settings.serve)
    if worker_plan.reads(settings):
        yield from worker_plan.problems(settings)


def _serves(settings: Configuration) -> bool:
    return settings.serve != ServeSettings()
