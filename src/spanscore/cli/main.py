"""The ``spanscore`` command: finds the commands in this folder; function ``rules`` in ``rules.py`` is ``spanscore rules``."""

from __future__ import annotations

import ast
import inspect
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from pkgutil import get_data, iter_modules
from typing import Annotated

import typer

from spanscore import cli
from spanscore.cli._options import INTERRUPTED
from spanscore.core.printable import printable_lines
from spanscore.errors import SpanscoreError

_USAGE_ERROR = 2
_GROUPS = {
    "Start": ("demo", "init", "check", "metrics"),
    "Run": ("serve", "worker", "spool", "rules"),
    "Look": ("explain", "report", "preview", "replay", "compare"),
    "Improve": ("evaluate", "collect", "annotations", "tune", "adapt", "calibrate", "baseline"),
}
_ORDER = [name for names in _GROUPS.values() for name in names]
"""Commands in the order of the help page; a command without a group follows by name."""


def app(only: str | None = None) -> typer.Typer:
    """Return a new command line.

    Args:
        only: the one command to load, because loading all of them takes a second longer. None = all.
    """
    command_line = _without_commands()
    for name in [only] if only else command_names():
        command = getattr(import_module(f"{cli.__name__}.{name}"), name)
        command_line.command(name, help=_unwrap(inspect.getdoc(command)), rich_help_panel=_group_of(name))(command)
    return command_line


def _overview() -> typer.Typer:
    """Return the command line with the help of every command; a command's module is loaded when the command runs."""
    command_line = _without_commands()
    for name in command_names():
        command_line.command(
            name,
            help=_unwrap(_docstring_of(name)),
            rich_help_panel=_group_of(name),
            add_help_option=False,
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )(_load_and_run)
    return command_line


def _load_and_run(context: typer.Context) -> None:
    name = str(context.info_name)
    app(name)([name, *context.args])


def _docstring_of(name: str) -> str | None:
    source = get_data(cli.__name__, f"{name}.py") or b""
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return next(map(ast.get_docstring, functions), None)


def _without_commands() -> typer.Typer:
    command_line = typer.Typer(
        name="spanscore",
        help="Score the live traces of an LLM application, and see the scores on the spans.\n\n"
        "New here? [bold]spanscore demo[/bold] needs no key, no server and no network.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    command_line.callback()(_top_options)  # without a callback, Typer would run a single command without its name
    return command_line


def main() -> None:
    """Run the command line. User errors are printed on stderr without a traceback, and the exit code is 2; after Ctrl-C 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A pipe that is not UTF-8 gets a ? for a table's lines, and no traceback.
            stream.reconfigure(errors="replace")
    # A configuration may name a metric of a module in the working directory. Installed packages come first, so that a
    # ``queue.py`` there replaces no module.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        only = next((name for name in sys.argv[1:2] if name in command_names()), None)
        (app(only) if only else _overview())()
    except SpanscoreError as error:
        typer.secho(printable_lines(str(error)), fg=typer.colors.RED, err=True)
        sys.exit(_USAGE_ERROR)
    except KeyboardInterrupt:  # while the libraries of a command are imported; Typer handles it in a command
        sys.exit(INTERRUPTED)


def _print_version(is_set: bool) -> None:
    if is_set:
        from spanscore.outputs.scope import version

        typer.echo(f"spanscore {version()}")
        raise typer.Exit


def _top_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None: ...


def _group_of(name: str) -> str:
    return next((group for group, names in _GROUPS.items() if name in names), "Other")


def _unwrap(docstring: str | None) -> str:
    """Return a docstring with one line per paragraph, because the source's line breaks do not fit every terminal."""
    paragraphs = (docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def command_names() -> list[str]:
    """Return the names of all commands, in the order of the overview."""
    names = [module.name for module in iter_modules(cli.__path__) if module.name != "main" and module.name[0] != "_"]
    return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


if __name__ == "__main__":
    main()
