"""``spanscore explain SOURCE``: which spans of stored traces are read, what is taken from where, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanscore.cli._options import SourceOfReplay, TracesSince, TracesUntil
from spanscore.stored.traces import StoredTrace, Unread

if TYPE_CHECKING:
    from spanscore.stored.explaining import TraceExplainer
    from spanscore.stored.traces import TraceStore

__all__ = ["explain"]


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
    from spanscore.cli._stored_traces import between, not_read, nothing_in
    from spanscore.core.terminal import Terminal
    from spanscore.errors import ConfigurationError
    from spanscore.stored.trace_stores import store_of

    since_s, until_s = between(since, until)
    store, unread = store_of(source, since_s=since_s, until_s=until_s), list[Unread]()
    explainer, terminal = _explainer(config, texts=texts), Terminal(highlight=False, markup=False)
    shown = list[dict[str, Any]]()
    for explained in map(explainer.trace, _traces(store, trace, unread)):
        shown.append(explained.as_json() if as_json else {})
        if not as_json:
            terminal.print(explained, "")
    if not shown:
        unknown_trace = f"{source} holds no trace {trace}; a trace id has 32 hex digits"
        raise ConfigurationError(unknown_trace if trace and not unread else nothing_in(source, 0, unread))
    if as_json:
        typer.echo(json.dumps({"traces": shown, "unread": [part._asdict() for part in unread]}, indent=2))
    else:
        for line in not_read(unread, len(unread)):
            terminal.print_line(line)


def _traces(store: TraceStore, trace_id: str, unread: list[Unread]) -> Iterator[StoredTrace]:
    """Yield the traces of a store, or that of one id; what cannot be read is added to ``unread``."""
    for stored in store.traces():
        if isinstance(stored, Unread):
            unread.append(stored)
        elif not trace_id or stored.trace_id.hex() == trace_id.lower():
            yield stored


def _explainer(config: Path | None, *, texts: bool) -> TraceExplainer:
    from spanscore.cli._config_report import valid
    from spanscore.cli._part_plans import session_metrics_in
    from spanscore.config.tree import ScorerSettings
    from spanscore.stored.explaining import TraceExplainer

    if config is None:
        return TraceExplainer(ScorerSettings(), texts=texts)
    report = valid(config, judge=False, embeddings=False)
    of_sessions = session_metrics_in(report.of_metrics, report.metrics)
    metrics = [metric for metric in report.metrics if metric not in of_sessions]
    return TraceExplainer(report.settings, metrics, texts=texts)
