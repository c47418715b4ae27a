"""The console of all commands: rich's console, which escapes control characters in texts of files and models."""

from __future__ import annotations

from collections.abc import Iterable
from shutil import get_terminal_size
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from spanscore.core.printable import printable, printable_lines

_WIDTH: Final = 110
"""Maximum number of columns; also the number of columns if there is no terminal."""
_NARROWEST: Final = 20


class Terminal(Console):
    """A console that escapes control characters in texts; its own, for colours, are unchanged.

    rich itself removes the bell and backspaces of a ``Text``.
    """

    def print_line(self, text: str) -> None:
        """Print a text as one line without markup, of any length: a line break in a name does not begin a new line."""
        self.print(Text(printable(text)), soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a plain text as rich's ``Text``, escaped before it is measured."""
        return super().render_str(printable_lines(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))


def as_plain(shown: Any) -> str:
    """Return a renderable as text without colours, as wide as the terminal."""
    columns = get_terminal_size((_WIDTH, 24)).columns  # COLUMNS first, then the terminal
    width = min(max(columns, _NARROWEST), _WIDTH)
    console = Terminal(width=width, color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()
