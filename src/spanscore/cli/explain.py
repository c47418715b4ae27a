"""``spanscore explain SOURCE``: shows how stored traces are read: units, the span of each text, and missing parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanscore.cli._options import SourceOfReplay, TracesSince, TracesUntil

if TYPE_CHECKING:
    from spanscore.stored.trace_stores import TraceSource


def explain(
    source: SourceOfReplay,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG", help="A configuration with units, capture and metrics. Without it the defaults apply."
        ),
    ] = None,
    trace: Annotated[str, typer.Option(metavar="TRACE_ID", help="Only the trace with this id, 32 hex digits.")] = "",
    since: TracesSince = "",
    until: TracesUntil = "",
    texts: Annotated[
        bool,
        typer.Option(
            "--texts/--no-texts", help="Whether the redacted question, answer, contexts and tool calls are shown."
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Show the tree of each trace, the root of each unit, the span of each text, and how to get missing parts scored.

    [bold]spanscore explain spans.jsonl[/bold]

    No judge is called. Each span is shown with the normalizer that reads it. A span without a normalizer has an unknown writer,
    or is not a span of a model, an agent or a tool. For a trace that cannot be scored, the instrumentation's switch or the
    configuration key that changes this is shown.
    """
    typer.echo("Explain: loading libraries …", err=True)  # this takes seconds
    from spanscore.cli._config_report import valid
    from spanscore.config.tree import ScorerSettings
    from spanscore.core.terminal import Terminal
    from spanscore.errors import ConfigurationError
    from spanscore.stored.explaining import TraceExplainer

    traces, terminal = _open_source(source, since, until), Terminal(highlight=False, markup=False)
    if config is None:
        explainer = TraceExplainer(ScorerSettings(), texts=texts)
    else:
        report = valid(config, judge=False, embeddings=False)
        explainer = TraceExplainer(report.settings, report.unit_metrics, texts=texts)
    documents, is_empty = list[dict[str, Any]](), True
    for stored in traces.traces():
        if trace.lower() not in ("", stored.trace_id.hex()):
            continue
        explanation, is_empty = explainer.trace(stored), False
        if as_json:
            documents.append(explanation.as_json())
        else:
            terminal.print(explanation, "")
    if is_empty:
        if trace and (traces.traces_read or not traces.unread):
            raise ConfigurationError(f"{source} holds no trace {trace}; a trace id has 32 hex digits")
        raise ConfigurationError(traces.describe_emptiness())
    if as_json:
        typer.echo(json.dumps({"traces": documents, "unread": [part._asdict() for part in traces.unread]}, indent=2))
    else:
        for line in traces.describe_unread():
            terminal.print_line(line)


def _open_source(source: str, since: str, until: str) -> TraceSource:
    from spanscore.errors import ConfigurationError
    from spanscore.stored.trace_stores import TraceSource
    from spanscore.stored.traces import OtlpFiles

    traces = TraceSource.of(source, since, until)
    if (since or until) and isinstance(traces.store, OtlpFiles):
        raise ConfigurationError(
            f"--since and --until are for a trace store: {source} is read whole; --trace ID shows one trace"
        )
    return traces
