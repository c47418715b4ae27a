"""Sample → Score: the metrics, and what one needs to write another."""

from spanscore.metrics.aspect_critic import AspectCritic
from spanscore.metrics.base import BaseMetric, Finding
from spanscore.metrics.exact_match import ExactMatch
from spanscore.metrics.faithfulness import Faithfulness
from spanscore.metrics.function import metric
from spanscore.metrics.registry import create

__all__ = ["AspectCritic", "BaseMetric", "ExactMatch", "Faithfulness", "Finding", "create", "metric"]
