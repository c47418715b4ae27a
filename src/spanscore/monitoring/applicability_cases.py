"""What metrics with a condition tell → the unit test of the alert on one that never holds."""

from __future__ import annotations

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.applicability import ENOUGH, WINDOW_S
from spanscore.monitoring.names import label
from spanscore.monitoring.rule_case import STEPS, RuleTest, series_of

__all__ = ["never_applied"]


def never_applied() -> RuleTest:
    """A condition that held for nobody, one that did at times, and ones of which too few units were judged to know."""
    many = ENOUGH
    grows = {  # job → Σw and Σw² of what did not apply, Σw and Σw² of what did, with each evaluation
        "never": (many, many, 0, 0),
        "sometimes": (many, many, 1, 1),
        "few": (1, 1, 0, 0),
        "heavy": (many, many * many, 0, 0),
    }
    columns = [(name, answer) for answer in ("false", "true") for name in (_WEIGHT, _WEIGHT2)]
    traffic = [
        {
            "series": series_of(name, {**_METRIC, label(semconv.APPLICABLE): answer, "job": job}),
            "values": f"0+{step}x{STEPS}",
        }
        for job, steps in grows.items()
        for (name, answer), step in zip(columns, steps, strict=True)
    ]
    fires = {"alertname": "SpanscoreNeverApplies", "metric": "refunds", "window": promql.duration(WINDOW_S)}
    return RuleTest("a condition that never holds is seen", traffic, [fires], of="SpanscoreNeverApplies")


_WEIGHT, _WEIGHT2 = semconv.APPLICABLE_WEIGHT, semconv.APPLICABLE_WEIGHT2
_METRIC = {promql.METRIC: "refunds", promql.EVALUATOR_VERSION: "1"}
