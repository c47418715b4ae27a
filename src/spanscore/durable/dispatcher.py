"""Remote scoring in the application: redacted copies of units are made, and handed to a carrier."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic, sleep
from typing import Any, Final

from spanscore import semconv
from spanscore.core import loop
from spanscore.core.codecs.job import request_of_unit
from spanscore.core.codecs.media import without_image_bytes
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
from spanscore.samples.redaction import redact_content

_POLL_S: Final = 0.02
_AT_ONCE: Final = 4
"""Units that are encoded concurrently, so that a hanging redactor delays no other unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEncoder:
    """Makes the copies of units. Thread-safe.

    Attributes:
        redactor: applied to all content; if it raises, returns no text or hangs, the unit is not sent. None = no redactor.
        samples: returns the samples of a unit, redacted and filtered.
        filters: whether there is a filter; a unit that it rejects is not sent.
        dimensions: key of the metadata → values by which sums are grouped; other values of these keys are not sent.
        images: whether copies contain the bytes of images, if there is no redactor.
        box: runs the functions of the user.
        resource: returns the resource of the application.
    """

    redactor: Redactor | None
    samples: Callable[[SampledUnit], Samples]
    filters: bool
    dimensions: Mapping[str, Sequence[str]]
    images: bool
    box: Timebox
    resource: Callable[[], Mapping[str, Any]]

    async def encode(self, sampled: SampledUnit) -> UnitCopy | Samples:
        """Return the copy of a unit, or ``Samples`` with the reason if the unit is not sent. Call on the loop thread."""
        if not self.box.has_hooks:
            return self._encode(sampled)
        try:
            return await self.box.run_async(lambda: self._encode(sampled))
        except HookTimeout as hung:
            return Samples(outcome=hung.outcome, reason=hung.reason)

    def _encode(self, sampled: SampledUnit) -> UnitCopy | Samples:
        unit, samples = sampled.unit, None
        if self.filters or sampled.samples is not None:
            samples = self.samples(sampled)
            if samples.outcome is not None:
                return samples
        try:
            content = {span.span_id: self._redacted(span) for span in unit.spans}
        except HookTimeout:
            raise
        except BaseException as error:  # noqa: BLE001  (SystemExit too; the text may quote, so only the class is shown)
            return Samples(outcome=Outcome.REDACTION_ERROR, reason=f"the redactor raised {type_name(error)}")
        submitted = None if sampled.samples is None else samples
        request = request_of_unit(unit, sampled.decisions, content, self.resource(), submitted)
        return UnitCopy(unit.key, unit.revision, request)

    def _redacted(self, span: SpanData) -> Mapping[str, Any]:
        """Return a span's redacted attributes. The conversation id of spanscore's own spans is already redacted."""
        metadata = ((key, plain_text(span.metadata.get(key)), values) for key, values in self.dimensions.items())
        listed = {semconv.METADATA + key: text for key, text, values in metadata if text is not None and text in values}
        redactor, attributes = self.redactor, {**listed, **span.attributes}
        if redactor is None and self.images:
            return attributes
        is_ours = span.scope == semconv.CAPTURE_SCOPE
        content = {
            name: value
            for name, value in attributes.items()
            if semconv.is_content(name) or (name == semconv.CONVERSATION_ID and not is_ours)
        }
        return {**attributes, **_without_private_parts(content, redactor)}


def _without_private_parts(content: Mapping[str, Any], redactor: Redactor | None) -> Mapping[str, Any]:
    """Return redacted content; without a redactor, content without the bytes of images."""
    if redactor is not None:
        return redact_content(content, redactor)
    return {name: without_image_bytes(value) for name, value in content.items()}


class Dispatcher:
    """Encodes units on the loop, and hands the copies to a carrier. Has the methods of the engine.

    Args:
        queue: the queue in which each unit has a place until its copy is answered.
        post: posts the end of a unit to the span thread. Called on any thread.
        where: address of the scoring process, for messages.
    """

    def __init__(
        self, encoder: UnitEncoder, carrier: Carrier, *, queue: Queue, post: Callable[[JobResult], None], where: str
    ) -> None:
        self._encoder = encoder
        self._queue = queue
        self._post = post
        self._carrier = carrier
        self._where = where
        self._waiting: deque[SampledUnit] = deque()
        self._encoding_tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._lock = Lock()
        self._sent = self._answered = 0

    def begin(self) -> None:
        """Send the copies that processes have left behind. Raises ``ConfigurationError`` if no copy can be sent."""
        self._carrier.begin()

    def accept(self, sampled: Sequence[SampledUnit]) -> None:
        """Accept sampled units with reserved places in the queue, and wake the loop once for all. Call on the span thread."""
        loop.call_soon(self._accept, sampled)

    def stop(self, timeout_s: float) -> None:
        """Make no further copy, and send the waiting copies within the time. Call on any thread but the loop's."""
        self._stopped = True
        self._carrier.close(timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Wait until every delegated unit has reached the scoring process. Call on any thread but the loop's."""
        until = monotonic() + timeout_s
        while not (has_arrived := self._carrier.has_arrived()) and monotonic() < until:
            sleep(_POLL_S)
        return has_arrived

    def notes(self) -> list[str]:
        """Return rows for ``status()``. Thread-safe."""
        waiting, trouble = self._sent - self._answered, self._carrier.state()
        wait = f"; {waiting:,} wait to be accepted there" if waiting else ""
        return [f"units are sent to {self._where} for scoring{wait}{f' ({trouble})' if trouble else ''}"]

    def _accept(self, sampled: Sequence[SampledUnit]) -> None:
        self._waiting.extend(sampled)
        start = asyncio.get_running_loop().create_task
        while len(self._encoding_tasks) < min(_AT_ONCE, len(self._waiting)) and not self._stopped:
            self._encoding_tasks.add(start(self._encode_waiting(), context=suppressed_context()))

    async def _encode_waiting(self) -> None:
        try:
            while self._waiting and not self._stopped:
                await self._hand_over(self._waiting.popleft())
                yield_gil()
                await asyncio.sleep(0)  # judges of another scorer of this process share the loop
        finally:
            self._encoding_tasks -= {asyncio.current_task()}

    async def _hand_over(self, sampled: SampledUnit) -> None:
        try:
            copy = await self._encoder.encode(sampled)
        except Exception as error:  # noqa: BLE001  (the other units go on)
            log_internal_error("make a copy of a unit", error)
            copy = Samples(outcome=Outcome.METRIC_ERROR, reason="making the copy failed")
        unit = sampled.unit.without_content()  # its copy may wait for a long time
        if isinstance(copy, UnitCopy):
            self._sent += 1
            self._carrier.send(copy, lambda reason: self._on_answer(unit, sampled.size_bytes, reason))
        else:
            self._end_unit(unit, sampled.size_bytes, copy.outcome or Outcome.NO_SAMPLE, copy.reason)

    def _on_answer(self, unit: Unit, size_bytes: int, reason: str | None) -> None:
        """Settle a unit by the answer to its copy. Thread-safe."""
        with self._lock:
            self._answered += 1
        if reason is None:
            self._end_unit(unit, size_bytes, Outcome.DELEGATED, None)
        else:
            self._end_unit(unit, size_bytes, Outcome.QUEUE_FULL, f"{REMOTE_SCORING}: {reason}")

    def _end_unit(self, unit: Unit, size_bytes: int, outcome: Outcome, reason: str | None) -> None:
        self._queue.cancel(size_bytes)
        self._post(JobResult(unit, (), rest=outcome, reason=reason))
