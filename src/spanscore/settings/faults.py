"""What pydantic says of a wrong setting → a line a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args, get_origin

from pydantic import BaseModel

from spanscore.errors import ConfigurationError
from spanscore.settings.credentials import HOW_TO_GIVE, is_credential, without_credentials

__all__ = ["Place", "place_of", "told", "wrong_settings"]

Place: TypeAlias = tuple[int | str, ...]
"""Keys and positions, from the top of the tree down."""

_LONGEST = 100
"""Characters of a wrong value that are shown."""
_METRICS = (
    "write a list of names, each alone or with its parameters: [response_relevancy, {faithfulness: {pass_at: 0.7}}]"
)
_RENAMED = {
    "min_duration_s": "slower_than",
    "equals": "metadata: {key: value}",
    "api_key": HOW_TO_GIVE.removeprefix("write "),
    "temperature": "model_kwargs: {temperature: 0}",
    "max_tokens": "model_kwargs: {max_tokens: 500}",
}
"""Keys that were or could be → how it is written; what merely stands elsewhere in the tree is found there."""
_METRIC = "write a name, alone or with its parameters: faithfulness, or faithfulness: {pass_at: 0.7}"


def wrong_settings(path: str | Path, errors: Sequence[str]) -> ConfigurationError:
    """Return the error that tells all that is wrong in a file."""
    count = f"{len(errors)} wrong setting{'s' if len(errors) > 1 else ''}"
    return ConfigurationError("\n".join([f"{path}: {count}", *(f"  {error}" for error in errors)]))


def told(
    entries: Iterable[Any], tree: type[BaseModel], as_written: Callable[[str], str] = lambda text: text
) -> dict[Place, str]:
    """Return place → line for pydantic's entries.

    Args:
        entries: of a ``ValidationError``.
        tree: what it read.
        as_written: makes of a value what may be shown; the lines may still quote it, but not cut.
    """
    lines: dict[Place, str] = {}
    for entry in entries:
        place = place_of(entry)
        if place not in lines:
            lines[place] = _line(entry, tree, f" (given: {_shown(entry, as_written)})")
    return lines


def place_of(entry: Any) -> Place:
    """Return where it is, without what pydantic adds: which of the types that a metric's entry could have it tried."""
    location: Place = entry["loc"]
    return location[:2] if location[:1] == ("metrics",) else location


def _line(entry: Any, tree: type[BaseModel], given: str) -> str:
    place, kind = place_of(entry), entry["type"]
    key = ".".join(map(str, place))
    if place[0] == "metrics":  # pydantic says of it which types it could have
        wrong = "is required" if kind == "missing" else f"names no metric{given}"
        return f"{key}: {wrong}; {_METRIC if len(place) > 1 else _METRICS}"
    if kind == "missing":
        return f"{key}: is required"
    if kind in ("model_type", "model_attributes_type"):
        return f"{key}: is a single value{given}; write keys with values, of {', '.join(_section(tree, place).model_fields)}"
    if kind in ("dict_type", "mapping_type"):
        return f"{key}: is a single value{given}; write keys with values: {place[-1]}: {{key: value}}"
    if kind != "extra_forbidden":
        return f"{key}: {entry['msg'].removeprefix('Value error, ')}{given}"
    return f"{key}: no such setting{given}{_meant(str(place[-1]), tree, list(_section(tree, place[:-1]).model_fields))}"


def _meant(name: str, tree: type[BaseModel], allowed: Sequence[str]) -> str:
    """Return what was meant by a key that is not here: one with another name, one that stands elsewhere, or one of these."""
    if name in _RENAMED:
        return f"; write {_RENAMED[name]}"
    elsewhere = [path for path in _paths(tree) if path.endswith(f".{name}")]
    likely = elsewhere or difflib.get_close_matches(name, allowed, n=1)
    meant = f"; did you mean {' or '.join(map(repr, likely))}?" if likely else "."
    return f"{meant} Allowed here: {', '.join(allowed)}"


def _shown(entry: Any, as_written: Callable[[str], str]) -> str:
    hidden = is_credential(entry["loc"][-1])
    text = "not shown" if hidden else as_written(repr(without_credentials(entry["input"])))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _section(tree: type[BaseModel], place: Place) -> type[BaseModel]:
    """Return the section at a place; positions in lists and keys of the user's own lead to the one below them."""
    for part in place:
        if part in tree.model_fields:
            tree = _model(tree.model_fields[str(part)].annotation) or tree
    return tree


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the section that a value is, or is made of; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model(one))), None)


def _paths(tree: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in tree.model_fields.items():
        yield f"{above}{name}"
        inner = _model(field.annotation)
        if inner is not None and get_origin(field.annotation) not in (dict, list):
            yield from _paths(inner, f"{above}{name}.")
