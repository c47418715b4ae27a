"""Options → the tree that a configuration file may hold; what a file says → options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import create_model

from spanscore.errors import ConfigurationError
from spanscore.line.options import Key, Options, key_of
from spanscore.meant import did_you_mean
from spanscore.metrics.catalog.configured import metrics_of, per_session
from spanscore.metrics.catalog.registry import under_current_names
from spanscore.metrics.catalog.shadowed import shadow_budget_of, shadows_of
from spanscore.monitoring.pinned import refused_evaluator_versions
from spanscore.protocols import Metric
from spanscore.settings.judging import JudgeSettings
from spanscore.settings.kinds import SettingsPart
from spanscore.settings.reading import read_settings
from spanscore.settings.renamed import NEW_OPTIONS
from spanscore.settings.tree import MetricsEndpointSettings, Settings

__all__ = ["KEYS", "Configuration", "given_in", "made_from", "metrics_in", "overridden", "value_at"]

KEYS: Mapping[str, Key] = {option.name: key for option in fields(Options) if (key := key_of(option)) is not None}
"""Option → where it stands in a configuration file."""
_LEXICAL = "lexical"
"""A judge and embeddings that take no key."""
S = TypeVar("S")
ServedMetrics: TypeAlias = MetricsEndpointSettings | None
_OUTRANKED = {"sample_rate": {"rates", "rules"}, "rates": {"rules"}}
"""Option → those that replace or raise it: where it is overridden, the file's are not in force."""

_MEANING = {
    "sampling": "Which share of the units is scored, and which are scored more often.",
    "capture": "Whether and how runs are recorded, and where in them question, answer and contexts are found.",
    "limits": "How much waits, works and takes at most.",
}
"""Of a section that is made of options alone."""


class _NamedAsInPython(Settings):
    python_names: ClassVar[Mapping[str, str]] = {
        name: key.path for name, key in KEYS.items() if not key.path.endswith("*")
    }
    """Argument of ``OnlineScorer`` → where it stands in a file."""


def _tree() -> type[Settings]:
    """Return the settings with a key for each option that has one."""
    keys: dict[str, dict[str, Any]] = {}
    bases: dict[str, Any] = {name: section.annotation for name, section in Settings.model_fields.items()}
    defaults = Options()
    for option in fields(Options):
        key = key_of(option)
        if key is None:
            continue
        section, _, leaf = key.path.rpartition(".")
        if leaf == "*":
            bases[section] = key.form
            keys.setdefault(section, {})
        else:
            default = getattr(defaults, option.name)
            as_read = list(default) if isinstance(default, tuple) else default
            keys.setdefault(section, {})[leaf] = (key.form or option.type, as_read)
    top: dict[str, Any] = keys.pop("", {})
    for name, own in keys.items():
        section_model = _section(name, bases.get(name, SettingsPart), own)
        also = Settings.model_fields[name].metadata if name in Settings.model_fields else ()
        top[name] = (Annotated[(section_model, *also)] if also else section_model, section_model())
    return create_model("Configuration", __base__=_NamedAsInPython, **top)


def _section(name: str, base: type[SettingsPart], keys: Mapping[str, Any]) -> type[SettingsPart]:
    """Return a section with keys; those that it has already, for others, are left as they are."""
    own = {leaf: definition for leaf, definition in keys.items() if leaf not in base.model_fields}
    told = _MEANING.get(name, base.__doc__)
    return create_model(f"{name.title()}Settings", __base__=base, __doc__=told, **own) if own else base


Configuration = _tree()
"""What may stand in a configuration file: a model of pydantic."""


def made_from(path: str | Path, overrides: Mapping[str, Any], make: Callable[..., S]) -> tuple[S, ServedMetrics]:
    """Return a scorer made of what a file says, overridden, and where its metrics are to be served.

    Args:
        make: takes the options, and the metrics.

    Raises:
        ConfigurationError: the file is missing, or a key, a value or an override is wrong; the message names each.
    """
    read = read_settings(path, Configuration)
    settings = read.settings
    with read.as_written.told():
        given = overridden(given_in(settings), overrides)
        if "metrics" not in given:
            given = metrics_in(settings, given) | given
        return make(**given), settings.serve_metrics


def given_in(settings: Settings) -> dict[str, Any]:
    """Return what a configuration says of each option that has a key.

    Raises:
        ConfigurationError: where question, answer or contexts are to be found is not a place in the input or output.
    """
    return {name: key.read(value_at(settings, key.path)) for name, key in KEYS.items()}


def metrics_in(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a configuration says of the metrics, as a scorer takes it.

    Args:
        settings: the configuration.
        given: what is said of the other options.

    Raises:
        ConfigurationError: one of them, or a judge, cannot be; or an alert watches an evaluator version that none of them has.
    """
    of_sessions, spool = [*per_session(settings)], given["spool"]
    if given["remote_scoring"] is not None or (spool is not None and not spool.score_here):
        # their keys and libraries are needed where they are asked
        return _by_kind(of_sessions, metrics_of(_asking_nobody(settings)))
    metrics = metrics_of(settings)
    shadows = shadows_of(settings)
    if told := list(refused_evaluator_versions(settings.alerts, metrics, shadows)):
        raise ConfigurationError("; ".join(told))
    more = {"shadows": shadows, "shadow_budget": shadow_budget_of(settings, tuple(given["budget"]))}
    return {**_by_kind(of_sessions, metrics), **more}


def _by_kind(of_sessions: Sequence[bool], metrics: Sequence[Metric]) -> dict[str, Any]:
    return {
        "metrics": [metric for metric, is_one in zip(metrics, of_sessions, strict=True) if not is_one],
        "session_metrics": [metric for metric, is_one in zip(metrics, of_sessions, strict=True) if is_one],
    }


def _asking_nobody(settings: Settings) -> Settings:
    """Return a configuration of which the judge and the embeddings are never asked."""
    embeddings = None if settings.embeddings is None else _LEXICAL
    return settings.model_copy(update={"judge": JudgeSettings(model=_LEXICAL), "embeddings": embeddings})


def value_at(settings: Settings, path: str) -> Any:
    """Return what stands at a key, or the section whose keys all are meant: ``sampling.rate``, ``outputs.*``."""
    found: Any = settings
    for part in path.removesuffix(".*").split("."):
        found = getattr(found, part)
    return found


def overridden(given: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a configuration says of the options, but for what is overridden, and for what would take away from that.

    Raises:
        ConfigurationError: an override is no option.
    """
    _check_names(overrides)
    left_out = {name for override in overrides for name in _OUTRANKED.get(override, ())}
    kept = {name: value for name, value in given.items() if name not in left_out}
    if "metrics" in overrides and "rates" in kept:  # the file's other metrics are no longer there
        names = [metric.name for metric in (*overrides["metrics"], *overrides.get("session_metrics", ()))]
        rates = under_current_names(kept["rates"], names)
        kept["rates"] = {name: rates[name] for name in names if name in rates}
    return {**kept, **overrides}


def _check_names(overrides: Mapping[str, Any]) -> None:
    names = ["metrics", *(option.name for option in fields(Options))]
    for name in overrides:
        if name in NEW_OPTIONS:
            raise ConfigurationError(f"{name} is now {NEW_OPTIONS[name]}")
        if name not in names:
            raise ConfigurationError(f"there is no option {name!r}{_meant(name, names)} There are {', '.join(names)}")


def _meant(name: str, names: list[str]) -> str:
    by_leaf = {key.path.rpartition(".")[2]: option for option, key in KEYS.items()}
    meant = did_you_mean(name, names, likely=[by_leaf[name]] if name in by_leaf else ())
    return f"; {meant}" if meant else "."
