"""Reads a configuration from a YAML file and the environment, and reports all its faults at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import pydantic
from pydantic import BeforeValidator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from spanscore import semconv
from spanscore.config.credentials import HOW_TO_GIVE, credentials_in, may_be_credential
from spanscore.config.messages import Place, told, written_place, wrong_settings
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError

__all__ = ["FromEnvironment", "SecretMask", "examine_settings", "read_settings"]

# A value from the environment may be a secret. Messages show ``${NAME}`` from the file instead. ``$${`` in a file is a literal
# ``${``.

T = TypeVar("T")

_ASKED = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)\}|\$\{")


class SecretMask:
    """Replaces values from the environment in a text by the text in the file, such as ``${NAME}``.

    Args:
        texts: value with the environment filled in → text in the file.
    """

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        shown = {form: text for value, text in (texts or {}).items() for form in (value, repr(value)[1:-1]) if value}
        self._shown = dict(
            sorted(shown.items(), key=lambda one: -len(one[0]))
        )  # the longest is replaced before its parts
        words = "|".join(map(re.escape, self._shown))
        self._found = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None

    def __call__(self, text: str) -> str:
        """Return a message without values from the environment."""
        return self._found.sub(lambda found: self._shown[found[0]], text) if self._found else text

    @contextmanager
    def told(self) -> Iterator[None]:
        """Mask the ``ConfigurationError``s that are raised inside the block."""
        try:
            yield
        except ConfigurationError as error:
            if self._found is None:
                raise
            error.args = (self(str(error)),)
            raise error from None  # its cause may quote a value

    def all(self, value: T) -> T:
        """Return a plain value, or a dataclass of plain values, with every text masked."""
        shown: Any = value
        if isinstance(value, str):
            shown = self(value)
        elif isinstance(value, Mapping):
            shown = {self.all(key): self.all(inner) for key, inner in value.items()}
        elif isinstance(value, list | tuple):
            shown = type(value)(map(self.all, value))
        elif is_dataclass(value) and not isinstance(value, type):
            shown = replace(value, **{one.name: self.all(getattr(value, one.name)) for one in fields(value)})
        return cast(T, shown)  # the type stays: texts remain texts


@dataclass(slots=True)
class FromEnvironment:
    """Replaces ``${NAME}`` in the values of a file by variables of the environment.

    Attributes:
        texts: value with the environment filled in → text in the file.
        faults: place → message about a reference that cannot be replaced.
    """

    texts: dict[str, str] = field(default_factory=dict)
    faults: dict[Place, str] = field(default_factory=dict)

    def filled(self, value: Any, place: Place = ()) -> Any:
        """Return a value with the references in its texts and keys replaced; a faulty reference stays."""
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, list):
            return [self.filled(inner, (*place, position)) for position, inner in enumerate(value)]
        if isinstance(value, dict):
            return dict(self._entry(key, inner, place) for key, inner in value.items())
        return value

    def _entry(self, key: Any, value: Any, place: Place) -> tuple[Any, Any]:
        named = self.filled(key, (*place, key))
        return named, self.filled(value, (*place, named))

    def _text(self, text: str, place: Place) -> str:
        def one(asked: re.Match[str]) -> str:
            if asked[0] == "$${":
                return "${"
            name = asked["name"]
            held = None if name is None else os.environ.get(name)
            if held is None:
                self.faults.setdefault(place, _fault(text, name, place))
                return asked[0]
            self.texts[held] = asked[0]
            return held

        filled = _ASKED.sub(one, text)
        if any(asked["name"] for asked in _ASKED.finditer(text)):
            self.texts.setdefault(filled, text)
        return filled


def _fault(text: str, name: str | None, place: Place) -> str:
    key = written_place(place)
    if name is None:
        named = "this value" if any(map(may_be_credential, place)) else repr(text)
        return f"{key}: {named} names no variable of the environment; write ${{NAME}}, or $${{ for ${{ itself"
    given = "" if any(map(may_be_credential, place)) else f" (given: {text!r})"
    return f"{key}: {name} is not set in the environment{given}; set it, or write $${{ for ${{ itself"


_ANY_METRIC = "exact_match"
_DEPTH = 2
"""Length of a place (section, key) that is left out because of a fault; the whole key then has its default."""

_Entry: TypeAlias = str | dict[str, dict[str, Any] | None]
"""An entry of ``Configuration.metrics``."""


@dataclass(frozen=True, slots=True)
class PartialSettings:
    """The settings of a file and the environment, and their faults.

    Attributes:
        settings: settings with the defaults in place of wrong values, and without the wrong entries of ``metrics``.
        errors: one message per fault: the key, the value, the allowed values and the probable meaning.
        all_metrics: whether every entry of ``metrics`` could be read. If not, a built-in metric may replace them.
        as_written: masks values from the environment (``${NAME}``) in messages.
    """

    settings: Configuration
    errors: tuple[str, ...]
    all_metrics: bool
    as_written: SecretMask = field(default_factory=SecretMask)


def read_settings(path: str | Path) -> PartialSettings:
    """Read settings from a YAML file and the environment. Every setting in the result is valid.

    Raises:
        ConfigurationError: the file is missing, or a key or value is wrong; the message lists each with the allowed values.
    """
    read = examine_settings(path)
    if read.errors:
        raise wrong_settings(path, read.errors)
    return read


def examine_settings(path: str | Path) -> PartialSettings:
    """Read the valid settings of a YAML file and the environment; report and leave out the wrong ones.

    Raises:
        ConfigurationError: the file is missing, or is not a YAML mapping.
    """
    from spanscore.config.yaml_text import read_yaml  # an application that reads no file needs no parser

    written = read_yaml(Path(path))
    environment = FromEnvironment()
    given = _long_forms(environment.filled(written.values))
    as_written = SecretMask(environment.texts)
    faults = {**written.faults, **environment.faults, **_credentials(written.values)}
    wrong = {place[:_DEPTH] for place in faults}
    first = True
    while True:
        try:
            settings = _validated(given, wrong)
        except pydantic.ValidationError as error:
            found = told(error.errors(include_url=False), Configuration, as_written)
            faults |= found if first else {}  # later faults are effects of left-out keys
            first, left = False, {place[:_DEPTH] for place in found}
            if left <= wrong:
                raise wrong_settings(path, tuple(map(as_written, faults.values()))) from None
            wrong |= left
        else:
            all_metrics = not any(place[0] == "metrics" for place in wrong)
            metrics = tuple(_beside(Path(path), entry) for entry in settings.metrics)
            settings = settings.model_copy(update={"metrics": metrics})
            return PartialSettings(settings, tuple(map(as_written, faults.values())), all_metrics, as_written)


def _long_forms(given: dict[str, Any]) -> dict[str, Any]:
    """Return sections in their long form instead of one value, so that a variable of the environment can set another key.

    A value without a long form stays unchanged; the validation of the tree then reports its fault.
    """
    for name in given.keys() & Configuration.model_fields.keys():
        for short in Configuration.model_fields[name].metadata:
            if isinstance(short, BeforeValidator):
                with suppress(ValueError):
                    given[name] = short.func(given[name])  # type: ignore[call-arg]  # ours take the value alone
    return given


def _credentials(written: dict[str, Any]) -> dict[Place, str]:
    """Return place → fault for each key of a judge, of a metric's shadow or of its jury, that is written into the file."""
    places = [*credentials_in(written.get("judge"), ("judge",))]
    metrics = written.get("metrics")
    for position, entry in enumerate(metrics if isinstance(metrics, list) else ()):
        for name, parameters in entry.items() if isinstance(entry, Mapping) else ():
            if isinstance(parameters, Mapping):
                for key in ("shadow", "judges", "then"):
                    places += credentials_in(parameters.get(key), ("metrics", position, name, key))
    return {place: f"{written_place(place)}: do not write a key into the file; {HOW_TO_GIVE}" for place in places}


def _beside(file: Path, entry: _Entry) -> _Entry:
    """Return a metric whose path of fitted prompts is relative to the configuration file."""
    if isinstance(entry, str):
        return entry
    located = dict(entry)
    for name, parameters in entry.items():
        prompts = (parameters or {}).get("prompts")
        if isinstance(prompts, Mapping) and isinstance(prompts.get("file"), str):
            path = str(file.parent / Path(prompts["file"]).expanduser())
            located[name] = {**(parameters or {}), "prompts": {**prompts, "file": path}}
    return located


def _validated(given: dict[str, Any], wrong: Set[Place]) -> Configuration:
    class FromFile(BaseSettings, Configuration):  # a class per call, as its sources differ
        model_config = SettingsConfigDict(
            env_prefix=semconv.SETTINGS_ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
        )

        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # called by name
            cls, settings_cls: type[BaseSettings], **sources: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return sources["env_settings"], InitSettingsSource(settings_cls, init_kwargs=given)

        @classmethod
        def _refuse(cls, error: pydantic.ValidationError) -> Exception:
            return error  # its locations show which values to leave out

        @model_validator(mode="before")
        @classmethod
        def _without_what_is_wrong(cls, merged: dict[str, Any]) -> dict[str, Any]:
            return _without(merged, wrong)

    try:
        return FromFile()  # type: ignore[call-arg]  # its sources give the metrics
    except SettingsError as error:
        raise ConfigurationError(_of_a_variable(error)) from error


def _without(merged: dict[str, Any], wrong: Set[Place]) -> dict[str, Any]:
    """Return the given values without the wrong keys and entries. A built-in metric is added if no metric is left."""
    if not wrong:
        return merged
    left = {
        key: _kept(value, {str(part) for top, *inner in wrong for part in inner if top == key})
        for key, value in merged.items()
        if (key,) not in wrong
    }
    if not left.get("metrics"):
        left["metrics"] = [_ANY_METRIC]
    return {key: value for key, value in left.items() if value is not None}


def _kept(value: Any, wrong: Set[str]) -> Any:
    """Return a section without its wrong keys, or a list without its wrong entries; None for a plain value that is wrong."""
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if str(key) not in wrong}
    if isinstance(value, list):
        return [entry for position, entry in enumerate(value) if str(position) not in wrong]
    return None if wrong else value


def _of_a_variable(error: SettingsError) -> str:
    found = re.search(r'field "(\w+)"', str(error))
    if found is None:
        return f"a {semconv.SETTINGS_ENV_PREFIX}* variable of the environment: {error}"
    name = found[1].upper()
    return (
        f"{semconv.SETTINGS_ENV_PREFIX}{name} of the environment is no JSON: {error.__cause__}; write for example "
        f"""{semconv.SETTINGS_ENV_PREFIX}METRICS='["faithfulness"]' or {semconv.SETTINGS_ENV_PREFIX}SAMPLING__RATE=0.2"""
    )
