"""``spanscore report``: writes one HTML page about stored spans and their scores."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import refuse_overwriting
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.printable import format_count, printable
from spanscore.errors import ConfigurationError, writing
from spanscore.monitoring.calibration import calibrations_of
from spanscore.report import findings, write


def report(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-", help="Spans as OTLP-JSON lines, the Collector's 'file' exporter's format; - reads stdin."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write; an existing file is replaced.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the page. Default: the names of the services.")] = None,
    calibration: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Calibration file written by spanscore calibrate. The report then also shows the pass rate corrected by human "
            "labels. Repeat for more metrics.",
        ),
    ] = None,
) -> None:
    """Turn a file of spans with scores into one HTML page: trends, outcomes, the worst traces. The page needs no network.

    Get such a file with [bold]spanscore demo --out FILE[/bold], from a scorer with [bold]spans_to[/bold], or from the
    Collector's file exporter.
    """
    refuse_overwriting(out, file, *(calibration or []))
    calibrations = calibrations_of(calibration or [])
    with stored_spans(file) as stored, writing(f"--out {out}"):
        spans = iter(stored)
        if (first := next(spans, None)) is None:
            raise ConfigurationError(
                f"{printable(file)} holds no spans: it must have OTLP-JSON lines, as spanscore demo --out FILE and the "
                "Collector's file exporter write them"
            )
        summary = write(chain([first], spans), out, title=title, calibrations=calibrations)
    if not (summary.units or summary.conversations):
        typer.secho(f"{printable(file)} holds no scored spans: the page is empty.", fg=typer.colors.YELLOW, err=True)
    typer.echo(printable(findings.headline(summary)))
    conversations = f" and {format_count(summary.conversations, 'conversation')}" if summary.conversations else ""
    typer.echo(
        f"{out}: {format_count(summary.scores, 'score')} of {format_count(summary.units, 'unit')}{conversations}"
    )
