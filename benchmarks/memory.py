"""Memory test: growth over 20,000 runs of a chain, of which a tenth is aborted, cancelled or never read to the end.

    python -m benchmarks.memory [--rounds 20]

Two minutes. ``tests/safety/test_memory.py`` tests the same in two rounds. The figures are tracemalloc's: Python's own
allocations, without the interpreter's slack.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from langchain_core.callbacks import CallbackManager
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.variants import Instant
from benchmarks.workloads import ANSWER, QUESTION, InstantChat
from spanscore import OnlineScorer

__all__ = ["LEFT_MB", "left_behind_mb", "run", "scoring", "traced", "used_mb"]

LEFT_MB = 1.0
"""Allowed growth after any number of further runs. Measured: 0.03 MB after 20,000."""
WARM_UP = 11
"""Rounds before the measurement: the ids of 10,000 units are remembered for later feedback, 2.5 MB."""
RUNS, CUT_SHORT = 1_000, 50  # of one round; the latter in each of two ways
CONTEXT = "Paris has been the capital of France since 987." * 10


def main() -> int:
    """Run, print; return 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="Rounds of a thousand runs each.")
    rounds = parser.parse_args().rounds
    left_mb = left_behind_mb(rounds, WARM_UP)
    met = left_mb < LEFT_MB
    print(f"{rounds * RUNS:,} runs leave {left_mb:.2f} MB; target {LEFT_MB} MB: {'met' if met else 'missed'}")
    return 0 if met else 1


def left_behind_mb(rounds: int, warm_up: int = 1) -> float:
    """Run rounds to warm up, then some more; return the growth of the used memory over the latter, in MB."""
    with traced(), scoring(Instant()) as scorer:
        for _ in range(warm_up):
            _play(scorer)  # imports, and memory of a thousand recent runs
        _settle(scorer)
        before = used_mb()
        for _ in range(rounds):
            _play(scorer)
        _settle(scorer)
        growth = used_mb() - before
        units = scorer.status().eligible["instant"]
    if units != (rounds + warm_up) * RUNS:
        raise RuntimeError(f"{units:,} units were heard, not {(rounds + warm_up) * RUNS:,}")
    return growth


@contextmanager
def traced() -> Iterator[None]:
    """Let tracemalloc count in the block."""
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


def used_mb() -> float:
    """Return the memory that Python has allocated and not freed, in MB."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e6


@contextmanager
def scoring(*metrics: Any, **options: Any) -> Iterator[OnlineScorer]:
    """Yield a scorer whose spans and metrics are not exported."""
    scorer = OnlineScorer(list(metrics), tracer_provider=TracerProvider(), meter_provider=MeterProvider(), **options)
    try:
        yield scorer
    finally:
        scorer.shutdown(2)


def run(scorer: OnlineScorer, context: str = CONTEXT) -> None:
    """Report a small RAG chain as LangChain does, through its own callback manager, without the time of its steps."""
    manager = CallbackManager.configure(inheritable_callbacks=[scorer.handler])
    root = manager.on_chain_start({}, {"question": QUESTION}, name="chain")
    found = root.get_child().on_retriever_start({}, QUESTION, name="library")
    found.on_retriever_end([Document(page_content=context, id="doc-1")])
    (chat,) = root.get_child().on_chat_model_start({"name": "ChatFake"}, [[HumanMessage(context + QUESTION)]])
    chat.on_llm_end(LLMResult(generations=[[ChatGeneration(message=AIMessage(ANSWER))]]))
    root.on_chain_end({"answer": ANSWER})


def _play(scorer: OnlineScorer) -> None:
    config: RunnableConfig = {"callbacks": [scorer.handler]}
    for _ in range(RUNS - 2 * CUT_SHORT):
        run(scorer)
    _abandon(config)
    asyncio.run(_cancel(config))
    _flush(scorer)


def _abandon(config: RunnableConfig) -> None:
    for _ in range(CUT_SHORT):
        stream = InstantChat().stream("?", config=config)
        next(stream)
        stream.close()  # type: ignore[attr-defined]  # a generator, declared as an iterator


async def _cancel(config: RunnableConfig) -> None:
    async def hang(_: object) -> str:
        await asyncio.sleep(30)
        return "never"

    chain = RunnableLambda(hang) | InstantChat()
    tasks = [asyncio.ensure_future(chain.ainvoke("?", config=config)) for _ in range(CUT_SHORT)]
    await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _settle(scorer: OnlineScorer) -> None:
    """Expire entries that are kept for a short time, by setting the clock forward."""
    _flush(scorer)
    later_ns = time.time_ns() + 60_000_000_000
    with patch("spanscore.capture.callback.handler.time_ns", lambda: later_ns):
        if left := scorer.handler.memory.remembered():
            raise RuntimeError(f"{left} runs are still remembered")


def _flush(scorer: OnlineScorer) -> None:
    if not scorer.flush(20):
        raise RuntimeError("not everything was out in time")


if __name__ == "__main__":
    sys.exit(main())
