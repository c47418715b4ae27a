"""HashedResource: a resource whose hash is made once.

The OTLP exporters look the resource up for each span and each event that they send, and the SDK's own writes all its attributes
as JSON whenever that is asked for: a twentieth of what it takes to send an evaluation span.
"""

from __future__ import annotations

from functools import cached_property

from opentelemetry.sdk.resources import Resource

__all__ = ["HashedResource"]


class HashedResource(Resource):
    """A resource that equals the SDK's of the same attributes."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        """Return what the SDK's hash of these attributes is."""
        return self._hash
