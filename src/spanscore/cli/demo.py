"""``spanscore demo``: scores a real chain and a real agent live; retrieval breaks for a while, and the scores reveal it."""

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
"""Spans per line of the OTLP-JSON file."""


def demo(
    requests: Annotated[int, typer.Option(help="Number of requests; at least 12.")] = 240,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Spread the requests over this time. Default: as fast as possible, and over 100 minutes in files."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Without --model it fixes requests, answers, ids and scores.")] = 7,
    rate: Annotated[float, typer.Option(help="Share of the chain's runs that is scored: above 0, at most 1.")] = 0.5,
    traces: Annotated[int, typer.Option(min=0, help="Number of the worst traces to show.")] = 3,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:NAME",
            help="A real model that answers and judges, e.g. openai:gpt-4o-mini. Only this option selects it, even if an API "
            "key is set.",
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Also send spans, metrics and events to this endpoint, e.g. http://localhost:4318."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the spans as OTLP-JSON, one export request per line.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Serve the metrics for Prometheus on this port (0 = any free port), until Ctrl-C."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write one HTML page that needs no network.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Also write the output as an SVG picture.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead, for programs.")] = False,
) -> None:
    """Run a small RAG chain and an agent, score them live, break retrieval for a while, and see which scores notice.

    The demo needs no key, no server and no network. Ctrl-C ends it early with the results so far.
    """
    refuse_unwritable(out, report, svg)
    if sys.stderr.isatty():  # because loading takes seconds, in which the terminal would be blank
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
        outcome = results(spans)
        shown = partial(overview, played, outcome, traces=traces)
        if svg is not None:
            drawn = picture(shown(written=_sizes(report=report, out=out)), "spanscore demo")
            with writing(svg):
                svg.write_text(drawn, encoding="utf-8")
        files = _sizes(report=report, out=out, svg=svg)
        if as_json:
            written = [{"path": path, "bytes": size} for path, size in files.values()]
            typer.echo(json.dumps(summary(played, outcome, traces=traces) | {"written": written}, indent=2))
        else:
            Terminal(highlight=False).print(shown(written=files))
            _mention_unused_key(model)
        if metrics_port is not None and not played.interrupted:
            typer.echo("metrics are served until Ctrl-C", err=True)
            with suppress(KeyboardInterrupt):
                Event().wait()
    _refuse_losses(played)


def _refuse_losses(played: Played) -> None:
    """Raise an error if the backend of ``--otlp`` did not receive everything.

    Raises:
        ConfigurationError: a part of a signal was not delivered.
    """
    if played.undelivered:
        lost = "; ".join(f"{signal} {played.deliveries[signal]}" for signal in played.undelivered)
        raise ConfigurationError(
            f"--otlp {played.options.otlp}: not everything was delivered; is a backend running? {lost}"
        )


def _mention_unused_key(model: str | None) -> None:
    if model is None and os.environ.get("OPENAI_API_KEY"):
        typer.echo("OPENAI_API_KEY is set and was not used: --model openai:gpt-4o-mini would use it.")


def _sizes(**written: Path | None) -> dict[str, tuple[str, int]]:
    """Return option → the file that was written for it, and the file's size in bytes."""
    return {option: (str(path), path.stat().st_size) for option, path in written.items() if path is not None}


@contextmanager
def _progress(requests: int) -> Iterator[Callable[[Tally], None]]:
    """Show one live line on stderr, removed at the end; without a terminal on stderr there is no progress line."""
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
