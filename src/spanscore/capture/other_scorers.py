"""Coordinates several scorers in one process: if they record the same run and have the same metric, only one scores it.

LangChain passes the events of a run to each handler in turn, on one thread. The first handler creates the spans. Each other
handler finds the run in the memory of the first. Receivers of other instrumentations' spans find a shared unit in the same way.
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
    """The name and the metrics of a scorer, by which other scorers in the process find common metrics.

    Attributes:
        versions: name of each metric → its evaluator version.
        shared: name of each other scorer with a common run → the common metrics, sorted.
    """

    name: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    shared: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def share_run(self, other: ScorerIdentity) -> frozenset[str]:
        """Record that another scorer has the same run. Return the metrics that both scorers have in the same version."""
        shared = frozenset(name for name, version in self.versions.items() if other.versions.get(name) == version)
        self.shared[other.name] = other.shared[self.name] = tuple(sorted(shared))
        return shared

    def is_among(self, shared: Set[str]) -> bool:
        """Return whether all metrics of the scorer are shared."""
        return bool(shared) and shared >= self.versions.keys()

    def notes(self) -> list[str]:
        """Return one note per other scorer for `status()`."""
        return [
            f"{self.name} and {other} record the same runs: the first on a run has its spans"
            + (f", and scores {', '.join(shared)}, which both have" if shared else "")
            for other, shared in self.shared.items()
        ]


_Receiver = TypeVar("_Receiver", "SpanCallbackHandler", "ExternalSpans")


class _Receivers(Generic[_Receiver]):
    """The receivers of one kind in the process, by weak references. Each receiver's ``others`` has all other receivers."""

    def __init__(self) -> None:
        self._references: list[ref[_Receiver]] = []
        self._lock = Lock()
        renew_lock_in_child(self)

    def add(self, new: _Receiver) -> None:
        """Add a receiver, and update the ``others`` of all receivers."""
        with self._lock:
            self._references = [reference for reference in self._references if reference() is not None] + [ref(new)]
            for reference in self._references:
                if (receiver := reference()) is not None:
                    receiver.others = tuple(other for other in self._references if other is not reference)

    def from_other_scorers(self, identity: ScorerIdentity) -> list[_Receiver]:
        """Return the receivers of other scorers than the one with this identity."""
        receivers = [receiver for reference in self._references if (receiver := reference()) is not None]
        return [receiver for receiver in receivers if receiver.identity is not identity]


handlers: _Receivers[SpanCallbackHandler] = _Receivers()
processors: _Receivers[ExternalSpans] = _Receivers()


def recorded_by_others(identity: ScorerIdentity) -> frozenset[str]:
    """Return the metrics that a scorer has in common with other scorers whose handlers record LangChain's runs."""
    recording = [handler for handler in handlers.from_other_scorers(identity) if handler.is_recording]
    return frozenset().union(*(identity.share_run(handler.identity) for handler in recording))


def find_shared_root(handler: SpanCallbackHandler, root: Root, langchain_id: int) -> Set[str] | None:
    """Copy ids and context of a root from the root that another scorer's handler has opened for the same run.

    ``root.shared`` becomes the metrics that both scorers have; this scorer does not score them.

    Args:
        handler: the handler that got the start event now.
        root: its new root, without a key.
        langchain_id: LangChain's id of the run if the root has an internal id; 0 = the root's id is LangChain's.

    Returns:
        The metrics that this scorer still scores; empty if the root is a step of a run that began before this handler was
        installed. None if no other handler has opened the root.
    """
    for reference in handler.others:
        other = reference()
        if other is None:
            continue
        run_id = other.id_in_context(UUID(int=langchain_id or root.id))
        run, source = other.memory.runs.get(run_id), other.memory.roots.get(run_id)
        if run is not None and run.root.start_ns < handler.installed_ns:
            root.shared, root.key = frozenset(handler.identity.versions), run.root.key
            return frozenset()
        if source is not None and source.key is not None and not source.ignored and source.shared is None:
            root.shared = handler.identity.share_run(other.identity)
            root.key, root.is_trace_root, root.trace_state = source.key, source.is_trace_root, source.trace_state
            root.context, root.span = source.context, span_elsewhere(source.key.trace_id, source.key.span_id)
            return handler.identity.versions.keys() - root.shared
    return None


def span_elsewhere(trace_id: int, span_id: int | None = None) -> NonRecordingSpan:
    """Return a placeholder for a span that another scorer creates; None = its id is unknown."""
    return NonRecordingSpan(
        SpanContext(trace_id, span_id or getrandbits(64) or 1, is_remote=False, trace_flags=TraceFlags(1))
    )
