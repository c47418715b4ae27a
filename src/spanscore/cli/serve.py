"""``spanscore serve CONFIG``: OTLP in, scores out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spanscore.core.printable import printable_lines
from spanscore.service.run import serve as run


def serve(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, such as spanscore.yaml.")],
    mode: Annotated[
        str,
        typer.Option(
            metavar="tee|proxy",
            help="tee: a copy of the spans arrives, and only scores leave. proxy: spans are sent on, with their scores.",
        ),
    ] = "",
    grpc: Annotated[
        str, typer.Option(metavar="ADDR", help="Where to listen for OTLP/gRPC: 127.0.0.1:4317; none = nowhere.")
    ] = "",
    http: Annotated[
        str, typer.Option(metavar="ADDR", help="Where to listen for OTLP/HTTP: 127.0.0.1:4318; none = nowhere.")
    ] = "",
) -> None:
    """Take spans over OTLP, from any language or a Collector, and send scores out, by the same configuration.

    What an option does not say, [bold]serve[/bold] in the file says. Scores leave by OTEL_EXPORTER_OTLP_*, those of a proxy,
    where these name no endpoint, to where its spans go. Needs the extra [bold]serve[/bold].

    SIGTERM ends it: nothing more is accepted, and what is being scored has [bold]serve.drain[/bold]; the exit code is 0. A
    second one ends it at once. Where the configuration is wrong, or a port is taken, the exit code is 2.
    """
    given = {"mode": mode, "grpc": grpc, "http": http}
    overrides = {name: None if value == "none" else value for name, value in given.items() if value}
    run(config, overrides, lambda line: typer.echo(printable_lines(line)))
