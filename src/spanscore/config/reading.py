"""Reads a configuration from a YAML file and the environment, and reports all its faults at once.

A configuration is small, and its author may be hostile. Content that would take a parser minutes or gigabytes is therefore
rejected before it is built. Messages quote no line of the file, because the line may have a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

import pydantic
import yaml
from pydantic import BeforeValidator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from spanscore import semconv
from spanscore.config.credentials import HOW_TO_GIVE, Place, may_be_credential
from spanscore.config.messages import describe_faults, written_place, wrong_settings
from spanscore.config.outputs import SINK_SETTINGS
from spanscore.config.tree import Configuration
from spanscore.core.printable import printable
from spanscore.errors import ConfigurationError

# --- YAML ------------------------------------------------------------------------------------------------------------

_LARGEST: Final = 1_000_000
"""Largest file, in bytes. The longest configuration seen has 12,000."""
_DEEPEST: Final = 32
_MOST_VALUES: Final = 100_000
"""Largest number of values; the values of an alias count at each use."""
_LONGEST_NUMBER: Final = 40
"""Longest number, in digits. Python's parsing takes quadratic time, and refuses more than 4,300."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DATE = "tag:yaml.org,2002:timestamp"
_TOO_DEEP = f"values are nested deeper than {_DEEPEST} levels"
_EXAMPLE = "write keys with values, such as metrics: [faithfulness]"


def read_yaml(file: Path) -> tuple[dict[str, Any], dict[Place, str]]:
    """Return the values of a YAML file by key, and place → message about each repeated key, whose last value counts.

    Raises:
        ConfigurationError: the file cannot be read, or is not a YAML mapping. The message is one line, with the line of the
            fault.
    """
    text = _text(file)
    values, walk = None, _Walk()
    try:
        loader = _Loader(text)
        try:
            if (node := loader.get_single_node()) is not None:
                walk.check(node)
                values = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigurationError(_describe_error(file, text, error)) from None  # the parser's text quotes the line
    except (AttributeError, LookupError, TypeError, ValueError):  # a tag that does not fit: !!int x
        raise ConfigurationError(
            f"{file} is no YAML: a tag (!!) is before a value of another kind; leave it out"
        ) from None
    if values is not None and not (isinstance(values, dict) and all(isinstance(key, str) for key in values)):
        raise ConfigurationError(f"{file} holds no settings; {_EXAMPLE}")
    return values or {}, walk.faults


def _text(file: Path) -> str:
    if file.is_dir():
        raise ConfigurationError(f"{file} is a folder; give the YAML file in it")
    if not file.exists():
        raise ConfigurationError(f"there is no configuration file {file}")
    try:
        with file.open("rb") as stream:
            read = stream.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    if len(read) > _LARGEST:
        raise ConfigurationError(f"{file} is larger than {_LARGEST:,} bytes, which no configuration is")
    try:
        return read.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = read.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{file}, line {line} is not valid UTF-8; save the file as UTF-8") from None


class _RefusedError(yaml.MarkedYAMLError):
    """Raised for text that is YAML, but not a configuration."""


def _refuse(problem: str, mark: Any) -> NoReturn:
    raise _RefusedError(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """A safe loader with a limit on nesting, which reads a date as a text because no setting is a date."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (as in the class above)
        first: [(tag, form) for tag, form in resolvers if tag != _DATE]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            _refuse(_TOO_DEEP, self.get_mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


@dataclass(slots=True)
class _Walk:
    """Checks all nodes of a file before values are built: sizes, nesting and repeated keys."""

    faults: dict[Place, str] = field(default_factory=dict)
    _seen: int = 0

    def check(self, node: Node, place: Place = ()) -> None:
        """Collect repeated keys in ``faults``.

        Raises:
            MarkedYAMLError: the file has too many values, too deep nesting or too long numbers.
        """
        self._seen += 1
        if self._seen > _MOST_VALUES:
            _refuse(f"this value has more than {_MOST_VALUES:,} values, by its aliases (*)", node.start_mark)
        if len(place) > _DEEPEST:  # an alias may refer to the node around it
            _refuse(_TOO_DEEP, node.start_mark)
        if isinstance(node, ScalarNode):
            if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
                digits = f"a number of {len(node.value):,} digits"
                _refuse(f"{digits}; no setting takes more than {_LONGEST_NUMBER}", node.start_mark)
        elif isinstance(node, SequenceNode):
            for position, inner in enumerate(node.value):
                self.check(inner, (*place, position))
        elif isinstance(node, MappingNode):
            self._check_keys(node, place)

    def _check_keys(self, node: MappingNode, place: Place) -> None:
        lines: dict[str, list[int]] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, ScalarNode) else ""
            if isinstance(key, ScalarNode):
                lines.setdefault(name, []).append(key.start_mark.line + 1)
            else:
                self.check(key, place)
            self.check(value, (*place, name))
        for name, line_numbers in lines.items():
            if len(line_numbers) > 1:
                at = (*place, name)
                times = f"in lines {', '.join(map(str, line_numbers[:-1]))} and {line_numbers[-1]}"
                if len({*line_numbers}) == 1:
                    times = f"{len(line_numbers)} times in line {line_numbers[0]}"
                self.faults[at] = f"{written_place(at)}: is given {times}; keep one of them"


# --- errors of the parser, in one line ---------------------------------------------------------------------------------


def _describe_error(file: Path, text: str, error: yaml.YAMLError) -> str:
    if isinstance(error, ReaderError):
        line, character = text.count("\n", 0, error.position) + 1, printable(text[error.position])
        return f"{file}, line {line}: YAML does not allow the control character {character}"
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"{file} is no YAML: {type(error).__name__}"
    problem = f"{error.problem} {error.context or ''}"
    begins, hint = next(
        ((begins, hint) for part, begins, hint in _HINTS if part in problem), (False, str(error.problem))
    )
    mark = (error.context_mark if begins else None) or error.problem_mark
    at = f"{file}, line {mark.line + 1}" if mark is not None else str(file)
    return f"{at}: {hint}" if isinstance(error, _RefusedError) else f"{at} is no YAML: {printable(hint)}"


_QUOTE = "put it in quotes"
_HINTS: Final[tuple[tuple[str, bool, str], ...]] = (
    ("found character '\\t'", False, "the line is indented with a tab; indent with spaces"),
    ("found unhashable key", False, f"a value that begins with {{ or [ is read as a mapping or a list; {_QUOTE}"),
    (
        "mapping values are not",
        False,
        f"a ': ' too many in this line, or none in the one above; a value that holds one: {_QUOTE}",
    ),
    ("expected ',' or ']'", True, "a list that [ begins is not closed; write ]"),
    ("expected ',' or '}'", True, "a mapping that { begins is not closed; write }"),
    ("scanning a quoted scalar", True, "a text that begins with a quote does not end with it"),
    ("another document", False, "a second document begins (---); a configuration is one"),
    ("duplicate anchor", False, "the anchor (&) exists already; give each anchor a name of its own"),
    (
        "undefined alias",
        False,
        f"a value that begins with * is read as an alias, and no anchor (&) has its name; {_QUOTE}",
    ),
    ("for the tag", False, f"a value that begins with ! is read as a tag, and none has this name; {_QUOTE}"),
    ("cannot start any token", False, f"no value begins with @, ` or %; {_QUOTE}"),
    ("expected <block end>", False, "this line is not indented like the lines above; align the keys of a mapping"),
)
"""Part of PyYAML's message → (whether to report the first line of the construct, advice in plain words)."""


# --- variables of the environment ------------------------------------------------------------------------------------

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


# --- secrets in the file ---------------------------------------------------------------------------------------------

_CREDENTIAL_NAME = re.compile(
    r"(?:(?:api|access|secret|private|subscription|auth)[-_ ]?key|token|secret|passw(?:or)?d|authorization|credentials?)$",
    re.IGNORECASE,
)
"""Ends of the names of secrets: ``openai_api_key``, ``x-api-key``, ``client_secret``; not ``max_tokens``."""
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*\}")
_FROM_VARIABLE = "write ${NAME}, a variable of the environment"


def _written_credentials(settings: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield the place of each secret that is written into a file, and how to give it instead.

    The parameters of the judge, of a metric's shadow and jury, and of a built-in sink are searched. ``${NAME}`` is no secret.
    """
    judges: list[tuple[Place, Any]] = [(("judge",), settings.get("judge"))]
    for place, parameters in _entries_of(settings.get("metrics"), ("metrics",)):
        judges += [((*place, key), parameters.get(key)) for key in ("shadow", "judges", "then")]
    for place, judge in judges:
        yield from ((secret, HOW_TO_GIVE) for secret in _secrets_in(judge, place))
    outputs = settings.get("outputs")
    listed = outputs.get("sinks") if isinstance(outputs, Mapping) else None
    for place, parameters in _entries_of(listed, ("outputs", "sinks")):
        if place[-1] in SINK_SETTINGS:
            yield from ((secret, _FROM_VARIABLE) for secret in _secrets_in(parameters, place))


def _entries_of(listed: Any, place: Place) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield the place and the parameters of each part with parameters in a list of parts."""
    for position, entry in enumerate(listed if isinstance(listed, list) else ()):
        for name, parameters in entry.items() if isinstance(entry, Mapping) else ():
            if isinstance(parameters, Mapping):
                yield (*place, position, name), parameters


def _secrets_in(value: Any, place: Place) -> Iterator[Place]:
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        if (
            _CREDENTIAL_NAME.search(str(name))
            and isinstance(inner, str | int | float)
            and not _VARIABLE.search(str(inner))
        ):
            yield (*place, name)
        else:
            yield from _secrets_in(inner, (*place, name))


# --- settings --------------------------------------------------------------------------------------------------------

_ANY_METRIC = "exact_match"
_DEPTH = 2
"""Length of a place (section, key) that is left out because of a fault; the key then has its default."""

_Entry: TypeAlias = str | dict[str, dict[str, Any] | None]
"""An entry of ``Configuration.metrics``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSettings:
    """The settings of a file and the environment, and their faults.

    Attributes:
        settings: settings with the defaults in place of wrong values, and without the wrong entries of ``metrics``.
        errors: one message per fault: the key, the value, the allowed values and the probable meaning.
        all_metrics: whether every entry of ``metrics`` could be read. If none could be, a built-in metric replaces them,
            because the list may not be empty.
        as_written: masks values from the environment (``${NAME}``) in messages.
    """

    settings: Configuration
    errors: tuple[str, ...] = ()
    all_metrics: bool
    as_written: SecretMask


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

    written, repeated = read_yaml(Path(path))
    environment = FromEnvironment()
    values = _long_forms(environment.filled(written))
    as_written = SecretMask(environment.texts)
    faults = {**repeated, **environment.faults}
    for place, way in _written_credentials(written):
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
            errors = tuple(map(as_written, faults.values()))
            return PartialSettings(settings=settings, errors=errors, all_metrics=all_metrics, as_written=as_written)


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


_read: ContextVar[tuple[dict[str, Any], Set[Place]]] = ContextVar("spanscore_read_settings")
"""The values of the file that is validated, and the places of its wrong values."""


@cache
def _file_settings() -> type[BaseSettings]:
    """Return the configuration's class, with a file and the environment as its sources; pydantic needs 40 ms to make it."""

    class FromFile(BaseSettings, Configuration):
        model_config = SettingsConfigDict(
            env_prefix=semconv.SETTINGS_ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
        )

        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # called by name
            cls, settings_cls: type[BaseSettings], **sources: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            values, _ = _read.get()
            return sources["env_settings"], InitSettingsSource(settings_cls, init_kwargs=values)

        @classmethod
        def _refuse(cls, error: pydantic.ValidationError) -> Exception:
            return error  # the locations in the error show which values to leave out

        @model_validator(mode="before")
        @classmethod
        def _without_what_is_wrong(cls, merged: dict[str, Any]) -> dict[str, Any]:
            _, wrong = _read.get()
            return _without(merged, wrong)

    return FromFile


def _validate(values: dict[str, Any], wrong: Set[Place]) -> Configuration:
    token = _read.set((values, wrong))
    try:
        return cast(Configuration, _file_settings()())
    except SettingsError as error:
        prefix, match = semconv.SETTINGS_ENV_PREFIX, re.search(r'field "(\w+)"', str(error))
        if match is None:
            raise ConfigurationError(f"a {prefix}* variable of the environment: {error}") from error
        raise ConfigurationError(
            f"{prefix}{match[1].upper()} of the environment is no JSON: {error.__cause__}; write for example "
            f"""{prefix}METRICS='["faithfulness"]' or {prefix}SAMPLING__RATE=0.2"""
        ) from error
    finally:
        _read.reset(token)


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
