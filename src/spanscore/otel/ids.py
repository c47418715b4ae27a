"""Ids of spans and traces, from a random generator of our own.

The SDK's generator draws from the ``random`` module. Drawn from another thread, that would shift what an application which
seeded it draws next, and its answers with it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from spanscore.core.threads import reset_in_child

__all__ = ["OwnIds", "ids_of"]

_random = Random()
_bits = _random.getrandbits
reset_in_child(_random, Random.seed)


class OwnIds:
    """Generates ids as the SDK's ``RandomIdGenerator`` does."""

    def generate_span_id(self) -> int:
        """Return 64 random bits, never 0."""
        return _bits(64) or self.generate_span_id()

    def generate_trace_id(self) -> int:
        """Return 128 random bits, never 0."""
        return _bits(128) or self.generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """Yes: W3C Trace Context, level 2."""
        return True


def ids_of(tracer: Any) -> Any:
    """Return what generates ids in a tracer's name: one that the application chose is asked."""
    chosen = tracer.id_generator
    is_default = type(chosen).__module__ == "opentelemetry.sdk.trace.id_generator"
    return OwnIds() if is_default and type(chosen).__name__ == "RandomIdGenerator" else chosen
