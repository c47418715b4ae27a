"""The value types of a configuration (durations, sizes, shares, names of parts), and the base class of every section."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema

from spanscore.core.plugins import Entry
from spanscore.core.printable import DURATION, parse_duration
from spanscore.errors import ConfigurationError
from spanscore.protocols import Filter, Metric, Queue, Redactor, SampleExtractor, Sink, SpanNormalizer

SIZE = r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG]?[iI]?[bB])?\s*"
"""Regular expression of a size, such as ``2MB``."""

_SIZE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SPELLED = {unit.lower(): size for unit, size in _SIZE_UNITS.items()}


def bytes_of(text: str) -> int:
    """Parse a size into bytes; a number without a unit is bytes.

    Raises:
        ValueError: the text is not a size; the message shows examples.
    """
    match = re.fullmatch(SIZE, text)
    size = None if match is None else _SPELLED.get((match[2] or "B").lower())
    if match is None or size is None:
        raise ValueError(f"{text!r} is no size; write for example 2MB, 500kB, 1MiB or a number of bytes")
    return round(float(match[1]) * size)


@dataclass(frozen=True, slots=True)
class AlsoWritten:
    """The JSON Schema of a value's other form, such as a text for a number. Pydantic makes no schema of the validator that
    reads it.

    Attributes:
        type: type in JSON Schema.
        pattern: regular expression of a text; None = any text.
    """

    type: str
    pattern: str | None = None

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema that allows both forms."""
        also = {"type": self.type} if self.pattern is None else {"type": self.type, "pattern": f"^{self.pattern}$"}
        bounded = {_BOUNDS.get(name, name): value for name, value in handler(core).items()}
        return {"anyOf": [bounded, also]}


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Pydantic's name of a bound that is checked behind a validator → the name in JSON Schema."""


def seconds_in(value: Any) -> Any:
    """Return the seconds of a text such as ``5m``; other values are returned unchanged."""
    return parse_duration(value) if isinstance(value, str) else value


_LONGEST_S: Final = 100 * 365 * 86_400.0
"""Longest duration, in seconds. A longer one is a mistake, and would overflow clocks and PromQL."""
_MOST: Final = 10**15
"""Largest count and size."""


def share_in(value: Any) -> Any:
    """Return the share of a text such as ``5%``; other values are returned unchanged."""
    match = re.fullmatch(PERCENT, value) if isinstance(value, str) else None
    return value if match is None else float(match[1]) / 100


def _check_no_switch(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is no number")  # noqa: TRY004  (pydantic reports a ValueError alone)
    return value


NUMBER: Final = BeforeValidator(_check_no_switch)
"""Rejects true and false, which pydantic reads as 1 and 0."""
PERCENT: Final = r"\s*(\d+(?:\.\d+)?|\.\d+)\s*%\s*"
_ASPERCENT: Final = AlsoWritten("string", PERCENT)

_DURATION = AlsoWritten("string", DURATION)
Seconds = Annotated[float, BeforeValidator(seconds_in), Field(ge=0, le=_LONGEST_S), NUMBER, _DURATION]
PositiveSeconds = Annotated[float, BeforeValidator(seconds_in), Field(gt=0, le=_LONGEST_S), NUMBER, _DURATION]
Rate = Annotated[float, BeforeValidator(share_in), Field(ge=0, le=1), NUMBER, _ASPERCENT]
Share = Annotated[float, BeforeValidator(share_in), Field(gt=0, le=1), NUMBER, _ASPERCENT]
InnerShare = Annotated[float, BeforeValidator(share_in), Field(gt=0, lt=1), NUMBER, _ASPERCENT]
"""A share in the open interval (0, 1)."""
Count = Annotated[int, Field(ge=1, le=_MOST), NUMBER]
TaskCount = Annotated[int, Field(ge=1, le=10_000), NUMBER]
"""Number of tasks. Each is a task of the loop, some kB, from the start on."""
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False), NUMBER]


def is_web_address(text: str) -> bool:
    """Return whether a text is an address that begins with http:// or https://."""
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and text.isprintable()


def _web_address(text: str) -> str:
    if not is_web_address(text):
        raise ValueError(f"{text!r} is no address of the web; write one that begins with http:// or https://")
    return text


WebAddress = Annotated[
    str, AfterValidator(_web_address), WithJsonSchema({"type": "string", "pattern": r"^[hH][tT][tT][pP][sS]?://[^/]"})
]
"""Address that begins with http:// or https://."""


if TYPE_CHECKING:
    AnyPath = str | Path
else:
    AnyPath = Annotated[
        str, BeforeValidator(lambda path: str(path) if isinstance(path, Path) else path), Field(min_length=1)
    ]
"""Path of a file, relative to the working directory; stored as a text."""

_read_size = BeforeValidator(lambda value: bytes_of(value) if isinstance(value, str) else value)
Size = Annotated[int, _read_size, Field(ge=1, le=_MOST), NUMBER, AlsoWritten("string", SIZE)]
"""Size in bytes."""


T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Items = Annotated[Sequence[T], AfterValidator(tuple)]
"""Several values in their order, stored as a tuple."""


class FrozenDict(dict[K, V]):
    """A dict that cannot be changed; unlike ``MappingProxyType`` it can be copied, pickled and written as JSON."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a section of the configuration cannot be changed; make another with model_copy(update={…})")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, _: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


Table = Annotated[Mapping[K, V], AfterValidator(FrozenDict)]
"""Names with values; read-only."""


def _check_part(value: Any) -> Any:
    """Reject a value that a file may hold and that names no part. Every other value is an object of the user."""
    named = {value: None} if isinstance(value, str) else value
    if isinstance(named, list | tuple | int | float | bytes | None) or (
        isinstance(named, Mapping)
        and not (named and all(name and isinstance(params, Mapping | None) for name, params in named.items()))
    ):
        raise ValueError("write a name, alone or with its parameters: my_pkg:Name, or {'my_pkg:Name': {key: value}}")
    return value


def _objects(of: str, is_object: Callable[[Any], bool]) -> Any:
    """Return the check of a field that can be set in Python only."""

    def check(value: Any) -> Any:
        if not all(map(is_object, value if isinstance(value, list | tuple) else [value])):
            raise ValueError(f"takes {of}, which only Python can give")
        return tuple(value) if isinstance(value, list) else value

    return AfterValidator(check)


_NAMED_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "object", "additionalProperties": True}, {"type": "null"}]},
            },
        ]
    }
)
if TYPE_CHECKING:
    SinkPart = Sink | Entry
    ExtractorPart = SampleExtractor | Entry
    NormalizerPart = SpanNormalizer | Entry
    QueuePart = Queue | Entry
    RedactorPart = Redactor | Entry | None
    MetricObjects = Sequence[Metric]
    FilterFunction = Filter | None
else:  # the objects are the user's own, of any class, so pydantic has no schema of them, and a registry checks them
    _Part = Annotated[Any, AfterValidator(_check_part), _NAMED_SCHEMA]
    SinkPart = ExtractorPart = NormalizerPart = QueuePart = _Part
    RedactorPart = _Part | None
    MetricObjects = SkipJsonSchema[Annotated[Any, _objects("metrics", lambda value: hasattr(value, "name"))]]
    FilterFunction = SkipJsonSchema[Annotated[Any, _objects("a function", lambda v: v is None or callable(v))]]


if TYPE_CHECKING:
    _Section = BaseModel
else:

    class _RaisesConfigurationError(type(BaseModel)):
        """Turns pydantic's error into a ``ConfigurationError`` when Python code creates a section."""

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                raise cls._refuse(error) from None

    class _Section(BaseModel, metaclass=_RaisesConfigurationError):
        """Sections inherit the metaclass. A type checker would take the signature of its ``__call__`` for the sections'."""


class SettingsPart(_Section):
    """A section: keys with values, and no other keys.

    A section of a configuration file and an argument of ``OnlineScorer`` are the same object.

    Raises:
        ConfigurationError: a key or a value is wrong; the message has one line for each, with the allowed values.
    """

    # An application that reads no file builds no section here, which saves 2 ms of its start.
    # A key of the judge is called ``model_kwargs``, which older pydantics would keep for themselves.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, protected_namespaces=())
    section: ClassVar[str] = ""
    """Key of the section in a configuration file: ``sampling.feedback``."""

    @classmethod
    def _refuse(cls, error: ValidationError) -> Exception:
        from spanscore.config.messages import describe_faults  # only on an error

        lines = [
            (f"{cls.section}.{line}" if place else f"{cls.section}: {line}") if cls.section else line
            for place, line in describe_faults(error.errors(include_url=False), cls).items()
        ]
        return ConfigurationError("; ".join(lines))
