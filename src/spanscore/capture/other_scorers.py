"""Coordinates several scorers in one process, so that a metric that several scorers have scores a common run once.

The events of a run reach each handler in turn, on one thread. A handler finds the run in the memory of the handler that got it
first, and leaves the spans to that handler. A receiver of other instrumentations' spans finds the unit in the same way. With
one scorer in the process there is nothing to find.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from random import getrandbits
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import UUID
from weakref import ref

from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from spanscore.capture.callback.runs import Root
from spanscore.core.threads import renew_lock_in_child

if TYPE_CHECKING:
    from spanscore.capture.callback.handler import SpanCallbackHandler
    from spanscore.capture.processor.external_spans import ExternalSpans


@dataclass(slots=True)
class ScorerIdentity:
    """The identity of a scorer for other scorers in the process.

    Attributes:
        met: name of each other scorer with a common run → the metrics that both have, sorted.
    """

    name: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    met: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def meet(self, other: ScorerIdentity) -> frozenset[str]:
        """Record a run that this scorer shares with another. Return the metrics that both scorers have in the same version."""
        shared = frozenset(name for name, version in self.versions.items() if other.versions.get(name) == version)
        self.met[other.name] = other.met[self.name] = tuple(sorted(shared))
        return shared

    def is_among(self, shared: Set[str]) -> bool:
        """Return whether all metrics of the scorer are shared."""
        return bool(shared) and shared >= self.versions.keys()

    def notes(self) -> list[str]:
        """Return one note per other scorer for `status()`."""
        return [
            f"{self.name} and {other} record the same runs: the first on a run has its spans"
            + (f", and scores {', '.join(shared)}, which both have" if shared else "")
            for other, shared in self.met.items()
        ]


_One = TypeVar("_One", "SpanCallbackHandler", "ExternalSpans")


class _LiveReceivers(Generic[_One]):
    """The live receivers of one kind in the process; each has references to all other receivers in ``others``."""

    def __init__(self) -> None:
        self._living: list[ref[_One]] = []
        self._lock = Lock()
        renew_lock_in_child(self)

    def join(self, new: _One) -> None:
        """Add a receiver, and connect it with the others."""
        with self._lock:
            self._living = [reference for reference in self._living if reference() is not None] + [ref(new)]
            for reference in self._living:
                if (receiver := reference()) is not None:
                    receiver.others = tuple(other for other in self._living if other is not reference)

    def of_others(self, identity: ScorerIdentity) -> list[_One]:
        """Return the receivers of other scorers."""
        living = [receiver for reference in self._living if (receiver := reference()) is not None]
        return [receiver for receiver in living if receiver.identity is not identity]


handlers: _LiveReceivers[SpanCallbackHandler] = _LiveReceivers()
processors: _LiveReceivers[ExternalSpans] = _LiveReceivers()


def recorded_by_others(identity: ScorerIdentity) -> frozenset[str]:
    """Return the metrics of a scorer that are shared with other scorers whose handlers record LangChain's runs."""
    at_work = [handler for handler in handlers.of_others(identity) if handler.is_at_work]
    return frozenset().union(*(identity.meet(handler.identity) for handler in at_work))


def borrow(handler: SpanCallbackHandler, root: Root, langchain_id: int) -> Set[str] | None:
    """Copy ids and context of a root from another scorer's handler that has opened it for the same run.

    The root's ``shared`` is set to the metrics that both scorers have; this scorer does not score them. ``langchain_id`` is 0
    unless the root has an internal id.

    Returns:
        The metrics that this scorer still scores; None if no other handler has opened the root.
    """
    for reference in handler.others:
        other = reference()
        if other is None:
            continue
        their_id = other.id_here(UUID(int=langchain_id or root.id))
        run, theirs = other.memory.runs.get(their_id), other.memory.roots.get(their_id)
        if run is not None and run.root.start_ns < handler.installed_ns:  # a step of a run before the installation
            root.shared, root.key = frozenset(handler.identity.versions), run.root.key
            return frozenset()
        if theirs is not None and theirs.key is not None and not theirs.ignored and theirs.shared is None:
            root.shared = handler.identity.meet(other.identity)
            root.key, root.is_trace_root, root.trace_state = theirs.key, theirs.is_trace_root, theirs.trace_state
            root.context, root.span = theirs.context, span_elsewhere(theirs.key.trace_id, theirs.key.span_id)
            return handler.identity.versions.keys() - root.shared
    return None


def span_elsewhere(trace_id: int, span_id: int | None = None) -> NonRecordingSpan:
    """Return a placeholder for a span that another scorer creates; None = its id is unknown."""
    return NonRecordingSpan(
        SpanContext(trace_id, span_id or getrandbits(64) or 1, is_remote=False, trace_flags=TraceFlags(1))
    )
