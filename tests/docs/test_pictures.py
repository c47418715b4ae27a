"""The pictures of the explanations agree with the code."""

from __future__ import annotations

from docs.explanation.pictures import HERE, written


def test_each_picture_is_what_its_script_makes() -> None:
    assert {name: (HERE / name).read_text("utf-8") for name in written()} == written()


def test_each_picture_of_the_folder_is_made_and_shown() -> None:
    pages = "".join(page.read_text("utf-8") for page in HERE.glob("*.md"))

    assert {picture.name for picture in HERE.glob("*.svg")} == {*written()}
    assert [name for name in written() if f"]({name})" not in pages] == []
