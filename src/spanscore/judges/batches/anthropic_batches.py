"""Anthropic's batch endpoint: one request contains all questions, and one file all answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from spanscore.errors import MissingExtraError
from spanscore.judges.batches.api import (
    CANCELLED,
    EXPIRED,
    REQUEST_S,
    RETRIES,
    BatchAnswers,
    BatchProgress,
    BatchQuestion,
    Unanswered,
)
from spanscore.judges.langchain.message import BatchAnswer

if TYPE_CHECKING:
    from anthropic.types.messages import MessageBatchIndividualResponse

_UNPROCESSED = {"expired": EXPIRED, "canceled": CANCELLED}
_STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Type of an error → its HTTP status for a request outside of a batch, by Anthropic's table of errors."""
_SERVER_ERROR: Final = 500


class AnthropicBatches:
    """Batches of ``/v1/messages``.

    Args:
        api_key: key of the account.
        base_url: address of the API; None = Anthropic's own.
        headers: further headers of each request; None = no further headers.

    Raises:
        MissingExtraError: Anthropic's client is not installed.
    """

    max_questions = 100_000

    def __init__(self, *, api_key: str, base_url: str | None, headers: Any = None) -> None:
        try:
            from anthropic import Anthropic
        except ImportError as error:
            raise MissingExtraError("anthropic", "anthropic") from error
        self._client = Anthropic(
            api_key=api_key, base_url=base_url, default_headers=headers, max_retries=RETRIES, timeout=REQUEST_S
        )

    def submit(self, questions: Sequence[BatchQuestion]) -> str:
        """Create a batch of the questions, and return its id."""
        betas = questions[0].request.betas  # all questions of a batch have the same
        made = self._client.messages.batches.create(
            requests=[{"custom_id": each.id, "params": json.loads(each.request.body)} for each in questions],
            extra_headers={"anthropic-beta": betas} if betas else {},
        )
        return made.id

    def progress(self, batch_id: str) -> BatchProgress:
        """Return the state of a batch. ``answered`` is 0 until all questions have ended: Anthropic counts them only then."""
        state = self._client.messages.batches.retrieve(batch_id)
        counts = state.request_counts
        ended = counts.succeeded + counts.errored + counts.canceled + counts.expired
        return BatchProgress(state.processing_status, state.processing_status == "ended", ended)

    def answers(self, batch_id: str) -> BatchAnswers:
        """Yield the lines of the result file, which Anthropic deletes 29 days after the batch was created."""
        if self._client.messages.batches.retrieve(batch_id).results_url is None:
            return
        for line in self._client.messages.batches.results(batch_id):
            with suppress(KeyError, AttributeError):  # an unreadable line is skipped: its question counts as unanswered
                yield line.custom_id, _answer(line)

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch."""
        self._client.messages.batches.cancel(batch_id)


def _answer(line: MessageBatchIndividualResponse) -> BatchAnswer | Unanswered:
    result = line.result
    if result.type == "succeeded":
        return BatchAnswer(200, result.message.to_json().encode())
    if result.type == "errored":
        return BatchAnswer(_STATUSES.get(result.error.error.type, _SERVER_ERROR), result.error.to_json().encode())
    return _UNPROCESSED[result.type]
