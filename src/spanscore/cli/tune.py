"""``spanscore tune``: searches a judge's prompt by human labels; a change is kept only if it is shown to be better."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._config_report import valid
from spanscore.cli._judge_topics import make_named
from spanscore.cli._options import refuse_overwriting, refuse_unwritable
from spanscore.cli._prompt_run import judged_metric, paid_run
from spanscore.core.codecs.annotation_file import read_annotations
from spanscore.core.printable import printable, printable_lines
from spanscore.core.terminal import Terminal
from spanscore.metrics.catalog.configured import judge_named
from spanscore.metrics.kit.tuning import warnings_for
from spanscore.pipeline.jobs import redactor_in


def tune(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A spanscore.yaml with the metric and its judge.")],
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS",
            help='Labelled samples, one a line: {"user_input": …, "response": …, "human": true}; or the JSON of ragas\'s '
            "annotations. Give 100 or more.",
        ),
    ],
    metric: Annotated[str, typer.Option("--metric", "-m", help="The metric of CONFIG to tune.")],
    label: Annotated[
        str | None,
        typer.Option(
            help="Only labels of this name, if the file has several names; with ragas's annotations, those of this metric."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("fitted.json"),
    demonstrations: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of examples in the judge's prompt.")
    ] = 4,
    candidates: Annotated[int, typer.Option(min=1, metavar="N", help="Number of candidate prompts to try.")] = 16,
    rewriter: Annotated[
        str,
        typer.Option(help="provider:model that proposes instructions from the judge's errors. Default: no rewriter."),
    ] = "",
    redactor: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that runs on each text before a model reads it. Default: the redactor of the configuration.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the split and of the candidates.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Tune a metric's judge with human labels: examples are added to its prompt only if they are shown to help.

    [bold]spanscore tune spanscore.yaml labels.jsonl --metric polite --out fitted.json[/bold]

    30 % of the labels give examples, and 35 % select among the candidates. On the last 35 % the best candidate must be right
    more often than the present judge (exact one-sided McNemar test, p ≤ .05); otherwise the file holds the unchanged metric.
    The command prints the examples that every later question will contain, because examples are content of your users.
    """
    refuse_unwritable(out)
    refuse_overwriting(out, config, labels)
    notes = Terminal(stderr=True, highlight=False, markup=False)
    notes.print(f"Tuning {printable(metric)}: loading libraries …")  # this takes seconds
    configured = valid(config)
    original = judged_metric(configured, metric, place="--metric", purpose="tune")
    labelled = read_annotations(labels, metric=label or original.name, name=label)
    for warning in warnings_for(len(labelled)):
        notes.print(warning, soft_wrap=True)
    make = partial(judge_named, configured.settings, rewriter)
    rewriting_judge = make_named("--rewriter", rewriter, make) if rewriter else None
    with paid_run(configured.settings, original, notes, "judged") as on_progress:
        fitted = original.fit_sync(
            labelled,
            demonstrations=demonstrations,
            candidates=candidates,
            seed=seed,
            rewriter=rewriting_judge,
            redactor=redactor_in(redactor or configured.settings.redactor),
            progress=on_progress,
        )
    fitted.save(out)
    typer.echo(json.dumps(fitted.as_json(), indent=2) if as_json else printable_lines(str(fitted)))
    line = f"\n{out} holds the unchanged metric."
    if fitted.kept:
        place = f"prompts: {{file: {out}}} among {fitted.metric.name}'s parameters"
        line = f"\n{out} is written; for the configuration: {place}."
    notes.print(line, soft_wrap=True)
