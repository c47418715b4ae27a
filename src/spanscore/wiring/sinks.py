"""Makes the sinks of ``outputs.sinks`` and their outboxes, and the rows of the outboxes for ``status()``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from spanscore.core.job import Job
from spanscore.core.log import log_internal_error
from spanscore.core.score import Score
from spanscore.outputs.collected_cases import CaseCollector
from spanscore.outputs.http_sink import Destination, MessageOutbox
from spanscore.protocols import JobSink, Metric, Sink
from spanscore.wiring.outputs import check_conditions

if TYPE_CHECKING:
    from spanscore.durable.sink_outbox import SinkOutbox, SinkOutboxState
    from spanscore.durable.spool import SpoolFile

WEBHOOK_WHEN = "outputs.sinks: webhook.when"
"""Key of a webhook's conditions, for messages."""


class SinkOutboxes:
    """The outboxes of a scorer's sinks.

    Args:
        spool: file in which messages wait; None = they wait in memory.
    """

    def __init__(self, spool: SpoolFile | None) -> None:
        self._spool = spool
        self._outboxes: dict[str, SinkOutbox] = {}

    def open(self, destination: Destination) -> MessageOutbox:
        """Return a new outbox for a destination."""
        from spanscore.durable.sink_outbox import SinkOutbox  # imports SQLite and an HTTP client

        names = (destination.name, *(f"{destination.name}-{number}" for number in range(2, len(self._outboxes) + 2)))
        name = next(name for name in names if name not in self._outboxes)
        outbox = self._outboxes[name] = SinkOutbox(destination, name, self._spool)
        return outbox

    def begin(self) -> None:
        """Send the messages that ended processes have left in the spool."""
        for outbox in self._outboxes.values():
            outbox.begin()

    def states(self) -> list[SinkOutboxState]:
        """Return the counts of each outbox. Thread-safe."""
        return [outbox.state() for outbox in self._outboxes.values()]

    def flush(self, timeout_s: float) -> bool:
        """Wait until the accepted messages have arrived, for as long as no request fails; return whether all have. Blocks."""
        until_s = monotonic() + timeout_s
        results = [outbox.flush(max(0.0, until_s - monotonic())) for outbox in self._outboxes.values()]
        return all(results)

    def close(self, timeout_s: float) -> None:
        """Send the waiting messages within the time, which the outboxes share equally, and end. Blocks."""
        for outbox in self._outboxes.values():
            outbox.close(timeout_s / len(self._outboxes))


def check_sinks(sinks: Sequence[Sink], metrics: Mapping[str, Metric]) -> None:
    """Check the conditions of webhooks.

    Raises:
        ConfigurationError: a condition names an unknown metric, or a word that is no category of it.
    """
    for sink in sinks:
        if isinstance(sink, JobSink):
            check_conditions(getattr(sink, "conditions", ()), metrics, WEBHOOK_WHEN)


def job_listener(
    collector: CaseCollector | None, sinks: Sequence[Sink]
) -> Callable[[Job, Sequence[Score]], None] | None:
    """Return the function that passes an ended job to the collector and to sinks; None if no part needs it. Never raises."""
    calls = [] if collector is None else [collector.scored]
    calls += [sink.emit_job for sink in sinks if isinstance(sink, JobSink)]
    if not calls:
        return None

    def pass_on(job: Job, scores: Sequence[Score]) -> None:
        for call in calls:
            try:
                call(job, scores)
            except Exception as error:  # noqa: BLE001  (a user's sink must not end a worker of the loop)
                log_internal_error("pass a finished unit to a sink", error)

    return pass_on


def sink_rows(states: Sequence[SinkOutboxState]) -> Iterator[str]:
    """Yield a row for each outbox: its counts and its latest failure."""
    for state in states:
        parts = [f"sink {state.name}: {state.sent:,} sent to {state.destination}"]
        parts += [f"{state.waiting:,} waiting{f' ({state.trouble})' if state.trouble else ''}"] if state.waiting else []
        parts += [f"{state.dropped:,} dropped (latest: {state.last_loss})"] if state.dropped else []
        parts += [state.remark] if state.remark else []
        yield "; ".join(parts)
