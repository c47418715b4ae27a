"""Units and scores as a sink meets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore import semconv
from spanscore.core.score import UNIT_INTERVAL, Outcome, Scale, Score, score_id
from spanscore.core.span import SpanData, Unit, UnitKey

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0xB7AD6B7169203331
KEY = UnitKey(TRACE_ID, SPAN_ID)
END_NS = 1_700_000_001_000_000_000


def unit(
    *, flags: int = 1, resource: Mapping[str, Any] | None = None, lasts_ns: int = 1_000_000_000, **attributes: Any
) -> Unit:
    root = SpanData(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        parent_id=None,
        name="invoke_workflow support",
        start_ns=END_NS - lasts_ns,
        end_ns=END_NS,
        attributes={semconv.WORKFLOW_NAME: "support", **attributes},
        trace_flags=flags,
        metadata={"user_tier": "gold", "secret": "x"},
        resource=resource,
    )
    return Unit(KEY, (root,))


def score(
    metric: str = "faithfulness", value: float | None = 0.75, *, scale: Scale = UNIT_INTERVAL, **changes: Any
) -> Score:
    quality = None if value is None else scale.quality(value)
    given = {
        "metric": metric,
        "version": "1",
        "outcome": Outcome.SCORED,
        "scale": scale,
        "value": value,
        "quality": quality,
        "label": scale.label(quality),
        "evaluator_version": "1+judge",
        "probability": 0.5,
        "threshold": 1 << 55,
        "rule": "base",
        "id": score_id(KEY, metric, "1", changes.get("revision", 0)),
    }
    return Score(**{**given, **changes})


def failed(metric: str = "faithfulness", outcome: Outcome = Outcome.JUDGE_ERROR, **changes: Any) -> Score:
    given = {"reason": "the judge did not answer", "error_type": "timeout", **changes}
    return score(metric, None, outcome=outcome, **given)


def undefined(metric: str = "faithfulness") -> Score:
    return score(metric, None, outcome=Outcome.NO_VALUE, reason="the answer has no statements")
