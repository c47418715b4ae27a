"""Renders the template of a page. All values are escaped, except charts, whose text is escaped when they are made.

Control characters are escaped, too: HTML has no NUL and no ESC, and a bidi override would show a word backwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spanscore.core.printable import printable_lines
from spanscore.errors import MissingExtraError

_HERE = Path(__file__).parent


def render(template: str, /, **values: Any) -> str:
    """Return the page. The template may call ``asset(name)``, which returns the text of a file in this folder, unescaped.

    Args:
        template: file name of the template in this folder.
        values: values of the template's names; every text is escaped.

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
        finalize=_escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = lambda name: (_HERE / name).read_text(encoding="utf-8")
    return environment.get_template(template).render(**values)


def _escape(value: Any) -> Any:
    """Return a value of the template with control characters escaped; spanscore's markup is unchanged."""
    return printable_lines(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
