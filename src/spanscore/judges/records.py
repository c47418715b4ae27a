"""Records of judge calls: collect the calls made inside a block, even if the block is cancelled, and their transcripts.

A call has a transcript only if its score traces its judges (``judge: {trace: true}``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace

from spanscore import semconv
from spanscore.core.context import set_inside
from spanscore.core.printable import shorten
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall, Transcript
from spanscore.errors import JudgeError, JudgeTimeout
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.middleware import account_of
from spanscore.judges.rendering import question_tokens, render
from spanscore.judges.score_context import current_score
from spanscore.protocols import Embedder, Judge

EMBED_STEP = "embed"
"""Step of an embedding request; the model that answers it is no judge of the score."""
MAX_CHARS = 100_000
"""Most characters of each text of a transcript, more than most judges read: some backends refuse megabytes."""


def transcribe_answer(prompt: Prompt, reply: Reply, fault: str | None) -> Transcript | None:
    """Return the transcript of an answered call; None if the score has no transcripts.

    Args:
        fault: error type of an unusable answer; None for a usable answer.
    """
    answer = shorten(reply.text, MAX_CHARS) if current_score().quotes else ""
    question = _transcribe_question(prompt)
    return question and replace(question, finish=reply.finish, trouble=fault or "", answer=answer)


def transcribe_vectors() -> Transcript | None:
    """Return the transcript of a request for vectors; None if the score has no transcripts."""
    return Transcript(ended_ns=time.time_ns(), operation=semconv.EMBEDDINGS) if current_score().transcribes else None


def with_names(judge: Judge | Embedder, call: JudgeCall) -> JudgeCall:
    """Return a call whose transcript names provider and model; unchanged if it has no transcript, or one with names."""
    transcript = call.transcript
    if transcript is None or transcript.asked_model:
        return call
    account = account_of(judge)
    provider = account.provider if isinstance(account, Account) else ""
    return replace(call, transcript=replace(transcript, provider=provider, asked_model=getattr(judge, "model", "")))


def _transcribe_question(prompt: Prompt) -> Transcript | None:
    score = current_score()
    if prompt.step == EMBED_STEP:
        return transcribe_vectors()
    if not score.transcribes:
        return None
    if not score.quotes:
        return Transcript(ended_ns=time.time_ns())
    texts = render(prompt)
    return Transcript(
        ended_ns=time.time_ns(), system=shorten(texts.system, MAX_CHARS), user=shorten(texts.user, MAX_CHARS)
    )


RECORDED_BY_CANCELLER = "the canceller records the call"
"""Message with which ``RateLimited`` cancels a request, at the deadline or because its caller is cancelled."""

# Every open block has its own receiver of calls, mostly the ``append`` of a list. One shared list would mix the calls of
# metrics that run concurrently.
_receivers: ContextVar[tuple[Callable[[JudgeCall], object], ...]] = ContextVar("spanscore_recorded_calls", default=())
_complete: ContextVar[Callable[[JudgeCall], JudgeCall] | None] = ContextVar("spanscore_rest_of_calls", default=None)


def record_calls() -> list[JudgeCall]:
    """Collect the calls made in this context as ``recorded_calls`` does, until the context's task ends."""
    calls: list[JudgeCall] = []
    _receivers.set((*_receivers.get(), calls.append))
    return calls


@contextmanager
def recorded_calls() -> Iterator[list[JudgeCall]]:
    """Collect the judge calls made inside the block and in tasks started there, in the order in which they ended.

    The list grows while the block and its tasks run. Blocks nest: an outer block also gets the calls of its inner blocks.
    """
    calls: list[JudgeCall] = []
    with set_inside(_receivers, (*_receivers.get(), calls.append)):
        yield calls


def recorded_by(receive: Callable[[JudgeCall], object]) -> AbstractContextManager[None]:
    """Pass the judge calls made inside the block to a function, in place of the outer ``recorded_calls`` blocks."""
    return set_inside(_receivers, (receive,))


def completed_by(complete: Callable[[JudgeCall], JudgeCall]) -> AbstractContextManager[None]:
    """Apply a function to each call recorded inside the block, to add cost and requested model. If blocks are nested, only the
    function of the innermost block is applied.
    """
    return set_inside(_complete, complete)


def record(call: JudgeCall) -> None:
    """Pass one call to all open ``recorded_calls`` blocks, up to the innermost ``recorded_by`` block."""
    complete = _complete.get()
    if complete is not None:
        call = complete(call)
    for receive in _receivers.get():
        receive(call)


def abandoned_call(prompt: Prompt, model: str, duration_s: float) -> JudgeCall:
    """Return the call of a request that its caller has abandoned."""
    return failed_call(prompt, model, JudgeTimeout(f"{prompt.step}: given up"), duration_s)


def failed_call(prompt: Prompt, model: str, error: BaseException | None, duration_s: float) -> JudgeCall:
    """Return the call of a request that gave no usable answer.

    An unusable answer is billed: the tokens are those of the error, 0 if it has none. A timeout or a broken answer without
    output tokens may be billed, too: the call is marked as estimated, and missing input tokens are estimated.

    Args:
        error: None = the error is unknown.
    """
    transcript = _transcribe_question(prompt)
    read, written = getattr(error, "input_tokens", 0), getattr(error, "output_tokens", 0)
    is_estimated = (isinstance(error, JudgeTimeout) or getattr(error, "response_started", False)) and not written
    return JudgeCall(
        step=prompt.step,
        model=model,
        input_tokens=question_tokens(prompt, model) if is_estimated and not read else read,
        output_tokens=written,
        duration_s=duration_s,
        error_type=getattr(error, "error_type", None),
        estimated=is_estimated,
        transcript=transcript and replace(transcript, trouble=str(error) if isinstance(error, JudgeError) else ""),
    )


def is_our_cancellation(error: BaseException) -> bool:
    """Whether an error is the cancellation of this task, and no CancelledError or SystemExit that the judge itself raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)
