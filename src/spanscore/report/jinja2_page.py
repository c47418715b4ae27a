"""Template and values → one HTML text. Everything is escaped; what a script reads is JSON without any mark-up in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spanscore.errors import MissingExtraError

__all__ = ["render"]

_HERE = Path(__file__).parent
_MARKUP = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def render(library: str, **values: Any) -> str:
    """Return the page.

    Args:
        library: code of the charts, put in as it is.
        values: what the template names; every text is escaped.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("jinja2", "report") from None
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script_json"] = _script_json
    environment.globals["asset"] = lambda name: (_HERE / name).read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(library=library, **values)


def _script_json(value: Any) -> str:
    """Return a value as JSON that can stand inside a script element: no mark-up, whatever a name in it holds."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_MARKUP)
