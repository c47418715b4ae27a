"""Arguments that commands over stored traces have in common."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["SourceOfReplay", "TracesSince", "TracesUntil", "UnitsSince", "UnitsUntil"]

SourceOfReplay = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Where the spans are, as of 'replay': a file or folder of OTLP-JSON lines, "
        "'jaeger:http://host:16686?service=NAME' or 'tempo:http://host:3200?q={…}'.",
    ),
]
UnitsSince = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Units that began since: 7d, 12h, or 2026-07-01T12:00Z. Of a store 7d if not given."
    ),
]
UnitsUntil = Annotated[str, typer.Option(metavar="TIME", help="Units that began before; likewise.")]
TracesSince = Annotated[str, typer.Option(metavar="TIME", help="Of a store: traces since 7d, 12h, 2026-07-01T12:00Z.")]
TracesUntil = Annotated[str, typer.Option(metavar="TIME", help="Of a store: traces before 7d, 12h, 2026-07-01T12:00Z.")]
