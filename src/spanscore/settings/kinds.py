"""What a value of the configuration can be, and what a section of it is."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from spanscore.settings.durations import seconds_of
from spanscore.settings.sizes import bytes_of

__all__ = [
    "Count",
    "Named",
    "PerMinute",
    "PositiveSeconds",
    "Rate",
    "Seconds",
    "SettingsPart",
    "Share",
    "Size",
    "WebAddress",
    "seconds_in",
]


def seconds_in(value: Any) -> Any:
    """Return the seconds that a text such as ``5m`` stands for, and what is no text as it is."""
    return seconds_of(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(seconds_in), Field(ge=0)]
PositiveSeconds = Annotated[Seconds, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _bytes(value: Any) -> Any:
    return bytes_of(value) if isinstance(value, str) else value


def _web_address(text: str) -> str:
    if urlsplit(text).scheme not in {"http", "https"} or not urlsplit(text).netloc or not text.isprintable():
        raise ValueError(f"{text!r} is no address of the web; write one that begins with http:// or https://")
    return text


WebAddress = Annotated[str, AfterValidator(_web_address)]
"""What a person may click on in a notification."""


Size = Annotated[int, BeforeValidator(_bytes), Field(ge=1)]
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
