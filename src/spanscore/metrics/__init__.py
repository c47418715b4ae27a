"""Sample → Score: the metrics, and what one needs to write another."""

from spanscore.metrics.aspect_critic import AspectCritic
from spanscore.metrics.base import BaseMetric, Finding
from spanscore.metrics.exact_match import ExactMatch
from spanscore.metrics.faithfulness import Faithfulness
from spanscore.metrics.function import metric
from spanscore.metrics.registry import create
from spanscore.metrics.response_relevancy import ResponseRelevancy
from spanscore.metrics.tool_calls import ToolCallF1
from spanscore.metrics.topic_adherence import TopicAdherence

__all__ = [
    "AspectCritic",
    "BaseMetric",
    "ExactMatch",
    "Faithfulness",
    "Finding",
    "ResponseRelevancy",
    "ToolCallF1",
    "TopicAdherence",
    "create",
    "metric",
]
