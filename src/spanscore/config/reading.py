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
from spanscore.config.credentials import Place, may_be_credential, written_credentials
from spanscore.config.messages import describe_faults, written_place, wrong_settings
from spanscore.config.sinks import SINK_SETTINGS
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError

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
        # A longer secret is replaced before a secret that it contains.
        self._shown = dict(sorted(shown.items(), key=lambda pair: -len(pair[0])))
        words = "|".join(map(re.escape, self._shown))
        self._found = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None

    def __call__(self, text: str) -> str:
        """Return a message without values from the environment."""
        return self._found.sub(lambda match: self._shown[match[0]], text) if self._found else text

    @contextmanager
    def mask_errors(self) -> Iterator[None]:
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
            shown = replace(value, **{field.name: self.all(getattr(value, field.name)) for field in fields(value)})
        return cast(T, shown)  # same type, because texts remain texts


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
        """Return a value with the references in its texts and keys replaced; a faulty reference is unchanged."""
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
        def one(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name = match["name"]
            held = None if name is None else os.environ.get(name)
            if held is None:
                self.faults.setdefault(place, _fault(text, name, place))
                return match[0]
            self.texts[held] = match[0]
            return held

        filled = _ASKED.sub(one, text)
        if any(match["name"] for match in _ASKED.finditer(text)):
            self.texts.setdefault(filled, text)
        return filled


def _fault(text: str, name: str | None, place: Place) -> str:
    key = written_place(place)
    if name is None:
        named = "this value" if any(map(may_be_credential, place)) else repr(text)
        return f"{key}: {named} names no variable of the environment; write ${{NAME}}, or $${{ for ${{ itself"
    shown = "" if any(map(may_be_credential, place)) else f" (given: {text!r})"
    return f"{key}: {name} is not set in the environment{shown}; set it, or write $${{ for ${{ itself"


_ANY_METRIC = "exact_match"
_DEPTH = 2
"""Length of a place (section, key) that is left out because of a fault; the key then has its default."""

_Entry: TypeAlias = str | dict[str, dict[str, Any] | None]
"""An entry of ``Configuration.metrics``."""


@dataclass(frozen=True, slots=True)
class PartialSettings:
    """The settings of a file and the environment, and their faults.

    Attributes:
        settings: settings with the defaults in place of wrong values, and without the wrong entries of ``metrics``.
        errors: one message per fault: the key, the value, the allowed values and the probable meaning.
        all_metrics: whether every entry of ``metrics`` could be read. If none could be, a built-in metric replaces them.
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
    """Read the valid settings of a YAML file and the environment; report wrong settings, and leave them out.

    Raises:
        ConfigurationError: the file is missing, or is not a YAML mapping.
    """
    from spanscore.config.yaml_text import read_yaml  # an application that reads no file needs no parser

    written, repeated = read_yaml(Path(path))
    environment = FromEnvironment()
    values = _long_forms(environment.filled(written))
    as_written = SecretMask(environment.texts)
    faults = {**repeated, **environment.faults}
    for place, way in written_credentials(written, SINK_SETTINGS):
        faults[place] = f"{written_place(place)}: do not write a key into the file; {way}"
    wrong = {place[:_DEPTH] for place in faults}
    first = True
    while True:
        try:
            settings = _validate(values, wrong)
        except pydantic.ValidationError as error:
            lines = describe_faults(error.errors(include_url=False), Configuration, as_written)
            faults |= lines if first else {}  # later faults are effects of left-out keys
            first, left = False, {place[:_DEPTH] for place in lines}
            if left <= wrong:
                raise wrong_settings(path, tuple(map(as_written, faults.values()))) from None
            wrong |= left
        else:
            all_metrics = not any(place[0] == "metrics" for place in wrong)
            metrics = tuple(_beside(Path(path), entry) for entry in settings.metrics)
            settings = settings.model_copy(update={"metrics": metrics})
            return PartialSettings(settings, tuple(map(as_written, faults.values())), all_metrics, as_written)


def _long_forms(values: dict[str, Any]) -> dict[str, Any]:
    """Return sections in their long form instead of one value, so that a variable of the environment can set another key.

    A value without a long form is unchanged; the validation of the tree then reports its fault.
    """
    for name in values.keys() & Configuration.model_fields.keys():
        for short in Configuration.model_fields[name].metadata:
            if isinstance(short, BeforeValidator):
                with suppress(ValueError):
                    values[name] = short.func(values[name])  # type: ignore[call-arg]  # ours take the value alone
    return values


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


def _validate(values: dict[str, Any], wrong: Set[Place]) -> Configuration:
    class FromFile(BaseSettings, Configuration):  # one class per call, because each call has other sources
        model_config = SettingsConfigDict(
            env_prefix=semconv.SETTINGS_ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
        )

        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # called by name
            cls, settings_cls: type[BaseSettings], **sources: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return sources["env_settings"], InitSettingsSource(settings_cls, init_kwargs=values)

        @classmethod
        def _refuse(cls, error: pydantic.ValidationError) -> Exception:
            return error  # the locations in the error show which values to leave out

        @model_validator(mode="before")
        @classmethod
        def _without_what_is_wrong(cls, merged: dict[str, Any]) -> dict[str, Any]:
            return _without(merged, wrong)

    try:
        return FromFile()  # type: ignore[call-arg]  # the sources contain the required key ``metrics``
    except SettingsError as error:
        raise ConfigurationError(_of_a_variable(error)) from error


def _without(merged: dict[str, Any], wrong: Set[Place]) -> dict[str, Any]:
    """Return the given values without the wrong keys and entries. A built-in metric is added if no metric is left."""
    if not wrong:
        return merged
    left = {
        key: _leave_out(value, {str(part) for top, *inner in wrong for part in inner if top == key})
        for key, value in merged.items()
        if (key,) not in wrong
    }
    if not left.get("metrics"):
        left["metrics"] = [_ANY_METRIC]
    return {key: value for key, value in left.items() if value is not None}


def _leave_out(value: Any, wrong: Set[str]) -> Any:
    """Return a section without its wrong keys, or a list without its wrong entries; None for a plain value that is wrong."""
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if str(key) not in wrong}
    if isinstance(value, list):
        return [entry for position, entry in enumerate(value) if str(position) not in wrong]
    return None if wrong else value


def _of_a_variable(error: SettingsError) -> str:
    match = re.search(r'field "(\w+)"', str(error))
    if match is None:
        return f"a {semconv.SETTINGS_ENV_PREFIX}* variable of the environment: {error}"
    name = match[1].upper()
    return (
        f"{semconv.SETTINGS_ENV_PREFIX}{name} of the environment is no JSON: {error.__cause__}; write for example "
        f"""{semconv.SETTINGS_ENV_PREFIX}METRICS='["faithfulness"]' or {semconv.SETTINGS_ENV_PREFIX}SAMPLING__RATE=0.2"""
    )
