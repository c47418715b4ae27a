"""The metric registry: make a metric by name, read the parts of its docstring, and list the limits of the offline judge."""

from __future__ import annotations

import inspect
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from types import FunctionType, MappingProxyType
from typing import Any, TypeVar

from spanscore.core.plugins import Registry
from spanscore.errors import ConfigurationError
from spanscore.judges.embeddings import LexicalEmbedder
from spanscore.judges.lexical.judge import is_offline
from spanscore.metrics.kit.base import BaseMetric
from spanscore.metrics.kit.graded import check_bundles
from spanscore.protocols import Metric

T = TypeVar("T")

ALIASES: Mapping[str, str] = {
    "answer_relevancy": "response_relevancy",
    "context_precision": "llm_context_precision_with_reference",
    "context_recall": "llm_context_recall",
}
"""Alias of a built-in → its name. The scores of a metric made by its alias have the alias as name, unless ``name`` is set."""
RENAMED: Mapping[str, str] = {
    "nv_accuracy": "answer_accuracy",
    "nv_context_relevance": "context_relevance",
    "nv_response_groundedness": "response_groundedness",
}
"""Former name of a built-in metric → its name, which its scores have. A former name is accepted wherever a name is."""


@cache
def built_ins() -> Mapping[str, type[BaseMetric]]:
    """Return the metric classes that ``spanscore.metrics`` exports, by the default names of their scores.

    Base classes without a ``measure`` method of their own are left out.
    """
    exported = vars(import_module("spanscore.metrics")).values()  # not above, because that module imports this file
    by_name: dict[str, type[BaseMetric]] = {}
    for item in exported:
        if isinstance(item, type) and issubclass(item, BaseMetric) and item.measure is not BaseMetric.measure:
            name = getattr(item, "name", None) or inspect.signature(item).parameters["name"].default
            by_name[str(name)] = item
    return MappingProxyType(by_name)


def create(metric: str, /, *, judge: Any = None, embeddings: Any = None, **params: Any) -> Metric:
    """Return a metric by name.

    Args:
        metric: name of a built-in (``"faithfulness"``), an alias (``"context_recall"``), or the import path of your own metric
            (``"my_pkg.metrics:Politeness"``): a class, a function that returns a metric, or a metric.
        judge: judge of the metric; ignored by metrics that take no judge.
        embeddings: embeddings of the metric; ignored by metrics that take no embeddings. None with the offline judge =
            ``"lexical"``.
        params: keyword arguments of the metric, ``name`` included.

    Raises:
        ConfigurationError: a name or parameter is unknown (the message names close ones), or a parameter is invalid.
    """
    if embeddings is None and (judge == "lexical" or is_offline(judge)):
        embeddings = "lexical"  # the offline judge needs no API key, so neither may the embeddings
    alias = metric if metric in ALIASES else None
    created: Metric = _metrics().make(current_name(metric), params, judge=judge, embeddings=embeddings, name=alias)
    return created


def by_name(metrics: Iterable[Any]) -> dict[str, Metric]:
    """Return name of the scores → metric, in the order of the metrics.

    Raises:
        ConfigurationError: an object is not a metric, a parameter cannot be part of the version, or two names are equal.
    """
    if isinstance(metrics, Metric):
        raise ConfigurationError(
            f"{metrics.name} is one metric, not a list of them: write [{type(metrics).__name__}(…)]"
        )
    named: dict[str, Metric] = {}
    for metric in [metrics] if isinstance(metrics, str) else metrics:
        if isinstance(metric, str):
            raise ConfigurationError(_message_on_name(metric))
        if isinstance(metric, type) or not isinstance(metric, Metric):
            raise ConfigurationError(_message_on_object(metric))
        if metric.name in named:
            raise ConfigurationError(f"two metrics are called {metric.name!r}; give one of them another name=")
        _ = metric.evaluator_version  # raises for an invalid parameter now, not at the first score
        named[metric.name] = metric
    check_bundles(named.values())
    return named


def _message_on_object(candidate: Any) -> str:
    """Return the error message on an object that is not a metric; it shows how to make one of a class or a function."""
    if isinstance(candidate, type) and isinstance(getattr(candidate, "score", None), FunctionType):
        return f"{candidate.__name__} is the class of a metric, not a metric: write {_constructor(candidate)}"
    if isinstance(candidate, FunctionType):
        return (
            f"{candidate.__name__} is a function, not a metric: write @metric above it (from spanscore import metric)"
        )
    return f"{candidate!r} is no metric: it needs name, version, scale, requires and score"


def _constructor(maker: Any) -> str:
    """Return the call that makes a metric, such as ``Faithfulness(llm)``."""
    return f"{maker.__name__}({'llm' if 'judge' in inspect.signature(maker).parameters else ''})"


def _message_on_name(name: str) -> str:
    """Return the error message on a metric's name in place of a metric; it shows how to make the metric."""
    maker = find_metric(name)
    has_judge = callable(maker) and "judge" in inspect.signature(maker).parameters
    constructor = _constructor(maker) if callable(maker) else f"{name}()"
    call = f"spanscore.metrics.create({name!r}{', judge=…' if has_judge else ''})"
    return f"{name!r} is the name of a metric, not a metric: write {constructor}, or {call}"


def own_name(metric: str) -> str:
    """Return a built-in's name for its alias or former name, and any other name unchanged."""
    return ALIASES.get(metric) or current_name(metric)


def current_name(metric: str) -> str:
    """Return a built-in's name for its former name, and any other name unchanged."""
    return RENAMED.get(metric, metric)


def under_current_names(by_name: Mapping[str, T], metrics: Container[str]) -> dict[str, T]:
    """Return a mapping with former names of built-ins replaced by their current names.

    Args:
        metrics: names of the metrics in use; a former name among them (``name="nv_accuracy"``) is kept.
    """
    return {name if name in metrics else current_name(name): value for name, value in by_name.items()}


def find_metric(metric: str) -> Any:
    """Return the class, function or metric of a name.

    Raises:
        ConfigurationError: the name is unknown.
    """
    return _metrics().find(current_name(metric))


def _metrics() -> Registry:
    return Registry(
        kind="metric", protocol=Metric, example="my_pkg.metrics:Politeness", built_in=built_ins(), aliases=ALIASES
    )


_LABELS = {
    "Formula": "formula",
    "Fields": "fields",
    "Judge calls": "judge_calls",
    "Blind spot": "blind_spot",
    "Blind spots": "blind_spot",
    "Source": "source",
    "Sources": "source",
    "Deviation": "deviations",
    "Deviations": "deviations",
}
_LABEL = re.compile(rf"(?:^|(?<=[.;:!?)\"”] ))({'|'.join(sorted(_LABELS, key=len, reverse=True))}): ")
_RANGE = re.compile(r"Range (.+?), (higher|lower) is better")
_ARGUMENTS = re.compile(r"^(?:Args|Attributes|Raises|Example|Examples):\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDoc:
    """The labelled parts of a metric's docstring. A part without a label in the docstring is empty.

    Labels divide the docstring::

        Does …?                                             question: the first paragraph
        Formula: … Range [0, 1], higher is better. …        formula, range, direction
        Fields: … Judge calls: …                            fields, judge_calls
        Blind spot: …                                       blind_spot
        Source: … Deviations: …                             source, deviations ("Deviations: none." without any)

    A label opens a paragraph or follows the end of a sentence. Its text ends at the next label or at the paragraph's end. A
    paragraph without a label, except the first, is in no part.

    Attributes:
        question: question that the metric answers.
        formula: computation of the value.
        range: range of the values, as ``[0, 1]`` or ``{0, 1}``.
        direction: default direction: ``higher`` or ``lower`` is better.
        fields: fields that a sample must have.
        judge_calls: judge calls per sample; ``none.`` for a metric that computes.
        blind_spot: faults that the metric cannot detect.
        source: paper or project of the method.
        deviations: differences from the source.
    """

    question: str = ""
    formula: str = ""
    range: str = ""
    direction: str = ""
    fields: str = ""
    judge_calls: str = ""
    blind_spot: str = ""
    source: str = ""
    deviations: str = ""

    @property
    def lacking(self) -> list[str]:
        """Names of the empty parts."""
        return [part.name for part in fields(self) if not getattr(self, part.name)]


def metric_doc_of(metric: Any) -> MetricDoc:
    """Return the parts of the docstring of a metric or a metric class."""
    text = _ARGUMENTS.split(inspect.cleandoc(metric.__doc__ or ""), maxsplit=1)[0]
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    parts: dict[str, str] = {"question": paragraphs[0]}
    for paragraph in paragraphs[1:]:
        _, *labelled = _LABEL.split(paragraph)
        for label, words in zip(labelled[::2], labelled[1::2], strict=True):
            parts.setdefault(_LABELS[label], words.strip())
    scale = _RANGE.search(text.replace("\n", " "))
    if scale is not None:
        parts |= {"range": scale[1], "direction": scale[2]}
    return MetricDoc(**parts)


COMPARES_WORDS = "The offline judge compares words: a first look, no verdict."
_SHARED_WORDS = "counts the words that answer and question share: good answers score low, too"
"""Measured on the 44 right answers of tests/data/grounding.jsonl and answers.jsonl: 0.21 on average, 86 % of them below 0.5;
AUC 0.86 against the same answers paired with another question.
"""
_BLIND: Mapping[str, str] = {
    "critique": "passes every answer without an insult, whatever its definition; for a ready aspect it looks for a few words",
    "generate_question": _SHARED_WORDS,
    "choose_category": "counts the words that a category's meaning shares with the question",
}
"""Step → limit of the offline judge on metrics with this step. For other steps the offline judge is an approximation."""


def offline_notes(metrics: Iterable[Metric]) -> list[str]:
    """Return the limits of scores by the offline judge, one sentence each; empty if no metric uses that judge."""
    judged = [metric for metric in metrics if _is_offline(metric)]
    return [COMPARES_WORDS, *blind_spots(judged)] if judged else []


def blind_spots(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yield one sentence per limit of the offline judge, with the names of the affected metrics."""
    names_by_limit: dict[str, list[str]] = {}
    for metric in metrics:
        for step in getattr(metric, "steps", ()):
            if step in _BLIND and _is_offline(metric):
                names_by_limit.setdefault(_BLIND[step], []).append(metric.name)
    for limit, names in names_by_limit.items():
        yield f"Offline, {' and '.join(names)} {limit}."


def _is_offline(metric: Any) -> bool:
    """Whether the metric uses the offline judge, even inside limits, and no embeddings other than the offline embeddings."""
    embeddings = getattr(metric, "embeddings", LexicalEmbedder.model)
    return is_offline(getattr(metric, "_judge", None)) and embeddings == LexicalEmbedder.model
