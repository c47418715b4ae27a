"""``spanscore init``: a few answers → a first ``spanscore.yaml`` that ``check`` passes; also the schema that editors read."""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._config_report import ConfigReport, config_report
from spanscore.errors import ConfigurationError, writing
from spanscore.metrics.catalog.registry import found, metric_doc_of

SCHEMA = "spanscore.schema.json"
_METRICS = "faithfulness,response_relevancy"
_EMBEDDINGS = {"openai": "openai:text-embedding-3-small"}
"""Provider of a judge → embeddings of the same account; other providers start with lexical ones."""


class Backend(StrEnum):
    """How metrics leave the application."""

    OTLP = "otlp"
    PROMETHEUS = "prometheus"


def init(
    config: Annotated[Path, typer.Argument(metavar="[CONFIG]", help="The file to write.")] = Path("spanscore.yaml"),
    metrics: Annotated[
        str, typer.Option("--metrics", "-m", help=f"Names with commas between; {_METRICS} if not given.")
    ] = "",
    judge: Annotated[
        str,
        typer.Option("--judge", help="Who judges: provider:model (openai:gpt-4o-mini), or lexical, which is offline."),
    ] = "",
    backend: Annotated[
        Backend | None,
        typer.Option("--backend", help="otlp: metrics are sent; prometheus: they are served, to be scraped, too."),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Write the JSON Schema beside it, too, and name it in the first line.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a first configuration, with comments, that [bold]spanscore check[/bold] passes.

    What no option says is asked for where there is a terminal, and is the default elsewhere.

    With --schema an editor completes and explains the keys. The schema has 180 kB and belongs beside the file, in the
    repository too. A newer spanscore writes it anew: spanscore check --schema > spanscore.schema.json
    """
    if config.exists() and not force:
        raise ConfigurationError(f"{config} is there already; --force overwrites it")
    chosen = metrics or _ask("Metrics, with commas between (spanscore metrics --online lists them)", _METRICS)
    named = [name.strip() for name in chosen.split(",") if name.strip()]
    judging = judge or _ask("Who judges: provider:model, such as openai:gpt-4o-mini; or lexical, offline", "lexical")
    leaves = backend or Backend(_ask("How metrics leave: otlp or prometheus", Backend.OTLP, _backend))
    lines = [
        *([f"# yaml-language-server: $schema={SCHEMA}"] if schema else []),
        *_lines(config, named, judging, leaves),
    ]
    text = "\n".join(lines) + "\n"
    report = _check_answer(text)
    with writing(config):
        config.write_text(text, encoding="utf-8")
    if schema:
        from spanscore.cli._schema import schema_file  # without --schema the command needs none

        with writing(config.with_name(SCHEMA)):
            config.with_name(SCHEMA).write_text(schema_file(), encoding="utf-8")
    typer.echo("\n".join(_next(config, report, leaves, schema=schema)))


def _ask(question: str, default: str, check: Callable[[str], str] = str) -> str:
    if not sys.stdin.isatty():
        return default
    return str(typer.prompt(question, default=str(default), value_proc=check))


def _backend(text: str) -> str:
    if text not in [*Backend]:
        raise typer.BadParameter(f"write {' or '.join(Backend)}")
    return text


def _check_answer(text: str) -> ConfigReport:
    """Return the report of ``check``.

    Raises:
        ConfigurationError: an answer is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "spanscore.yaml")
        file.write_text(text, encoding="utf-8")
        report = config_report(file)
    if report.errors:
        raise ConfigurationError("\n".join(["nothing is written, as check would refuse it:", *report.errors]))
    return report


# --- what is written ----------------------------------------------------------------------------------------------


def _lines(config: Path, metrics: Sequence[str], judge: str, backend: Backend) -> Iterator[str]:
    yield f"# What it will do: spanscore check {config.name}. Every key there is: spanscore check --example"
    yield from ["", "# What is scored. Others, with what each needs and costs: spanscore metrics --online", "metrics:"]
    kinds = {name: found(name) for name in metrics}
    for name, kind in kinds.items():
        question = metric_doc_of(kind).question.replace("``", "")
        yield f"  - {name} # {question}" if question else f'  - "{name}"'
    yield from ["", "judge:"]
    yield f"  model: {json.dumps(judge)}" + (" # offline heuristics, for a first look" if judge == "lexical" else "")
    yield "  # What it may be paid; needs your provider's prices, USD per million tokens."
    yield "  # budget: [{usd: 2, per: 1h}]"
    yield "  # prices: {MODEL: {input: …, output: …}}"
    if any(callable(kind) and "embeddings" in inspect.signature(kind).parameters for kind in kinds.values()):
        embeddings = _EMBEDDINGS.get(judge.partition(":")[0], "lexical")
        yield from ["", "# What compares meanings: provider:model, or lexical, which counts words."]
        yield f'embeddings: "{embeddings}"'
    yield from ["", "sampling:", "  rate: 0.1 # share of the requests that each metric scores"]
    yield "  # rules: [{when: {any_error: true}, rate: 1.0}] # score more of these"
    if backend is Backend.PROMETHEUS:
        yield from ["", "# What Prometheus scrapes: http://<host>:<port>/metrics. In a pod the host is 0.0.0.0."]
        yield "serve_metrics: {port: 9464, host: 127.0.0.1}"
    else:
        yield from ["", "# Spans and metrics go through the providers that your application has set,"]
        yield "# else by OTLP to OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318)."
    yield from [
        "",
        "# When a metric is worth a page: what is normal, spanscore baseline measures; spanscore rules writes the alerts.",
    ]
    yield f"# alerts: {{{next(iter(metrics), 'faithfulness')}: {{baseline: 0.85, min_drop: 0.05}}}}"


def _next(config: Path, report: ConfigReport, backend: Backend, *, schema: bool) -> Iterator[str]:
    yield f"wrote {config}" + (f", and {config.with_name(SCHEMA)} for your editor" if schema else "")
    yield "next:"
    yield from (f"  still lacking here: {lacking}" for lacking in report.missing)
    yield f"  spanscore check {config} --requests-per-day 100k     what it will do, and cost"
    yield f'  scorer = OnlineScorer.from_config("{config}")'
    yield "  scorer.install()     in your application: every chain from then on; or attach scorer.handler to one"
    if backend is Backend.PROMETHEUS:
        yield '  let Prometheus scrape http://localhost:9464/metrics; needs pip install "spanscore[prometheus]"'
    yield f"  spanscore rules {config} --out monitoring     alerts and dashboards, when you know what is normal"
