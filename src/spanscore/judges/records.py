"""Judge calls made inside a block → a list, also when the block is cut short; and the transcript of each call.

A call has a transcript if its score has its judges traced (``judge: {trace: true}``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from spanscore import semconv
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall, Transcript
from spanscore.errors import JudgeError, JudgeTimeout
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.middleware import account_of
from spanscore.judges.rendering import question_tokens, render
from spanscore.judges.score_context import asker
from spanscore.protocols import Embedder, Judge

EMBED_STEP = "embed"
"""Step of a request for vectors; the model that answers it is no judge of the score."""
MAX_CHARS = 100_000
"""Characters of each text, more than most judges read. Longer texts are cut, as some backends refuse megabytes."""


def of_answer(prompt: Prompt, reply: Reply, trouble: str | None = None) -> Transcript | None:
    """Return the transcript of an answered call, with the fault of the answer; None if the score has no transcripts."""
    answer = _cut(reply.text) if asker().quotes else ""
    asked = _asked(prompt)
    return asked and replace(asked, finish=reply.finish, trouble=trouble or "", answer=answer)


def of_vectors() -> Transcript | None:
    """Return the transcript of a request for vectors; None if the score has no transcripts."""
    return Transcript(ended_ns=time.time_ns(), operation=semconv.EMBEDDINGS) if asker().transcribes else None


def signed(judge: Judge | Embedder, call: JudgeCall) -> JudgeCall:
    """Return a call whose transcript names provider and model; as it is, if it has none or names them already."""
    transcript = call.transcript
    if transcript is None or transcript.asked_model:
        return call
    account = account_of(judge)
    provider = account.provider if isinstance(account, Account) else ""
    return replace(call, transcript=replace(transcript, provider=provider, asked_model=getattr(judge, "model", "")))


def _asked(prompt: Prompt) -> Transcript | None:
    score = asker()
    if prompt.step == EMBED_STEP:
        return of_vectors()
    if not score.transcribes:
        return None
    if not score.quotes:
        return Transcript(ended_ns=time.time_ns())
    texts = render(prompt)
    return Transcript(ended_ns=time.time_ns(), system=_cut(texts.system), user=_cut(texts.user))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"


TOLD = "told of by who gave it up"
"""Why a request is cancelled of which the call is recorded outside: its deadline passed, or its gate was left."""

# Every open block has a list of its own, and a call goes into all of them. One shared list and slices of it would mix the
# calls of metrics that run side by side.
_open: ContextVar[tuple[Callable[[JudgeCall], object], ...]] = ContextVar("spanscore_recorded_calls", default=())
_complete: ContextVar[Callable[[JudgeCall], JudgeCall] | None] = ContextVar("spanscore_rest_of_calls", default=None)


def record_calls() -> list[JudgeCall]:
    """Collect the calls that are made in this context, which has no end but its task's, as ``recorded_calls`` does."""
    calls: list[JudgeCall] = []
    _open.set((*_open.get(), calls.append))
    return calls


@contextmanager
def recorded_calls() -> Iterator[list[JudgeCall]]:
    """Collect the judge calls made inside the block and in tasks started there, in the order in which they ended.

    The list grows while the block runs. Blocks nest: an outer one sees the calls of the inner ones too.
    """
    calls: list[JudgeCall] = []
    token = _open.set((*_open.get(), calls.append))
    try:
        yield calls
    finally:
        _open.reset(token)


@contextmanager
def recorded_by(charge: Callable[[JudgeCall], object]) -> Iterator[None]:
    """Hand the judge calls made inside the block to ``charge``, and to none of the blocks around it."""
    token = _open.set((charge,))
    try:
        yield
    finally:
        _open.reset(token)


@contextmanager
def completed_by(complete: Callable[[JudgeCall], JudgeCall]) -> Iterator[None]:
    """Complete the calls that are recorded inside the block, by their cost and the model that was asked."""
    token = _complete.set(complete)
    try:
        yield
    finally:
        _complete.reset(token)


def record(call: JudgeCall) -> None:
    """Add one call to every open block; does nothing outside of any."""
    complete = _complete.get()
    whole = call if complete is None else complete(call)
    for add in _open.get():
        add(whole)


def given_up(prompt: Prompt, model: str, duration_s: float) -> JudgeCall:
    """Return the call of a request that its caller has given up."""
    return failed_call(prompt, model, JudgeTimeout(f"{prompt.step}: given up"), duration_s)


def failed_call(prompt: Prompt, model: str, error: BaseException | None, duration_s: float) -> JudgeCall:
    """Return the call of a request that gave no answer.

    What was answered in vain is billed, and the error says how much; of what was given up, or broke off, the tokens of the
    question are estimated, as it may be billed, too.
    """
    transcript = _asked(prompt)
    read, written = getattr(error, "input_tokens", 0), getattr(error, "output_tokens", 0)
    late = (isinstance(error, JudgeTimeout) or getattr(error, "response_started", False)) and not written
    return JudgeCall(
        step=prompt.step,
        model=model,
        input_tokens=question_tokens(prompt, model) if late and not read else read,
        output_tokens=written,
        duration_s=duration_s,
        error_type=getattr(error, "error_type", None),
        estimated=late,
        transcript=transcript and replace(transcript, trouble=str(error) if isinstance(error, JudgeError) else ""),
    )


def is_our_cancellation(error: BaseException) -> bool:
    """Whether we are cancelled, and it is not the judge that raises CancelledError (or SystemExit: an error like any other)."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)
