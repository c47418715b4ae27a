"""The topics of judges and embeddings: whether each can be made here, and its consequences. No judge is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from spanscore.cli._cost_plan import asked_model, has_judge, price_in
from spanscore.cli._topics import ConfigReport, Topic, TopicReader, refusal_of
from spanscore.config.judging import Budget, ChatModelSettings, JurySettings
from spanscore.config.tree import Configuration
from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges import embedder
from spanscore.judges.effects.cost import price_of, prices_of
from spanscore.judges.jury import Jury
from spanscore.judges.langchain.models import missing_key
from spanscore.metrics.catalog.configured import (
    JUDGES,
    SHADOW,
    judge_of,
    judge_of_section,
    jury_of,
    metric_entries,
    metrics_of,
    metrics_with_juries,
    prices_in,
    shadow_settings,
    shadows_of,
)
from spanscore.metrics.catalog.registry import create, under_current_names
from spanscore.monitoring.health import refused_evaluator_versions
from spanscore.monitoring.watched_means import alerts_by_key
from spanscore.protocols import Metric

T = TypeVar("T")
_PROVIDERS = re.compile(r"supported providers[^:\n]*:|set provider from:", re.IGNORECASE)
"""The part of LangChain's error on an unknown provider that comes before its list of providers."""


# --- judge ----------------------------------------------------------------------------------------------------------


def _judge(report: ConfigReport) -> Topic:
    settings = report.settings
    yield from judge_problems(settings)
    if settings.judge.model != "lexical" and price_in(settings, settings.judge) is None:
        yield f"judge.prices has no price of {asked_model(settings.judge)}: the cost of its answers is not counted"
    if settings.remote_scoring is None:
        yield from _describe_unlimited(report)
    attempt_s, score_s = settings.judge.timeout, settings.limits.timeout
    if attempt_s is not None and attempt_s > score_s:
        yield (
            f"judge.timeout is {attempt_s:g} s and limits.timeout {score_s:g} s: a score ends before the first attempt of its "
            "judge does; raise limits.timeout to several attempts"
        )


def judge_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield the reasons for which a configuration's judge, or one of its fallbacks, cannot be made."""
    judge = settings.judge
    for position, fallback in enumerate(judge.fallback):
        key = None if fallback.has_own_key else missing_key(fallback.model)
        if key is not None:
            yield NotReadyError(f"{key} is not set; judge.fallback.{position} {fallback.model!r} needs it")
            # The judge is then checked without its fallbacks.
            settings = settings.model_copy(update={"judge": judge.model_copy(update={"fallback": []})})
    yield from named_problems("judge.model", judge.model, partial(judge_of, settings), own_key=judge.has_own_key)
    for each in (judge, *judge.fallback):
        yield from _find_unpriced(settings, each, "judge.budget")


def _describe_unlimited(report: ConfigReport) -> Iterator[str]:
    """Yield a warning if a paid judge is asked about every unit and no budget bounds its cost."""
    judge, sampling = report.settings.judge, report.settings.sampling
    price = price_in(report.settings, judge)
    is_free = judge.model == "lexical" or (price is not None and price.input == price.output == 0)
    every = [metric.name for metric in report.metrics if has_judge(metric) and sampling.rates_of(metric.name)[0] >= 1]
    if every and not is_free and not judge.budget:
        yield (
            f"{judge.model} is asked about every unit by {', '.join(every)}, as the sampling rate is 1, and no budget "
            "bounds it; in production write sampling: {rate: 0.1}, or judge: {budget: [{usd: 5, per: 1d}]}"
        )


def _find_unpriced(
    settings: Configuration, judge: ChatModelSettings, place: str, budgets: Sequence[Budget] | None = None
) -> Iterator[ConfigurationError]:
    """Yield an error for each USD budget of a judge whose model has no price; ``budgets``: None = those of the judge."""
    kept = settings.judge.budget if budgets is None else budgets
    model = asked_model(judge)
    if any(budget.usd is not None for budget in kept) and model != "lexical" and price_in(settings, judge) is None:
        yield _no_price(place, model)


def _no_price(place: str, model: str) -> ConfigurationError:
    return ConfigurationError(
        f"{place}: it is in usd, and {model!r} has no price; set judge.prices: {{{model}: {{input: …, output: …}}}}"
    )


# --- juries and second judges ---------------------------------------------------------------------------------------


def _juries(report: ConfigReport) -> Topic:
    settings = report.settings
    for name, parameters, jury in metrics_with_juries(settings):
        if jury is None:
            continue
        place = f"metrics.{name}.{JUDGES}"
        members = [*jury.judges, *([] if jury.then is None else [jury.then])]
        problems = list[ConfigurationError]()
        for each in members:
            make = partial(judge_of_section, settings, each, place)
            problems += named_problems(place, each.model, make, own_key=each.has_own_key)
        yield from problems or refusal_of(partial(jury_of, settings, name, jury))
        for each in members:
            yield from _find_unpriced(settings, each, "judge.budget")
        if not _asks(name, parameters):
            yield ConfigurationError(f"{place}: this metric asks no judge, and so no jury")


def _shadows(report: ConfigReport) -> Topic:
    settings = report.settings
    for name, parameters, shadow in shadow_settings(settings):
        place = f"metrics.{name}.{SHADOW}"
        make = partial(judge_of_section, settings, shadow.model_copy(update={"cache": None}), place)
        yield from named_problems(f"{place}.model", shadow.model, make, own_key=shadow.has_own_key)
        yield from _find_unpriced(settings, shadow, f"{place}.budget", shadow.budget)
        if not _asks(name, parameters):
            yield ConfigurationError(f"{place}: this metric asks no judge, and so no second one")
        paid = "as much again as judge.budget" if shadow.budget is None else "a budget of its own"
        second = f"{name} has a second judge, {shadow.model}"
        yield f"{second}, called for each unit that it scores: that costs more, from {paid}"


def _asks(name: str, parameters: Mapping[str, Any]) -> bool:
    try:
        return has_judge(create(name, judge="lexical", embeddings="lexical", **parameters))
    except ConfigurationError:
        return True  # reported with the metric


def named_problems(
    place: str, named: str, make: Callable[[], object], *, own_key: bool = False
) -> Iterator[ConfigurationError]:
    """Yield the reasons for which a named judge or named embeddings cannot be made: a wrong name, or a missing key or library.

    Args:
        place: key or option with the name.
        named: ``lexical`` or ``provider:model``.
        make: function that makes the judge or the embeddings.
        own_key: whether the settings contain an API key.
    """
    key = None if own_key else missing_key(named)
    provider, colon, model = named.partition(":")
    if colon and not model.strip():
        yield ConfigurationError(f"{place}: {named!r} names no model; write {provider}:model")
        return
    if key is not None:
        yield NotReadyError(f"{key} is not set; {place} {named!r} needs it")
    try:
        make()
    except NotReadyError as error:
        yield error
    except ConfigurationError as error:
        if str(error).startswith(("judge.", "metrics.")):
            yield error
        elif key is None:  # otherwise the client fails because of the key
            yield ConfigurationError(f"{place}: {_why(named, error)}")


def make_named(place: str, named: str, make: Callable[[], T]) -> T:
    """Return the named judge or embeddings; raise the first of ``named_problems``, with these arguments."""
    for problem in named_problems(place, named, make):
        raise problem
    return make()


def _why(named: str, error: ConfigurationError) -> str:
    """Return why a name is no model; LangChain's long message is reduced to its list of providers."""
    provider, colon, _ = named.partition(":")
    message = str(error.__cause__ or error)
    listed = _PROVIDERS.split(message, maxsplit=1)
    if len(listed) == 1 and not colon and error.__cause__ is not None:  # LangChain guessed the provider
        return f"{named!r} names no provider; write 'provider:model', such as 'openai:gpt-4o-mini'"
    if len(listed) == 1:
        return " ".join(str(error).split())
    # LangChain lists names with commas between, or a line each with a package behind a colon.
    names = re.sub(r":.*", "", listed[1].strip().split("\n\n")[0])
    providers = [name for name in re.findall(r"[a-z]\w+", names) if name != "dict_keys"]
    near = get_close_matches(provider, ["lexical", *providers] if not colon else providers, n=1)
    meant = did_you_mean(named, (), likely=[prefix + named[len(provider) :] for prefix in near])
    wrong = f"{named!r} is of no known provider" if colon else f"{named!r} names no provider"
    return f"{wrong}{f'; {meant}' if meant else '.'} Write 'lexical' or 'provider:model', with one of {', '.join(providers)}"


# --- embeddings -----------------------------------------------------------------------------------------------------


def _embeddings(report: ConfigReport) -> Topic:
    settings, named = report.settings, report.settings.embeddings
    if named is not None:
        yield from named_problems("embeddings", named, lambda: embedder(named))
    elif settings.judge.model != "lexical":  # with the offline judge, embeddings are offline by default
        yield from _without_embeddings(settings)
    yield from _unpriced_embeddings(settings, report.metrics)


def _without_embeddings(settings: Configuration) -> Iterator[ConfigurationError]:
    for name, parameters, *_ in metric_entries(settings):
        try:
            create(name, judge=ModelStandIn(), **parameters)
        except NotReadyError:
            continue  # reported with the metric
        except ConfigurationError as error:
            if "embeddings" in str(error):
                yield ConfigurationError(f"embeddings: {error}; set embeddings: 'provider:model'")


def _unpriced_embeddings(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield an error for each USD budget of a metric with embeddings if the embedding model has no price."""
    model = (settings.embeddings or "lexical").rpartition(":")[2]
    asking = [metric.name for metric in metrics if getattr(metric, "_embedder", None) is not None]
    if not asking or model == "lexical" or price_of(model, prices_of(prices_in(settings))) is not None:
        return
    paid = {budget.metric or asking[0]: None for budget in settings.judge.budget if budget.usd is not None}
    if under_current_names(paid, asking).keys() & set(asking):
        yield _no_price("judge.budget", model)


# --- evaluator versions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelStandIn:
    """A chat model without answers, for metrics whose answers are not needed."""

    model: str = "any"

    async def ask(self, prompt: Any) -> Any:
        """Raise ``NotImplementedError``, because no answer is needed."""
        raise NotImplementedError


def _evaluator_versions(report: ConfigReport) -> Topic:
    """Yield an error for each alert with an evaluator version that its metric cannot have.

    If the judge cannot be made here, the evaluator version is computed from its model's name. Metrics that compare by
    embeddings are then left out.
    """
    settings = report.of_metrics
    by_key = alerts_by_key(settings.alerts, settings.units.also)
    if all(alert.evaluator_version is None for alerts in by_key.values() for alert in alerts.values()):
        return
    try:
        metrics, shadows = metrics_of(settings), shadows_of(settings)
    except ConfigurationError:  # the topic of the judge reports it
        metrics, shadows = _stand_ins(settings)
    for key, alerts in by_key.items():
        yield from map(ConfigurationError, refused_evaluator_versions(alerts, metrics, shadows, key))


def _stand_ins(settings: Configuration) -> tuple[list[Metric], list[Metric]]:
    """Return the metrics, and those of second judges, with stand-ins for models; empty if one cannot be made."""
    try:
        own = [
            _make_metric(name, parameters, settings.judge if jury is None else jury, settings)
            for name, parameters, jury in metrics_with_juries(settings)
        ]
        shadows = [_make_metric(*of_shadow, settings) for of_shadow in shadow_settings(settings)]
    except ConfigurationError:
        return [], []
    return [metric for metric in own if not hasattr(metric, "embeddings")], shadows


def _make_metric(
    name: str, parameters: Mapping[str, Any], judge: ChatModelSettings | JurySettings, settings: Configuration
) -> Metric:
    if isinstance(judge, JurySettings):
        jurors = [ModelStandIn(asked_model(juror)) for juror in judge.judges]
        then = None if judge.then is None else ModelStandIn(asked_model(judge.then))
        return create(name, judge=Jury(jurors, then=then), embeddings="lexical", **parameters)
    if judge.model == "lexical":
        return create(name, judge="lexical", **parameters)
    alert = settings.alerts.get(str(parameters.get("name", name)))
    _, _, rest = ((alert and alert.evaluator_version) or "").partition("/")
    pinned, model = rest.rpartition("/")[0], asked_model(judge)
    # Some integrations put a path before the model's name: models/gemini-2.5-pro.
    stand_in = ModelStandIn(pinned if pinned.endswith(f"/{model}") else model)
    return create(name, judge=stand_in, embeddings="lexical", **parameters)


JUDGE_TOPICS: Final[Mapping[str, TopicReader]] = {
    "judge": _judge,
    "juries": _juries,
    "shadows": _shadows,
    "embeddings": _embeddings,
    "evaluator_versions": _evaluator_versions,
}
"""Topics that make the configured judges and embeddings."""
