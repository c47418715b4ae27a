"""A scored chat: each answer by itself, each conversation once after its end, and a user's rating. No key, no server.

    pip install -e . && python examples/conversations.py

The model is scripted. To use a real chat model, replace the model and "lexical".
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

try:
    from langchain_core.language_models import BaseChatModel

    import spanscore
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e .") from None
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableConfig
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanscore.config import Sessions
from spanscore.metrics import AspectCritic

TALKS = {
    "order-4711": ["Where is my parcel?", "It is still not here.", "Thanks, there it is!"],
    "order-4712": ["How do I send it back?", "That does not help."],
}
SAYS = {
    "parcel": "It left on Monday and is with the carrier.",
    "still": "The carrier has it on the van for today.",
    "back": "See the page on returns.",
}


class ScriptedModel(BaseChatModel):
    """A scripted model: the answer depends on a word of the last message."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        asked = str(messages[-1].content)
        said = next((answer for word, answer in SAYS.items() if word in asked), "You are welcome.")
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=said))])


@spanscore.metric(requires={"multi_turn": ["user_input"]})
def settled(sample: spanscore.MultiTurnSample) -> bool:
    """Return whether the user ends with thanks, which needs the whole conversation."""
    last = [message for message in sample.user_input if message.type == "human"][-1]
    return "thanks" in str(last.content).lower()


def talk(chain: Runnable[Any, Any], questions: list[str], config: RunnableConfig) -> Any:
    """Have one conversation; return the id of its last run."""
    history: list[BaseMessage] = []
    for question in questions:
        run_id = uuid4()  # yours to choose, so that the unit of an answer can be found
        answer = chain.invoke({"history": history, "question": question}, config={**config, "run_id": run_id})
        history += [HumanMessage(question), answer]
    return run_id


def line(span: ReadableSpan) -> str:
    """Return the score of an evaluation span as a line."""
    held: dict[str, Any] = dict(span.attributes or {})
    ended = held.get("spanscore.session.end")
    of = f"{held['spanscore.session.turns']} turns, ended: {ended}" if ended else "one unit"
    label = held.get("gen_ai.evaluation.score.label")
    return f"{span.name:26} {held.get('gen_ai.evaluation.score.value')!s:5} {label!s:5} {of}"


def main() -> None:
    """Talk, end the conversations, send a rating, print the scores."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{question}")])
    chain = prompt | ScriptedModel()
    polite = AspectCritic("lexical", name="polite", definition="Is the response polite?")

    with spanscore.OnlineScorer([polite], sessions=Sessions(metrics=[settled]), tracer_provider=provider) as scorer:
        for conversation, questions in TALKS.items():
            with spanscore.session(conversation):
                last = talk(chain, questions, {"callbacks": [scorer.handler]})
            scorer.end_session(conversation)  # or five minutes without a turn
        unit = scorer.unit_id(last)  # for the page that shows the answer; days later both ids are enough
        if unit is not None:
            scorer.feedback(unit.trace_id, False, span_id=unit.span_id, comment="No help at all.")
        scorer.flush(timeout=10)
        for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0):
            if span.name.startswith("evaluation "):
                print(line(span))
        print(scorer.status())
    print("In Jaeger, search the tag gen_ai.conversation.id=order-4711; `spanscore report` shows it turn by turn.")


if __name__ == "__main__":
    main()
