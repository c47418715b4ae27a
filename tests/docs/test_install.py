"""Each install command of a document works from a checkout, as it is written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in ("*.md", "docs/**/*.md", "integrations/**/*.md", "benchmarks/*.md")
    for page in ROOT.glob(folder)
    if page.name != "CHANGELOG.md"
)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


@pytest.mark.parametrize("page", PAGES)
def test_every_pip_line_works_from_a_checkout_as_written(page: str) -> None:
    lines = re.findall(r"pip install (?:-e )?'([^']*\[[^']*)'", (ROOT / page).read_text("utf-8"))

    assert [line for line in lines if not line.startswith(".[")] == []
    assert {extra for line in lines for extra in line[2:-1].split(",")} <= EXTRAS.keys() | {"extra"}
