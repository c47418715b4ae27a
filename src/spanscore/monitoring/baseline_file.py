"""The file of ``spanscore baseline``, YAML or JSON: metric → mean, baseline SD, and what is normal in
each hour of the week (UTC).

faithfulness:
  mean: 0.8512
  baseline_sd: {5m: 0.0102, 1h: 0.0071, 1d: 0.0023}
  design_effect: 10.7                     # where equal answers come in bursts
  hours:
    sunday: [0.8311, …]           # 24 of them
    …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spanscore.config.kinds import seconds_of
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.hour_of_week import LearnedBaseline

__all__ = ["Profile", "profiles_text", "read_profile"]

DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""As PromQL's ``day_of_week()`` counts them."""
_MADE = "# What is normal in each hour of the week, UTC. Made by `spanscore baseline`: it is frozen until that is run again.\n"
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Profile:
    """What a file says of one metric; ``hours``, ``baseline_sd`` and ``design_effect`` as in ``LearnedBaseline``."""

    mean: float
    hours: tuple[float, ...]
    baseline_sd: Mapping[float, float]
    design_effect: float


def profiles_text(learned: Mapping[str, LearnedBaseline]) -> str:
    """Return the file's text, of metric → what was learned."""
    tree = {metric: _entry(one) for metric, one in learned.items()}
    return _MADE + yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=140)


def _entry(one: LearnedBaseline) -> dict[str, Any]:
    rounded = [round(value, _DIGITS) for value in one.hours]
    return {
        "mean": round(one.mean, _DIGITS),
        "baseline_sd": {promql.duration(length): round(value, _DIGITS) for length, value in one.baseline_sd.items()},
        **({"design_effect": round(one.design_effect, 1)} if one.design_effect > 1 else {}),
        "hours": {day: rounded[24 * number : 24 * (number + 1)] for number, day in enumerate(DAYS)},
    }


def read_profile(path: str, metric: str) -> Profile:
    """Return what a file says of a metric.

    Raises:
        ConfigurationError: it is not there, is no such file, or does not name the metric.
    """
    tree = _tree(path)
    entry = tree.get(metric)
    if entry is None:
        raise ConfigurationError(f"{path} has no baseline of {metric!r}; it has {', '.join(map(str, tree)) or 'none'}")
    try:
        hours = tuple(float(value) for day in DAYS for value in _day(entry["hours"], day))
        baseline_sd = {seconds_of(window): float(value) for window, value in entry.get("baseline_sd", {}).items()}
        found = Profile(float(entry["mean"]), hours, baseline_sd, float(entry.get("design_effect", 1)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"{path} is no baseline of {metric!r}: {_told(error)}; make it by `spanscore baseline`"
        ) from None
    qualities = all(0 <= value <= 1 for value in (found.mean, *found.hours))
    if not (qualities and all(s >= 0 for s in baseline_sd.values()) and found.design_effect >= 1):
        raise ConfigurationError(
            f"{path}: the mean and the hours of {metric!r} are qualities, [0, 1], its baseline SD is not below 0, its "
            "design effect not "
            "below 1"
        )
    return found


def _day(hours: Any, day: str) -> list[Any]:
    values = hours[day]
    if not isinstance(values, list) or len(values) != 24:  # noqa: PLR2004
        raise ValueError(f"hours.{day} must list 24 numbers")
    return values


def _told(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _tree(path: str) -> dict[Any, Any]:
    file = Path(path).expanduser()
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {path}; make it by `spanscore baseline`") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigurationError(f"{path} is no YAML: nested too deep") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} is no YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{path} holds no baselines; make it by `spanscore baseline`")
    return tree
