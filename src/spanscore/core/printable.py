"""Text and tables for people: formatted numbers, escaped control characters, fitting columns, hints for misspelt names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

# --- numbers --------------------------------------------------------------------------------------------------------

DURATION = r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*"
"""The form of a duration in a configuration or an option."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_AGES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_TWO_DECIMALS_FROM_USD = 0.1
"""Amount from which two decimals are two significant digits or more."""


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 score", "2,300 scores", "2 batches"."""
    ending = "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def format_number(number: float | None, unknown: str = "?") -> str:
    """Return a number rounded to a whole number, "1,234"; ``unknown`` for None."""
    return unknown if number is None else f"{number:,.0f}"


def shorten(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters; a longer text is cut, and ends in "…"."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def format_value(value: float | str) -> str:
    """Return the value of a score: a category as it is, a number with two digits."""
    return value if isinstance(value, str) else f"{value:.2f}"


def format_bytes(size: float) -> str:
    """Return a number of bytes with one decimal, unless it is zero: "77 bytes", "64 MB", "1.5 GB"."""
    step, unit = next(((step, unit) for step, unit in _SIZES if size >= step), (1, "bytes"))
    return f"{f'{size / step:,.1f}'.removesuffix('.0')} {unit}"


def format_age(seconds: float) -> str:
    """Return a duration in the largest unit in which it is at least 2: "90 s", "5 min", "3 h", "2 d"."""
    step, unit = next(((step, unit) for step, unit in _AGES if seconds >= 2 * step), (1, "s"))
    return f"{seconds / step:,.0f} {unit}"


def parse_duration(text: str) -> float:
    """Return a duration in seconds; a number without a unit is seconds.

    Raises:
        ValueError: the text is no duration; the message names the form.
    """
    match = re.fullmatch(DURATION, text)
    if match is None:
        raise ValueError(f"{text!r} is no duration; write for example 30s, 500ms, 5m, 1h or a number of seconds")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit in which it is a whole number: ``6 h``."""
    whole = (unit for unit in ("d", "h", "m") if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0)
    unit = next(whole, "s")
    return f"{seconds / _SECONDS[unit]:g} {unit}"


def format_usd(usd: float | None, unknown: str = "?") -> str:
    """Return dollars without their sign, with two decimals, or two digits below ten cents; ``unknown`` for None."""
    if usd is None:
        return unknown
    return f"{usd:,.2f}" if usd >= _TWO_DECIMALS_FROM_USD or not usd else f"{usd:.2g}"


# --- names ----------------------------------------------------------------------------------------------------------


def did_you_mean(name: str, allowed: Iterable[str], *, likely: Sequence[str] = (), most: int = 1) -> str:
    """Return ``did you mean 'faithfulness'?``; empty if no name is similar.

    Args:
        allowed: names among which similar ones are searched.
        likely: suggestions to use as they are, without a search.
        most: maximum number of suggestions.
    """
    near = likely or get_close_matches(name, [*allowed], n=most)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


# --- printable ------------------------------------------------------------------------------------------------------

# A terminal obeys the control characters of a text: ``ESC ]`` renames its window, ``ESC [`` moves the cursor over earlier
# output, a bidi override shows a word backwards. Each is replaced by Python's escape: ``\x1b``, ``\u202e``.

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SEPARATORS = "\u2028\u2029"
_INVISIBLE = "\U000e0000-\U000e007f"
_SURROGATES = "\ud800-\udfff"
_ELSE = f"{_BIDI}{_SEPARATORS}{_INVISIBLE}{_SURROGATES}\ufeff"
_IN_A_LINE = re.compile(f"[\x00-\x1f\x7f-\x9f{_ELSE}]")
_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_ELSE}]")
_BYTE = 0x100
_PLANE = 0x1_0000


def printable(text: str) -> str:
    """Return a text on one line: control characters, line breaks and tabs are escaped."""
    return _IN_A_LINE.sub(_escape, text)


def names_listed(names: Iterable[str]) -> str:
    """Return names separated by commas, on one line."""
    return ", ".join(map(printable, names))


def printable_lines(text: str) -> str:
    """Return a text with its line breaks and tabs; all other control characters are escaped."""
    return _IN_LINES.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < _BYTE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _PLANE else f"\\U{code:08x}"


# --- tables ---------------------------------------------------------------------------------------------------------

_BORDER = 3
"""Columns that a cell needs in addition to its text: a space on either side and a line."""
_GAP = 2
"""Columns that a cell needs in addition to its text in a table without vertical lines."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table for rich that never splits a word: text breaks at spaces, and if no table fits, each row is a short list.

    Attributes:
        headers: one per column.
        rows: cells as text; a line break starts a new line.
        title: text above the table; empty = no title.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.cells import cell_len

        columns = list(zip(self.headers, *self.rows, strict=True))
        words, lines = (
            [max(cell_len(part) for cell in column for part in split(cell) or [""]) for column in columns]
            for split in (str.split, str.splitlines)
        )
        borders = options.max_width - sum(words) > _BORDER * len(words)
        room = options.max_width - (_BORDER * len(words) + 1 if borders else _GAP * len(words))
        if room < sum(words):
            yield "\n".join(self._lists())
        else:
            yield self._table(_widths(words, lines, room), borders=borders)

    def _table(self, widths: Sequence[int], *, borders: bool) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        style = box.HEAVY_HEAD if borders else box.SIMPLE_HEAD
        padding = (0, 1) if borders else (0, _GAP - 1, 0, 0)  # plus the separating blank
        table = Table(title=self.title or None, title_justify="left", box=style, padding=padding)
        table.pad_edge = table.show_edge = borders
        for header, width in zip(self.headers, widths, strict=True):
            table.add_column(header, width=width)  # without a width, rich cuts words in narrow columns
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def _lists(self) -> Iterator[str]:
        if self.title:
            yield self.title
        for name, *cells in self.rows:
            yield name
            for header, cell in zip(self.headers[1:], cells, strict=True):
                if cell:
                    yield f"  {header}: {', '.join(cell.splitlines())}"


def _widths(words: Sequence[int], lines: Sequence[int], room: int) -> list[int]:
    """Return the width of each column: that of its longest word. The first columns with longer lines share the spare width."""
    spare, widths = room - sum(words), []
    for word, line in zip(words, lines, strict=True):
        extra = min(line - word, spare)
        widths.append(word + extra)
        spare -= extra
    return widths
