"""What a value of the configuration can be, and what a section of it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema

from spanscore.settings.durations import DURATION, seconds_of
from spanscore.settings.sizes import SIZE, bytes_of

__all__ = [
    "PERCENT",
    "AlsoWritten",
    "Count",
    "FilePath",
    "InnerShare",
    "Named",
    "PerMinute",
    "PositiveSeconds",
    "Rate",
    "Seconds",
    "SettingsPart",
    "Share",
    "Size",
    "TaskCount",
    "WebAddress",
    "is_web_address",
    "seconds_in",
    "share_in",
]


@dataclass(frozen=True, slots=True)
class AlsoWritten:
    """Another form in which the reader takes a value: no JSON Schema can be made of the validator that reads it.

    Attributes:
        type: as JSON Schema calls it.
        pattern: of a text; None = any.
    """

    type: str
    pattern: str | None = None

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema of both."""
        also = {"type": self.type} if self.pattern is None else {"type": self.type, "pattern": f"^{self.pattern}$"}
        bounded = {_BOUNDS.get(name, name): value for name, value in handler(core).items()}
        return {"anyOf": [bounded, also]}


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""What pydantic calls a bound that is checked behind a validator → what JSON Schema does."""


def seconds_in(value: Any) -> Any:
    """Return the seconds that a text such as ``5m`` stands for, and what is no text as it is."""
    return seconds_of(value) if isinstance(value, str) else value


_LONGEST_S: Final = 100 * 365 * 86_400.0
"""What is longer was meant to be something else, and overflows the clocks and the PromQL that it goes into."""
_MOST: Final = 10**15


def share_in(value: Any) -> Any:
    """Return the share that a text such as ``5%`` stands for, and what is none as it is."""
    found = re.fullmatch(PERCENT, value) if isinstance(value, str) else None
    return value if found is None else float(found[1]) / 100


PERCENT: Final = r"\s*(\d+(?:\.\d+)?|\.\d+)\s*%\s*"
_ASPERCENT: Final = AlsoWritten("string", PERCENT)

_DURATION = AlsoWritten("string", DURATION)
Seconds = Annotated[float, BeforeValidator(seconds_in), Field(ge=0, le=_LONGEST_S), _DURATION]
PositiveSeconds = Annotated[float, BeforeValidator(seconds_in), Field(gt=0, le=_LONGEST_S), _DURATION]
Rate = Annotated[float, BeforeValidator(share_in), Field(ge=0, le=1), _ASPERCENT]
Share = Annotated[float, BeforeValidator(share_in), Field(gt=0, le=1), _ASPERCENT]
InnerShare = Annotated[float, BeforeValidator(share_in), Field(gt=0, lt=1), _ASPERCENT]
"""Neither none of it nor all."""
Count = Annotated[int, Field(ge=1, le=_MOST)]
TaskCount = Annotated[int, Field(ge=1, le=10_000)]
"""Each is a task of the loop, some kB, from the start on."""
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _bytes(value: Any) -> Any:
    return bytes_of(value) if isinstance(value, str) else value


def is_web_address(text: str) -> bool:
    """Whether a text is an address that begins with http:// or https://."""
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and text.isprintable()


def _web_address(text: str) -> str:
    if not is_web_address(text):
        raise ValueError(f"{text!r} is no address of the web; write one that begins with http:// or https://")
    return text


WebAddress = Annotated[
    str, AfterValidator(_web_address), WithJsonSchema({"type": "string", "pattern": r"^[hH][tT][tT][pP][sS]?://[^/]"})
]
"""What a person may click on in a notification."""


FilePath = Annotated[str, Field(min_length=1)]
"""Of a file, seen from the working directory."""

Size = Annotated[int, BeforeValidator(_bytes), Field(ge=1, le=_MOST), AlsoWritten("string", SIZE)]
"""In bytes."""


def _named(value: Any) -> Any:
    named = {value: None} if isinstance(value, str) else value
    if not isinstance(named, dict) or not all(isinstance(params, dict | None) for params in named.values()):
        raise ValueError("write a name, alone or with its parameters: my_pkg:Name, or {'my_pkg:Name': {key: value}}")
    return value


Named = Annotated[str | dict[str, dict[str, Any] | None], BeforeValidator(_named)]
"""A part that is found by its name."""


class SettingsPart(BaseModel):
    """A section: keys with values, and no other keys."""

    # An application that reads no file builds none of them: 2 ms of its start.
    # A key of the judge is called ``model_kwargs``, which older pydantics would keep for themselves.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, protected_namespaces=())
