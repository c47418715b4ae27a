"""Template and values → one HTML text. Everything is escaped; what a script reads is JSON without any mark-up in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spanscore.errors import MissingExtraError

__all__ = ["render"]

_HERE = Path(__file__).parent


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
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}  # of the filter tojson
    environment.globals["asset"] = lambda name: (_HERE / name).read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(library=library, **values)
