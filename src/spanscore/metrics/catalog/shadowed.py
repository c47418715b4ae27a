"""``shadow:`` of a metric → its second judge, and what that may be paid.

What is left out is as of ``judge:``. Address, key and parameters are of the judge's provider: they are taken together, and
where the model is another provider's, or an address or key is given, none of them is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from spanscore.config.judging import AskedSettings, Budget, ShadowSettings
from spanscore.config.messages import told
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.configured import SHADOW, asked_judge, embedder_of, listed
from spanscore.metrics.catalog.registry import create
from spanscore.protocols import Metric

__all__ = ["shadow_budget_of", "shadow_settings", "shadows_of"]

_WHOSE = ("base_url", "api_key_env", "api_key_file")
_THE_JUDGE = ("model", *_WHOSE, "model_kwargs", "structured")
"""Keys by which one judge is another than the next; the others say how patiently it is asked."""


def shadows_of(settings: Configuration) -> list[Metric]:
    """Return the metrics of a configuration that have a second judge, with that one.

    Raises:
        ConfigurationError: a second judge cannot be, is the judge itself, or its metric asks none.
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
    """Return what second judges may be paid; None where none has a budget of its own, but as much again as the judge.

    Args:
        budgets: the judge's.
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
    """Yield the name and parameters of each metric that has a second judge, with how that is asked.

    Raises:
        ConfigurationError: a key or value is none, or it is the judge itself; the message names each.
    """
    for name, parameters, shadow in listed(settings):
        if shadow is not None:
            place = f"metrics.{name}.{SHADOW}"
            asked = _inherited(_read(shadow, place), settings.judge)
            _refuse_the_judge(asked, settings.judge, place)
            yield name, parameters, asked


def _read(shadow: Any, place: str) -> ShadowSettings:
    try:
        return ShadowSettings.model_validate({"model": shadow} if isinstance(shadow, str) else shadow)
    except pydantic.ValidationError as error:
        faults = told(error.errors(include_url=False), ShadowSettings)
        raise ConfigurationError("; ".join(f"{place}.{fault}" for fault in faults.values())) from None


def _inherited(shadow: ShadowSettings, judge: AskedSettings) -> ShadowSettings:
    given = shadow.model_fields_set
    model = shadow.model if "model" in given else judge.model
    left_out = {name for name in type(shadow).model_fields if name in type(judge).model_fields} - given - {"budget"}
    if model.partition(":")[0] != judge.model.partition(":")[0] or given & {*_WHOSE}:
        left_out -= {*_WHOSE, "model_kwargs"}
    return shadow.model_copy(update={name: getattr(judge, name) for name in left_out} | {"model": model})


def _refuse_the_judge(asked: ShadowSettings, judge: AskedSettings, place: str) -> None:
    if all(getattr(asked, name) == getattr(judge, name) for name in _THE_JUDGE):
        raise ConfigurationError(
            f"{place}.model: {asked.model!r} is the judge in force, asked in the same way; "
            "name another model, base_url or model_kwargs"
        )
