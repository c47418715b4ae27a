"""Sample → Score: the metrics, and what one needs to write another."""

from spanscore.metrics.answer_accuracy import AnswerAccuracy
from spanscore.metrics.aspect_critic import AspectCritic
from spanscore.metrics.base import BaseMetric, Finding
from spanscore.metrics.context_entity_recall import ContextEntityRecall
from spanscore.metrics.context_ids import IDBasedContextPrecision, IDBasedContextRecall
from spanscore.metrics.context_precision import (
    ContextPrecision,
    ContextUtilization,
    LLMContextPrecisionWithoutReference,
    LLMContextPrecisionWithReference,
)
from spanscore.metrics.context_recall import ContextRecall, LLMContextRecall
from spanscore.metrics.context_relevance import ContextRelevance
from spanscore.metrics.context_relevancy_v0 import ContextRelevancyV0
from spanscore.metrics.context_strings import NonLLMContextPrecisionWithReference, NonLLMContextRecall
from spanscore.metrics.exact_match import ExactMatch
from spanscore.metrics.faithfulness import Faithfulness
from spanscore.metrics.function import metric
from spanscore.metrics.noise_sensitivity import NoiseSensitivity
from spanscore.metrics.registry import create
from spanscore.metrics.response_groundedness import ResponseGroundedness
from spanscore.metrics.response_relevancy import ResponseRelevancy
from spanscore.metrics.string_similarity import NonLLMStringSimilarity, StringSimilarity
from spanscore.metrics.tool_calls import ToolCallF1
from spanscore.metrics.topic_adherence import TopicAdherence

__all__ = [
    "AnswerAccuracy",
    "AspectCritic",
    "BaseMetric",
    "ContextEntityRecall",
    "ContextPrecision",
    "ContextRecall",
    "ContextRelevance",
    "ContextRelevancyV0",
    "ContextUtilization",
    "ExactMatch",
    "Faithfulness",
    "Finding",
    "IDBasedContextPrecision",
    "IDBasedContextRecall",
    "LLMContextPrecisionWithReference",
    "LLMContextPrecisionWithoutReference",
    "LLMContextRecall",
    "NoiseSensitivity",
    "NonLLMContextPrecisionWithReference",
    "NonLLMContextRecall",
    "NonLLMStringSimilarity",
    "ResponseGroundedness",
    "ResponseRelevancy",
    "StringSimilarity",
    "ToolCallF1",
    "TopicAdherence",
    "create",
    "metric",
]
