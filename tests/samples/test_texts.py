"""Texts in texts: whole words, fast also for a user's word of a hundred thousand letters."""

from __future__ import annotations

import pytest

from spanscore.samples.texts import contains_words


@pytest.mark.parametrize(
    ("text", "part", "held"),
    [
        ("When is it?", "en", False),
        ("When in en is it?", "en", True),
        ("snake_case", "case", True),
        ("Grüße aus Köln", "Köln", True),
        ("xa xab ab", "ab", True),
        ("a--b", "--", True),
        ("anything", " ", False),
    ],
)
def test_a_text_holds_another_as_whole_words(text: str, part: str, held: bool) -> None:
    assert contains_words(text, part) is held


def test_a_long_word_is_searched_once_and_not_at_each_of_its_letters() -> None:
    assert not contains_words("b" + "a" * 400_000, "a" * 200_000)  # takes minutes if each letter is tried
