"""Copier: a unit that was taken → the copy of it that leaves, redacted; or the outcome that ends it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.job import request_of_unit
from spanscore.core.job import SampledUnit
from spanscore.core.log import plain_text, type_name
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.core.span import SpanData
from spanscore.core.timebox import Hung, Timebox
from spanscore.protocols import Redactor
from spanscore.remote_scoring.carrier import UnitCopy
from spanscore.samples.redaction import redacted_content

__all__ = ["Copier"]


class Copier:
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
        except Hung as hung:
            return Samples(outcome=hung.outcome, reason=hung.reason)

    def _made(self, sampled: SampledUnit) -> UnitCopy | Samples:
        unit, samples = sampled.unit, None
        if self._filters or sampled.samples is not None:
            samples = self._samples(sampled)
            if samples.outcome is not None:
                return samples
        try:
            content = {span.span_id: self._redacted(span) for span in unit.spans}
        except Hung:
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
