"""ChosenSpans: spans whose ids, and whose head-sampling decision, were chosen before the SDK makes them.

A tracer of the SDK asks its ``id_generator`` and its ``sampler``. Here a shallow copy of it asks two that repeat what was
chosen; the tracer itself, which every user of its scope shares, is not touched. A tracer that is not the SDK's chooses for
itself, and nothing else can be done about it.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from opentelemetry.trace import Span, Tracer

__all__ = ["ChosenSpans"]


class ChosenSpans:
    """Starts spans that are chosen in all but their processors. One thread's, but for ``ids`` and ``sampler``.

    Attributes:
        ids: the tracer's own id generator; whoever chooses asks it.
        sampler: the tracer's own head sampler.
    """

    def __init__(self, tracer: Any) -> None:
        self.ids, self.sampler = tracer.id_generator, tracer.sampler
        self._ids, self._sampler = _Ids(self.ids), _Sampler(self.sampler)
        self._tracer = copy(tracer)
        self._tracer.id_generator, self._tracer.sampler = self._ids, self._sampler

    @classmethod
    def of(cls, tracer: Tracer) -> ChosenSpans | None:
        """Return what starts chosen spans in this tracer's name; None for one that is not the SDK's."""
        is_known = type(tracer).__module__ == "opentelemetry.sdk.trace"
        is_known = is_known and hasattr(tracer, "id_generator") and hasattr(tracer, "sampler")
        return cls(tracer) if is_known else None

    def start_span(
        self, span_id: int, name: str, *, trace_id: int | None = None, sampling: Any = None, **more: Any
    ) -> Span:
        """Start a span like ``Tracer.start_span``.

        Args:
            span_id: 64 bit.
            name: of the span; ``more`` is what else ``Tracer.start_span`` takes, by name.
            trace_id: 128 bit; used where the context holds no parent; None = generated.
            sampling: the head sampler's ``SamplingResult`` for this span; None = it is asked.
        """
        self._ids.span_id, self._ids.trace_id, self._sampler.sampling = span_id, trace_id, sampling
        span: Span = self._tracer.start_span(name, **more)
        return span


class _Ids:
    """Repeats the chosen ids."""

    __slots__ = ("_inner", "span_id", "trace_id")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.span_id = 0
        self.trace_id: int | None = None

    def generate_span_id(self) -> int:
        """Return the chosen id."""
        return self.span_id

    def generate_trace_id(self) -> Any:
        """Return the chosen id, else a generated one."""
        return self._inner.generate_trace_id() if self.trace_id is None else self.trace_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Sampler:
    """Repeats the chosen decision."""

    __slots__ = ("_inner", "sampling")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sampling: Any = None

    def should_sample(self, *arguments: Any, **named: Any) -> Any:
        """Return the chosen decision, else a new one."""
        return self._inner.should_sample(*arguments, **named) if self.sampling is None else self.sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
