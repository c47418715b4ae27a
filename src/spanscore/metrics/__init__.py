"""Sample → Score: the metrics, and what one needs to write another."""

from spanscore.metrics.agent_goal import (
    AgentGoalAccuracy,
    AgentGoalAccuracyWithoutReference,
    AgentGoalAccuracyWithReference,
)
from spanscore.metrics.answer_accuracy import AnswerAccuracy
from spanscore.metrics.answer_correctness import AnswerCorrectness
from spanscore.metrics.aspect_critic import AspectCritic
from spanscore.metrics.catalog.registry import create
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
from spanscore.metrics.factual_correctness import FactualCorrectness
from spanscore.metrics.faithfulness import Faithfulness
from spanscore.metrics.faithfulness_with_hhem import FaithfulnessWithHHEM
from spanscore.metrics.function import metric
from spanscore.metrics.kit.base import BaseMetric, Finding
from spanscore.metrics.majority_vote import majority_vote
from spanscore.metrics.noise_sensitivity import NoiseSensitivity
from spanscore.metrics.ragas_score import ragas_score
from spanscore.metrics.response_groundedness import ResponseGroundedness
from spanscore.metrics.response_relevancy import ResponseRelevancy
from spanscore.metrics.rouge_score import Rouge
from spanscore.metrics.rubrics import InstanceRubrics, Rubrics
from spanscore.metrics.sacrebleu import Bleu, Chrf
from spanscore.metrics.semantic_similarity import SemanticSimilarity
from spanscore.metrics.simple_criteria import SimpleCriteria
from spanscore.metrics.string_presence import StringPresence
from spanscore.metrics.string_similarity import NonLLMStringSimilarity, StringSimilarity
from spanscore.metrics.tool_call_accuracy import ToolCallAccuracy
from spanscore.metrics.tool_calls import ToolCallF1
from spanscore.metrics.topic_adherence import TopicAdherence

__all__ = [
    "AgentGoalAccuracy",
    "AgentGoalAccuracyWithReference",
    "AgentGoalAccuracyWithoutReference",
    "AnswerAccuracy",
    "AnswerCorrectness",
    "AspectCritic",
    "BaseMetric",
    "Bleu",
    "Chrf",
    "ContextEntityRecall",
    "ContextPrecision",
    "ContextRecall",
    "ContextRelevance",
    "ContextRelevancyV0",
    "ContextUtilization",
    "ExactMatch",
    "FactualCorrectness",
    "Faithfulness",
    "FaithfulnessWithHHEM",
    "Finding",
    "IDBasedContextPrecision",
    "IDBasedContextRecall",
    "InstanceRubrics",
    "LLMContextPrecisionWithReference",
    "LLMContextPrecisionWithoutReference",
    "LLMContextRecall",
    "NoiseSensitivity",
    "NonLLMContextPrecisionWithReference",
    "NonLLMContextRecall",
    "NonLLMStringSimilarity",
    "ResponseGroundedness",
    "ResponseRelevancy",
    "Rouge",
    "Rubrics",
    "SemanticSimilarity",
    "SimpleCriteria",
    "StringPresence",
    "StringSimilarity",
    "ToolCallAccuracy",
    "ToolCallF1",
    "TopicAdherence",
    "create",
    "majority_vote",
    "metric",
    "ragas_score",
]
