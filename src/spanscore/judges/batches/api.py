"""BatchApi: a provider's batch endpoint, with its questions, progress and answers as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from spanscore.judges.langchain.message import BatchAnswer, UnsentRequest

PROVIDERS: Final = ("openai", "anthropic")
"""Providers with a batch endpoint; a judge's name begins with one of them."""
RETRIES: Final = 4
"""Retries of one request to the endpoint, by the provider's SDK, with growing waits."""
REQUEST_S: Final = 300.0
"""Timeout of one request: an upload or a download may have 100 MB."""
MOST_BYTES: Final = 100_000_000
"""Size of the questions of one batch. OpenAI accepts 200 MB, Anthropic 256 MB."""


class BatchQuestion(NamedTuple):
    """One question of a batch.

    Attributes:
        id: unique within a run; 1 to 64 letters, digits, hyphens and underscores.
        request: the request that the client would have sent.
    """

    id: str
    request: UnsentRequest


class BatchProgress(NamedTuple):
    """The state of a batch at its provider.

    Attributes:
        status: the provider's name of the state.
        ended: whether no further answer will come.
        answered: number of questions that have ended, errors included.
    """

    status: str
    ended: bool
    answered: int


class Unanswered(NamedTuple):
    """A question of a batch that the provider did not process and does not bill.

    Attributes:
        error_type: ``batch_expired``, ``batch_cancelled`` or ``batch_failed``.
        reason: a phrase for messages, without content.
    """

    error_type: str
    reason: str


EXPIRED: Final = Unanswered("batch_expired", "the batch ended without an answer to it")
CANCELLED: Final = Unanswered("batch_cancelled", "the batch was cancelled")

BatchAnswers = Iterator[tuple[str, BatchAnswer | Unanswered]]
"""Pairs of a question's id and its answer, in any order. A question may be missing. An empty id means all missing questions."""


class BatchApi(Protocol):
    """A provider's batch endpoint. Every method blocks, on any thread, and raises the errors of the provider's SDK.

    Attributes:
        max_questions: maximum number of questions in one batch.
    """

    max_questions: int

    def submit(self, questions: Sequence[BatchQuestion]) -> str:
        """Send a batch of questions, and return its id. Their requests have the same path and the same ``betas``."""

    def progress(self, batch_id: str) -> BatchProgress:
        """Return the state of a batch."""

    def answers(self, batch_id: str) -> BatchAnswers:
        """Yield the answers of a batch that has ended."""

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch. Answers so far are kept, and billed."""
