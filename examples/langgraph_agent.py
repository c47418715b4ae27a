"""A LangGraph agent with a retrieval tool, scored live: its documents travel in the tool's artifact. No key, no server.

    pip install -e '.[demo]' && python examples/langgraph_agent.py

The model is scripted: it calls the tool, then answers. To use a real chat model, replace only the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

try:
    from langchain.agents import create_agent

    from spanscore import OnlineScorer
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e '.[demo]'") from None
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import tool
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanscore.metrics import AspectCritic, Faithfulness

SHELF = [Document(id="tower", page_content="The lighthouse tower is 62 metres high and was built in 1884.")]


@tool(response_format="content_and_artifact")
def look_up(subject: str) -> tuple[str, list[Document]]:
    """Look a subject up in the town's books."""
    return "\n".join(document.page_content for document in SHELF), SHELF


class ScriptedModel(BaseChatModel):
    """A scripted model: it looks the subject up, then answers with the tool's result."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """Accept the tools; this model calls only one."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage(content=str(messages[-1].content))
        else:
            call = {"name": "look_up", "args": {"subject": "lighthouse"}, "id": "call-1"}
            said = AIMessage(content="", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


def scores_on(span: ReadableSpan) -> dict[str, float]:
    """Return metric → score."""
    found = (span.attributes or {}).items()
    return {k.removeprefix("spanscore.score."): v for k, v in found if "spanscore.score." in k and isinstance(v, float)}


def main() -> None:
    """Ask, score, print the spans and the trace id."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    agent = create_agent(ScriptedModel(), [look_up], name="guide")
    question: Any = {"messages": [{"role": "user", "content": "How high is the lighthouse tower?"}]}
    polite = AspectCritic("lexical", name="polite", definition="Is the assistant polite throughout?")

    with OnlineScorer([Faithfulness("lexical"), polite], tracer_provider=provider) as scorer:
        run_id = uuid4()  # yours to choose, so that the trace of a run can be found
        config: RunnableConfig = {
            "callbacks": [scorer.handler],
            "configurable": {"thread_id": "t-1"},
            "run_id": run_id,
        }
        result = agent.invoke(question, config=config)
        scorer.flush(timeout=10)
        print(result["messages"][-1].content)
        for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0):
            print(f"{'  ' if span.parent else ''}{span.name:28} {scores_on(span) or ''}")
        print(f"trace {scorer.trace_id(run_id)}: spanscore.score.* stand on its invoke_agent span, the root.")
    print("In Jaeger, search the tag gen_ai.conversation.id=t-1; in Tempo { span.spanscore.score.faithfulness < 0.5 }.")


if __name__ == "__main__":
    main()
