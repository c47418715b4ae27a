"""Checks a configuration file: its settings, its metrics, and a list of all its problems. No judge is called."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from spanscore.cli._cost_plan import asked_model, price_in
from spanscore.cli._part_plans import (
    TOPICS,
    ModelStandIn,
    evaluator_version_problems,
    judge_check_problems,
    part_problems,
    refusal_of,
)
from spanscore.config.judging import Budget, ChatModelSettings
from spanscore.config.messages import wrong_settings
from spanscore.config.reading import SecretMask, examine_settings
from spanscore.config.tree import Configuration
from spanscore.core import plugins
from spanscore.core.printable import did_you_mean
from spanscore.core.score import refuse_taken_name
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges import embedder
from spanscore.judges.effects.cost import price_of, prices_of
from spanscore.judges.langchain.models import missing_key
from spanscore.metrics.catalog.configured import (
    JUDGES,
    SHADOW,
    asked_judge,
    entries,
    judge_of,
    jury_of,
    of_juries,
    per_session,
    prices_in,
    shadow_settings,
)
from spanscore.metrics.catalog.registry import create, current_name, under_current_names
from spanscore.metrics.kit.graded import check_bundles
from spanscore.monitoring.drops import plans_of
from spanscore.outputs.aggregates import refuse_too_many
from spanscore.protocols import Metric
from spanscore.wiring.metrics import check_screens

_PROVIDERS = re.compile(r"supported providers[^:\n]*:|set provider from:", re.IGNORECASE)
"""The part of LangChain's error on an unknown provider that comes before its list of providers."""
_OF_ALL_METRICS = frozenset({"sessions", "collect"})
"""Topics that are checked only if every metric of the configuration can be made: they depend on all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReport:
    """A configuration file that was checked.

    Attributes:
        settings: the settings; an invalid value is replaced by its default.
        metrics: metrics that can be made, here with the offline judge: for their names, scales and fields.
        unmade: names of metrics that cannot be made: their entry is wrong, or a library is missing here.
        errors: problems of the file, a line each.
        missing: libraries, keys and files that this environment lacks, a line each.
        as_written: replaces each secret in a text by the name of its environment variable.
    """

    settings: Configuration
    metrics: Sequence[Metric]
    unmade: tuple[str, ...]
    errors: tuple[str, ...]
    missing: tuple[str, ...]
    as_written: SecretMask

    @property
    def of_metrics(self) -> Configuration:
        """The settings without the metrics that cannot be made: one entry for each of ``metrics``, in their order."""
        made = [
            {name: dict(parameters)}
            for name, parameters in plugins.entries(self.settings.metrics)
            if str(parameters.get("name", current_name(name))) not in self.unmade
        ]
        return self.settings.model_copy(update={"metrics": made})

    def lines_of(self, *topics: str) -> tuple[str, ...]:
        """Return the lines that ``check`` shows for topics; for a configuration without errors."""
        read = (TOPICS[topic](self.of_metrics, self.metrics) for topic in topics)
        return tuple(part for parts in read for part in parts if isinstance(part, str))


def valid(config: Path, *, judge: bool = True, embeddings: bool = True) -> ConfigReport:
    """Return a configuration without errors. This environment may still lack a key or a library.

    Args:
        config: the configuration file.
        judge: whether the configured judge is checked; False if the command uses another judge.
        embeddings: whether the configured embeddings are checked.

    Raises:
        ConfigurationError: the file has errors; the message lists all of them.
    """
    report = config_report(config, judge=judge, embeddings=embeddings)
    if report.errors:
        raise wrong_settings(config, report.errors)
    return report


def config_report(config: Path, *, judge: bool = True, embeddings: bool = True) -> ConfigReport:
    """Return a configuration with all its problems. The judge's client and the metrics are made; no server is contacted.

    Raises:
        ConfigurationError: the file does not exist, or is not a YAML mapping.
    """
    read = examine_settings(config)
    settings, problems = read.settings, list[ConfigurationError]()
    if judge:
        problems += judge_problems(settings)
        problems += _shadow_problems(settings)
        problems += _jury_problems(settings)
    of_metrics = list[ConfigurationError]()
    made, unmade = _metrics(settings, of_metrics)
    if embeddings:
        problems += _embeddings_problems(settings, made)
    problems += of_metrics
    problems += _bundle_problems(settings, made)
    sampling, names = settings.sampling, [*unmade, *(metric.name for metric in made)]
    rates, alerts = under_current_names(sampling.rates, names), under_current_names(settings.alerts, names)
    settings = settings.model_copy(update={"sampling": sampling.model_copy(update={"rates": rates}), "alerts": alerts})
    if read.all_metrics:
        problems += map(ConfigurationError, _name_errors(settings, made, unmade))
    problems += _scorer_problems(settings, made, judge=judge, whole=read.all_metrics and not unmade)
    wrong = (str(problem) for problem in problems if not isinstance(problem, NotReadyError))
    missing = dict.fromkeys(str(problem) for problem in problems if isinstance(problem, NotReadyError))
    return ConfigReport(
        settings=settings,
        metrics=made,
        unmade=tuple(unmade),
        errors=(*read.errors, *map(read.as_written, wrong)),
        missing=tuple(map(read.as_written, missing)),
        as_written=read.as_written,
    )


def _metrics(settings: Configuration, problems: list[ConfigurationError]) -> tuple[list[Metric], list[str]]:
    """Return the metrics and the names of metrics that cannot be made; append the reasons to ``problems``."""
    made, unmade = list[Metric](), list[str]()
    for name, parameters in entries(settings):
        try:
            metric = create(name, judge="lexical", embeddings="lexical", **parameters)
            refuse_taken_name(metric.name)
            made.append(metric)
        except ConfigurationError as error:
            unmade.append(str(parameters.get("name", name)))
            message = f"metrics: {error}" if name in str(error) else f"metrics: {name}: {error}"
            # A missing library keeps its message: two places may report it, and equal messages are printed once.
            problems.append(error if isinstance(error, NotReadyError) else ConfigurationError(message))
    return made, unmade


def _scorer_problems(
    settings: Configuration, metrics: Sequence[Metric], *, judge: bool, whole: bool
) -> Iterator[ConfigurationError]:
    """Yield the reasons for which parts of a scorer refuse its settings.

    Args:
        judge: whether the judge is checked.
        whole: whether ``metrics`` are all metrics of the configuration.
    """
    if whole:
        sampling = settings.sampling
        rates = {metric.name: sampling.rates.get(metric.name, sampling.rate) for metric in metrics}
        yield from refusal_of(partial(check_screens, sampling.rules, metrics, rates), "sampling.rules: ")
        yield from judge_check_problems(settings, metrics)
    yield from part_problems(settings)
    offline = _without_new_cache(settings)
    for topic, read in TOPICS.items():
        if whole or topic not in _OF_ALL_METRICS:
            yield from (part for part in read(offline, metrics) if not isinstance(part, str))
    for metric in metrics:
        own = {name: alert for name, alert in settings.alerts.items() if name == metric.name}
        yield from refusal_of(partial(plans_of, own, [metric], settings.monitoring))
    if judge:
        yield from evaluator_version_problems(offline)
    yield from _room_problems(settings, metrics)


# --- names ------------------------------------------------------------------------------------------------------


def _name_errors(settings: Configuration, made: Sequence[Metric], unmade: Sequence[str]) -> Iterator[str]:
    names = Counter(metric.name for metric in made)
    for name, times in names.items():
        if times > 1:
            yield f"metrics: {times} are called {name!r}; give each but one a name of its own: {{{name}: {{name: …}}}}"
    if any(":" in name for name in unmade):
        return  # The score name of a metric outside the package is unknown until the metric is made.
    all_names = [*names, *unmade]
    paid = {budget.metric: budget for budget in settings.judge.budget if budget.metric is not None}
    for place, keys in (
        ("sampling.rates", settings.sampling.rates),
        ("alerts", settings.alerts),
        ("judge.budget", under_current_names(paid, all_names)),
    ):
        yield from (f"{place}.{problem}" for problem in _find_unknown_names(keys, [*names], unmade))


def _find_unknown_names(keys: Iterable[str], names: Sequence[str], unmade: Sequence[str]) -> Iterator[str]:
    all_names = [*names, *unmade]
    for name in keys:
        if name not in all_names and not get_close_matches(name, unmade, n=1):  # reported with the misspelt metric
            meant = did_you_mean(name, names)
            yield f"{name}: no metric has this name; {meant and f'{meant} '}There are {', '.join(all_names) or 'none'}"


# --- judge and embeddings -----------------------------------------------------------------------------------------


def _embeddings_problems(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    named = settings.embeddings
    if named is not None:
        yield from named_problems("embeddings", named, lambda: embedder(named))
    elif settings.judge.model != "lexical":  # with the offline judge, embeddings are offline by default
        yield from _without_embeddings(settings)
    yield from _unpriced_embeddings(settings, metrics)


def judge_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield the reasons for which a configuration's judge, or one of its fallbacks, cannot be made."""
    judge = settings.judge
    for position, fallback in enumerate(judge.fallback):
        key = None if fallback.has_own_key else missing_key(fallback.model)
        if key is not None:
            yield NotReadyError(f"{key} is not set; judge.fallback.{position} {fallback.model!r} needs it")
            # The judge is then checked without its fallbacks.
            settings = settings.model_copy(update={"judge": judge.model_copy(update={"fallback": []})})
    checked = _without_new_cache(settings)
    yield from named_problems("judge.model", judge.model, lambda: judge_of(checked), own_key=judge.has_own_key)
    for each in (judge, *judge.fallback):
        yield from _find_unpriced(settings, each, "judge.budget")


def _shadow_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield the reasons for which second judges cannot be made."""
    try:
        for name, parameters, shadow in shadow_settings(settings):
            place = f"metrics.{name}.{SHADOW}"
            make = partial(asked_judge, settings, shadow.model_copy(update={"cache": None}), place)
            yield from named_problems(f"{place}.model", shadow.model, make, own_key=shadow.has_own_key)
            yield from _find_unpriced(settings, shadow, f"{place}.budget", shadow.budget)
            if not _asks(name, parameters):
                yield ConfigurationError(f"{place}: this metric asks no judge, and so no second one")
    except ConfigurationError as error:
        yield error


def _jury_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield why juries cannot be made."""
    checked = _without_new_cache(settings)
    try:
        for name, parameters, jury in of_juries(checked):
            if jury is None:
                continue
            place = f"metrics.{name}.{JUDGES}"
            members = [*jury.judges, *([] if jury.then is None else [jury.then])]
            problems = [problem for each in members for problem in _juror_problems(checked, each, place)]
            yield from problems or refusal_of(partial(jury_of, checked, name, jury))
            for each in members:
                yield from _find_unpriced(settings, each, "judge.budget")
            if not _asks(name, parameters):
                yield ConfigurationError(f"{place}: this metric asks no judge, and so no jury")
    except ConfigurationError as error:
        yield error


def _bundle_problems(settings: Configuration, made: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield why metrics cannot share a question; metrics of units and of sessions are never asked together."""
    try:
        entries = zip(of_juries(settings), per_session(settings), strict=True)
        places = {str(own.get("name", name)): (whole, jury) for (name, own, jury), whole in entries}
    except ConfigurationError:  # reported by other checks
        return
    for whole in (False, True):
        bundled = [metric for metric in made if places.get(metric.name, (None, None))[0] is whole]
        yield from refusal_of(partial(check_bundles, bundled), "metrics: ")
        juries = {repr(places[metric.name][1]) for metric in bundled if getattr(metric, "bundle", False)}
        if len(juries) > 1:
            yield ConfigurationError(
                "metrics: bundle: its metrics have different judges; a bundle has one judge or one jury"
            )


def _juror_problems(settings: Configuration, juror: ChatModelSettings, place: str) -> Iterator[ConfigurationError]:
    make = partial(asked_judge, settings, juror, place)
    return named_problems(place, juror.model, make, own_key=juror.has_own_key)


def _asks(name: str, parameters: Mapping[str, Any]) -> bool:
    try:
        return getattr(create(name, judge="lexical", embeddings="lexical", **parameters), "_judge", None) is not None
    except ConfigurationError:
        return True  # _metrics reports the reason


def _without_new_cache(settings: Configuration) -> Configuration:
    """Return settings without the judge's cache if its file does not exist yet, because a check would create it."""
    cache = settings.judge.cache
    if cache in (None, "", "memory"):
        return settings
    file = Path(cache).expanduser()
    if file.exists() or not os.access(file.parent, os.W_OK | os.X_OK):
        return settings
    return settings.model_copy(update={"judge": settings.judge.model_copy(update={"cache": None})})


def _find_unpriced(
    settings: Configuration, judge: ChatModelSettings, place: str, budgets: Sequence[Budget] | None = None
) -> Iterator[ConfigurationError]:
    """Yield an error for each USD budget of a judge whose model has no price; ``budgets``: None = those of the judge."""
    kept = settings.judge.budget if budgets is None else budgets
    model = asked_model(judge)
    if any(budget.usd is not None for budget in kept) and model != "lexical" and price_in(settings, judge) is None:
        yield _no_price(place, model)


def _unpriced_embeddings(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield an error for each USD budget of a metric with embeddings if the embedding model has no price."""
    model = (settings.embeddings or "lexical").rpartition(":")[2]
    asking = [metric.name for metric in metrics if getattr(metric, "_embedder", None) is not None]
    if not asking or model == "lexical" or price_of(model, prices_of(prices_in(settings))) is not None:
        return
    paid = {budget.metric or asking[0]: None for budget in settings.judge.budget if budget.usd is not None}
    if under_current_names(paid, asking).keys() & set(asking):
        yield _no_price("judge.budget", model)


def _no_price(place: str, model: str) -> ConfigurationError:
    return ConfigurationError(
        f"{place}: it is in usd, and {model!r} has no price; set judge.prices: {{{model}: {{input: …, output: …}}}}"
    )


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


def _without_embeddings(settings: Configuration) -> Iterator[ConfigurationError]:
    for name, parameters in entries(settings):
        try:
            create(name, judge=ModelStandIn(), **parameters)
        except NotReadyError:
            continue  # _metrics reports it
        except ConfigurationError as error:
            if "embeddings" in str(error):
                yield ConfigurationError(f"embeddings: {error}; set embeddings: 'provider:model'")


def _room_problems(settings: Configuration, made: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield an error if metrics and dimensions have more combinations than the instruments allow."""
    try:
        shadows = len([*shadow_settings(settings)])
    except ConfigurationError:  # _shadow_problems reports it
        shadows = 0
    place = "monitoring.dimensions: " if settings.monitoring.dimensions else "metrics: "
    compared = settings.compare is not None
    count = partial(refuse_too_many, made, settings.monitoring.dimensions, shadows, compared=compared)
    yield from refusal_of(count, place)
