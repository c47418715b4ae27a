"""``spanscore adapt``: translates a metric's prompts into another language, into a file that a person reviews."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._config_report import valid
from spanscore.cli._judge_topics import make_named
from spanscore.cli._options import refuse_unwritable
from spanscore.cli._prompt_run import judged_metric, paid_run
from spanscore.core.printable import printable, printable_lines
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, writing
from spanscore.metrics.catalog.configured import judge_named
from spanscore.metrics.kit.base import parse_language


def adapt(
    metric: Annotated[str, typer.Argument(metavar="METRIC", help="The metric of the configuration to translate.")],
    language: Annotated[str, typer.Option("--language", "-l", help="The language of the prompts: german, or de.")],
    config: Annotated[
        Path, typer.Option("--config", metavar="CONFIG", help="A spanscore.yaml with the metric and its judge.")
    ] = Path("spanscore.yaml"),
    judge: Annotated[
        str, typer.Option(help="provider:model that translates. Default: the judge of the configuration.")
    ] = "",
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder of the file METRIC.LANGUAGE.json.")
    ] = Path("prompts"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Translate a metric's prompts into another language, once, by a judge, into a file for review.

    [bold]spanscore adapt faithfulness --language german --out prompts/[/bold]

    The instruction and the texts of the examples are translated. Keys, numbers, names in backticks, verdict words and the form
    of the examples must stay: a lost word is repaired once. If it is lost again, the command fails and writes no file. Read the
    file, and set "reviewed" in it to true; until then each process that loads it logs a warning.
    """
    notes = Terminal(stderr=True, highlight=False, markup=False)
    notes.print(f"Adapting {printable(metric)}: loading libraries …")  # this takes seconds
    code = parse_language("--language", language)
    configured = valid(config)
    source = judged_metric(configured, metric, place="METRIC", purpose="translate")
    file = out / f"{source.name}.{code}.json"
    if file.exists():  # refused before anything is paid for
        raise ConfigurationError(f"{file} exists, and may be reviewed; move it away to translate again")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    refuse_unwritable(file)
    make = partial(judge_named, configured.settings, judge)
    translator = make_named("--judge", judge, make) if judge else None
    with paid_run(configured.settings, source, notes, "translated") as on_progress:
        adapted = source.adapt_sync(translator, code, progress=on_progress)
    adapted.save(file)
    typer.echo(json.dumps(adapted.as_json(), indent=2) if as_json else printable_lines(str(adapted)))
    place = f"prompts: {{file: {file}}} among {source.name}'s parameters"
    notes.print(
        f'\n{file} is written; read it, and set "reviewed" to true. For the configuration: {place}.', soft_wrap=True
    )
