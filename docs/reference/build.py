"""The code → the generated parts of these pages: python -m docs.reference.build

Run it at development time. Its output is committed; ``tests/docs/test_reference.py`` generates it again and compares.
The part between ``<!-- made -->`` and ``<!-- end -->`` is generated; the rest of a page is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from docs.reference.configuration import configuration, environment
from docs.reference.pages import cli, error_classes, metrics, outcomes
from docs.reference.telemetry import telemetry

from spanscore.cli._schema import schema

__all__ = ["written"]

_ROOT = Path(__file__).parents[2]
_PAGES = "docs/reference"
_MADE = re.compile(r"(?<=<!-- made -->\n).*?(?=<!-- end -->)", re.DOTALL)


def written() -> Mapping[str, str]:
    """Return file → its content, by its path in the checkout."""
    made = {
        "configuration": configuration(schema()),
        "environment": environment(),
        "cli": cli(),
        "telemetry": telemetry(),
        "outcomes": outcomes(),
        "metrics": metrics(),
        "errors": error_classes(),
    }
    return {f"{_PAGES}/{page}.md": _with(f"{_PAGES}/{page}.md", text) for page, text in made.items()}


def _with(page: str, text: str) -> str:
    """Return a page with its generated part."""
    return _MADE.sub(lambda _: f"\n{text}\n\n", (_ROOT / page).read_text("utf-8"))


if __name__ == "__main__":
    for name, text in written().items():
        (_ROOT / name).write_text(text, encoding="utf-8")
