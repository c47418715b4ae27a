"""Checks that a scorer's metrics and settings fit together; pairs the scores of second judges; makes the extractors."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

from spanscore.config.capture import Extract
from spanscore.config.sampling import Sampling
from spanscore.config.tree import ScorerSettings
from spanscore.config.units import InnerUnit
from spanscore.core.codecs.media import ImageLimit
from spanscore.core.job import JobResult
from spanscore.core.log import type_name
from spanscore.core.sample import ON_DEMAND
from spanscore.core.score import Outcome, Score, check_metric_name
from spanscore.core.span import InnerGroup, Unit, UnitKey
from spanscore.core.timebox import Timebox
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.middleware import identity_of
from spanscore.metrics.catalog.registry import by_name, under_current_names
from spanscore.metrics.kit.base import optional_of
from spanscore.monitoring.judge_check_runs import JudgeComparison, pair
from spanscore.pipeline.evaluation import asks_a_judge
from spanscore.pipeline.ledger import Ledger
from spanscore.protocols import Metric, SampleExtractor
from spanscore.samples.genai import DIALECTS
from spanscore.wiring.durable import without_local_scoring


class CheckedConfiguration(NamedTuple):
    """The metrics and the settings of a scorer that fit together.

    Attributes:
        settings: the settings, with rates under the present names of metrics.
        of_units: name → metric of units.
        of_sessions: name → metric of sessions.
        shadowing: name → metric with its second judge.
        of_inner: entry of ``units.also`` → names of the metrics that score its units.
    """

    settings: ScorerSettings
    of_units: Mapping[str, Metric]
    of_sessions: Mapping[str, Metric]
    shadowing: Mapping[str, Metric]
    of_inner: Mapping[InnerGroup, Sequence[str]]

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Name → metric of units or of sessions."""
        return {**self.of_units, **self.of_sessions}


def check_configuration(metrics: Sequence[Metric], settings: ScorerSettings) -> CheckedConfiguration:
    """Return metrics of units and settings that fit together.

    Raises:
        ConfigurationError: a name is taken or used twice, there is no metric, or a rate, a rule or a second judge names an
            unknown metric.
    """
    settings = without_local_scoring(settings)
    if not metrics and not settings.sessions.metrics:
        raise ConfigurationError("a scorer needs at least one metric: OnlineScorer(metrics=[Faithfulness(llm)])")
    of_units = by_name(metrics)
    of_sessions = checked_session_metrics(settings.sessions.metrics, of_units, settings.judge.shadows)
    names = [*of_units, *of_sessions]
    for name in names:
        check_metric_name(name)
    shadowing = checked_shadows(settings.judge.shadows, of_units)
    sampling = settings.sampling.model_copy(update={"rates": checked_rates(settings.sampling.rates, names)})
    check_condition_metrics(sampling, of_units)
    settings = settings.model_copy(update={"sampling": sampling})
    of_inner = checked_inner_metrics(settings.units.also, of_units)
    return CheckedConfiguration(settings, of_units, of_sessions, shadowing, of_inner)


def fields_on_demand(metrics: Iterable[Metric]) -> frozenset[str]:
    """Return the fields of ``ON_DEMAND`` that some metric requires or reads."""
    read = (
        fields
        for metric in metrics
        for of_kind in (metric.requires, optional_of(metric))
        for fields in of_kind.values()
    )
    return ON_DEMAND.intersection(chain.from_iterable(read))


def check_condition_metrics(sampling: Sampling, metrics: Mapping[str, Metric]) -> None:
    """Check the condition metrics: the metrics of units whose scores sampling rules read.

    The decisions on the other metrics wait for these scores. So a condition metric must ask no judge, and score every unit.

    Raises:
        ConfigurationError: a rule names an unknown metric, or a metric that asks a judge, has no quality or does not score
            every unit.
    """
    for rule in sampling.rules:
        if rule.when.score is not None and (objection := _objection(rule.when.score.metric, sampling, metrics)):
            raise ConfigurationError(
                f"the sampling rule {rule.name} reads the score of {rule.when.score.metric}, {objection}"
            )


def _objection(name: str, sampling: Sampling, metrics: Mapping[str, Metric]) -> str | None:
    if name not in metrics:
        return f"which is not a metric here; there are {', '.join(metrics)}"
    metric, rate = metrics[name], sampling.rates_of(name)[0]
    if asks_a_judge(metric):
        return "which asks a judge, and all units would wait for it; name a metric without one"
    if metric.scale.categories and not metric.scale.has_quality:
        return "whose categories have no quality; name the bad ones in bad"
    if not metric.scale.has_quality:
        return "which has an open scale, and so no quality; give it the parameter range, if it has one"
    if rate < 1:
        share = f"{rate:g} of the units; set sampling.rates: {{{name}: 1.0}}"
        return f"which is scored on {share}, or the rule is blind to the rest"
    return None


def checked_rates(configured: Mapping[str, float], metrics: Collection[str]) -> dict[str, float]:
    """Return metric → rate. A former name of a metric is replaced by its present name.

    Raises:
        ConfigurationError: a rate names an unknown metric.
    """
    rates = under_current_names(configured, metrics)
    unknown = sorted(rates.keys() - set(metrics))
    if unknown:
        names = ", ".join(metrics)
        raise ConfigurationError(
            f"sampling.rates names {unknown[0]!r}, which is not a metric of this scorer; it has {names}"
        )
    return rates


def checked_inner_metrics(also: Iterable[InnerUnit], metrics: Collection[str]) -> Mapping[InnerGroup, Sequence[str]]:
    """Return entry of ``units.also`` → names of the metrics that score its units; ``metrics``: names of the metrics of units.

    Raises:
        ConfigurationError: an entry names an unknown metric, or has alerts on a metric that does not score its units.
    """
    named = dict[InnerGroup, Sequence[str]]()
    for entry in also:
        named[entry.group] = [*metrics] if entry.metrics is None else [*dict.fromkeys(entry.metrics)]
        unknown = sorted({*named[entry.group]} - {*metrics})
        if unknown:
            raise ConfigurationError(
                f"units.also names {unknown[0]!r} for {entry.group}, which is not a metric of units here; there are "
                f"{', '.join(metrics) or 'none'}"
            )
        unscored = sorted(entry.alerts.keys() - named[entry.group])
        if unscored:
            raise ConfigurationError(
                f"units.also has alerts on {unscored[0]!r} for {entry.group}, but the entry's metrics lack it: "
                f"{', '.join(named[entry.group]) or 'none'}"
            )
    return named


def checked_session_metrics(
    metrics: Sequence[Metric], of_units: Collection[str], shadows: Iterable[Any]
) -> Mapping[str, Metric]:
    """Return name → metric, for metrics of sessions.

    Raises:
        ConfigurationError: a metric also scores units, cannot score a conversation, or has a second judge.
    """
    named = by_name(metrics)
    shadow_names = {getattr(shadow, "name", None) for shadow in shadows}  # an invalid shadow is rejected elsewhere
    for name, metric in named.items():
        if name in of_units:
            raise ConfigurationError(
                f"{name!r} is among metrics and sessions.metrics: it scores units or sessions; give one of them another name="
            )
        if "multi_turn" not in metric.requires:
            kinds = " and ".join(sorted(metric.requires))
            raise ConfigurationError(
                f"{name!r} cannot score sessions: it scores no conversation (multi_turn), but {kinds}"
            )
        if name in shadow_names:
            raise ConfigurationError(f"shadows has {name!r}, which scores sessions; second judges score units alone")
    return named


def checked_shadows(shadows: Sequence[Metric], metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return name → metric with a second judge. It has the name of the metric with the first judge.

    Raises:
        ConfigurationError: an object is not a metric, has no namesake here, or is the same as its namesake.
    """
    named = by_name(shadows)
    for name, shadow in named.items():
        if name not in metrics:
            raise ConfigurationError(
                f"shadows has {name!r}, which is not a metric of this scorer; it has {', '.join(metrics)}"
            )
        if shadow.evaluator_version == metrics[name].evaluator_version and _identify_judge(shadow) == _identify_judge(
            metrics[name]
        ):
            raise ConfigurationError(
                f"shadows has {name!r} of the evaluator version {shadow.evaluator_version}, as the metric itself: "
                "give it another judge or prompt"
            )
    return named


def _identify_judge(metric: Metric) -> tuple[Hashable, str] | None:
    judge = getattr(metric, "_judge", None)
    return None if judge is None else identity_of(judge)


class ShadowPairs:
    """Pairs the scores of a metric's own judge and of its second judge on the same unit, and compares them.

    Call the methods on the span thread; ``compared`` may be read on any thread.

    Args:
        metrics: names of the metrics with a second judge.
        ledger: ledger of the second judges; units that are not open in it get no second score.

    Attributes:
        compared: metric → comparison of both judges so far.
        reasons: metric → the latest reason why its second judge gave no score.
    """

    def __init__(self, metrics: Collection[str], ledger: Ledger) -> None:
        self._ledger = ledger
        self.compared = dict.fromkeys(metrics, JudgeComparison())
        self.reasons: dict[str, str] = {}
        self._waiting: dict[tuple[UnitKey, str], float | None] = {}

    def add_own_scores(self, result: JobResult) -> None:
        """Record scores of own judges. The score of a fallback judge is not compared."""
        key = result.unit.key
        for score in result.scores:
            own = score.quality if score.source is None else None
            if (key, score.metric) in self._waiting:
                shadow = self._waiting.pop((key, score.metric))
                self._compare(score.metric, own, shadow, score.probability)
            elif score.metric in self.compared and self._ledger.is_open(key):
                self._waiting[key, score.metric] = own

    def add_shadow_scores(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Record scores of second judges."""
        key = unit.key
        for score in scores:
            if score.reason:
                self.reasons[score.metric] = f"{score.outcome}: {score.reason}"
            if (key, score.metric) in self._waiting:
                own = self._waiting.pop((key, score.metric))
                self._compare(score.metric, own, score.quality, score.probability)
            else:
                self._waiting[key, score.metric] = score.quality

    def _compare(self, metric: str, own: float | None, shadow: float | None, probability: float | None) -> None:
        if own is not None and shadow is not None:
            self.compared[metric] += pair(own, shadow, probability)


def image_limit_of(settings: ScorerSettings, *, redacts: bool) -> ImageLimit:
    """Return which images samples keep. With a redactor, which reads only texts, none unless ``capture.images`` keeps them."""
    if settings.capture.images == "drop" or (settings.capture.images is None and redacts):
        return ImageLimit(0, "capture.images is drop")
    return ImageLimit(int(settings.limits.image_bytes))


def dialects_of(settings: ScorerSettings, box: Timebox) -> list[SampleExtractor]:
    """Return the extractors in order, the user's own first; each function of the user has a deadline."""
    extract = settings.capture.extract or Extract()
    hooks: dict[str, Any] = {}
    for name in Extract.model_fields:
        if callable(place := getattr(extract, name)):
            hooks[name] = box.hook(place, f"Extract({name}=…)", Outcome.NO_SAMPLE)
    extract = extract.model_copy(update=hooks)
    ends = {"score_abandoned": settings.capture.score_abandoned, "score_failed": settings.capture.score_failed}
    offered = {"places": extract, **ends}
    users = [_box(box, dialect) for dialect in DIALECTS.each(settings.units.dialects, **offered)]
    return [*users, *DIALECTS.each(DIALECTS.built_in, **offered)]


def _box(box: Timebox, dialect: SampleExtractor) -> Any:
    kind = type_name(dialect)
    return SimpleNamespace(
        accepts=box.hook(dialect.accepts, f"{kind}.accepts", Outcome.NO_SAMPLE),
        extract=box.hook(dialect.extract, f"{kind}.extract", Outcome.NO_SAMPLE),
    )
