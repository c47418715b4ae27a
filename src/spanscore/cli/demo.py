"""``spanscore demo``: scores a real chain and a real agent live, and breaks retrieval for a while, which the scores show."""

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
    from spanscore.testing.demo.show import svg as svg_of

    options = DemoOptions(requests=requests, seed=seed, seconds=seconds, model=model, rate=rate, otlp=otlp)
    with Demo(options) as running_demo:
        if metrics_port is not None:
            port = running_demo.scorer.serve_metrics(metrics_port)
            typer.echo(f"metrics: http://127.0.0.1:{port}/metrics", err=True)
        with _show_progress(requests) as show:
            result = running_demo.play(show)
        spans = [span_data(span) for span in result.spans]
        if report is not None:
            with writing(report):
                write(spans, report, title="spanscore demo")
        if out is not None:
            batches = (result.spans[at : at + _BATCH] for at in range(0, len(result.spans), _BATCH))
            with writing(out):
                out.write_text("".join(map(json_line, batches)), encoding="utf-8")
        outcome = results(spans)
        render = partial(overview, result, outcome, traces=traces)
        if svg is not None:
            picture_text = svg_of(render(written=_file_sizes(report=report, out=out)), "spanscore demo")
            with writing(svg):
                svg.write_text(picture_text, encoding="utf-8")
        files = _file_sizes(report=report, out=out, svg=svg)
        if as_json:
            written = [{"path": path, "bytes": size} for path, size in files.values()]
            typer.echo(json.dumps(summary(result, outcome, traces=traces) | {"written": written}, indent=2))
        else:
            Terminal(highlight=False).print(render(written=files))
            _mention_unused_key(model)
        if metrics_port is not None and not result.interrupted:
            typer.echo("metrics are served until Ctrl-C", err=True)
            with suppress(KeyboardInterrupt):
                Event().wait()
    _refuse_losses(result)


def _refuse_losses(result: Played) -> None:
    if result.undelivered:
        lost = "; ".join(f"{signal} {result.deliveries[signal]}" for signal in result.undelivered)
        raise ConfigurationError(
            f"--otlp {result.options.otlp}: not everything was delivered; is a backend running? {lost}"
        )


def _mention_unused_key(model: str | None) -> None:
    if model is None and os.environ.get("OPENAI_API_KEY"):
        typer.echo("OPENAI_API_KEY is set and was not used: --model openai:gpt-4o-mini would use it.")


def _file_sizes(**written: Path | None) -> dict[str, tuple[str, int]]:
    """Return option → the file that was written for it, and the file's size in bytes."""
    return {option: (str(path), path.stat().st_size) for option, path in written.items() if path is not None}


@contextmanager
def _show_progress(requests: int) -> Iterator[Callable[[Tally], None]]:
    """Yield a function that shows a tally on one line of stderr, until the block ends; without a terminal it shows nothing."""
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

        def show(tally: Tally) -> None:
            state = "[bold red]retrieval broken[/]" if tally.stretch == "during" else "retrieval works "
            scores = f"{tally.scored} scores, {tally.failing} failing"
            progress.update(task, completed=tally.asked, description=state, scores=scores)

        yield show
