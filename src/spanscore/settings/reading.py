"""A YAML file and the environment → settings, or all that is wrong with them at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
from pydantic import model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource
from pydantic_settings.exceptions import SettingsError

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.settings.faults import told, wrong_settings
from spanscore.settings.left_over import LeftOver
from spanscore.settings.tree import Settings

__all__ = ["Reading", "examine_settings", "read_settings"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file and the environment say, and what in them is wrong.

    Attributes:
        settings: with the defaults where something is wrong, and without the metrics that are none.
        faults: a line each: the key, the value, what is allowed and what was probably meant.
        all_metrics: whether every entry of ``metrics`` could be read.
    """

    settings: Settings
    faults: tuple[str, ...]
    all_metrics: bool


def read_settings(path: str | Path) -> Settings:
    """Read a YAML file and the environment.

    Raises:
        ConfigurationError: the file is not there, or a key or value is wrong; the message names each with what is allowed.
    """
    reading = examine_settings(path)
    if reading.faults:
        raise wrong_settings(path, reading.faults)
    return reading.settings


def examine_settings(path: str | Path) -> Reading:
    """Read a YAML file and the environment as far as they can be read: what is wrong is told and left out.

    Raises:
        ConfigurationError: the file is not there, or is no mapping in YAML.
    """
    given, left_over = _yaml(Path(path)), LeftOver()
    faults: tuple[str, ...] = ()
    while True:
        try:
            settings = _validated(given, left_over)
        except pydantic.ValidationError as error:
            entries = error.errors(include_url=False)
            faults = faults or told(entries)  # what is wrong afterwards is what dropping left behind
            if not left_over.drop(entries):
                raise wrong_settings(path, faults) from None
        else:
            break
    if left_over.no_metrics:
        settings = settings.model_copy(update={"metrics": []})
    return Reading(settings, faults, all_metrics=not left_over.lost_metrics)


def _yaml(file: Path) -> dict[str, Any]:
    """Return what stands in a file; {} where nothing does."""
    import yaml

    if file.is_dir():
        raise ConfigurationError(f"{file} is a folder; give the YAML file in it")
    if not file.exists():
        raise ConfigurationError(f"there is no configuration file {file}")
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is no text in UTF-8, so no YAML") from error
    except yaml.YAMLError as error:  # names the line
        raise ConfigurationError(f"{file} is no YAML: {error}") from error
    if given is not None and not (isinstance(given, dict) and all(isinstance(key, str) for key in given)):
        raise ConfigurationError(f"{file} holds no settings; write keys with values, such as metrics: [faithfulness]")
    return given or {}


def _validated(given: dict[str, Any], left_over: LeftOver) -> Settings:
    class FromFile(Settings):  # a class of its own, as its sources differ
        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # called by name
            cls, settings_cls: type[BaseSettings], **sources: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return sources["env_settings"], InitSettingsSource(settings_cls, init_kwargs=given)

        @model_validator(mode="before")
        @classmethod
        def _without_what_is_wrong(cls, merged: dict[str, Any]) -> dict[str, Any]:
            return left_over.of(merged)

    try:
        return FromFile()  # type: ignore[call-arg]  # its sources give them
    except SettingsError as error:
        raise ConfigurationError(_of_a_variable(error)) from error


def _of_a_variable(error: SettingsError) -> str:
    found = re.search(r'field "(\w+)"', str(error))
    if found is None:
        return f"a {semconv.SETTINGS_ENV_PREFIX}* variable of the environment: {error}"
    name = found[1].upper()
    return (
        f"{semconv.SETTINGS_ENV_PREFIX}{name} of the environment is no JSON: {error.__cause__}; write for example "
        f"""{semconv.SETTINGS_ENV_PREFIX}METRICS='["faithfulness"]' or {semconv.SETTINGS_ENV_PREFIX}SAMPLING__RATE=0.2"""
    )
