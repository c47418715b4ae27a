"""AtOnce: units that cannot be scored leave when their root has ended, by one event. Span thread.

Nine of ten units are such. Nobody looks at their spans before they end, so nothing is kept of these that only a span that
goes on needs: each is made as a finished one, and the unit is counted in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spanscore import semconv
from spanscore.protocols import UnitListener
from spanscore.receivers.callback.plain_attributes import PlainAttributes
from spanscore.receivers.callback.run_attributes import facts_of, run_end_of, was_stopped
from spanscore.receivers.callback.runs import Event, Root, Run, each_once
from spanscore.receivers.callback.spans import RunSpans
from spanscore.runtime.gil import yield_gil

__all__ = ["AtOnce"]


class AtOnce:
    """Makes the spans of whole units.

    Args:
        attributes: what they say.
        port: told of each unit.
        spans: gives what makes them, once the first unit is there.
        count: counts a run that has ended: itself, when, and its attributes.
    """

    def __init__(
        self,
        attributes: PlainAttributes,
        port: UnitListener,
        spans: Callable[[], RunSpans],
        count: Callable[[Run, int, Mapping[str, Any]], None],
    ) -> None:
        self._attributes = attributes
        self._port = port
        self._spans = spans
        self._count = count

    def takes(self, event: Event) -> bool:
        """Whether it is the only one of a unit that nobody scores: its root has ended, all below has, nobody looks before."""
        root, end_ns, _, _ = event
        if not isinstance(root, Root) or not end_ns or root.told is None or root.broken or root.record_content:
            return False
        return not any(list(root.open.values())) and self._spans().unseen

    def leave(self, root: Root, event: Event) -> str:
        """Have a unit leave; return how its root ended."""
        _, end_ns, output, error = event
        told, root.told, root.heard = root.told, None, True  # before it is read: ``RunCapture._keep`` looks
        root.carrier = None  # no span needs the caller's context, which refers to the handler
        for run, run_end_ns, answer, fault in each_once(told or []):
            self._finish(run, run_end_ns, *self._attributes.of_ended(run, answer, fault))
            yield_gil()
        run_end = run_end_of(root, error)
        error = None if was_stopped(error) else error
        attributes = {**self._attributes.of(root, output, error), semconv.RUN_END: run_end}
        attributes |= self._port.unit_not_tracked(facts_of(root, end_ns, error))
        self._finish(root, end_ns, attributes, error)
        return run_end

    def _finish(self, run: Run, end_ns: int, attributes: dict[str, Any], error: BaseException | None) -> None:
        run.closed = True
        self._spans().finish(run, attributes, end_ns, failed=error is not None)
        self._count(run, end_ns, attributes)
