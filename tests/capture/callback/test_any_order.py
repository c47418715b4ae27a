"""Events in any order, repeated or missing: each root is one unit with one tree, the ledger adds up, no run is remembered."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any
from uuid import UUID

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from tests.capture.callback.tree import captured

EVENTS = 300
ANSWERED = LLMResult(generations=[[ChatGeneration(message=AIMessage("a"))]])


def begin(handler: Any, rng: Random, **ids: Any) -> None:
    ids |= {"metadata": {}, "tags": []}
    kind = rng.choice(["chain", "chain", "model", "tool", "retriever"])
    if kind == "chain":
        handler.on_chain_start(None, {"input": "x"}, name="c", **ids)
    elif kind == "model":
        handler.on_chat_model_start({"name": "m"}, [[HumanMessage("q")]], **ids)
    elif kind == "tool":
        handler.on_tool_start({"name": "t"}, "x", **ids)
    else:
        handler.on_retriever_start(None, "q", **ids)


def end(handler: Any, rng: Random, run_id: UUID) -> None:
    """End a run in any way, that of another kind of run too."""
    rng.choice(
        [
            lambda: handler.on_chain_end("x", run_id=run_id),
            lambda: handler.on_chain_end("x", run_id=run_id, inputs="x"),
            lambda: handler.on_chain_error(ValueError("x"), run_id=run_id),
            lambda: handler.on_chain_error(GeneratorExit(), run_id=run_id),
            lambda: handler.on_chain_error(asyncio.CancelledError(), run_id=run_id),
            lambda: handler.on_llm_new_token("x", run_id=run_id),
            lambda: handler.on_llm_end(ANSWERED, run_id=run_id),
            lambda: handler.on_llm_error(ValueError("x"), run_id=run_id),
            lambda: handler.on_tool_end("x", run_id=run_id),
            lambda: handler.on_retriever_end([Document("x")], run_id=run_id),
            lambda: handler.on_chain_start(None, "x", name="again", run_id=run_id, metadata={}),
        ]
    )()


@pytest.mark.parametrize("seed", range(5))
def test_events_in_any_order_leave_nothing_behind(seed: int) -> None:
    rng = Random(seed)
    runs: list[UUID] = []
    with captured() as run:
        run.outlived = True
        handler = run.scorer.handler
        for _ in range(EVENTS):
            if not runs or rng.random() < 0.4:
                parent = rng.choice(runs) if runs and rng.random() < 0.9 else None
                runs.append(UUID(int=rng.getrandbits(128)))
                begin(handler, rng, run_id=runs[-1], parent_run_id=parent)
            else:
                end(handler, rng, rng.choice(runs))
        for run_id in reversed(runs):
            handler.on_chain_end("x", run_id=run_id)

    ids = {span.context.span_id for span in run.spans}
    roots = [span for span in run.spans if span.parent is None]
    assert len(roots) == run.scorer.status().units == sum(run.outcomes.values()) > 1
    assert {span.parent.span_id for span in run.spans if span.parent is not None} <= ids
    assert all("spanscore.run.end" in root.attributes for root in roots)
