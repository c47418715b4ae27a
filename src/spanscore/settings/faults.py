"""What pydantic says of a wrong setting → a line a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spanscore.errors import ConfigurationError
from spanscore.settings.tree import Settings

__all__ = ["place_of", "told", "wrong_settings"]

_LONGEST = 100
"""Characters of a wrong value that are shown."""
_METRICS = (
    "write a list of names, each alone or with its parameters: [response_relevancy, {faithfulness: {pass_at: 0.7}}]"
)
_METRIC = "write a name, alone or with its parameters: faithfulness, or faithfulness: {pass_at: 0.7}"


def wrong_settings(path: str | Path, faults: Sequence[str]) -> ConfigurationError:
    """Return the error that tells all faults of a file."""
    count = f"{len(faults)} wrong setting{'s' if len(faults) > 1 else ''}"
    return ConfigurationError("\n".join([f"{path}: {count}", *(f"  {fault}" for fault in faults)]))


def told(entries: Iterable[Any]) -> tuple[str, ...]:
    """Return a line for each place of pydantic's entries."""
    lines: dict[tuple[int | str, ...], str] = {}
    for entry in entries:
        lines.setdefault(place_of(entry), _line(entry))
    return tuple(lines.values())


def place_of(entry: Any) -> tuple[int | str, ...]:
    """Return where it is, without what pydantic adds: which of the types that a metric's entry could have it tried."""
    location: tuple[int | str, ...] = entry["loc"]
    return location[:2] if location[:1] == ("metrics",) else location


def _line(entry: Any) -> str:
    place, kind, given = place_of(entry), entry["type"], f" (given: {_shown(entry['input'])})"
    key = ".".join(map(str, place))
    if place[0] == "metrics":  # pydantic says of it which types it could have
        wrong = "is required" if kind == "missing" else f"names no metric{given}"
        return f"{key}: {wrong}; {_METRIC if len(place) > 1 else _METRICS}"
    if kind == "missing":
        return f"{key}: is required"
    if kind in ("model_type", "model_attributes_type"):
        return f"{key}: is a single value{given}; write keys with values, of {', '.join(_allowed((*place, '')))}"
    if kind != "extra_forbidden":
        return f"{key}: {entry['msg'].removeprefix('Value error, ')}{given}"
    allowed = _allowed(place)
    near = difflib.get_close_matches(str(place[-1]), allowed, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"{key}: no such setting{given}{meant} Allowed here: {', '.join(allowed)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _allowed(location: tuple[Any, ...]) -> list[str]:
    model: Any = Settings
    for part in location[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            annotation = model.model_fields[part].annotation
            model = next(
                (m for m in (annotation, *getattr(annotation, "__args__", ())) if hasattr(m, "model_fields")), model
            )
    return list(model.model_fields)
