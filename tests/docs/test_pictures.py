"""The pictures of the explanations agree with the code, and those of the dashboards show each panel and are on their page."""

from __future__ import annotations

from html import escape
from itertools import groupby
from pathlib import Path

from benchmarks.dashboard_pictures import DRAWN, picture_name
from docs.explanation.pictures import HERE, written
from tests.integrations.stage import dashboards


def test_each_picture_is_what_its_script_makes() -> None:
    assert {name: (HERE / name).read_text("utf-8") for name in written()} == written()


def test_each_picture_of_the_folder_is_made_and_shown() -> None:
    pages = "".join(page.read_text("utf-8") for page in HERE.glob("*.md"))

    assert {picture.name for picture in HERE.glob("*.svg")} == {*written()}
    assert [name for name in written() if f"]({name})" not in pages] == []


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-dashboards.md"
PICTURES = PAGE.with_name("dashboards")
MOST_BYTES = 300_000


def _titles() -> dict[str, list[str]]:
    """Return the file name of each row's picture → the titles of the row's panels."""
    titles: dict[str, list[str]] = {}
    for uid in DRAWN:
        row = ""
        for is_row, panels in groupby(dashboards()[uid]["panels"], key=lambda panel: panel["type"] == "row"):
            named = [panel["title"] for panel in panels]
            if is_row:
                (row,) = named
            else:
                titles[picture_name(uid, row)] = named
    return titles


def test_each_row_has_a_picture_on_the_page() -> None:
    page = PAGE.read_text("utf-8")

    assert {picture.name for picture in PICTURES.iterdir()} == _titles().keys()
    assert [name for name in _titles() if f"](dashboards/{name})" not in page] == []


def test_each_panel_is_in_its_picture() -> None:
    missing = [
        (name, title)
        for name, titles in _titles().items()
        for title in titles
        if f">{escape(title.removesuffix('$metric'))}" not in (PICTURES / name).read_text("utf-8")
    ]

    assert missing == [], "python -m benchmarks.dashboards --out docs/how-to/dashboards"


def test_the_pictures_are_small() -> None:
    assert sum(picture.stat().st_size for picture in PICTURES.iterdir()) < MOST_BYTES
