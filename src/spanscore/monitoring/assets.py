"""Where the ready-to-load files of ``integrations/`` are: in a wheel inside the package, in a checkout beside ``src``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["folder"]

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "integrations", _PACKAGE.parents[1] / "integrations")


def folder(name: str) -> Path:
    """Return the folder of one integration, as in ``folder("grafana")``.

    Raises:
        FileNotFoundError: there is none of this name; lists those there are.
    """
    there = {found.name: found for place in _PLACES if place.is_dir() for found in place.iterdir() if found.is_dir()}
    if name not in there:
        raise FileNotFoundError(f"no integration {name!r}; there are: {', '.join(sorted(there)) or 'none'}")
    return there[name]
