"""Handover: units → copies, redacted, for the process that scores them; its results come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from time import monotonic, sleep
from typing import Any, Final

from spanscore import semconv
from spanscore.core import loop
from spanscore.core.codecs.job import request_of_unit
from spanscore.core.event_queue import yield_gil
from spanscore.core.job import JobResult, SampledUnit
from spanscore.core.log import log_internal_error, plain_text, type_name
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SpanData, Unit
from spanscore.core.timebox import HookTimeout, Timebox
from spanscore.durable.rows import REMOTE_SCORING, Carrier, UnitCopy
from spanscore.judges.score_context import suppressed_context
from spanscore.protocols import Queue, Redactor
from spanscore.samples.redaction import redacted_content

__all__ = ["Dispatcher", "UnitEncoder"]

# --- copier ---------------------------------------------------------------------------------------------------------

# UnitEncoder: a unit that was taken → the copy of it that leaves, redacted; or the outcome that ends it here.


class UnitEncoder:
    """Makes copies. Any thread.

    Args:
        redactor: applied to all content; where it raises, gives no text or hangs, nothing of the unit leaves.
        samples: makes, redacts and filters the samples of a unit.
        filters: whether there is a filter: what it leaves out does not leave, either.
        dimensions: key of the metadata → values by which sums are told apart: no other value leaves.
        box: where the functions of the user run.
        resource: gives that of the application.
    """

    def __init__(
        self,
        *,
        redactor: Redactor | None,
        samples: Callable[[SampledUnit], Samples],
        filters: bool,
        dimensions: Mapping[str, Sequence[str]],
        box: Timebox,
        resource: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._redactor = redactor
        self._samples = samples
        self._filters = filters
        self._dimensions = dimensions
        self._box = box
        self._resource = resource

    async def made(self, sampled: SampledUnit) -> UnitCopy | Samples:
        """Return the copy of a unit, or why it has none. Loop thread."""
        if not self._box.has_hooks:
            return self._made(sampled)
        try:
            return await self._box.done(lambda: self._made(sampled))
        except HookTimeout as hung:
            return Samples(outcome=hung.outcome, reason=hung.reason)

    def _made(self, sampled: SampledUnit) -> UnitCopy | Samples:
        unit, samples = sampled.unit, None
        if self._filters or sampled.samples is not None:
            samples = self._samples(sampled)
            if samples.outcome is not None:
                return samples
        try:
            content = {span.span_id: self._redacted(span) for span in unit.spans}
        except HookTimeout:
            raise
        except BaseException as error:  # noqa: BLE001  (fails closed, SystemExit too; the class only: its text may quote)
            return Samples(outcome=Outcome.REDACTION_ERROR, reason=f"the redactor raised {type_name(error)}")
        submitted = None if sampled.samples is None else samples
        request = request_of_unit(unit, sampled.decisions, content, self._resource(), submitted)
        return UnitCopy(unit.key, unit.revision, request)

    def _redacted(self, span: SpanData) -> Mapping[str, Any]:
        """Return a span's attributes; the id of its conversation has been redacted where the span is ours."""
        redactor, attributes = self._redactor, {**self._listed(span), **span.attributes}
        if redactor is None:
            return attributes
        is_ours = span.scope == semconv.CAPTURE_SCOPE
        content = {
            name: value
            for name, value in attributes.items()
            if semconv.is_content(name) or (name == semconv.CONVERSATION_ID and not is_ours)
        }
        return {**attributes, **redacted_content(content, redactor)}

    def _listed(self, span: SpanData) -> dict[str, str]:
        found = ((key, plain_text(span.metadata.get(key)), values) for key, values in self._dimensions.items())
        return {semconv.METADATA + key: text for key, text, values in found if text is not None and text in values}


# --- handover -------------------------------------------------------------------------------------------------------

# Dispatcher: units that were taken → another process, which scores them; it stands where the engine does.

_LOOK_S: Final = 0.02

_AT_ONCE: Final = 4
"""Units of which copies are made at a time: one whose redactor hangs holds up no other."""


class Dispatcher:
    """Has copies of units made, on the loop, and carried to who scores them.

    Args:
        queue: in which the units' places are reserved; each is kept until the copy has been answered for.
        post: gives the end of a unit to the span thread. Any thread.
        where: who scores is, for people.
    """

    def __init__(
        self, copier: UnitEncoder, carrier: Carrier, *, queue: Queue, post: Callable[[JobResult], None], where: str
    ) -> None:
        self._copier = copier
        self._queue = queue
        self._post = post
        self._carrier = carrier
        self._where = where
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child, as its parent goes on with them."""
        self._waiting: deque[SampledUnit] = deque()
        self._makers: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._lock = Lock()
        self._sent = self._answered_for = 0
        self._carrier.reset()

    def accept(self, sampled: Sequence[SampledUnit]) -> None:
        """Take sampled units, whose places in the queue are reserved. Span thread; one wake-up of the loop for all."""
        loop.call_soon(self._accept, sampled)

    def stop(self, timeout_s: float) -> None:
        """Make no further copy, and have what waits sent for as long as there is time. Any thread but the loop's."""
        self._stopped = True
        self._carrier.close(timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Wait until every unit that has ended as handed over has arrived where it is scored. Not for the loop's thread."""
        until = monotonic() + timeout_s
        while not (there := self._carrier.arrived()) and monotonic() < until:
            sleep(_LOOK_S)
        return there

    def notes(self) -> list[str]:
        """Return what must be known of the way, for ``status()``. Any thread."""
        waiting, trouble = self._sent - self._answered_for, self._carrier.state()
        wait = f"; {waiting:,} wait to be taken there" if waiting else ""
        return [f"units go to {self._where} to be scored{wait}{f' ({trouble})' if trouble else ''}"]

    def _accept(self, sampled: Sequence[SampledUnit]) -> None:
        self._waiting.extend(sampled)
        start = asyncio.get_running_loop().create_task
        while len(self._makers) < min(_AT_ONCE, len(self._waiting)) and not self._stopped:
            self._makers.add(start(self._make_all(), context=suppressed_context()))

    async def _make_all(self) -> None:
        try:
            while self._waiting and not self._stopped:
                await self._hand_over(self._waiting.popleft())
                yield_gil()
                await asyncio.sleep(0)  # the loop is the judges', of another scorer of this process
        finally:
            self._makers -= {asyncio.current_task()}

    async def _hand_over(self, sampled: SampledUnit) -> None:
        try:
            made = await self._copier.made(sampled)
        except Exception as error:  # noqa: BLE001  (the other units go on)
            log_internal_error("make a copy of a unit", error)
            made = Samples(outcome=Outcome.METRIC_ERROR, reason="making the copy failed")
        unit = sampled.unit.without_content()  # its copy may wait for long
        if isinstance(made, UnitCopy):
            self._sent += 1
            self._carrier.send(made, lambda reason: self._answered(unit, sampled.size_bytes, reason))
        else:
            self._end(unit, sampled.size_bytes, made.outcome or Outcome.NO_SAMPLE, made.reason)

    def _answered(self, unit: Unit, size_bytes: int, reason: str | None) -> None:
        """Settle a unit by what became of its copy. Any thread."""
        with self._lock:
            self._answered_for += 1
        if reason is None:
            self._end(unit, size_bytes, Outcome.DELEGATED, None)
        else:
            self._end(unit, size_bytes, Outcome.QUEUE_FULL, f"{REMOTE_SCORING}: {reason}")

    def _end(self, unit: Unit, size_bytes: int, outcome: Outcome, reason: str | None) -> None:
        self._queue.cancel(size_bytes)
        self._post(JobResult(unit, (), rest=outcome, reason=reason))
