"""Prompt → validated answer: the one place where a judge's text is read, checked, and repaired at most once."""

from __future__ import annotations

import time

from pydantic import BaseModel

from spanscore.core.log import type_name
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeError, JudgeUnparseable
from spanscore.judges.asker import asker
from spanscore.judges.effects.budget import budgeted
from spanscore.judges.effects.cost import with_cost
from spanscore.judges.effects.fallback import stand_in_for
from spanscore.judges.fit import bound_of, fit
from spanscore.judges.langchain.provider_errors import judge_error
from spanscore.judges.reader import read
from spanscore.judges.record import completed_by, failed_call, is_our_cancellation, record, recorded_calls
from spanscore.judges.render import form
from spanscore.judges.suppress import suppress_tracing
from spanscore.judges.transcribe import of_answer, signed
from spanscore.protocols import Judge

__all__ = ["REPAIR_STEP", "ask", "replied"]

REPAIR_STEP = "fix_output_format"

_REPAIR = """\
An earlier answer did not have the asked form. Rewrite it as one JSON object of the form in the evidence.
Keep what it says. Do not judge anew, and do not add what is not there."""
_EMPTY = "empty"
_MAX_READ = 200_000
"""Characters of an answer: forty times the longest that a metric asks for."""
_MAX_REPAIRED = 100_000
"""Characters of an unreadable answer that are sent back: more than a model writes, less than a judge gone wild does."""


class Repaired(BaseModel):
    """An answer in the asked form, as text: some judges wrap the object that a repair asks for."""

    text: str


async def ask(judge: Judge, prompt: Prompt, *, repair: bool = True) -> BaseModel:
    """Ask one question, cut to what the judge can read, and return the answer, an instance of ``prompt.output``.

    Every call, failed ones included, is added to the open ``recorded_calls()`` blocks; no instrumentation sees it.

    Args:
        prompt: the question. Its ``output`` may have a class method ``from_plain_text(text, evidence)``, which reads an answer
            without JSON, or returns None.
        repair: False for a question that is cheaper asked again.

    Raises:
        JudgeUnparseable: the answer has not the asked shape, also after one repair; its type is ``empty`` where there was
            nothing to repair.
        JudgeError: there is no answer; ``too_long`` where the question was not sent.
    """
    prompt, left_out = fit(prompt, bound_of(judge))
    text, answer = await _asked(judge, prompt, left_out)
    if answer is None and repair:
        answer = await _repaired(judge, prompt, text[:_MAX_REPAIRED])
    if answer is None:
        tried = ", also after one repair" if repair else ""
        raise JudgeUnparseable(f"{prompt.step}: the answer had not the asked form{tried}")
    return answer


async def _repaired(judge: Judge, prompt: Prompt, text: str) -> BaseModel | None:
    """Ask once for the same answer in the right form. One repair: a judge that fails it twice does not get better."""
    repair = Prompt(
        step=REPAIR_STEP,
        instruction=_REPAIR,
        evidence={"answer": text, "form": form(prompt.output)},
        output=prompt.output,
        vote_index=prompt.vote_index,
    )
    return (await _asked(judge, repair, repair_of=prompt))[1]


def _read_repair(text: str, repair: Prompt, prompt: Prompt) -> BaseModel | None:
    """Return the answer in a repair: the object itself, or the text of one in ``{"text": "…"}``."""
    wrapped = read(text, Repaired, repair.evidence)
    if isinstance(wrapped, Repaired) and "text" not in prompt.output.model_fields:
        text = wrapped.text
    return read(text, prompt.output, prompt.evidence, repaired=True)


async def _asked(
    judge: Judge, prompt: Prompt, left_out: float = 0.0, *, repair_of: Prompt | None = None
) -> tuple[str, BaseModel | None]:
    """Call the judge once and record the call: its text, and the answer in it where it can be read."""
    started = time.perf_counter()
    reply = await replied(judge, prompt)
    text = reply.text[:_MAX_READ]
    answer = _read_repair(text, prompt, repair_of) if repair_of else read(text, prompt.output, prompt.evidence)
    error_type = None if answer is not None else JudgeUnparseable.error_type if text.strip() else _EMPTY
    call = JudgeCall(
        step=prompt.step,
        model=reply.model or judge.model,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost_usd=reply.cost_usd,
        duration_s=time.perf_counter() - started if reply.duration_s is None else reply.duration_s,
        error_type=error_type,
        cached=reply.cached,
        cached_input_tokens=reply.cached_input_tokens,
        input_truncated_ratio=left_out,
        transcript=of_answer(prompt, reply, error_type),
    )
    record(signed(_asked_judge(judge), call))
    if error_type == _EMPTY:
        raise JudgeUnparseable(f"{prompt.step}: the answer was empty", error_type=_EMPTY)
    return text, answer


async def replied(judge: Judge, prompt: Prompt) -> Reply:
    """Call the judge once; what it was asked in vain on the way is recorded, and its failure too.

    Raises:
        JudgeError: there is no answer.
    """
    started = time.perf_counter()
    with (
        completed_by(lambda call: signed(_asked_judge(judge), with_cost(judge, call))),
        recorded_calls() as attempts,
    ):  # a retrying judge records those it gave up
        try:
            return await _reply(judge, prompt)
        except JudgeError as error:
            left_s = time.perf_counter() - started - sum(call.duration_s for call in attempts)
            if error.request_sent:
                record(failed_call(prompt, judge.model, error, left_s))
            raise


def _asked_judge(judge: Judge) -> Judge:
    return stand_in_for(judge) or judge


async def _reply(judge: Judge, prompt: Prompt) -> Reply:
    """Call the judge, unseen by any instrumentation. What a judge raises is a judge's error, never the metric's."""
    try:
        with suppress_tracing(), asker().asks():
            return await budgeted(judge).ask(prompt)
    except JudgeError:
        raise
    except Exception as error:
        raise judge_error(error, prompt.step) from error
    except BaseException as error:
        if is_our_cancellation(error):
            raise
        raise JudgeError(f"{prompt.step}: the judge raised {type_name(error)}") from error
