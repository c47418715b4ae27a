"""``spanscore init``: writes a first ``spanscore.yaml`` from options or prompts, and on request the JSON Schema for editors."""

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

from spanscore.cli._config_report import config_report
from spanscore.cli._topics import ConfigReport
from spanscore.core.files import whole_file
from spanscore.errors import ConfigurationError, writing
from spanscore.metrics.catalog.registry import find_metric, metric_doc_of

SCHEMA = "spanscore.schema.json"
_METRICS = "faithfulness,response_relevancy"
_EMBEDDINGS = {"openai": "openai:text-embedding-3-small"}
"""Provider of a judge → embeddings of the same account. Other providers get lexical embeddings."""


class Backend(StrEnum):
    """How the application exports metrics."""

    OTLP = "otlp"
    PROMETHEUS = "prometheus"


def init(
    config: Annotated[Path, typer.Argument(metavar="[CONFIG]", help="The file to write.")] = Path("spanscore.yaml"),
    metrics: Annotated[
        str, typer.Option("--metrics", "-m", help=f"Names of metrics, separated by commas. Default: {_METRICS}.")
    ] = "",
    judge: Annotated[
        str,
        typer.Option("--judge", help="The judge: provider:model (openai:gpt-4o-mini), or lexical (default), offline."),
    ] = "",
    backend: Annotated[
        Backend | None,
        typer.Option(
            "--backend", help="otlp (default): metrics are sent; prometheus: metrics are also served for scraping."
        ),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help=f"Also write the JSON Schema to the same folder, and name it in the first line. An existing {SCHEMA} is "
            "overwritten, even without --force.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing configuration.")] = False,
) -> None:
    """Write a first configuration, with comments, that [bold]spanscore check[/bold] passes.

    On a terminal, the command prompts for each value without an option. Otherwise such values have their defaults.

    With --schema, editors complete and explain the keys. Keep the schema (250 kB) in the folder of the configuration, and
    commit it. To update it for a newer spanscore: spanscore check --schema > spanscore.schema.json
    """
    if config.exists() and not force:
        raise ConfigurationError(f"{config} exists already; --force overwrites it")
    metrics = metrics or _ask("Metrics, separated by commas (spanscore metrics --online lists them)", _METRICS)
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    judge = judge or _ask("Judge: provider:model, such as openai:gpt-4o-mini; or lexical, offline", "lexical")
    backend = backend or Backend(_ask("Backend for metrics: otlp or prometheus", Backend.OTLP, _check_backend))
    lines = [*([f"# yaml-language-server: $schema={SCHEMA}"] if schema else []), *_lines(config, names, judge, backend)]
    text = "\n".join(lines) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "spanscore.yaml")
        draft.write_text(text, encoding="utf-8")
        report = config_report(draft)
    if report.errors:
        raise ConfigurationError(
            "\n".join(["no file is written, because spanscore check finds errors in it:", *report.errors])
        )
    if schema:
        from spanscore.cli._schema import schema_file  # without --schema the command does not need it

        _write(config.with_name(SCHEMA), schema_file())
    _write(config, text)  # last: the command refuses to run again if the configuration exists
    typer.echo("\n".join(_next_steps(config, report, backend, schema=schema)))


def _write(path: Path, text: str) -> None:
    with writing(path), whole_file(path) as file:
        file.write(text)


def _ask(question: str, default: str, check: Callable[[str], str] = str) -> str:
    if not sys.stdin.isatty():
        return default
    return str(typer.prompt(question, default=str(default), value_proc=check))


def _check_backend(text: str) -> str:
    if text not in [*Backend]:
        raise typer.BadParameter(f"write {' or '.join(Backend)}")
    return text


# --- lines of the file --------------------------------------------------------------------------------------------


def _lines(config: Path, metrics: Sequence[str], judge: str, backend: Backend) -> Iterator[str]:
    yield f"# To see the plan: spanscore check {config.name}. To see every key: spanscore check --example"
    yield from ["", "# Metrics to score. List of all, with needs and costs: spanscore metrics --online", "metrics:"]
    kinds = {name: find_metric(name) for name in metrics}
    for name, kind in kinds.items():
        question = metric_doc_of(kind).question.replace("``", "")
        yield f"  - {name} # {question}" if question else f'  - "{name}"'
    yield from ["", "judge:"]
    yield f"  model: {json.dumps(judge)}" + (" # offline heuristics, for a first look" if judge == "lexical" else "")
    yield "  # Budget of the judge; needs your provider's prices, USD per million tokens."
    yield "  # budget: [{usd: 2, per: 1h}]"
    yield "  # prices: {MODEL: {input: …, output: …}}"
    if any(callable(kind) and "embeddings" in inspect.signature(kind).parameters for kind in kinds.values()):
        embeddings = _EMBEDDINGS.get(judge.partition(":")[0], "lexical")
        yield from ["", "# Embeddings, to compare meanings: provider:model, or lexical, which counts words."]
        yield f'embeddings: "{embeddings}"'
    yield from ["", "sampling:", "  rate: 0.1 # share of the requests that each metric scores"]
    yield "  # rules: [{when: {any_error: true}, rate: 1.0}] # score more of these"
    if backend is Backend.PROMETHEUS:
        yield from [
            "",
            "# Endpoint for Prometheus to scrape: http://<host>:<port>/metrics. In a pod the host is 0.0.0.0.",
        ]
        yield "serve_metrics: {port: 9464, host: 127.0.0.1}"
    else:
        yield from ["", "# Spans and metrics go through the providers of your application,"]
        yield "# otherwise by OTLP to OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318)."
    yield from ["", "# Alerts: spanscore baseline measures the normal mean; spanscore rules writes the alert rules."]
    yield f"# alerts: {{{next(iter(metrics), 'faithfulness')}: {{baseline: 0.85, min_drop: 0.05}}}}"


def _next_steps(config: Path, report: ConfigReport, backend: Backend, *, schema: bool) -> Iterator[str]:
    yield f"wrote {config}" + (f", and {config.with_name(SCHEMA)} for your editor" if schema else "")
    yield "next:"
    yield from (f"  missing in this environment: {line}" for line in report.missing)
    yield f"  spanscore check {config} --requests-per-day 100k     shows the plan and its cost"
    yield f'  scorer = OnlineScorer.from_config("{config}")'
    yield "  scorer.install()     in your application: scores every later chain; or attach scorer.handler to one chain"
    if backend is Backend.PROMETHEUS:
        yield '  let Prometheus scrape http://localhost:9464/metrics; needs pip install "spanscore[prometheus]"'
    yield f"  spanscore rules {config} --out monitoring     alerts and dashboards, once you know the normal mean"
