"""The code → the pages of this folder, the JSON Schema and the example that the wheel carries: python -m docs.reference.build

At development time only; what it writes is committed, and a test (``tests/docs/test_reference.py``) makes it anew and compares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from docs.reference.example import example
from docs.reference.schema import schema

__all__ = ["written"]

_ROOT = Path(__file__).parents[2]
_PAGES = "docs/reference"
_SHIPPED = "src/spanscore/cli"


def written() -> Mapping[str, str]:
    """Return file → what stands in it, by its path in the checkout."""
    whole = schema()
    return {
        f"{_SHIPPED}/spanscore.schema.json": json.dumps(whole, indent=1, ensure_ascii=False) + "\n",
        f"{_SHIPPED}/example.yaml": example(whole),
    }


if __name__ == "__main__":
    for name, text in written().items():
        (_ROOT / name).write_text(text, encoding="utf-8")
