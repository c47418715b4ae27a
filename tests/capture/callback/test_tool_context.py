"""``capture.context``: spans that a tool makes are the tool's children, and nothing stays current when it has ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from opentelemetry import trace
from tests.live import Grounded, a_line

from spanscore.config import Capture


def tools(tracer: Any) -> tuple[Any, Any]:
    @tool
    def look(question: str) -> str:
        """Look something up."""
        with tracer.start_as_current_span("SELECT"):
            if question == "fail":
                raise ValueError("no")
            return "62"

    @tool
    async def look_async(question: str) -> str:
        """Look something up."""
        return look.func(question)

    return look, look_async


def spans_of(run: Any, **options: Any) -> dict[str, list[Any]]:
    """Run an application with a scorer's callback; return its spans by name."""
    with a_line(Grounded(), **options) as (scorer, line):
        run(line.provider.get_tracer("app"), {"callbacks": [scorer.handler]})
        assert scorer.flush(10)
    found: dict[str, list[Any]] = {}
    for span in sorted(line.spans, key=lambda span: span.start_time):
        found.setdefault(span.name, []).append(span)
    return found


def sync(tracer: Any, config: RunnableConfig) -> None:
    look, _ = tools(tracer)

    def twice(question: str) -> str:
        for asked in (question, "fail"):
            with suppress(ValueError):
                look.invoke(asked)
            with tracer.start_as_current_span("between"):
                pass
        return "It is 62 metres high."

    RunnableLambda(twice).invoke("How high?", config)


def asynchronous(tracer: Any, config: RunnableConfig) -> None:
    _, look = tools(tracer)

    async def twice(question: str) -> str:
        for asked in (question, "fail"):
            with suppress(ValueError):
                await look.ainvoke(asked)
            with tracer.start_as_current_span("between"):
                pass
        return "It is 62 metres high."

    asyncio.run(RunnableLambda(twice).ainvoke("How high?", config))


@pytest.mark.parametrize("run", [sync, asynchronous])
@pytest.mark.parametrize("content", [True, False])
def test_spans_of_a_tool_are_its_children_and_later_ones_are_not(run: Any, content: bool) -> None:
    found = spans_of(run, capture=Capture(context=True, content=content))

    (of_tools,) = [spans for name, spans in found.items() if name.startswith("execute_tool")]
    assert [span.parent.span_id for span in found["SELECT"]] == [span.context.span_id for span in of_tools]
    assert {span.context.trace_id for span in found["SELECT"]} == {of_tools[0].context.trace_id}
    assert [span.parent for span in found["between"]] == [None, None]


def test_below_a_span_of_the_application_later_ones_are_its_children_again() -> None:
    def within_a_request(tracer: Any, config: RunnableConfig) -> None:
        with tracer.start_as_current_span("POST /chat"):
            asynchronous(tracer, config)
        assert not trace.get_current_span().get_span_context().is_valid

    found = spans_of(within_a_request, capture=Capture(context=True))

    (request,) = found["POST /chat"]
    assert {span.parent.span_id for span in found["between"]} == {request.context.span_id}


@pytest.mark.parametrize("run", [sync, asynchronous])
def test_without_the_switch_no_context_is_attached(run: Any) -> None:
    found = spans_of(run)

    assert [span.parent for span in found["SELECT"]] == [None, None]
