"""Build the judge, the metrics, their juries and their second (shadow) judges from a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

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
"""Key among a metric's parameters for the scored object: a unit or a session."""
UNIT: Final = "unit"
SESSION: Final = "session"
_OF_JURIES: Final = (JUDGES, "then", "when")
_S = TypeVar("_S", bound=SettingsPart)
_C = TypeVar("_C", bound=ChatModelSettings)
_CRITIC: Final = "aspect_critic"
"""The metric that takes the name of its ready aspect."""


def judge_of(settings: Configuration) -> Judge:
    """Return the judge that all metrics of a configuration share.

    Raises:
        ConfigurationError: the model is unknown, its library or key is missing, or a setting is invalid.
    """
    fallback = [one.model_dump(exclude_unset=True) for one in settings.judge.fallback]
    return asked_judge(settings, settings.judge, "judge", fallback=fallback)


def asked_judge(settings: Configuration, asked: ChatModelSettings, place: str, **more: Any) -> Judge:
    """Return the judge of a section of a configuration, at the configuration's prices; error messages begin with ``place``."""
    of_others = {"model", "prices", "fallback", *OF_SCORER}
    effects: dict[str, Any] = asked.model_dump(exclude=of_others) | more
    try:
        return judge(asked.model, prices=prices_in(settings), **effects)
    except ConfigurationError as error:
        if str(error).split(" ", 1)[0].rstrip(":") in effects:  # the message begins with a keyword
            error.args = (f"{place}.{error}",)
        raise


def judge_named(settings: Configuration, named: str) -> Judge:
    """Return a judge by name, with the attempts, timeouts, prompt order and prices of a configuration.

    Rate and concurrency limits are not inherited: they belong to the account of the configuration's judge.

    Raises:
        ConfigurationError: the model is unknown, or its library or key is missing.
    """
    order = settings.judge.prompt_order
    return judge(named, prices=prices_in(settings), prompt_order=order, **_limits_of(settings))


def embedder_of(settings: Configuration, named: str) -> Embedder:
    """Return embeddings by name, with the attempts, timeouts and prices of a configuration's judge.

    Rate and concurrency limits are not inherited: they belong to the account of the configuration's judge.

    Raises:
        ConfigurationError: the name is unknown, or the library or key is missing.
    """
    return embedder(named, prices=prices_in(settings), **_limits_of(settings))


def _limits_of(settings: Configuration) -> EmbedderLimits:
    asked = settings.judge
    return {"max_attempts": asked.max_attempts, "timeout": asked.timeout, "queue_timeout": asked.queue_timeout}


def metrics_of(settings: Configuration, *, judge: Judge | None = None) -> list[Metric]:
    """Return the metrics of a configuration, in its order. The metrics share one judge and one embedder.

    Args:
        settings: the configuration.
        judge: judge to use instead of the configuration's judge and juries; None = those of the configuration.

    Raises:
        ConfigurationError: a metric, a parameter, the judge, a jury or the embeddings are invalid.
    """
    asked = judge or judge_of(settings)
    vectors = None if settings.embeddings is None else embedder_of(settings, settings.embeddings)
    return [
        make_metric(settings, name, parameters, None if judge else jury, judge=asked, embeddings=vectors)
        for name, parameters, jury in of_juries(settings)
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
        settings: the configuration.
        name: name of the metric in the registry.
        parameters: keyword arguments of the metric.
        jury: jury that replaces ``judge`` for this metric; None = no jury.
        judge: judge of a metric without a jury.
        embeddings: embeddings of a metric that takes embeddings; None = the metric's default.

    Raises:
        ConfigurationError: the metric, a parameter or a juror is invalid, or a metric without a judge has a jury.
    """
    metric = create(
        name, judge=judge if jury is None else jury_of(settings, name, jury), embeddings=embeddings, **parameters
    )
    if jury is not None and getattr(metric, "_judge", None) is None:
        raise ConfigurationError(f"metrics.{name}.{JUDGES}: this metric asks no judge, and so no jury")
    return metric


def jury_of(settings: Configuration, metric: str, jury: JurySettings) -> Jury:
    """Return the jury of a metric.

    Raises:
        ConfigurationError: a juror is invalid, or two jurors have the same model.
    """
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
    return asked_judge(settings, juror, place, cache=settings.judge.cache)


def of_juries(settings: Configuration) -> Iterator[tuple[str, Mapping[str, Any], JurySettings | None]]:
    """Yield the name, parameters and jury of each metric in a configuration; jurors inherit missing settings of the judge.

    Raises:
        ConfigurationError: a key or value of a jury is invalid; the message names each error.
    """
    written = (parameters for _, parameters in plugins.entries(settings.metrics))
    for (name, parameters), own in zip(entries(settings), written, strict=True):
        if JUDGES not in own:
            yield name, parameters, None
            continue
        jury = _read(JurySettings, {key: own[key] for key in _OF_JURIES if key in own}, f"metrics.{name}")
        judges = tuple(_inherited(juror, settings.judge) for juror in jury.judges)
        then = None if jury.then is None else _inherited(jury.then, settings.judge)
        yield name, parameters, jury.model_copy(update={"judges": judges, "then": then})


def prices_in(settings: Configuration) -> dict[str, tuple[float, ...]]:
    """Return a configuration's prices in the form of the argument ``prices`` of ``judge``."""
    return {model: price.numbers() for model, price in settings.judge.prices.items()}


def entries(settings: Configuration) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the registry name and the parameters of each metric in a configuration."""
    return ((name, parameters) for name, parameters, _ in listed(settings))


def listed(settings: Configuration) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Yield the registry name, the parameters and the unread second judge of each metric; None = no second judge."""
    for name, parameters in plugins.entries(settings.metrics):
        beside = (SHADOW, PER, *(_OF_JURIES if JUDGES in parameters else ()))
        own = {key: value for key, value in parameters.items() if key not in beside}
        if name == _CRITIC and own.get("aspect"):  # alerts, rates and budgets read the name from the parameters
            own = {"name": str(own["aspect"]), **own}
        yield current_name(name), own, parameters.get(SHADOW)


def per_session(settings: Configuration) -> Iterator[bool]:
    """Yield for each metric in a configuration whether it scores whole sessions instead of units.

    Raises:
        ConfigurationError: ``per`` is neither ``unit`` nor ``session``, or a metric of sessions has a second judge.
    """
    for name, parameters in plugins.entries(settings.metrics):
        per = parameters.get(PER, UNIT)
        if per not in (UNIT, SESSION):
            raise ConfigurationError(f"metrics.{name}.{PER} is {per!r}; allowed are {UNIT} and {SESSION}")
        if per == SESSION and SHADOW in parameters:
            raise ConfigurationError(
                f"metrics.{name}.{SHADOW}: it scores sessions, and second judges are asked only about units"
            )
        yield per == SESSION


def entries_per_session(settings: Configuration) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the parameters of each metric that scores whole sessions.

    Raises:
        ConfigurationError: as ``per_session``.
    """
    for entry, is_whole in zip(plugins.entries(settings.metrics), per_session(settings), strict=True):
        if is_whole:
            yield entry


_WHOSE = ("base_url", "api_key_env", "api_key_file")
_THE_JUDGE = ("model", *_WHOSE, "model_kwargs", "structured", "prompt_order", "images")
"""Keys that identify a judge; the other keys are limits, such as attempts and timeouts."""


def shadows_of(settings: Configuration) -> list[Metric]:
    """Return the metrics of a configuration that have a second judge, each with its second judge.

    Raises:
        ConfigurationError: a second judge is invalid or equals the judge, or a metric without a judge has one.
    """
    vectors = None if settings.embeddings is None else embedder_of(settings, settings.embeddings)
    made: list[Metric] = []
    for name, parameters, asked in shadow_settings(settings):
        judging = asked_judge(settings, asked, f"metrics.{name}.{SHADOW}")
        made.append(create(name, judge=judging, embeddings=vectors, **parameters))
        if getattr(made[-1], "_judge", None) is None:
            raise ConfigurationError(f"metrics.{name}.{SHADOW}: this metric asks no judge, and so no second one")
    return made


def shadow_budget_of(settings: Configuration, budgets: tuple[Budget, ...]) -> tuple[Budget, ...] | None:
    """Return the budgets of the second judges; None if no second judge sets one, so each may spend as much as the judge.

    Args:
        settings: the configuration.
        budgets: the judge's budgets, inherited by a second judge that has no budget.
    """
    given = [(str(parameters.get("name", name)), asked.budget) for name, parameters, asked in shadow_settings(settings)]
    if all(own is None for _, own in given):
        return None
    found: list[Budget] = []
    for metric, own in given:
        of_judge = (budget for budget in budgets if budget.holds_for(metric))
        found += [one.model_copy(update={"metric": metric}) for one in (of_judge if own is None else own)]
    return tuple(found)


def shadow_settings(settings: Configuration) -> Iterator[tuple[str, Mapping[str, Any], ShadowSettings]]:
    """Yield the name, the parameters and the second judge's settings of each metric that has a second judge.

    Raises:
        ConfigurationError: a key or value is invalid, or a second judge equals the judge; the message names each error.
    """
    for name, parameters, shadow in listed(settings):
        if shadow is not None:
            place = f"metrics.{name}.{SHADOW}"
            section = {"model": shadow} if isinstance(shadow, str) else shadow
            asked = _inherited(_read(ShadowSettings, section, place), settings.judge)
            _refuse_the_judge(asked, settings.judge, place)
            yield name, parameters, asked


def _read(section: type[_S], values: Any, place: str) -> _S:
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        faults = describe_faults(error.errors(include_url=False), section)
        raise ConfigurationError("; ".join(f"{place}.{fault}" for fault in faults.values())) from None


def _inherited(other: _C, judge: ChatModelSettings) -> _C:
    """Return another judge's settings, with missing settings inherited from the judge.

    Address, key and parameters belong to the judge's provider and are inherited together. They are omitted if the model is of
    another provider, or if an address or key is given.
    """
    given = other.model_fields_set
    model = other.model if "model" in given else judge.model
    left_out = {name for name in type(other).model_fields if name in type(judge).model_fields} - given - {"budget"}
    if model.partition(":")[0] != judge.model.partition(":")[0] or given & {*_WHOSE}:
        left_out -= {*_WHOSE, "model_kwargs"}
    return other.model_copy(update={name: getattr(judge, name) for name in left_out} | {"model": model})


def _refuse_the_judge(asked: ShadowSettings, judge: ChatModelSettings, place: str) -> None:
    if all(getattr(asked, name) == getattr(judge, name) for name in _THE_JUDGE):
        raise ConfigurationError(
            f"{place}.model: {asked.model!r} is the judge in force, asked in the same way; "
            "name another model, base_url, model_kwargs, prompt_order or images"
        )
