"""build_metric: a metric by name, as configuration and reference cases name it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from spanscore.judges.build import shared_judge
from spanscore.metrics.catalog.registry import create
from spanscore.metrics.faithfulness_with_hhem import judged_pairs
from spanscore.metrics.kit.base import BaseMetric
from spanscore.protocols import Metric

__all__ = ["build_metric"]


class LooseClassifications(BaseModel):
    """Flags of any kind: what a judge with a schema of its own might give."""

    classifications: list[Any]


def build_metric(
    metric: str,
    /,
    *,
    judge: Any = None,
    embeddings: Any = None,
    loose_classification_schema: bool = False,
    **params: Any,
) -> Metric:
    """Return a metric by name, with a judge and embeddings where it takes them.

    Args:
        metric: a built-in's name, or ``"my_pkg.metrics:Politeness"``.
        judge: a Judge or a chat model; ignored by metrics that ask none. It stands in for the local classifier of
            ``faithfulness_with_hhem`` too (step ``classify_pairs``), so that no model need be loaded.
        embeddings: an Embedder or LangChain embeddings; likewise.
        loose_classification_schema: the step ``classify_topics`` takes flags of any type, so that their conversion is reached.
        params: of the metric; ``name`` may be one.

    Raises:
        ConfigurationError: unknown name or parameter.
    """
    if metric == "faithfulness_with_hhem" and judge is not None:
        params.setdefault("classifier", judged_pairs(shared_judge(judge)))
    made = create(metric, judge=judge, embeddings=embeddings, **params)
    if loose_classification_schema and isinstance(made, BaseMetric):
        step = made.steps["classify_topics"]
        made.steps = {**made.steps, step.name: replace(step, output=LooseClassifications)}
    return made
