"""Adapters that run metric objects of ragas and DeepEval, which are imported when an adapter is made."""

from spanscore.metrics.adapters.deepeval import DeepEvalMetric
from spanscore.metrics.adapters.ragas import RagasMetric

__all__ = ["DeepEvalMetric", "RagasMetric"]
