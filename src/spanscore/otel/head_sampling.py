"""KnownDecision: head samplers whose answer is known without asking them.

The SDK's default keeps every root, and every child of a span that was kept. To ask it costs as much as to make the span.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import SpanContext

__all__ = ["KnownDecision"]


class KnownDecision:
    """Knows which spans a head sampler keeps, with the attributes and the trace state that they bring.

    Args:
        sampler: of the tracer; one that is not the SDK's has to be asked about every span.
    """

    def __init__(self, sampler: Any) -> None:
        based = sampler if _is_sdks(sampler, "ParentBased") else None
        self._root, self._local, self._remote = (
            _keeps_all(sampler if based is None else getattr(based, name, None))
            for name in ("_root", "_local_parent_sampled", "_remote_parent_sampled")
        )
        self._all = based is None and self._root

    @property
    def keeps_all(self) -> bool:
        """Whether every span is kept, but below a parent that was dropped itself."""
        return self._root and self._local and self._remote

    def keeps(self, parent: SpanContext | None) -> bool:
        """Whether a span is kept for sure; None is the parent of the first of a trace. False: ask."""
        if parent is None:
            return self._root
        return self._all or (parent.trace_flags & 1 == 1 and (self._remote if parent.is_remote else self._local))


def _keeps_all(sampler: Any) -> bool:
    decision = getattr(sampler, "_decision", None)
    return _is_sdks(sampler, "StaticSampler") and getattr(decision, "name", None) == "RECORD_AND_SAMPLE"


def _is_sdks(sampler: Any, name: str) -> bool:
    cls = type(sampler)
    return cls.__name__ == name and cls.__module__ == "opentelemetry.sdk.trace.sampling"
