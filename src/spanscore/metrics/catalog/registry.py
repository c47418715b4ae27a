"""A name and plain parameters → a metric: what configuration files, the command line and the test kit use."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

from spanscore.errors import ConfigurationError
from spanscore.judges.lexical.judge import is_offline
from spanscore.protocols import Metric

__all__ = ["ALIASES", "BUILT_IN", "built_in", "by_name", "create", "found"]

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "agent_goal_accuracy": "spanscore.metrics.agent_goal:AgentGoalAccuracy",
        "agent_goal_accuracy_with_reference": "spanscore.metrics.agent_goal:AgentGoalAccuracyWithReference",
        "agent_goal_accuracy_without_reference": "spanscore.metrics.agent_goal:AgentGoalAccuracyWithoutReference",
        "answer_correctness": "spanscore.metrics.answer_correctness:AnswerCorrectness",
        "aspect_critic": "spanscore.metrics.aspect_critic:AspectCritic",
        "bleu_score": "spanscore.metrics.sacrebleu:Bleu",
        "chrf_score": "spanscore.metrics.sacrebleu:Chrf",
        "context_entity_recall": "spanscore.metrics.context_entity_recall:ContextEntityRecall",
        "context_relevancy_v0": "spanscore.metrics.context_relevancy_v0:ContextRelevancyV0",
        "exact_match": "spanscore.metrics.exact_match:ExactMatch",
        "factual_correctness": "spanscore.metrics.factual_correctness:FactualCorrectness",
        "faithfulness": "spanscore.metrics.faithfulness:Faithfulness",
        "faithfulness_with_hhem": "spanscore.metrics.faithfulness_with_hhem:FaithfulnessWithHHEM",
        "id_based_context_precision": "spanscore.metrics.context_ids:IDBasedContextPrecision",
        "id_based_context_recall": "spanscore.metrics.context_ids:IDBasedContextRecall",
        "instance_rubrics": "spanscore.metrics.rubrics:InstanceRubrics",
        "llm_context_precision_with_reference": "spanscore.metrics.context_precision:LLMContextPrecisionWithReference",
        "llm_context_precision_without_reference": "spanscore.metrics.context_precision:LLMContextPrecisionWithoutReference",
        "llm_context_recall": "spanscore.metrics.context_recall:LLMContextRecall",
        "noise_sensitivity": "spanscore.metrics.noise_sensitivity:NoiseSensitivity",
        "non_llm_context_precision": "spanscore.metrics.context_strings:NonLLMContextPrecisionWithReference",
        "non_llm_context_recall": "spanscore.metrics.context_strings:NonLLMContextRecall",
        "non_llm_string_similarity": "spanscore.metrics.string_similarity:StringSimilarity",
        "nv_accuracy": "spanscore.metrics.answer_accuracy:AnswerAccuracy",
        "nv_context_relevance": "spanscore.metrics.context_relevance:ContextRelevance",
        "nv_response_groundedness": "spanscore.metrics.response_groundedness:ResponseGroundedness",
        "response_relevancy": "spanscore.metrics.response_relevancy:ResponseRelevancy",
        "rouge_score": "spanscore.metrics.rouge_score:Rouge",
        "rubrics_score": "spanscore.metrics.rubrics:Rubrics",
        "semantic_similarity": "spanscore.metrics.semantic_similarity:SemanticSimilarity",
        "simple_criteria_score": "spanscore.metrics.simple_criteria:SimpleCriteria",
        "string_presence": "spanscore.metrics.string_presence:StringPresence",
        "tool_call_accuracy": "spanscore.metrics.tool_call_accuracy:ToolCallAccuracy",
        "tool_call_f1": "spanscore.metrics.tool_calls:ToolCallF1",
        "topic_adherence": "spanscore.metrics.topic_adherence:TopicAdherence",
    }
)
"""Name → where its class stands. A new metric is a new file and a line here."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "answer_accuracy": "nv_accuracy",
        "answer_relevancy": "response_relevancy",
        "context_precision": "llm_context_precision_with_reference",
        "context_recall": "llm_context_recall",
        "context_relevance": "nv_context_relevance",
        "response_groundedness": "nv_response_groundedness",
    }
)
"""What people call a built-in → its name. A metric made by its alias calls its scores so, unless ``name`` says otherwise."""


def create(metric: str, /, *, judge: Any = None, embeddings: Any = None, **params: Any) -> Metric:
    """Return a metric by name.

    Args:
        metric: a built-in (``"faithfulness"``), an alias of one (``"context_relevance"``), or ``"my_pkg.metrics:Politeness"``
            from outside: a class, a function that returns a metric, or a metric itself.
        judge: handed on to metrics that take one; ignored by the others.
        embeddings: likewise; the offline ones when None beside the offline judge.
        params: of the metric; ``name`` may be one.

    Raises:
        ConfigurationError: unknown name or parameter (the message names close ones), or a parameter that cannot be.
    """
    if embeddings is None and (judge == "lexical" or is_offline(judge)):
        embeddings = "lexical"  # without a key means without any
    maker = found(metric)
    if not callable(maker) or (isinstance(maker, Metric) and not isinstance(maker, type)):
        return _as_it_is(metric, maker, params)
    called = metric if metric in ALIASES else None
    given = {**_wanted(maker, judge=judge, embeddings=embeddings, name=called), **params}
    _check_parameters(metric, maker, given)
    made = maker(**given)
    if not isinstance(made, Metric):
        raise ConfigurationError(f"metric {metric!r} made a {type(made).__name__}, which is no metric")
    return made


def by_name(metrics: Iterable[Any]) -> dict[str, Metric]:
    """Return metrics under the names of their scores, in order.

    Raises:
        ConfigurationError: one is no metric, or two have the same name.
    """
    named: dict[str, Metric] = {}
    for metric in metrics:
        if isinstance(metric, str):
            raise ConfigurationError(_how_to_make(metric))
        if not isinstance(metric, Metric):
            raise ConfigurationError(f"{metric!r} is no metric: it needs name, version, scale, requires and score")
        if metric.name in named:
            raise ConfigurationError(f"two metrics are called {metric.name!r}; give one of them another name=")
        named[metric.name] = metric
    return named


def _how_to_make(name: str) -> str:
    """Return what to write instead of a metric's name.

    Raises:
        ConfigurationError: there is no such metric; it names close ones.
    """
    kind = found(name)
    needs = inspect.signature(kind).parameters if callable(kind) else {}
    write = f"{getattr(kind, '__name__', name)}({'llm' if 'judge' in needs else ''})"
    create = f"spanscore.metrics.create({name!r}{', judge=…' if 'judge' in needs else ''})"
    return f"{name!r} is the name of a metric, not a metric: write {write}, or {create}"


def built_in(metric: str) -> str:
    """Return a built-in's own name for its alias, any other name as it is."""
    return ALIASES.get(metric, metric)


def found(metric: str) -> Any:
    """Return the class, function or metric a name stands for.

    Raises:
        ConfigurationError: there is none.
    """
    path = BUILT_IN.get(built_in(metric), metric)
    module, colon, attribute = path.partition(":")
    if not colon:
        close = get_close_matches(metric, [*BUILT_IN, *ALIASES], n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"built in are {', '.join(sorted(BUILT_IN))}."
        raise ConfigurationError(
            f"unknown metric {metric!r}: {hint} One from outside is written 'my_pkg.metrics:Politeness'"
        )
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise ConfigurationError(f"metric {metric!r}: {error}") from error
    except AttributeError as error:
        raise ConfigurationError(f"metric {metric!r}: module {module} has no {attribute}") from error


def _as_it_is(metric: str, made: Any, params: Mapping[str, Any]) -> Metric:
    if not isinstance(made, Metric):
        raise ConfigurationError(f"metric {metric!r} is a {type(made).__name__}, which is no metric")
    if params:
        raise ConfigurationError(f"metric {metric!r} is ready made and takes no parameters, got {sorted(params)}")
    return made


def _wanted(maker: Any, **offered: Any) -> dict[str, Any]:
    """Return what the maker takes of it. A required one that is None is handed on: the metric says best what it needs."""
    parameters = inspect.signature(maker).parameters
    return {
        name: value
        for name, value in offered.items()
        if name in parameters and (value is not None or parameters[name].default is inspect.Parameter.empty)
    }


def _check_parameters(metric: str, maker: Any, given: Mapping[str, Any]) -> None:
    signature = inspect.signature(maker)
    known = [name for name in signature.parameters if name != "self"]
    for name in given:
        if name not in known and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it takes {', '.join(known)}"
            raise ConfigurationError(f"metric {metric!r} has no parameter {name!r}: {hint}")
    try:
        signature.bind(**given)
    except TypeError as error:
        raise ConfigurationError(f"metric {metric!r}: {error}") from error
