"""CPU time of reading a judge's answer of any size and form, on the judge's thread and on the loop, per question.

    python -m benchmarks.judge_answers

Half a minute. A loopback server gives each answer to a ``ChatOpenAI``; the result is the median of five questions. Exits with 1
if one takes more than 50 ms.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from tests.judges.langchain.wire import Exchanged, Wire
from tests.servers.openai_api import completion

from spanscore.core.prompt import Prompt
from spanscore.errors import JudgeError
from spanscore.judges import LangChainJudge
from spanscore.judges.ask import ask

TARGET_MS = 50.0
ROUNDS = 5
VERDICT = '{"reason": "polite", "verdict": 1}'
PROSE = 'The answer is {polite}, as "it" says [1], and so on. '


class Verdict(BaseModel):
    reason: str
    verdict: int


QUESTION = Prompt(step="critique", instruction="Is it polite?", evidence={"response": "Hello."}, output=Verdict)


def said(*texts: str) -> bytes:
    return json.dumps(completion([*texts], {"model": "m"})).encode()


def choices(inside: bytes) -> bytes:
    return b'{"choices": [' + inside + b"]}"


ANSWERS: Mapping[str, Callable[[], bytes]] = {
    "a verdict": lambda: said(VERDICT),
    "16,000 characters of prose": lambda: said(PROSE * (16_000 // len(PROSE))),
    "1.9 MB of prose": lambda: said(PROSE * (1_900_000 // len(PROSE))),
    "1.9 MB of prose, then a verdict": lambda: said(PROSE * (1_900_000 // len(PROSE)) + VERDICT),
    '190 kB of {"': lambda: said('{"' * 95_000),
    "10 MB of prose": lambda: said(PROSE * (10_000_000 // len(PROSE))),
    "1.9 MB of choices": lambda: said(*["x"] * 19_000),
    "1.9 MB of lists": lambda: choices(b"[]," * 600_000 + b"[]"),
    "1.9 MB of numbers": lambda: choices(b"1," * 900_000 + b"1"),
    "1.9 MB of brackets": lambda: b'{"choices": ' + b"[" * 1_900_000,
    "0.5 GB, as 0.5 MB of gzip": lambda: gzip.compress(b"\0" * 500_000_000),
}


class TimedChat(ChatOpenAI):
    """A chat model that records the CPU time of the calling thread."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        began_s = time.thread_time()
        try:
            return super().generate(*args, **kwargs)
        finally:
            THREAD_S.append(time.thread_time() - began_s)


THREAD_S: list[float] = []


def cpu_ms(judge: LangChainJudge, loop: asyncio.AbstractEventLoop) -> tuple[float, str]:
    """Return the CPU time of one question on both threads, in ms, and its verdict or error."""
    THREAD_S.clear()
    began_s = time.thread_time()
    try:
        came = str(getattr(loop.run_until_complete(ask(judge, QUESTION, repair=False)), "verdict", ""))
    except JudgeError as error:
        came = error.error_type
    return (sum(THREAD_S) + time.thread_time() - began_s) * 1_000, came


def main() -> int:
    answers = {name: answer() for name, answer in ANSWERS.items()}
    loop, missed, now = asyncio.new_event_loop(), 0, [b""]

    def give(asked: Exchanged) -> None:
        encoded = {"content_encoding": "gzip"} if now[0].startswith(b"\x1f\x8b") else {}
        asked.send(200, now[0], **encoded)

    with Wire(give) as wire:
        judge = LangChainJudge(TimedChat(model="m", base_url=wire.url, api_key=SecretStr("none")))
        print(f"{'answer':34} {'becomes':12} {'CPU, ms':>8}")
        for name, answer in answers.items():
            now[0] = answer
            spent = [cpu_ms(judge, loop) for _ in range(ROUNDS + 1)][1:]
            median_ms = statistics.median(ms for ms, _ in spent)
            missed += median_ms > TARGET_MS
            print(f"{name:34} {spent[0][1]:12} {median_ms:8.1f}{'  missed' if median_ms > TARGET_MS else ''}")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
