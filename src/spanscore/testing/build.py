"""build_metric: a metric by name, as configuration and reference cases name it."""

from __future__ import annotations

from typing import Any

from spanscore.metrics.registry import create
from spanscore.protocols import Metric

__all__ = ["build_metric"]


def build_metric(metric: str, /, *, judge: Any = None, embeddings: Any = None, **params: Any) -> Metric:
    """Return a metric by name, with a judge and embeddings where it takes them.

    Args:
        metric: a built-in's name, or ``"my_pkg.metrics:Politeness"``.
        judge: a Judge or a chat model; ignored by metrics that ask none.
        embeddings: likewise.
        params: of the metric; ``name`` may be one.

    Raises:
        ConfigurationError: unknown name or parameter.
    """
    return create(metric, judge=judge, embeddings=embeddings, **params)
