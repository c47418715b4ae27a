"""``${NAME}`` in the texts of a file → what the environment holds; and back, in whatever is told of them.

Such a value may be a secret: no message shows it, but the text that stands in the file. ``$${`` writes ``${``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from spanscore.errors import ConfigurationError
from spanscore.settings.credentials import may_be_credential
from spanscore.settings.faults import written_place
from spanscore.settings.ready_forms import Place

__all__ = ["AsWritten", "FromEnvironment"]

T = TypeVar("T")

_ASKED = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)\}|\$\{")


class AsWritten:
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
