"""ShutdownWatch: notices that a provider is shut down. The only thing we ever add to an application's provider."""

from __future__ import annotations

from opentelemetry.sdk.trace import SpanProcessor

from spanscore.pipeline.span_buffer import SpanBuffer

__all__ = ["ShutdownWatch"]


class ShutdownWatch(SpanProcessor):
    """Does nothing with spans; tells the hold when its provider has gone."""

    def __init__(self, hold: SpanBuffer) -> None:
        self._hold = hold

    def shutdown(self) -> None:
        """From here on, what is held cannot be exported any more."""
        self._hold.provider_closed = True
