"""``spanscore explain SOURCE``: the spans of stored traces that are read, the source of each part, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanscore.cli._options import SourceOfReplay, TracesSince, TracesUntil

if TYPE_CHECKING:
    from spanscore.stored.explaining import TraceExplainer


def explain(
    source: SourceOfReplay,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG", help="A configuration whose units, capture and metrics are in force; else the defaults."
        ),
    ] = None,
    trace: Annotated[str, typer.Option(metavar="TRACE_ID", help="The trace of this id alone, 32 hex digits.")] = "",
    since: TracesSince = "",
    until: TracesUntil = "",
    texts: Annotated[
        bool,
        typer.Option("--texts/--no-texts", help="Whether question, answer, contexts and calls are shown, redacted."),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print it all as JSON.")] = False,
) -> None:
    """Show per trace its tree, the root of each unit, what was taken from which span, and what would have it scored.

    [bold]spanscore explain spans.jsonl[/bold]

    No judge is asked. Each span is shown with the translation that reads it, or with none: its writer is unknown, or it is
    no span of a model, an agent or a tool. A trace that cannot be scored is shown with the switch of its writer, or the key
    of the configuration, that changes this.
    """
    typer.echo("Explain: loading what it takes …", err=True)  # that is seconds
    from spanscore.core.terminal import Terminal
    from spanscore.errors import ConfigurationError
    from spanscore.stored.trace_stores import TraceSource

    traces = TraceSource.of(source, since, until)
    explainer, terminal = _make_explainer(config, texts=texts), Terminal(highlight=False, markup=False)
    shown = list[dict[str, Any]]()
    wanted = (stored for stored in traces.traces() if trace.lower() in ("", stored.trace_id.hex()))
    for stored in wanted:
        explained = explainer.trace(stored)
        if as_json:
            shown.append(explained.as_json())
        else:
            terminal.print(explained, "")
            shown.append({})
    if not shown:
        if trace and (traces.traces_read or not traces.unread):
            raise ConfigurationError(f"{source} holds no trace {trace}; a trace id has 32 hex digits")
        raise ConfigurationError(traces.describe_emptiness())
    if as_json:
        typer.echo(json.dumps({"traces": shown, "unread": [part._asdict() for part in traces.unread]}, indent=2))
    else:
        for line in traces.describe_unread():
            terminal.print_line(line)


def _make_explainer(config: Path | None, *, texts: bool) -> TraceExplainer:
    from spanscore.cli._config_report import valid
    from spanscore.cli._stored_traces import unit_metrics
    from spanscore.config.tree import ScorerSettings
    from spanscore.stored.explaining import TraceExplainer

    if config is None:
        return TraceExplainer(ScorerSettings(), texts=texts)
    report = valid(config, judge=False, embeddings=False)
    return TraceExplainer(report.settings, unit_metrics(report), texts=texts)
