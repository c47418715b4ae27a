"""The site of docs/ builds without a warning, and neither the build nor a page asks the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b(?=[^>]*stylesheet)[^>]*//|url\(["']?https?:|@import"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "-f",
        str(ROOT / ".mkdocs.yml"),
        "-d",
        str(folder),
    ]
    offline = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_of_docs_is_a_page_of_the_site(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")]

    assert pages
    assert [
        page for page in pages if not (site / (page.parent if page.name == "index" else page) / "index.html").is_file()
    ] == []


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    made = [file for file in site.rglob("*") if file.suffix in {".html", ".css"}]

    assert made
    assert [f"{file}: {found[0]}" for file in made if (found := FETCHED.search(file.read_text("utf-8")))] == []
