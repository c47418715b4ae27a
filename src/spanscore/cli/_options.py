"""Options and checks that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from spanscore.errors import ConfigurationError

T = TypeVar("T")
INTERRUPTED = 130
"""128 + SIGINT: the exit code that a shell expects after Ctrl-C."""
NO_KEYS = frozenset({"self", "judge", "embeddings", "classifier"})
"""Parameters of a metric that are objects, or that other keys of the configuration set."""

SourceOfReplay = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Source of the spans, as in 'replay': a file or folder of OTLP-JSON lines, "
        "'jaeger:http://host:16686?service=NAME' or 'tempo:http://host:3200?q={…}'.",
    ),
]
UnitsSince = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Only units that began after this time: 7d or 12h ago, or 2026-07-01T12:00Z. Default for a trace store: 7d.",
    ),
]
UnitsUntil = Annotated[
    str,
    typer.Option(metavar="TIME", help="Only units that began before this time: 7d or 12h ago, or 2026-07-01T12:00Z."),
]
TracesSince = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="For a trace store: only traces after this time: 7d (default) or 12h ago, or 2026-07-01T12:00Z.",
    ),
]
TracesUntil = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="For a trace store: only traces before this time: 7d or 12h ago, or 2026-07-01T12:00Z."
    ),
]
ContextTokens = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Tokens of all contexts of a request together. Default: about 150."),
]
OnlyMetrics = Annotated[list[str] | None, typer.Option(help="Only this metric. Repeat for more metrics.")]
OnlyJob = Annotated[str, typer.Option(help="Only this Prometheus job, which is a service. Default: all jobs together.")]
InBatches = Annotated[
    bool,
    typer.Option(
        "--batch",
        help="Ask the judge by its provider's batch endpoint (openai:MODEL, anthropic:MODEL), at half price. Each step of a "
        "metric takes up to a day. The batches' ids are in *.batches next to the scores, so evaluate needs --out.",
    ),
]
CancelBatches = Annotated[
    bool,
    typer.Option(
        "--batch-cancel", help="Score nothing: cancel the batches that the same command with --batch has sent."
    ),
]


def option_parser(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return the parser of an option: a ``ValueError`` of ``parse`` becomes an error that names the option."""

    def parse_option(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse_option


def takes_options(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Return a decorator for a command that gets its options as one dataclass, in which each option is listed once."""

    def decorate(run: Callable[[T], None]) -> Callable[..., None]:
        @wraps(run)
        def command(**values: Any) -> None:
            run(options(**values))

        # typer reads the options from the signature
        command.__signature__ = signature(options, eval_str=True)  # type: ignore[attr-defined]
        return command

    return decorate


def refuse_unwritable(*paths: Path | None) -> None:
    """Refuse files that cannot be written, before the command takes minutes or costs money. None as a path is skipped."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise ConfigurationError(f"{path} cannot be written: it is a folder; name a file in it")
        if not path.parent.is_dir():
            raise ConfigurationError(f"{path} cannot be written: the folder {path.parent} does not exist")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ConfigurationError(f"{path} cannot be written by this user; name another file")


def refuse_overwriting(path: Path | None, *sources: str | Path | None, option: str = "--out") -> None:
    """Refuse an output file that would overwrite a source of the command, or a file in a folder that is its source."""
    if path is None or not path.exists():
        return
    for source in (Path(source) for source in sources if source):
        if source.exists() and (path.samefile(source) or (source.is_dir() and path.parent.samefile(source))):
            raise ConfigurationError(f"{option} {path} is read by this command; choose another file")


def budget_spent(unscored: int, how: str) -> str:
    """Return the line that reports a spent ``judge.budget``; ``how`` continues without paying twice: "with --out FILE"."""
    return (
        f"judge.budget is spent: {unscored:,} scores ended as budget_exhausted, and nothing was sent for them. Run the command "
        f"again in the next window (windows are aligned to UTC) {how}, or raise judge.budget."
    )
