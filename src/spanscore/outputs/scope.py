"""spanscore's instrumentation scopes: a name, the version, and the semantic conventions of its telemetry."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from spanscore import semconv


def scope(name: str = semconv.SCOPE) -> tuple[str, str, str]:
    """Return name, version and schema URL: the arguments of ``get_tracer``, ``get_meter`` and ``get_logger``."""
    return name, version(), semconv.SCHEMA_URL


@cache
def version() -> str:
    """Return the installed version of spanscore; ``(not installed)`` in a bare source tree. The first call reads files."""
    try:
        return metadata.version("spanscore")
    except metadata.PackageNotFoundError:
        return "(not installed)"
