"""What a spool and workers tell → unit tests of the alerts on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.alert import ALL
from spanscore.monitoring.durable import BRIEF_S, GROWING, OLD, WAITED_S
from spanscore.monitoring.recorded import steady_window
from spanscore.monitoring.rule_case import MOST_STEPS, STEPS, RuleTest, series_of
from spanscore.settings.alerting import Monitoring

__all__ = ["durable_cases"]


def durable_cases(shared: Monitoring, absent: Sequence[Mapping[str, str]]) -> Iterator[RuleTest]:
    """Yield the tests; of a backlog only where the rules are not evaluated too often for it.

    Args:
        absent: the alerts that fire as there are no scores.
    """
    lost = {"alertname": "SpanscoreWorkerSkipped", "metric": ALL, "window": steady_window(shared)}
    aside = {"alertname": "SpanscoreSpoolDeadLetters", "metric": ALL, "window": promql.duration(BRIEF_S)}
    traffic = {
        (semconv.SPOOL_DEAD_LETTERS, "poisoned"): f"0 2x{STEPS}",
        (semconv.SPOOL_DEAD_LETTERS, "clean"): f"0x{STEPS}",
        (semconv.WORKER_SKIPPED, "gap"): f"0+1x{STEPS}",
        (semconv.WORKER_SKIPPED, "whole"): f"7x{STEPS}",
    }
    yield RuleTest("lost messages and jobs that were put aside are seen", _told(traffic), [lost, aside, *absent])
    if WAITED_S / shared.interval <= MOST_STEPS:
        yield _backlog(shared.interval)


def _backlog(interval_s: float) -> RuleTest:
    """Services whose backlog grows, is old, or comes and goes."""
    steps = ceil((WAITED_S + 2 * BRIEF_S) / interval_s) + STEPS
    swings = " ".join(["0 9000 90"] * steps)
    traffic = {
        (semconv.SPOOL_DEPTH, "grows"): f"0+10x{steps}",
        (semconv.SPOOL_DEPTH, "swings"): swings,
        (semconv.SPOOL_OLDEST, "old"): f"{2 * WAITED_S:g}x{steps}",
        (semconv.SPOOL_OLDEST, "swings"): swings,
        (semconv.WORKER_LAG, "grows"): f"0+10x{steps}",
        (semconv.WORKER_LAG, "swings"): swings,
    }
    seen = {"metric": ALL, "window": promql.duration(WAITED_S)}
    fires = [
        *({"alertname": "SpanscoreSpoolBacklog", **seen, "reason": reason} for reason in (OLD, GROWING)),
        {"alertname": "SpanscoreWorkerLagging", **seen},
    ]
    return RuleTest(
        "a backlog is seen", _told(traffic), fires, steps, of="SpanscoreSpoolBacklog|SpanscoreWorkerLagging"
    )


def _told(values: Mapping[tuple[str, str], str]) -> Iterator[dict[str, str]]:
    for (instrument, job), told in values.items():
        yield {"series": series_of(instrument, {"job": job}), "values": told}
