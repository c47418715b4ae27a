"""``spanscore annotations import``: sends a file of human annotations as spans, events and counts, like ``feedback()``."""

import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from spanscore.core.codecs.annotation_file import annotations_in
from spanscore.core.sample import Annotation
from spanscore.core.terminal import Terminal
from spanscore.stored.annotation_import import AnnotationImport

_SHOWN = 10
"""Wrong lines that are printed one by one."""


class AnnotationsAction(StrEnum):
    """Actions of ``spanscore annotations``."""

    IMPORT = "import"


def annotations(
    action: Annotated[AnnotationsAction, typer.Argument(metavar="import", help="Send the annotations.")],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help='One annotation a line: {"human": "bad", "trace_id": "…", "span_id": "…", "when": '
            '"2026-03-01T12:00:00Z"}. "key" may replace both ids; "name", "annotator" and "comment" are optional.',
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(help="A spanscore.yaml: its scales (feedback_scales), service name, content and outputs."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Send the annotations in a file to the backend, each as a span below its unit.

    The [bold]OTEL_EXPORTER_OTLP_*[/bold] variables set the destination. As with [bold]feedback()[/bold], each annotation is a
    span of the scope spanscore below the unit's span, a log event, and a count. Span ids are derived from the annotations, so
    importing lines with a [bold]when[/bold] again gives the same spans. No judge is called.

    Wrong lines are reported and left out. The exit code is 1 if a line is wrong, or if an annotation may not have arrived.
    """
    entries = [*annotations_in(file)]
    to = AnnotationImport.of(config)
    notes = Terminal(stderr=True, highlight=False, markup=False)
    counts: Counter[str] = Counter(dict.fromkeys(("sent", "repeated", "wrong"), 0))
    faults = []
    for line, annotation in track(entries, f"{len(entries)} annotations", console=notes, transient=True):
        result = to.send(annotation) if isinstance(annotation, Annotation) else str(annotation)
        counts[result if result in counts else "wrong"] += 1
        if result not in counts:
            faults.append(f"line {line}: {result}")
    delivered = to.close()
    for fault in faults[:_SHOWN] + ([f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []):
        notes.print_line(fault)
    if as_json:
        typer.echo(json.dumps({**counts, "delivered": delivered, "faults": faults}, indent=2))
    else:
        typer.echo(", ".join(f"{number:,} {what}" for what, number in counts.items()))
    if not delivered:
        notes.print("the backend did not accept all of them: see OTEL_EXPORTER_OTLP_ENDPOINT; import the file again")
    raise typer.Exit(0 if delivered and not faults else 1)
