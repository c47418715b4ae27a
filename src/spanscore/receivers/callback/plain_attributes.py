"""PlainAttributes: what the span of a run says whether content is exported or not. Span thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from spanscore import semconv
from spanscore.codec.redaction import redacted
from spanscore.codec.text import safe_text
from spanscore.protocols import Redactor
from spanscore.receivers.callback.run_attributes import attributes_of, run_end_of, was_stopped
from spanscore.receivers.callback.runs import Run
from spanscore.runtime.timebox import Timebox

__all__ = ["PlainAttributes"]

_MAY_NAME_SOMEBODY: Final = frozenset({semconv.CONVERSATION_ID, semconv.FEEDBACK_KEY})
_IDS: Final = 1_000
"""Conversations and keys whose redacted id is remembered: a redactor may take as long as a small model does."""


@dataclass(eq=False, repr=False)
class PlainAttributes:
    """Describes runs, with what may name a person redacted.

    Attributes:
        redactor: applied to the conversation's id, the feedback key and the metadata; where it raises, gives no text or hangs,
            they are left out.
        box: where the redactor runs.
        metadata: keys of a root's metadata that are told.
    """

    redactor: Redactor | None
    box: Timebox
    metadata: Sequence[str]

    def __post_init__(self) -> None:
        self._redacted_id = lru_cache(_IDS)(self._redact_id)
        self._may_name_somebody = _MAY_NAME_SOMEBODY.union(semconv.METADATA + key for key in self.metadata)

    def of(self, run: Run, output: Any, error: BaseException | None) -> dict[str, Any]:
        """Return what is told of a run. Never raises."""
        attributes = attributes_of(run, output, error, metadata=self.metadata)
        for name in () if self.redactor is None else self._may_name_somebody & attributes.keys():
            if isinstance(attributes[name], str):
                attributes |= self._redacted(name, attributes.pop(name))
        return attributes

    def of_ended(
        self, run: Run, output: Any, error: BaseException | None
    ) -> tuple[dict[str, Any], BaseException | None]:
        """Return the same of a run below a root, and the error that its span shows: to be stopped is none."""
        attributes = self.of(run, output, error)
        if was_stopped(error):
            return attributes | {semconv.RUN_END: run_end_of(None, error)}, None
        return attributes, error

    def _redacted(self, name: str, given: str) -> dict[str, str]:
        """Return an attribute: applications name a conversation by its user's address. Fails closed, as with content."""
        try:
            return {name: safe_text(self._redacted_id(given))}
        except BaseException:  # noqa: BLE001
            return {}

    def _redact_id(self, given: str) -> str:
        redactor = self.redactor
        return given if redactor is None else self.box.run(lambda: redacted(given, redactor))
