"""Makes the arguments of a scorer from a configuration file, the environment and overriding arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from spanscore.config.judging import OF_SCORER, JudgeSettings
from spanscore.config.kinds import SettingsPart
from spanscore.config.messages import NEW_OPTIONS
from spanscore.config.reading import read_settings
from spanscore.config.sampling import Sampling
from spanscore.config.tree import SHORT_FORMS, Configuration, ScorerSettings
from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.configured import judge_of, metrics_of, per_session, shadow_budget_of, shadows_of
from spanscore.metrics.catalog.registry import under_current_names
from spanscore.monitoring.health import refused_evaluator_versions
from spanscore.monitoring.watched_means import alerts_by_key
from spanscore.protocols import Metric

S = TypeVar("S")
T = TypeVar("T", bound=ScorerSettings)
_LEXICAL: Final = "lexical"
"""A judge and embeddings that need no key."""
_PROVIDERS: Final = ("tracer_provider", "meter_provider", "logger_provider")


def make_from_file(path: str | Path, overrides: Mapping[str, Any], make: Callable[..., S]) -> tuple[S, Configuration]:
    """Return a scorer made from a file and overriding arguments of ``OnlineScorer``, and its configuration.

    Raises:
        ConfigurationError: the file is missing, or a key, a value or an override is wrong; the message names each error.
    """
    read = read_settings(path)
    with read.as_written.mask_errors():
        settings = override(read.settings, overrides)
        providers = {name: overrides[name] for name in _PROVIDERS if name in overrides}
        return make(**scorer_arguments(settings, overrides.get("metrics")), **providers), settings


def scorer_arguments(settings: Configuration, metrics: Any = None) -> dict[str, Any]:
    """Return a configuration as arguments of ``OnlineScorer``.

    Without ``metrics`` of units, the metrics of the configuration are made here, with its second judges and its metrics of
    conversations.

    Raises:
        ConfigurationError: a metric or a judge cannot be made; or an alert watches an evaluator version that no metric has.
    """
    own = settings.judge.model_fields_set.intersection(OF_SCORER)
    judge: dict[str, Any] = {name: getattr(settings.judge, name) for name in own}
    if metrics is None:
        metrics, of_sessions, second_judges = _make_metrics(settings)
        judge |= second_judges
        if of_sessions:
            settings = settings.model_copy(update={"sessions": _replace_fields(settings.sessions, metrics=of_sessions)})
    sections = {name: getattr(settings, name) for name in ScorerSettings.model_fields}
    return {"metrics": metrics, **sections, "judge": JudgeSettings(**judge)}


def _make_metrics(settings: Configuration) -> tuple[list[Metric], list[Metric], dict[str, Any]]:
    """Return the metrics of units, the metrics of conversations, and the fields of second judges."""
    second_judges: dict[str, Any] = {}
    spool, of_sessions = settings.spool, [*per_session(settings)]
    if settings.remote_scoring is not None or (spool is not None and not spool.score_here):
        # Only the scoring process needs judges' keys and libraries.
        embeddings = None if settings.embeddings is None else _LEXICAL
        without_judges = settings.model_copy(update={"judge": JudgeSettings(model=_LEXICAL), "embeddings": embeddings})
        made = metrics_of(without_judges, judge=judge_of(without_judges))
    else:
        made, shadows = metrics_of(settings), shadows_of(settings)
        problems = list[str]()
        for key, alerts in alerts_by_key(settings.alerts, settings.units.also).items():
            problems += refused_evaluator_versions(alerts, made, shadows, key)
        if problems:
            raise ConfigurationError("; ".join(problems))
        if shadows:
            second_judges = {
                "shadows": shadows,
                "shadow_budget": shadow_budget_of(settings, tuple(settings.judge.budget)),
            }
    units = [metric for metric, is_session in zip(made, of_sessions, strict=True) if not is_session]
    return units, [metric for metric, is_session in zip(made, of_sessions, strict=True) if is_session], second_judges


def override(settings: T, overrides: Mapping[str, Any]) -> T:
    """Return a configuration with fields replaced by arguments of ``OnlineScorer``.

    A section replaces the fields that were set in it. ``sample_rate`` also removes the rates of metrics and the rules, which
    would override it. ``metrics`` removes the rates of other metrics.

    Raises:
        ConfigurationError: an argument is unknown, or a value is wrong.
    """
    _check_names(overrides)
    sections = ScorerSettings.of(overrides)
    fields = ScorerSettings.model_fields
    update: dict[str, Any] = {
        name: None
        for name, value in overrides.items()
        if value is None and name in fields and fields[name].default is None
    }
    if overrides.get("sample_rate") is not None:
        sampling = settings.sampling
        kept = {name: getattr(sampling, name) for name in sampling.model_fields_set - {"rates", "rules"}}
        settings = settings.model_copy(update={"sampling": Sampling(**kept)})
    for name in sections.model_fields_set:
        update[name] = _merge_section(getattr(settings, name), getattr(sections, name))
    if overrides.get("metrics") is not None:  # these replace the file's metrics
        sampling = update.get("sampling", settings.sampling)
        names = [metric.name for metric in (*overrides["metrics"], *update.get("sessions", settings.sessions).metrics)]
        rates = under_current_names(sampling.rates, names)
        update["sampling"] = _replace_fields(sampling, rates={name: rates[name] for name in names if name in rates})
    return settings.model_copy(update=update)


def _merge_section(section: Any, value: Any) -> Any:
    """Return a section of the file, updated by the fields that were set in a Python section."""
    if not isinstance(value, SettingsPart) or type(section) is not type(value):
        return value
    return _replace_fields(section, **{name: getattr(value, name) for name in value.model_fields_set})


def _replace_fields(section: Any, **fields: Any) -> Any:
    return type(section)(**{name: getattr(section, name) for name in section.model_fields_set} | fields)


def _check_names(overrides: Mapping[str, Any]) -> None:
    names = ["metrics", *SHORT_FORMS, *ScorerSettings.model_fields, *_PROVIDERS]
    for name in overrides:
        if name in names:
            continue
        if new := NEW_OPTIONS.get(name) or _key_of_field(name):
            raise ConfigurationError(f"{name} is now {_as_argument(new)}")
        meant = did_you_mean(name, names)
        raise ConfigurationError(
            f"there is no argument {name!r}{f'; {meant}' if meant else '.'} There are {', '.join(names)}"
        )


def _key_of_field(name: str) -> str:
    """Return the key of the first section with a field of this name; empty if no section has the field."""
    sections = {key: type(value) for key, value in ScorerSettings() if isinstance(value, SettingsPart)}
    return next((f"{key}.{name}" for key, section in sections.items() if name in section.model_fields), "")


def _as_argument(key: str) -> str:
    """Return a key in Python notation: ``outputs``, or ``limits=Limits(workers=…)``."""
    section, _, field = key.partition(".")
    return f"{section}={type(getattr(ScorerSettings(), section)).__name__}({field}=…)" if field else section
