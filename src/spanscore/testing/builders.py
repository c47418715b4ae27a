"""Builders: spans, units and scores with everything a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from spanscore import semconv
from spanscore.core.score import UNIT_INTERVAL, Outcome, Score
from spanscore.core.span import SpanData, Unit, UnitKey

__all__ = ["make_score", "make_span", "make_unit"]

_ids = count(1)
_LASTS_NS = 1_000_000_000
"""How long a span lasts: longer than the time from the first made span to the last, so that children begin within it."""


def make_span(
    operation: str = semconv.INVOKE_WORKFLOW, /, *, attributes: Mapping[str, Any] | None = None, **fields: Any
) -> SpanData:
    """Return a span of the capture scope that lasts a second; a root unless ``parent_id`` is given."""
    number = next(_ids)
    given: dict[str, Any] = {
        "trace_id": number,
        "span_id": number,
        "parent_id": None,
        "name": f"{operation} test",
        "start_ns": number * 1_000,
        "end_ns": number * 1_000 + _LASTS_NS,
        **fields,
    }
    return SpanData(attributes={semconv.OPERATION_NAME: operation, **(attributes or {})}, **given)


def make_unit(root: SpanData, /, *children: SpanData) -> Unit:
    """Return a complete unit of a root and its descendants, in start order."""
    spans = tuple(sorted((root, *children), key=lambda span: span.start_ns))
    return Unit(UnitKey(root.trace_id, root.span_id), spans)


def make_score(value: float | None = 1.0, /, metric: str = "faithfulness", **fields: Any) -> Score:
    """Return a score; without a value its outcome is ``no_value`` unless ``outcome`` says otherwise."""
    scale = fields.pop("scale", UNIT_INTERVAL)
    quality = None if value is None else scale.quality(value)
    given: dict[str, Any] = {
        "version": "1",
        "evaluator_version": "1/judge/1",
        "outcome": Outcome.NO_VALUE if value is None else Outcome.SCORED,
        "quality": quality,
        "label": scale.label(quality),
        "probability": 1.0,
        "threshold": 0,
        **fields,
    }
    return Score(metric=metric, scale=scale, value=value, **given)
