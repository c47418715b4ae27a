"""The built-in metrics, and the classes for writing another. A metric measures a sample and returns a score."""

from spanscore.core.prompt import Example as Example
from spanscore.core.score import BINARY as BINARY
from spanscore.core.score import Scale as Scale
from spanscore.metrics.agent_goal import AgentGoalAccuracy as AgentGoalAccuracy
from spanscore.metrics.agent_goal import AgentGoalAccuracyWithoutReference as AgentGoalAccuracyWithoutReference
from spanscore.metrics.agent_goal import AgentGoalAccuracyWithReference as AgentGoalAccuracyWithReference
from spanscore.metrics.answer_correctness import AnswerCorrectness as AnswerCorrectness
from spanscore.metrics.aspect_critic import AspectCritic as AspectCritic
from spanscore.metrics.catalog.registry import create as create
from spanscore.metrics.category import Category as Category
from spanscore.metrics.checks import CitationPresent as CitationPresent
from spanscore.metrics.checks import ContainsPII as ContainsPII
from spanscore.metrics.checks import JsonSchema as JsonSchema
from spanscore.metrics.checks import JsonValid as JsonValid
from spanscore.metrics.checks import LanguageIs as LanguageIs
from spanscore.metrics.checks import Latency as Latency
from spanscore.metrics.checks import Length as Length
from spanscore.metrics.checks import RefusalWords as RefusalWords
from spanscore.metrics.checks import Regex as Regex
from spanscore.metrics.checks import Tokens as Tokens
from spanscore.metrics.context_entity_recall import ContextEntityRecall as ContextEntityRecall
from spanscore.metrics.context_matching import IDBasedContextPrecision as IDBasedContextPrecision
from spanscore.metrics.context_matching import IDBasedContextRecall as IDBasedContextRecall
from spanscore.metrics.context_matching import (
    NonLLMContextPrecisionWithReference as NonLLMContextPrecisionWithReference,
)
from spanscore.metrics.context_matching import NonLLMContextRecall as NonLLMContextRecall
from spanscore.metrics.context_precision import ContextPrecision as ContextPrecision
from spanscore.metrics.context_precision import ContextUtilization as ContextUtilization
from spanscore.metrics.context_precision import (
    LLMContextPrecisionWithoutReference as LLMContextPrecisionWithoutReference,
)
from spanscore.metrics.context_precision import LLMContextPrecisionWithReference as LLMContextPrecisionWithReference
from spanscore.metrics.context_recall import ContextRecall as ContextRecall
from spanscore.metrics.context_recall import LLMContextRecall as LLMContextRecall
from spanscore.metrics.context_relevancy_v0 import ContextRelevancyV0 as ContextRelevancyV0
from spanscore.metrics.factual_correctness import FactualCorrectness as FactualCorrectness
from spanscore.metrics.faithfulness import Faithfulness as Faithfulness
from spanscore.metrics.faithfulness_with_hhem import FaithfulnessWithHHEM as FaithfulnessWithHHEM
from spanscore.metrics.function import metric as metric
from spanscore.metrics.judged_parts import AnswerCompleteness as AnswerCompleteness
from spanscore.metrics.judged_parts import PlanAdherence as PlanAdherence
from spanscore.metrics.judged_tool_calls import ErrorRecovery as ErrorRecovery
from spanscore.metrics.judged_tool_calls import StepEfficiency as StepEfficiency
from spanscore.metrics.judged_tool_calls import ToolArguments as ToolArguments
from spanscore.metrics.judged_tool_calls import ToolSelection as ToolSelection
from spanscore.metrics.kit.base import BaseMetric as BaseMetric
from spanscore.metrics.kit.base import Finding as Finding
from spanscore.metrics.kit.condition import BinaryAnswer as BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric as JudgedMetric
from spanscore.metrics.kit.step import Step as Step
from spanscore.metrics.majority_vote import majority_vote as majority_vote
from spanscore.metrics.noise_sensitivity import NoiseSensitivity as NoiseSensitivity
from spanscore.metrics.ragas_score import ragas_score as ragas_score
from spanscore.metrics.response_relevancy import ResponseRelevancy as ResponseRelevancy
from spanscore.metrics.rouge_score import Rouge as Rouge
from spanscore.metrics.rubrics import InstanceRubrics as InstanceRubrics
from spanscore.metrics.rubrics import Rubrics as Rubrics
from spanscore.metrics.sacrebleu import Bleu as Bleu
from spanscore.metrics.sacrebleu import Chrf as Chrf
from spanscore.metrics.semantic_similarity import SemanticSimilarity as SemanticSimilarity
from spanscore.metrics.simple_criteria import SimpleCriteria as SimpleCriteria
from spanscore.metrics.string_similarity import ExactMatch as ExactMatch
from spanscore.metrics.string_similarity import NonLLMStringSimilarity as NonLLMStringSimilarity
from spanscore.metrics.string_similarity import StringPresence as StringPresence
from spanscore.metrics.string_similarity import StringSimilarity as StringSimilarity
from spanscore.metrics.tool_calls import ToolCallAccuracy as ToolCallAccuracy
from spanscore.metrics.tool_calls import ToolCallF1 as ToolCallF1
from spanscore.metrics.topic_adherence import TopicAdherence as TopicAdherence
from spanscore.metrics.two_ratings import AnswerAccuracy as AnswerAccuracy
from spanscore.metrics.two_ratings import ContextRelevance as ContextRelevance
from spanscore.metrics.two_ratings import ResponseGroundedness as ResponseGroundedness

# The imported names, without the submodules that the imports bind.
__all__ = sorted(name for name, thing in globals().items() if name[0] != "_" and hasattr(thing, "__module__"))  # noqa: PLE0605
