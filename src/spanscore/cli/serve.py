"""``spanscore serve CONFIG``: receives spans over OTLP, scores them, and sends the scores."""

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
            help="tee: spanscore gets a copy of the spans and sends only scores. proxy: spans are forwarded with their scores.",
        ),
    ] = "",
    grpc: Annotated[
        str, typer.Option(metavar="ADDR", help="Address of the OTLP/gRPC listener: 127.0.0.1:4317; none = no listener.")
    ] = "",
    http: Annotated[
        str, typer.Option(metavar="ADDR", help="Address of the OTLP/HTTP listener: 127.0.0.1:4318; none = no listener.")
    ] = "",
) -> None:
    """Receive spans over OTLP, from any language or a Collector, score them by a configuration, and send the scores.

    Options override the section [bold]serve[/bold] of the file. Scores are sent to the endpoint that the OTEL_EXPORTER_OTLP_*
    variables set. A proxy without such an endpoint sends scores to the backend of its spans. Needs the extra
    [bold]serve[/bold].

    SIGHUP reads the configuration again. SIGTERM stops the server: new requests are rejected, and scoring has
    [bold]serve.drain[/bold] to finish; the exit code is 0.
    A second SIGTERM stops it immediately. The exit code is 2 if the configuration is wrong, or if a port is taken.
    """
    options = {"mode": mode, "grpc": grpc, "http": http}
    overrides = {name: None if value == "none" else value for name, value in options.items() if value}
    run(config, overrides, lambda line: typer.echo(printable_lines(line)))
