"""``spanscore``: the commands of this folder; the function ``rules`` in ``rules.py`` is ``spanscore rules``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from pkgutil import iter_modules

import typer

from spanscore import cli
from spanscore.errors import SpanscoreError
from spanscore.settings.printable import printable_lines

__all__ = ["app", "main"]

_USAGE_ERROR = 2
_ORDER = (
    "demo",
    "init",
    "check",
    "serve",
    "worker",
    "preview",
    "replay",
    "metrics",
    "score",
    "collect",
    "report",
    "labels",
    "calibrate",
    "baseline",
    "compare",
    "rules",
)
"""From the first five minutes to production; a command that is not listed stands behind them, by name."""


def app(only: str | None = None) -> typer.Typer:
    """Return the command line, made anew.

    Args:
        only: the one command that will run: the others take a second to load. None = all, as their help needs.
    """
    made = typer.Typer(
        name="spanscore",
        help="Score the live traces of an LLM application, and see the scores on the spans.\n\n"
        "New here? [bold]spanscore demo[/bold] needs no key, no server and no network.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_top)  # keeps a single command a subcommand
    for name in [only] if only else _commands():
        command = getattr(import_module(f"{cli.__name__}.{name}"), name)
        made.command(name, help=_flowing(command))(command)
    return made


def main() -> None:
    """Run the command line. What a user did wrong is said on stderr without a traceback; the exit code is 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a pipe that is not UTF-8 gets a ? for a line of a table, and no traceback
            stream.reconfigure(errors="replace")
    _find_modules_here()
    try:
        app(_asked(sys.argv[1:]))()
    except SpanscoreError as error:
        typer.secho(printable_lines(str(error)), fg=typer.colors.RED, err=True)
        sys.exit(_USAGE_ERROR)


def _find_modules_here() -> None:
    """Let a configuration name a metric of a module in the working directory, as ``python`` would find it.

    Behind everything that is installed: a ``queue.py`` that lies here takes nothing's place. The library itself looks where
    Python does, and nowhere else.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _asked(arguments: Sequence[str]) -> str | None:
    """Return the command of a command line; None where it begins with none."""
    return next((name for name in arguments[:1] if name in _commands()), None)


def _top() -> None: ...


def _flowing(command: Callable[..., None]) -> str:
    """Return a docstring with a line per paragraph: the source's line breaks do not fit a terminal's width."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _commands() -> list[str]:
    found = [module.name for module in iter_modules(cli.__path__) if module.name != "main" and module.name[0] != "_"]
    return sorted(found, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
