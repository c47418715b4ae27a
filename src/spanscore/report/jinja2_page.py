"""Template and values → one HTML text. Everything is escaped; what a script reads is JSON without any mark-up in it.

No control character reaches the page: HTML has no NUL and no ESC, and a bidi override would show a word backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spanscore.errors import MissingExtraError
from spanscore.settings.printable import printable_lines

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
        from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_eval_context
    except ImportError:
        raise MissingExtraError("jinja2", "report") from None
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    as_json = environment.filters["tojson"]
    environment.filters["tojson"] = pass_eval_context(lambda context, value: as_json(context, _shown_within(value)))
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}  # of the filter tojson
    environment.globals["asset"] = lambda name: (_HERE / name).read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(library=library, **values)


def _shown(value: Any) -> Any:
    """Return what stands at a place of the template as it may be shown; our own mark-up stays as it is."""
    return printable_lines(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _shown_within(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_shown(key): _shown_within(inner) for key, inner in value.items()}
    return [_shown_within(inner) for inner in value] if isinstance(value, list | tuple) else _shown(value)
