"""RuleTest: one of promtool's unit tests of the rules, as plain values and as its tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from spanscore.monitoring import promql
from spanscore.monitoring.alert import PATIENCE
from spanscore.monitoring.health import AT_REST
from spanscore.monitoring.names import series
from spanscore.monitoring.recorded import SEGMENT
from spanscore.settings.alerting import Monitoring

__all__ = ["MOST_STEPS", "STEPS", "RuleTest", "series_of", "unit_test"]

STEPS: Final = 2 * AT_REST + PATIENCE
"""Evaluations after which every alert has held long enough."""
MOST_STEPS: Final = 2_000
"""Evaluations past which a test of hours takes promtool minutes."""
_JOB: Final = "bot"


class RuleTest(NamedTuple):
    """What is told to the rules, and which alerts must be the only ones to fire.

    Attributes:
        traffic: series and their values, in promtool's words.
        fires: the alerts' labels, their names among them.
        steps: evaluations, after which is looked.
        of: the alerts that are looked at, for ``=~``.
        more: further expressions → labels and values that they must return at the end.
    """

    name: str
    traffic: Iterable[Mapping[str, str]]
    fires: Sequence[Mapping[str, str]]
    steps: int = STEPS
    of: str = ".+"
    more: Mapping[str, Sequence[tuple[Mapping[str, str], float]]] = {}


def unit_test(case: RuleTest, shared: Monitoring) -> dict[str, Any]:
    """Return it as promtool reads it."""
    alerts = f'ALERTS{{alertstate="firing",alertname=~"{case.of}"}}'
    fires = f"count by (alertname, metric, window, {SEGMENT}, reason) ({alerts})"
    asked = {fires: [(labels, 1.0) for labels in case.fires], **case.more}
    return {
        "name": case.name,
        "interval": promql.duration(shared.interval),
        "input_series": list(case.traffic),
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": promql.duration(case.steps * shared.interval),
                "exp_samples": [{"labels": f"{{{promql.matching(one)}}}", "value": value} for one, value in expected],
            }
            for expression, expected in asked.items()
        ],
    }


def series_of(instrument: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series of an instrument, of one service unless the labels name another."""
    return f"{series(instrument)}{{{promql.matching({'job': _JOB, **labels})}}}"
