"""``spanscore demo``: a real chain and a real agent, scored live; retrieval breaks on the way, and the scores show it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from spanscore.cli._options import refuse_unwritable
from spanscore.errors import ConfigurationError, writing

if TYPE_CHECKING:
    from spanscore.testing.demo.run import Played, Tally

_BATCH = 512
"""Spans per line of a file."""


def demo(
    requests: Annotated[int, typer.Option(help="How many requests are made; at least 12.")] = 240,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Spread the requests over this time; else as fast as they go, and files get the times of live traffic."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests, answers, ids and scores.")] = 7,
    rate: Annotated[
        float, typer.Option(help="Share of the chain's runs that is scored: more than 0, at most 1.")
    ] = 0.5,
    traces: Annotated[int, typer.Option(min=0, help="How many of the worst traces are shown.")] = 3,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:NAME",
            help="A real model answers and judges, e.g. openai:gpt-4o-mini. It is used only when named here, even where a "
            "key is set.",
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send spans, metrics and events there too, e.g. http://localhost:4318."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the spans as OTLP-JSON, one export request per line.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Let a Prometheus fetch the metrics from this port (0 = any free one), until Ctrl-C."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write one HTML page that needs no network.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write what is shown as an SVG picture, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead, for programs.")] = False,
) -> None:
    """Run a small RAG chain and an agent, score them live, break retrieval half-way, and see which scores notice.

    No key, no server, no network. Ctrl-C ends it with what there is.
    """
    refuse_unwritable(out, report, svg)
    if sys.stderr.isatty():  # seconds, in which it would be blank
        typer.echo(f"Loading LangChain and OpenTelemetry; then {requests} requests are answered and scored …", err=True)
    from spanscore.core.codecs.otlp import json_line
    from spanscore.core.codecs.sdk import span_data
    from spanscore.core.terminal import Terminal
    from spanscore.report import write
    from spanscore.testing.demo.run import Demo, DemoOptions
    from spanscore.testing.demo.show import overview, results, summary
    from spanscore.testing.demo.show import svg as picture

    options = DemoOptions(requests=requests, seed=seed, seconds=seconds, model=model, rate=rate, otlp=otlp)
    with Demo(options) as playing:
        if metrics_port is not None:
            port = playing.scorer.serve_metrics(metrics_port)
            typer.echo(f"metrics: http://127.0.0.1:{port}/metrics", err=True)
        with _progress(requests) as watch:
            played = playing.play(watch)
        spans = [span_data(span) for span in played.spans]
        if report is not None:
            with writing(report):
                write(spans, report, title="spanscore demo")
        if out is not None:
            batches = (played.spans[at : at + _BATCH] for at in range(0, len(played.spans), _BATCH))
            with writing(out):
                out.write_text("".join(map(json_line, batches)), encoding="utf-8")
        found = results(spans)
        shown = partial(overview, played, found, traces=traces)
        if svg is not None:
            drawn = picture(shown(written=_sizes(report=report, out=out)), "spanscore demo")
            with writing(svg):
                svg.write_text(drawn, encoding="utf-8")
        files = _sizes(report=report, out=out, svg=svg)
        if as_json:
            written = [{"path": path, "bytes": size} for path, size in files.values()]
            typer.echo(json.dumps(summary(played, found, traces=traces) | {"written": written}, indent=2))
        else:
            Terminal(highlight=False).print(shown(written=files))
            _mention_unused_key(model)
        if metrics_port is not None and not played.interrupted:
            typer.echo("metrics are served until Ctrl-C", err=True)
            with suppress(KeyboardInterrupt):
                Event().wait()
    _refuse_losses(played)


def _refuse_losses(played: Played) -> None:
    """Make sure that the backend of ``--otlp`` has everything.

    Raises:
        ConfigurationError: it lacks a part of a signal.
    """
    if played.undelivered:
        lost = "; ".join(f"{signal} {played.deliveries[signal]}" for signal in played.undelivered)
        raise ConfigurationError(
            f"--otlp {played.options.otlp}: not everything has arrived; is a backend there? {lost}"
        )


def _mention_unused_key(model: str | None) -> None:
    if model is None and os.environ.get("OPENAI_API_KEY"):
        typer.echo("OPENAI_API_KEY is set and was not used: --model openai:gpt-4o-mini would use it.")


def _sizes(**written: Path | None) -> dict[str, tuple[str, int]]:
    """Return option → the file that was written for it, and its bytes."""
    return {option: (str(path), path.stat().st_size) for option, path in written.items() if path is not None}


@contextmanager
def _progress(requests: int) -> Iterator[Callable[[Tally], None]]:
    """Show one live line on stderr, gone when it is over; nothing where stderr is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from spanscore.core.terminal import Terminal

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[scores]}"),
    )
    console = Terminal(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=requests, scores="")

        def watch(tally: Tally) -> None:
            state = "[bold red]retrieval broken[/]" if tally.stretch == "during" else "retrieval works "
            scores = f"{tally.scored} scores, {tally.failing} failing"
            progress.update(task, completed=tally.asked, description=state, scores=scores)

        yield watch
