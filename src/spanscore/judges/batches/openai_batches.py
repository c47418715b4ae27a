"""OpenAI's batch endpoint: one uploaded file contains all questions; the answers and the errors are two files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

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
    from openai import OpenAI

_Endpoint = Literal["/v1/chat/completions", "/v1/responses"]
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_UNPROCESSED = {"batch_expired": EXPIRED, "batch_cancelled": CANCELLED}


class OpenAIBatches:
    """Batches of ``/v1/chat/completions`` and ``/v1/responses``.

    Args:
        client: OpenAI's own client; its retries and timeout are replaced by ``RETRIES`` and ``REQUEST_S``.
    """

    max_questions = 50_000

    def __init__(self, client: OpenAI) -> None:
        self._client = client.with_options(max_retries=RETRIES, timeout=REQUEST_S)

    def submit(self, questions: Sequence[BatchQuestion]) -> str:
        """Upload the questions as a file, and create the batch; all questions have one path."""
        uses_responses = questions[0].request.path.endswith("/responses")
        endpoint: _Endpoint = "/v1/responses" if uses_responses else "/v1/chat/completions"
        lines = [
            {"custom_id": each.id, "method": "POST", "url": endpoint, "body": json.loads(each.request.body)}
            for each in questions
        ]
        content = b"\n".join(json.dumps(line).encode() for line in lines)
        file = self._client.files.create(file=("spanscore.jsonl", content), purpose="batch")
        made = self._client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
        return made.id

    def progress(self, batch_id: str) -> BatchProgress:
        """Return the state of a batch."""
        state = self._client.batches.retrieve(batch_id)
        counts = state.request_counts
        return BatchProgress(state.status, state.status in _ENDED, counts.completed + counts.failed if counts else 0)

    def answers(self, batch_id: str) -> BatchAnswers:
        """Yield the answers in the output file and the error file.

        For a refused batch, also yield an entry with an empty id: its reason applies to every question without an answer.
        """
        state = self._client.batches.retrieve(batch_id)
        for file in (state.output_file_id, state.error_file_id):
            if file is not None:
                yield from _answers(self._client.files.content(file).content)
        if state.status == "failed":
            codes = {error.code for error in (state.errors and state.errors.data) or () if error.code}
            why = ", ".join(sorted(codes)) or "no reason is given"
            yield "", Unanswered("batch_failed", f"the provider refused the batch ({why})")

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch."""
        self._client.batches.cancel(batch_id)


def _answers(file: bytes) -> Iterator[tuple[str, BatchAnswer | Unanswered]]:
    for text in file.split(b"\n"):
        # An unreadable line is skipped: its question counts as unanswered.
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            line: dict[str, Any] = json.loads(text)
            if response := line.get("response"):
                yield (
                    line["custom_id"],
                    BatchAnswer(int(response["status_code"]), json.dumps(response["body"]).encode()),
                )
            else:  # an unknown error code is ``EXPIRED``: the question is asked again
                yield line["custom_id"], _UNPROCESSED.get(line["error"]["code"], EXPIRED)
