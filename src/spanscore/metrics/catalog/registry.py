"""A name and plain parameters → a metric: what configuration files, the command line and the test kit use."""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from spanscore.core.plugins import Registry
from spanscore.errors import ConfigurationError
from spanscore.judges.lexical.judge import is_offline
from spanscore.metrics.kit.base import BaseMetric
from spanscore.protocols import Metric

__all__ = [
    "ALIASES",
    "RENAMED",
    "built_ins",
    "by_name",
    "create",
    "current_name",
    "found",
    "own_name",
    "under_current_names",
]

T = TypeVar("T")

ALIASES: Mapping[str, str] = {
    "answer_relevancy": "response_relevancy",
    "context_precision": "llm_context_precision_with_reference",
    "context_recall": "llm_context_recall",
}
"""What people call a built-in → its name. A metric made by its alias calls its scores so, unless ``name`` says otherwise."""
RENAMED: Mapping[str, str] = {
    "nv_accuracy": "answer_accuracy",
    "nv_context_relevance": "context_relevance",
    "nv_response_groundedness": "response_groundedness",
}
"""What a built-in was called before → its name, which its scores carry. Still read wherever a metric is named."""


@cache
def built_ins() -> Mapping[str, type[BaseMetric]]:
    """Return the metrics that ``spanscore.metrics`` exports, by the names that their scores carry by default.

    What only helps to write one measures nothing.
    """
    exported = vars(import_module("spanscore.metrics")).values()  # not above: it imports this file
    kinds = [thing for thing in exported if isinstance(thing, type) and issubclass(thing, BaseMetric)]
    return MappingProxyType({_default_name(kind): kind for kind in kinds if kind.measure is not BaseMetric.measure})


def create(metric: str, /, *, judge: Any = None, embeddings: Any = None, **params: Any) -> Metric:
    """Return a metric by name.

    Args:
        metric: a built-in (``"faithfulness"``), an alias of one (``"context_recall"``), or ``"my_pkg.metrics:Politeness"``
            from outside: a class, a function that returns a metric, or a metric itself.
        judge: handed on to metrics that take one; ignored by the others.
        embeddings: likewise; the offline ones when None beside the offline judge.
        params: of the metric; ``name`` may be one.

    Raises:
        ConfigurationError: unknown name or parameter (the message names close ones), or a parameter that cannot be.
    """
    if embeddings is None and (judge == "lexical" or is_offline(judge)):
        embeddings = "lexical"  # without a key means without any
    called = metric if metric in ALIASES else None
    made: Metric = _metrics().made(current_name(metric), params, judge=judge, embeddings=embeddings, name=called)
    return made


def by_name(metrics: Iterable[Any]) -> dict[str, Metric]:
    """Return metrics under the names of their scores, in order.

    Raises:
        ConfigurationError: one is no metric, or holds what cannot be part of its version; or two have the same name.
    """
    if isinstance(metrics, Metric):
        raise ConfigurationError(
            f"{metrics.name} is one metric, not a list of them: write [{type(metrics).__name__}(…)]"
        )
    named: dict[str, Metric] = {}
    for metric in metrics:
        if isinstance(metric, str):
            raise ConfigurationError(_how_to_make(metric))
        if not isinstance(metric, Metric):
            raise ConfigurationError(f"{metric!r} is no metric: it needs name, version, scale, requires and score")
        if metric.name in named:
            raise ConfigurationError(f"two metrics are called {metric.name!r}; give one of them another name=")
        _ = metric.evaluator_version  # here, and not at its first score, it is told what cannot be
        named[metric.name] = metric
    return named


def _how_to_make(name: str) -> str:
    """Return what to write instead of a metric's name."""
    kind = found(name)
    needs = inspect.signature(kind).parameters if callable(kind) else {}
    write = f"{getattr(kind, '__name__', name)}({'llm' if 'judge' in needs else ''})"
    create = f"spanscore.metrics.create({name!r}{', judge=…' if 'judge' in needs else ''})"
    return f"{name!r} is the name of a metric, not a metric: write {write}, or {create}"


def own_name(metric: str) -> str:
    """Return a built-in's own name for its alias or the name that it had before; any other name as it is."""
    return ALIASES.get(metric) or current_name(metric)


def current_name(metric: str) -> str:
    """Return a built-in's name for the one that it had before, any other name as it is."""
    return RENAMED.get(metric, metric)


def under_current_names(given: Mapping[str, T], metrics: Container[str]) -> dict[str, T]:
    """Return what is given by metric with the current names in the place of those that built-ins had before.

    Args:
        given: metric → what is said of it.
        metrics: the names there are; one that a user keeps (``name="nv_accuracy"``) stays as it is.
    """
    return {name if name in metrics else current_name(name): value for name, value in given.items()}


def found(metric: str) -> Any:
    """Return the class, function or metric a name stands for.

    Raises:
        ConfigurationError: there is none.
    """
    return _metrics().found(current_name(metric))


def _metrics() -> Registry:
    return Registry(
        kind="metric", protocol=Metric, outside="my_pkg.metrics:Politeness", built_in=built_ins(), aliases=ALIASES
    )


def _default_name(kind: type[BaseMetric]) -> str:
    return str(getattr(kind, "name", None) or inspect.signature(kind).parameters["name"].default)
