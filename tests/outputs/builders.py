"""Units and scores as a sink meets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore import semconv
from spanscore.core.score import Outcome, Score, ScoreValue, score_id
from spanscore.core.span import Unit, UnitKey
from spanscore.testing import make_score, make_span, make_unit

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0xB7AD6B7169203331
KEY = UnitKey(TRACE_ID, SPAN_ID)
END_NS = 1_700_000_001_000_000_000


def unit(
    *, flags: int = 1, resource: Mapping[str, Any] | None = None, lasts_ns: int = 1_000_000_000, **attributes: Any
) -> Unit:
    root = make_span(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        name="invoke_workflow support",
        start_ns=END_NS - lasts_ns,
        end_ns=END_NS,
        attributes={semconv.WORKFLOW_NAME: "support", **attributes},
        trace_flags=flags,
        metadata={"user_tier": "gold", "secret": "x"},
        resource=resource,
    )
    return make_unit(root)


def score(metric: str = "faithfulness", value: ScoreValue | None = 0.75, **changes: Any) -> Score:
    """Return a score of the unit that the base rate sampled, every second one."""
    decided = {"probability": 0.5, "threshold": 1 << 55, "rule": "base"}
    identity = {"evaluator_version": "1+judge", "id": score_id(KEY, metric, "1", changes.get("revision", 0))}
    return make_score(value, metric, **{**decided, **identity, **changes})


def failed(metric: str = "faithfulness", outcome: Outcome = Outcome.JUDGE_ERROR, **changes: Any) -> Score:
    given = {"reason": "the judge did not answer", "error_type": "timeout", **changes}
    return score(metric, None, outcome=outcome, **given)


def undefined(metric: str = "faithfulness") -> Score:
    return score(metric, None, outcome=Outcome.NO_VALUE, reason="the answer has no statements")
