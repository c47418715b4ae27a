"""Make the judge, the metrics, their juries and their second (shadow) judges from a configuration.

Each function raises ``ConfigurationError`` if a key or a value that it reads is invalid, a model is unknown, or a library or
key is missing. A message about a key of a metric, a juror or a second judge begins with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import pydantic

from spanscore.config.judging import OF_SCORER, Budget, ChatModelSettings, JurySettings, ShadowSettings
from spanscore.config.kinds import SettingsPart
from spanscore.config.messages import describe_faults
from spanscore.config.tree import Configuration
from spanscore.core import plugins
from spanscore.errors import ConfigurationError
from spanscore.judges import embedder, judge
from spanscore.judges.embeddings import EmbedderLimits
from spanscore.judges.jury import Jury
from spanscore.metrics.catalog.registry import create, current_name
from spanscore.protocols import Embedder, Judge, Metric

SHADOW = "shadow"
"""Key among a metric's parameters for its second judge."""
JUDGES: Final = "judges"
"""Key among a metric's parameters for its jury; ``then`` and ``when`` may accompany it."""
PER: Final = "per"
"""Key among a metric's parameters for the scored object, ``UNIT`` or ``SESSION``."""
UNIT: Final = "unit"
SESSION: Final = "session"
_JURY_KEYS: Final = (JUDGES, "then", "when")
_S = TypeVar("_S", bound=SettingsPart)
_C = TypeVar("_C", bound=ChatModelSettings)
_CRITIC: Final = "aspect_critic"
"""This metric's name is by default that of its ready ``aspect``, such as ``harmfulness``."""


class MetricEntry(NamedTuple):
    """One metric of a configuration as it is written there, unchecked.

    Attributes:
        name: name in the registry.
        parameters: keyword arguments of the metric.
        jury: the keys of the jury; empty = no jury.
        shadow: the second judge, a name or a section; None = no second judge.
        per: the scored object.
        written: the entry in the file: name → all its parameters.
    """

    name: str
    parameters: Mapping[str, Any]
    jury: Mapping[str, Any]
    shadow: Any
    per: Any
    written: Mapping[str, Mapping[str, Any]]


def metric_entries(settings: Configuration) -> Iterator[MetricEntry]:
    """Yield the metrics of a configuration as they are written, in order."""
    for name, written in plugins.entries(settings.metrics):
        jury = {key: written[key] for key in _JURY_KEYS if key in written} if JUDGES in written else {}
        parameters = {key: value for key, value in written.items() if key not in {SHADOW, PER, *jury}}
        if name == _CRITIC and parameters.get("aspect"):  # alerts, rates and budgets read the name from the parameters
            parameters = {"name": str(parameters["aspect"]), **parameters}
        per = written.get(PER, UNIT)
        yield MetricEntry(current_name(name), parameters, jury, written.get(SHADOW), per, {name: written})


def judge_of(settings: Configuration) -> Judge:
    """Return the judge that all metrics of a configuration share.

    Raises:
        ConfigurationError: the model is unknown, its library or key is missing, or a setting is invalid.
    """
    fallback = [section.model_dump(exclude_unset=True) for section in settings.judge.fallback]
    return judge_of_section(settings, settings.judge, "judge", fallback=fallback)


def judge_of_section(settings: Configuration, section: ChatModelSettings, place: str, **more: Any) -> Judge:
    """Return the judge of a section of a configuration, at the configuration's prices.

    Args:
        section: the section: of the judge, a juror or a second judge.
        place: path of the section, such as ``judge``; a message about one of its keys begins with the path of that key.

    Raises:
        ConfigurationError: the model is unknown, its library or key is missing, or a setting is invalid.
    """
    not_of_judge = {"model", "prices", "fallback", *OF_SCORER}
    options: dict[str, Any] = section.model_dump(exclude=not_of_judge) | more
    try:
        return judge(section.model, prices=prices_in(settings), **options)
    except ConfigurationError as error:
        first_word = str(error).split(" ", 1)[0].rstrip(":")
        if first_word in options:
            error.args = (f"{place}.{error}",)
        raise


def judge_named(settings: Configuration, model: str) -> Judge:
    """Return another judge by name, with the attempts, timeouts, prompt order and prices of a configuration.

    Rate and concurrency limits are not inherited: they belong to the account of the configuration's judge.
    """
    order = settings.judge.prompt_order
    return judge(model, prices=prices_in(settings), prompt_order=order, **_limits_of(settings))


def embedder_of(settings: Configuration, model: str) -> Embedder:
    """Return embeddings by name, with the attempts, timeouts and prices of a configuration's judge.

    Rate and concurrency limits are not inherited: they belong to the account of the configuration's judge.
    """
    return embedder(model, prices=prices_in(settings), **_limits_of(settings))


def _limits_of(settings: Configuration) -> EmbedderLimits:
    section = settings.judge
    return {"max_attempts": section.max_attempts, "timeout": section.timeout, "queue_timeout": section.queue_timeout}


def metrics_of(settings: Configuration, *, judge: Judge | None = None) -> list[Metric]:
    """Return the metrics of a configuration, in its order. The metrics share one judge and one embedder.

    Args:
        judge: judge to use instead of the configuration's judge and juries; None = those of the configuration.

    Raises:
        ConfigurationError: a metric, a parameter, the judge, a jury or the embeddings are invalid.
    """
    shared_judge = judge or judge_of(settings)
    embeddings = None if settings.embeddings is None else embedder_of(settings, settings.embeddings)
    return [
        make_metric(settings, name, parameters, None if judge else jury, judge=shared_judge, embeddings=embeddings)
        for name, parameters, jury in metrics_with_juries(settings)
    ]


def make_metric(
    settings: Configuration,
    name: str,
    parameters: Mapping[str, Any],
    jury: JurySettings | None,
    *,
    judge: Judge,
    embeddings: Embedder | None,
) -> Metric:
    """Return a metric of a configuration.

    Args:
        jury: jury that replaces ``judge`` for this metric; None = no jury.
        judge: judge of a metric without a jury.
        embeddings: embeddings of a metric that takes embeddings; None = the metric's default.
    """
    metric = create(
        name, judge=judge if jury is None else jury_of(settings, name, jury), embeddings=embeddings, **parameters
    )
    if jury is not None and getattr(metric, "_judge", None) is None:
        raise ConfigurationError(f"metrics.{name}.{JUDGES}: this metric asks no judge, and so no jury")
    return metric


def jury_of(settings: Configuration, metric: str, jury: JurySettings) -> Jury:
    """Return the jury of a metric."""
    place = f"metrics.{metric}"
    try:
        jurors = [_juror(settings, juror, f"{place}.{JUDGES}.{position}") for position, juror in enumerate(jury.judges)]
        then = None if jury.then is None else _juror(settings, jury.then, f"{place}.then")
        return Jury(jurors, then=then, when=jury.when)
    except ConfigurationError as error:
        if not str(error).startswith(place):
            error.args = (f"{place}.{JUDGES}: {error}",)
        raise


def _juror(settings: Configuration, juror: ChatModelSettings, place: str) -> Judge:
    # a juror's section has no key ``cache``, unlike that of a second judge
    return judge_of_section(settings, juror, place, cache=settings.judge.cache)


def metrics_with_juries(settings: Configuration) -> Iterator[tuple[str, Mapping[str, Any], JurySettings | None]]:
    """Yield the name, the parameters and the jury of each metric; jurors inherit missing settings from the judge."""
    for entry in metric_entries(settings):
        if not entry.jury:
            yield entry.name, entry.parameters, None
            continue
        jury = _validate(JurySettings, entry.jury, f"metrics.{entry.name}")
        judges = tuple(_inherit(juror, settings.judge) for juror in jury.judges)
        then = None if jury.then is None else _inherit(jury.then, settings.judge)
        yield entry.name, entry.parameters, jury.model_copy(update={"judges": judges, "then": then})


def prices_in(settings: Configuration) -> dict[str, tuple[float, ...]]:
    """Return a configuration's prices in the form of the argument ``prices`` of ``judge``."""
    return {model: price.numbers() for model, price in settings.judge.prices.items()}


def per_session(settings: Configuration) -> Iterator[bool]:
    """Yield for each metric in a configuration whether it scores whole sessions instead of units.

    Raises:
        ConfigurationError: ``per`` is neither ``unit`` nor ``session``, or a metric of sessions has a second judge.
    """
    for entry in metric_entries(settings):
        if entry.per not in (UNIT, SESSION):
            raise ConfigurationError(f"metrics.{entry.name}.{PER} is {entry.per!r}; allowed are {UNIT} and {SESSION}")
        if entry.per == SESSION and entry.shadow is not None:
            raise ConfigurationError(
                f"metrics.{entry.name}.{SHADOW}: it scores sessions, and second judges are asked only about units"
            )
        yield entry.per == SESSION


def session_metrics(settings: Configuration) -> list[MetricEntry]:
    """Return the metrics of a configuration that score whole sessions."""
    of_sessions = zip(metric_entries(settings), per_session(settings), strict=True)
    return [entry for entry, scores_sessions in of_sessions if scores_sessions]


_ACCOUNT_KEYS = ("base_url", "api_key_env", "api_key_file")
_IDENTITY_KEYS = ("model", *_ACCOUNT_KEYS, "model_kwargs", "structured", "prompt_order", "images")
"""Keys that identify a judge; the other keys are limits, such as attempts and timeouts."""


def shadows_of(settings: Configuration) -> list[Metric]:
    """Return the metrics of a configuration that have a second judge, with this judge in place of the first.

    Raises:
        ConfigurationError: a second judge is invalid or equals the judge, or a metric without a judge has one.
    """
    embeddings = None if settings.embeddings is None else embedder_of(settings, settings.embeddings)
    metrics: list[Metric] = []
    for name, parameters, shadow in shadow_settings(settings):
        second_judge = judge_of_section(settings, shadow, f"metrics.{name}.{SHADOW}")
        metrics.append(create(name, judge=second_judge, embeddings=embeddings, **parameters))
        if getattr(metrics[-1], "_judge", None) is None:
            raise ConfigurationError(f"metrics.{name}.{SHADOW}: this metric asks no judge, and so no second one")
    return metrics


def shadow_budget_of(settings: Configuration, budgets: tuple[Budget, ...]) -> tuple[Budget, ...] | None:
    """Return the budgets of the second judges. None if no second judge has a budget: each may spend as much as the judge.

    Args:
        budgets: the judge's budgets, inherited by a second judge that has no budget.
    """
    own_budgets = {
        str(parameters.get("name", name)): shadow.budget for name, parameters, shadow in shadow_settings(settings)
    }
    if all(own is None for own in own_budgets.values()):
        return None
    inherited = {metric: [budget for budget in budgets if budget.holds_for(metric)] for metric in own_budgets}
    return tuple(
        budget.model_copy(update={"metric": metric})
        for metric, own in own_budgets.items()
        for budget in (inherited[metric] if own is None else own)
    )


def shadow_settings(settings: Configuration) -> Iterator[tuple[str, Mapping[str, Any], ShadowSettings]]:
    """Yield the name, the parameters and the second judge's settings of each metric that has a second judge."""
    for entry in metric_entries(settings):
        if entry.shadow is not None:
            place = f"metrics.{entry.name}.{SHADOW}"
            section = {"model": entry.shadow} if isinstance(entry.shadow, str) else entry.shadow
            shadow = _inherit(_validate(ShadowSettings, section, place), settings.judge)
            if all(getattr(shadow, key) == getattr(settings.judge, key) for key in _IDENTITY_KEYS):
                raise ConfigurationError(
                    f"{place}.model: {shadow.model!r} is the judge in force, asked in the same way; "
                    "name another model, base_url, model_kwargs, prompt_order or images"
                )
            yield entry.name, entry.parameters, shadow


def _validate(section: type[_S], values: Any, place: str) -> _S:
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        faults = describe_faults(error.errors(include_url=False), section)
        raise ConfigurationError("; ".join(f"{place}.{fault}" for fault in faults.values())) from None


def _inherit(other: _C, judge: ChatModelSettings) -> _C:
    """Return another judge's settings, with missing settings inherited from the judge.

    Address, key and parameters belong to the judge's provider and are inherited together. They are omitted if the model is of
    another provider, or if an address or key is given.
    """
    given_keys = other.model_fields_set
    model = other.model if "model" in given_keys else judge.model
    missing = (type(other).model_fields.keys() & type(judge).model_fields.keys()) - given_keys - {"budget"}
    if model.partition(":")[0] != judge.model.partition(":")[0] or given_keys & {*_ACCOUNT_KEYS}:
        missing -= {*_ACCOUNT_KEYS, "model_kwargs"}
    return other.model_copy(update={key: getattr(judge, key) for key in missing} | {"model": model})
