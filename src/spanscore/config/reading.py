"""A YAML file and the environment → settings, or all faults in them at once."""

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

# Such a value may be a secret: no message shows it, but the text that stands in the file. ``$${`` writes ``${``.

T = TypeVar("T")

_ASKED = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)\}|\$\{")


class SecretMask:
    """Text → the same without what came from the environment: there stands what the file says.

    Args:
        texts: what came out → what the file says.
    """

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        shown = {form: text for value, text in (texts or {}).items() for form in (value, repr(value)[1:-1]) if value}
        self._shown = dict(sorted(shown.items(), key=lambda one: -len(one[0])))  # the longest goes before its parts
        words = "|".join(map(re.escape, self._shown))
        self._found = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None

    def __call__(self, text: str) -> str:
        """Return a message as it may be shown."""
        return self._found.sub(lambda found: self._shown[found[0]], text) if self._found else text

    @contextmanager
    def told(self) -> Iterator[None]:
        """Have errors of configuration raised inside the block tell what the file says."""
        try:
            yield
        except ConfigurationError as error:
            if self._found is None:
                raise
            error.args = (self(str(error)),)
            raise error from None  # what caused it may quote a value

    def all(self, value: T) -> T:
        """Return a plain value, or a dataclass of such, with every text in it as it may be shown."""
        shown: Any = value
        if isinstance(value, str):
            shown = self(value)
        elif isinstance(value, Mapping):
            shown = {self.all(key): self.all(inner) for key, inner in value.items()}
        elif isinstance(value, list | tuple):
            shown = type(value)(map(self.all, value))
        elif is_dataclass(value) and not isinstance(value, type):
            shown = replace(value, **{one.name: self.all(getattr(value, one.name)) for one in fields(value)})
        return cast(T, shown)  # of the same type: texts stay texts


@dataclass(slots=True)
class FromEnvironment:
    """Fills in what a file asks of the environment.

    Attributes:
        texts: what came out → what the file says.
        faults: place → what cannot be filled in there, and what to write.
    """

    texts: dict[str, str] = field(default_factory=dict)
    faults: dict[Place, str] = field(default_factory=dict)

    def filled(self, value: Any, place: Place = ()) -> Any:
        """Return a value with the environment's in its texts and keys; what cannot be filled in stays as it is."""
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
        named = "what stands here" if any(map(may_be_credential, place)) else repr(text)
        return f"{key}: {named} names no variable of the environment; write ${{NAME}}, or $${{ for ${{ itself"
    given = "" if any(map(may_be_credential, place)) else f" (given: {text!r})"
    return f"{key}: {name} is not set in the environment{given}; set it, or write $${{ for ${{ itself"


_ANY_METRIC = "exact_match"
_DEPTH = 2
"""Section and key: what is wrong deeper down leaves the whole key at its default."""

_Entry: TypeAlias = str | dict[str, dict[str, Any] | None]
"""As ``Configuration.metrics`` lists it."""


@dataclass(frozen=True, slots=True)
class PartialSettings:
    """The settings of a file and the environment, and their faults.

    Attributes:
        settings: with the defaults where something is wrong, and without the metrics that are none.
        errors: a line each: the key, the value, what is allowed and what was probably meant.
        all_metrics: whether every entry of ``metrics`` could be read; else there may be a built-in one instead.
        as_written: makes of a message what may be shown: what came from the environment (``${NAME}``) may not.
    """

    settings: Configuration
    errors: tuple[str, ...]
    all_metrics: bool
    as_written: SecretMask = field(default_factory=SecretMask)


def read_settings(path: str | Path) -> PartialSettings:
    """Read a YAML file and the environment. Nothing in the result is wrong.

    Raises:
        ConfigurationError: the file is not there, or a key or value is wrong; the message names each with what is allowed.
    """
    read = examine_settings(path)
    if read.errors:
        raise wrong_settings(path, read.errors)
    return read


def examine_settings(path: str | Path) -> PartialSettings:
    """Read a YAML file and the environment as far as they can be read: what is wrong is told and left out.

    Raises:
        ConfigurationError: the file is not there, or is no mapping in YAML.
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
            faults |= found if first else {}  # what is wrong afterwards is what leaving out left behind
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
    """Return sections that are written as one value with their keys, so that a variable of the environment can set another.

    A value that has no long form stays: the validation of the tree finds its fault.
    """
    for name in given.keys() & Configuration.model_fields.keys():
        for short in Configuration.model_fields[name].metadata:
            if isinstance(short, BeforeValidator):
                with suppress(ValueError):
                    given[name] = short.func(given[name])  # type: ignore[call-arg]  # ours take the value alone
    return given


def _credentials(written: dict[str, Any]) -> dict[Place, str]:
    """Return place → fault for each key to a judge, to a metric's shadow or to its jury, that stands in the file itself."""
    places = [*credentials_in(written.get("judge"), ("judge",))]
    metrics = written.get("metrics")
    for position, entry in enumerate(metrics if isinstance(metrics, list) else ()):
        for name, parameters in entry.items() if isinstance(entry, Mapping) else ():
            if isinstance(parameters, Mapping):
                for key in ("shadow", "judges", "then"):
                    places += credentials_in(parameters.get(key), ("metrics", position, name, key))
    return {place: f"{written_place(place)}: a key is not to stand in the file; {HOW_TO_GIVE}" for place in places}


def _beside(file: Path, entry: _Entry) -> _Entry:
    """Return a metric whose path of fitted prompts is seen from the configuration file."""
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
    class FromFile(BaseSettings, Configuration):  # of its own, as its sources differ
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
            return error  # which says where the wrong values are, so that they can be left out

        @model_validator(mode="before")
        @classmethod
        def _without_what_is_wrong(cls, merged: dict[str, Any]) -> dict[str, Any]:
            return _without(merged, wrong)

    try:
        return FromFile()  # type: ignore[call-arg]  # its sources give the metrics
    except SettingsError as error:
        raise ConfigurationError(_of_a_variable(error)) from error


def _without(merged: dict[str, Any], wrong: Set[Place]) -> dict[str, Any]:
    """Return what was given but for the wrong keys and entries; as there must be a metric, one stands in where none is left."""
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
    """Return a section without its wrong keys, a list without its wrong entries; None for the plain value of a wrong one."""
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
