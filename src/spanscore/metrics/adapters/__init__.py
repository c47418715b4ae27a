"""Adapters that run metric objects of ragas and DeepEval: ``RagasMetric`` and ``DeepEvalMetric``, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanscore.metrics.adapters.deepeval import DeepEvalMetric as DeepEvalMetric
    from spanscore.metrics.adapters.ragas import RagasMetric as RagasMetric

_PUBLIC = {"DeepEvalMetric": "spanscore.metrics.adapters.deepeval", "RagasMetric": "spanscore.metrics.adapters.ragas"}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605  (one list of names, not two)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
