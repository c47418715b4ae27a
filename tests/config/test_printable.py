"""A foreign text has no effect in the place that shows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.printable import printable, printable_lines

ESCAPES = {
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "\x9b31m": r"\x9b31m",
    "a\x00b\x7f": r"a\x00b\x7f",
    "pdf.\u202egpj": r"pdf.\u202egpj",
    "\u2066x\u2069\ufeff": r"\u2066x\u2069\ufeff",
    "hidden\U000e0041": r"hidden\U000e0041",
    "half \ud83d": r"half \ud83d",
    "progress\roverwritten": r"progress\x0doverwritten",
}


@pytest.mark.parametrize("text", ESCAPES)
def test_a_control_character_is_shown_as_its_escape(text: str) -> None:
    assert printable(text) == printable_lines(text) == ESCAPES[text]


def test_one_line_stays_one_and_lines_stay_lines() -> None:
    assert printable("a\n\tb\r\n") == r"a\x0a\x09b\x0d\x0a"
    assert printable_lines("a\n\tb\r\nc") == "a\n\tb\nc"


def test_writing_of_all_languages_is_left_as_it_is() -> None:
    text = "Größe, 日本語, עברית, فارسی می\u200cخواهم, 👩\u200d🔬 e\u0301"

    assert printable(text) == printable_lines(text) == text


@given(st.text())
def test_what_is_shown_needs_no_second_escape(text: str) -> None:
    assert printable(printable(text)) == printable(text)
    assert printable(text).isascii() or not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 for one in printable(text))
