"""Prompt → validated answer: the one place where a judge's text is read, checked, and repaired at most once."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pydantic import BaseModel, ValidationError

from spanscore.errors import JudgeError, JudgeTimeout, JudgeUnparseable
from spanscore.judges.asker import asker
from spanscore.judges.record import record, recorded_calls
from spanscore.judges.render import form
from spanscore.judges.suppress import suppressed
from spanscore.model.foreign import type_name
from spanscore.model.prompt import Prompt, Reply
from spanscore.model.score import JudgeCall
from spanscore.protocols import Judge

__all__ = ["REPAIR_STEP", "ask", "read", "read_answer"]

REPAIR_STEP = "fix_output_format"

_REPAIR = """\
An earlier answer did not have the asked form. Rewrite it as one JSON object of the form in the evidence.
Keep what it says. Do not judge anew, and do not add what is not there.
Give the rewritten object as a string in "text"."""
# strict=False: models write raw line breaks inside strings.
_DECODER = json.JSONDecoder(strict=False)
_MAX_CANDIDATES = 20
_MAX_TOKENS = 5_000
"""Brackets and strings looked at for one closer. An answer of nothing but brackets must not hold up the loop."""
_MAX_REPAIRED = 100_000
"""Characters of an unreadable answer that are sent back: more than a model writes, less than a judge gone wild does."""
_FENCE = re.compile(r"```(?:json)?", re.IGNORECASE)
_BRACKET_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


class Repaired(BaseModel):
    """An answer in the asked form, as text."""

    text: str


async def ask(judge: Judge, prompt: Prompt, *, repair: bool = True) -> BaseModel:
    """Ask one question and return the answer, an instance of ``prompt.output``.

    Every call, failed ones included, is added to the open ``recorded_calls()`` blocks; no instrumentation sees it.

    Args:
        prompt: the question. Its ``output`` may have a class method ``from_plain_text(text, evidence)``, which reads an answer
            without JSON, or returns None.
        repair: False for a question that is cheaper asked again.

    Raises:
        JudgeUnparseable: the answer has not the asked shape, also after one repair.
        JudgeError: there is no answer.
    """
    text, answer = await _asked(judge, prompt)
    if answer is None and repair:
        answer = await _repaired(judge, prompt, text[:_MAX_REPAIRED])
    if answer is None:
        tried = ", also after one repair" if repair else ""
        raise JudgeUnparseable(f"{prompt.step}: the answer had not the asked form{tried}")
    return answer


def read(text: str, output: type[BaseModel]) -> BaseModel | None:
    """Return the first JSON object in a text that is a valid ``output``, None when there is none.

    Prose and code fences around it do no harm, nor a stray ``[1]`` or ``{word}`` before it. Validation is lax as pydantic's
    is: ``"1"``, ``1.0`` and ``true`` are the integer 1; 0.5 and ``"yes"`` are not.
    """
    for candidate in _objects(text):
        try:
            return output.model_validate(candidate)
        except ValidationError:
            continue
    return None


def read_answer(text: str, prompt: Prompt) -> BaseModel | None:
    """Return the answer to a question in a text, None when it is not in the asked form."""
    return read(text, prompt.output) or _from_plain_text(text, prompt)


def _from_plain_text(text: str, prompt: Prompt) -> BaseModel | None:
    from_plain_text = getattr(prompt.output, "from_plain_text", None)
    if from_plain_text is None:
        return None
    answer: BaseModel | None = from_plain_text(text, prompt.evidence)
    return answer


async def _repaired(judge: Judge, prompt: Prompt, text: str) -> BaseModel | None:
    """Ask once for the same answer in the right form. One repair: a judge that fails it twice does not get better."""
    repair = Prompt(
        step=REPAIR_STEP,
        instruction=_REPAIR,
        evidence={"answer": text, "form": form(prompt.output)},
        output=Repaired,
        ballot=prompt.ballot,
    )
    _, repaired = await _asked(judge, repair)
    return read(repaired.text, prompt.output) if isinstance(repaired, Repaired) else None


async def _asked(judge: Judge, prompt: Prompt) -> tuple[str, BaseModel | None]:
    """Call the judge once and record the call: its text, and the answer in it where it can be read."""
    started = time.perf_counter()
    with recorded_calls() as attempts:  # a retrying judge records those it gave up
        try:
            reply = await _reply(judge, prompt)
        except JudgeError as error:
            left_s = time.perf_counter() - started - sum(call.duration_s for call in attempts)
            record(JudgeCall(step=prompt.step, model=judge.model, duration_s=left_s, error_type=error.error_type))
            raise
        took_s = time.perf_counter() - started if reply.duration_s is None else reply.duration_s
        answer = read_answer(reply.text, prompt)
        record(
            JudgeCall(
                step=prompt.step,
                model=reply.model or judge.model,
                input_tokens=reply.input_tokens,
                output_tokens=reply.output_tokens,
                cost_usd=reply.cost_usd,
                duration_s=took_s,
                cached=reply.cached,
                error_type=None if answer is not None else JudgeUnparseable.error_type,
            )
        )
    return reply.text, answer


async def _reply(judge: Judge, prompt: Prompt) -> Reply:
    """Call the judge, unseen by any instrumentation. What a judge raises is a judge's error, never the metric's."""
    try:
        with suppressed(), asker().asks():
            return await judge.ask(prompt)
    except JudgeError:
        raise
    except TimeoutError as error:
        raise JudgeTimeout(f"{prompt.step}: the judge did not answer in time") from error
    except BaseException as error:
        if _is_our_cancellation(error):
            raise
        # The name only: messages of foreign errors quote prompts.
        name = type_name(error)
        raise JudgeError(f"{prompt.step}: the judge raised {name}", error_type=name) from error


def _is_our_cancellation(error: BaseException) -> bool:
    """Whether we are cancelled, and it is not the judge that raises CancelledError (or SystemExit: an error like any other)."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)


def _objects(text: str) -> Iterator[Any]:
    """Yield the JSON objects that stand side by side in a text; from a code fence on first, then from its beginning."""
    fence = _FENCE.search(text)
    if fence:
        yield from _objects_from(text, fence.end())
    yield from _objects_from(text, 0)


def _objects_from(text: str, position: int) -> Iterator[Any]:
    for _ in range(_MAX_CANDIDATES):
        position = text.find("{", position)
        if position < 0:
            return
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            # Not inside: a row of a broken list is no answer.
            position = _closer(text, position) + 1
        else:
            yield value


def _closer(text: str, start: int) -> int:
    """Return where the bracket at ``start`` closes, brackets in strings left out; ``start`` itself when it never does."""
    depth = 0
    for token in islice(_BRACKET_OR_STRING.finditer(text, start), _MAX_TOKENS):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.start()
    return start
