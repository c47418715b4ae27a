"""A judge's call → its Transcript, where the score it is for has its judges traced (``judge: {trace: true}``)."""

from __future__ import annotations

import time
from dataclasses import replace

from spanscore import semconv
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall, Transcript
from spanscore.errors import JudgeError
from spanscore.judges.asker import asker
from spanscore.judges.effects.account import Account
from spanscore.judges.effects.effect import account_of
from spanscore.judges.render import render
from spanscore.protocols import Embedder, Judge

__all__ = ["EMBED_STEP", "MAX_CHARS", "of_answer", "of_failure", "of_vectors", "signed"]

EMBED_STEP = "embed"
"""Of a call that asks for vectors: whoever answers it is no judge of the score."""
MAX_CHARS = 100_000
"""Of each text: more than most judges read; what is longer is cut, as some backends refuse megabytes."""


def of_answer(prompt: Prompt, reply: Reply, trouble: str | None = None) -> Transcript | None:
    """Return what was asked and said, and what was wrong with the answer; None where nobody wants to know."""
    answer = _cut(reply.text) if asker().quotes else ""
    asked = _asked(prompt)
    return asked and replace(asked, finish=reply.finish, trouble=trouble or "", answer=answer)


def of_vectors() -> Transcript | None:
    """Return that vectors were asked for; None where nobody wants to know."""
    return Transcript(ended_ns=time.time_ns(), operation=semconv.EMBEDDINGS) if asker().transcribes else None


def of_failure(prompt: Prompt, error: BaseException | None) -> Transcript | None:
    """Return what was asked in vain, and why; None where nobody wants to know."""
    asked = _asked(prompt)
    return asked and replace(asked, trouble=str(error) if isinstance(error, JudgeError) else "")


def signed(judge: Judge | Embedder, call: JudgeCall) -> JudgeCall:
    """Return a call with whom it asked, where its transcript does not say yet."""
    said = call.transcript
    if said is None or said.asked_model:
        return call
    account = account_of(judge)
    provider = account.provider if isinstance(account, Account) else ""
    return replace(call, transcript=replace(said, provider=provider, asked_model=getattr(judge, "model", "")))


def _asked(prompt: Prompt) -> Transcript | None:
    score = asker()
    if prompt.step == EMBED_STEP:
        return of_vectors()
    if not score.transcribes:
        return None
    if not score.quotes:
        return Transcript(ended_ns=time.time_ns())
    told = render(prompt)
    return Transcript(ended_ns=time.time_ns(), system=_cut(told.system), user=_cut(told.user))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"
