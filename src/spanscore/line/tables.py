"""Rows → a table that fits a width without breaking a word, or, where none does, one short list per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Fitting"]

_BORDER = 3
"""Columns that a cell takes besides its text: a space either side and a line."""
_GAP = 2
"""The same, without lines between the cells."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """A table for rich that never folds a word; longer text than a column breaks at spaces.

    Attributes:
        headers: one per column.
        rows: cells as text; a line break starts a new line.
        title: above it.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        columns = list(zip(self.headers, *self.rows, strict=True))
        words = [max(map(_longest_word, column)) for column in columns]
        lines = options.max_width - sum(words) > _BORDER * len(words)
        room = options.max_width - (_BORDER * len(words) + 1 if lines else _GAP * len(words))
        if room < sum(words):
            yield "\n".join(self._lists())
        else:
            yield self._table(_widths(columns, words, room), lines=lines)

    def _table(self, widths: Sequence[int], *, lines: bool) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        drawn = box.HEAVY_HEAD if lines else box.SIMPLE_HEAD
        gap = (0, 1) if lines else (0, _GAP - 1, 0, 0)  # and the blank that divides
        table = Table(title=self.title or None, title_justify="left", box=drawn, padding=gap)
        table.pad_edge = table.show_edge = lines
        for header, width in zip(self.headers, widths, strict=True):
            table.add_column(header, width=width)  # left to itself, rich cuts words in narrow columns
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


def _longest_word(cell: str) -> int:
    return max(map(len, cell.split()), default=0)


def _widths(columns: Sequence[Sequence[str]], words: Sequence[int], room: int) -> list[int]:
    """Give each column its longest word, and what is left to the first ones that have longer lines."""
    left, widths = room - sum(words), []
    for column, word in zip(columns, words, strict=True):
        line = max(len(line) for cell in column for line in (cell.splitlines() or [""]))
        more = min(line - word, left)
        widths.append(word + more)
        left -= more
    return widths
