"""Metrics by name: how each is made, what its docstring says, and which scores come from the offline judge."""

from __future__ import annotations

import inspect
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from types import MappingProxyType
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
    named: dict[str, type[BaseMetric]] = {}
    for kind in kinds:
        if kind.measure is not BaseMetric.measure:
            default = getattr(kind, "name", None) or inspect.signature(kind).parameters["name"].default
            named[str(default)] = kind
    return MappingProxyType(named)


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
    check_bundles(named.values())
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
    """The parts of a metric's docstring, which is their one place; a part that it does not have is empty.

    The labels of the docstring cut it::

        Does …?                                             question: the first paragraph
        Formula: … Range [0, 1], higher is better. …        formula, range, direction
        Fields: … Judge calls: …                            fields, judge_calls
        Blind spot: …                                       blind_spot
        Source: … Deviations: …                             source, deviations ("Deviations: none." if there are none)

    A label opens a paragraph or stands behind a sentence's end. Its text goes to the next label or to the paragraph's end. A
    paragraph without a label is for the reader of the docstring alone.

    Attributes:
        question: that it answers.
        formula: how the value comes about.
        range: of the values, as ``[0, 1]`` or ``{0, 1}``.
        direction: ``higher`` or ``lower`` is better, by default.
        fields: that a sample must have.
        judge_calls: per sample; ``none.`` for a metric that computes.
        blind_spot: what it does not see.
        source: the paper or project it comes from.
        deviations: from that source.
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
        """The parts that are empty."""
        return [part.name for part in fields(self) if not getattr(self, part.name)]


def metric_doc_of(metric: Any) -> MetricDoc:
    """Return the doc of a metric or of its class; with empty parts where its docstring does not have them."""
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
AUC 0.86 against the same answers beside another question.
"""
_BLIND: Mapping[str, str] = {
    "critique": "passes every answer without an insult, whatever its definition; for a ready aspect it looks for a few words",
    "generate_question": _SHARED_WORDS,
}
"""Step → what is left of the metric that asks it when words are compared; of the other steps it is what it says."""


def offline_notes(metrics: Iterable[Metric]) -> list[str]:
    """Return what must be known of their scores, a sentence each; nothing where no metric is judged offline."""
    judged = [metric for metric in metrics if _is_offline(metric)]
    return [COMPARES_WORDS, *blind_spots(judged)] if judged else []


def blind_spots(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yield what the offline judge makes of those metrics of which that is not what they say."""
    found: dict[str, list[str]] = {}
    for metric in metrics:
        for step in getattr(metric, "steps", ()):
            if step in _BLIND and _is_offline(metric):
                found.setdefault(_BLIND[step], []).append(metric.name)
    for what, names in found.items():
        yield f"Offline, {' and '.join(names)} {what}."


def _is_offline(metric: Any) -> bool:
    """Whether it asks the offline judge, also behind limits, and compares with no embeddings but the offline ones."""
    vectors = getattr(metric, "embeddings", LexicalEmbedder.model)
    return is_offline(getattr(metric, "_judge", None)) and vectors == LexicalEmbedder.model
