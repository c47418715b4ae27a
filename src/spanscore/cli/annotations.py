"""``spanscore annotations``: opens a page on which a person labels cases, or sends a file of labels to the backend."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from spanscore.cli._options import takes_options
from spanscore.core.codecs.annotation_file import annotations_in
from spanscore.core.sample import Annotation
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.semconv import ANNOTATOR_HUMAN
from spanscore.stored.annotation_import import AnnotationImport
from spanscore.stored.label_cases import LabelPick

_SHOWN = 10
"""Maximum number of wrong lines that are printed."""


class AnnotationsAction(StrEnum):
    """Actions of ``spanscore annotations``."""

    LABEL = "label"
    IMPORT = "import"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationsOptions:
    """The options of ``spanscore annotations``. An empty text is an option that was not given."""

    action: Annotated[
        AnnotationsAction,
        typer.Argument(metavar="label|import", help="Label cases on a page, or send the labels in a file."),
    ]
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help="label: cases of 'spanscore collect', other samples, or spans (OTLP-JSON lines). import: one annotation a "
            'line: {"human": "bad", "trace_id": "…", "span_id": "…", "when": "2026-03-01T12:00:00Z"}. "key" may replace '
            'both ids; "name", "annotator" and "comment" are optional.',
        ),
    ]
    config: Annotated[
        Path | None,
        typer.Option(
            help="A spanscore.yaml. label: the metric's scale. import: feedback_scales, redactor, service, content, outputs."
        ),
    ] = None
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="label: the judge's metric. Default: the only metric with scores.")
    ] = ""
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="label: the annotation file. It is continued if it exists. Default: labels-METRIC.jsonl in this folder.",
        ),
    ] = None
    annotator: Annotated[str, typer.Option(help="label: your name in the labels. Default: the name of the login.")] = ""
    pick: Annotated[
        LabelPick,
        typer.Option(
            help="label: which cases. 'informative': by verdict and score, for the most precise pass rate. 'failing' and "
            "'disagreements' (of a jury) find errors, but estimate no pass rate."
        ),
    ] = LabelPick.RANDOM
    count: Annotated[int, typer.Option(min=1, metavar="N", help="label: number of cases.")] = 100
    seed: Annotated[int, typer.Option(help="label: seed of the draw.")] = 0
    target: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=0.5,
            help="label: wanted half width of the interval of the pass rate, for the number of further labels.",
        ),
    ] = 0.05
    port: Annotated[int, typer.Option(min=0, max=65535, help="label: port on 127.0.0.1; 0 = any free port.")] = 0
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="label: open the page.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False


@takes_options(AnnotationsOptions)
def annotations(options: AnnotationsOptions) -> None:
    """Label cases on a page of this machine, or send the labels in a file to the backend.

    [bold]spanscore annotations label cases.jsonl --metric faithfulness[/bold] shows one case at a time, and the judge's verdict
    only after your choice. The labels are for [bold]calibrate[/bold], [bold]tune[/bold] and [bold]import[/bold].
    A second run continues. Needs the extra [bold]report[/bold].

    [bold]spanscore annotations import labels.jsonl[/bold] sends the labels of a file, to the destination that the
    [bold]OTEL_EXPORTER_OTLP_*[/bold] variables set. As with [bold]feedback()[/bold], each annotation is a
    span of the scope spanscore below the unit's span, a log event, and a count. Span ids are derived from the annotations, so
    importing lines with a [bold]when[/bold] again gives the same spans. No judge is called. Wrong lines are reported and left
    out; the exit code is 1 if a line is wrong, or if an annotation may not have arrived.
    """
    if options.action is AnnotationsAction.IMPORT:
        if options.metric or options.out or options.annotator or options.pick is not LabelPick.RANDOM:
            raise ConfigurationError(
                "--metric, --out, --annotator and --pick are options of label; import sends the whole file"
            )
        _import(options.file, options.config, as_json=options.as_json)
        return
    typer.echo("Label: loading libraries …", err=True)  # this takes seconds
    from spanscore.cli._label_run import LabelRun

    LabelRun(options if options.annotator else replace(options, annotator=_login_name())).run()


def _login_name() -> str:
    """Return the name of the login; ``HUMAN`` if the system has none."""
    try:
        return getuser()
    except (OSError, KeyError):
        return ANNOTATOR_HUMAN


def _import(file: Path, config: Path | None, *, as_json: bool) -> None:
    entries = [*annotations_in(file)]
    importer = AnnotationImport.of(config)
    notes = Terminal(stderr=True, highlight=False, markup=False)
    counts: Counter[str] = Counter(sent=0, repeated=0, wrong=0)
    faults = []
    for line, annotation in track(entries, f"{len(entries)} annotations", console=notes, transient=True):
        result = importer.send(annotation) if isinstance(annotation, Annotation) else str(annotation)
        counts[result if result in counts else "wrong"] += 1
        if result not in counts:
            faults.append(f"line {line}: {result}")
    delivered = importer.close()
    for fault in faults[:_SHOWN] + ([f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []):
        notes.print_line(fault)
    if as_json:
        typer.echo(json.dumps({**counts, "delivered": delivered, "faults": faults}, indent=2))
    else:
        typer.echo(", ".join(f"{number:,} {what}" for what, number in counts.items()))
    if not delivered:
        notes.print("the backend did not accept all of them: see OTEL_EXPORTER_OTLP_ENDPOINT; import the file again")
    raise typer.Exit(0 if delivered and not faults else 1)
