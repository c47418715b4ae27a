"""Spans of Spring AI: clients, advisors, models, tools and vector stores, whose values are texts → samples."""

from __future__ import annotations

from typing import Any

import pytest
from tests.samples.normalizers.spans import ANSWER, QUESTION, content_of, external, samples_of, units_of

from spanscore import semconv
from spanscore.core.codecs.spring_ai import content_in_log
from spanscore.core.sample import AIMessage, HumanMessage, SingleTurnSample, TokenUsage, ToolCall, ToolMessage
from spanscore.core.span import SpanData
from spanscore.samples.extraction import usage_of
from spanscore.samples.genai import GenAIExtractor

SCOPE = "org.springframework.boot"
FRAMEWORK = {"gen_ai.operation.name": "framework", "gen_ai.system": "spring_ai"}
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.system": "openai",
    "gen_ai.request.model": "gpt-4o-mini",
    "gen_ai.usage.input_tokens": "11",
    "gen_ai.usage.output_tokens": "7",
}
BOTH = SingleTurnSample(user_input=QUESTION, response=ANSWER)
Record = tuple[str, str]
"""Handler and body of a log record."""


def client(*records: Record, **more: str) -> SpanData:
    attributes = {**FRAMEWORK, "spring.ai.kind": "chat_client", **more}
    return external(attributes, SCOPE, name="spring_ai chat_client", span_id=1, events=events_of(records))


def step(kind: str, attributes: dict[str, str], *records: Record, **fields: Any) -> SpanData:
    events = events_of(records)
    return external({"spring.ai.kind": kind, **attributes}, SCOPE, events=events, **{"parent_id": 1, **fields})


def model(*records: Record, **fields: Any) -> SpanData:
    return external(CHAT, SCOPE, name="chat", events=events_of(records), **{"span_id": 3, "parent_id": 1, **fields})


def events_of(records: tuple[Record, ...]) -> list[Any]:
    """The content of log records, as it is joined to their span."""
    read = [content_in_log(f"org.springframework.ai.chat.observation.{handler}", body) for handler, body in records]
    return [event for event in read if event is not None]


def prompt(*texts: str) -> Record:
    printed = ", ".join(f'"{text}"' for text in texts)
    return "ChatModelPromptContentObservationHandler", f"Chat Model Prompt Content:\n[{printed}]\n"


def completion(text: str, *, of: str = "Model") -> Record:
    return f"Chat{of}CompletionObservationHandler", f'Chat {of} Completion:\n["{text}"]\n'


def asked(text: str, instructions: str = "Be brief.") -> Record:
    printed = f'["user":"{text}", "system":"{instructions}"]'
    return "ChatClientPromptContentObservationHandler", f"Chat Client Prompt Content:\n{printed}\n"


CLIENT = (asked(QUESTION), completion(ANSWER, of="Client"))
MODEL = (prompt("Be brief.", QUESTION), completion(ANSWER))


@pytest.mark.parametrize(("of_client", "of_model"), [(CLIENT, MODEL), ((), MODEL), (CLIENT, ())], ids=str)
def test_question_and_answer_are_read_from_log_records(of_client: Any, of_model: Any) -> None:
    made = samples_of(client(*of_client), model(*of_model))

    assert made.single_turn == BOTH
    assert made.multi_turn is None


@pytest.mark.parametrize("text", ['Translate "cat", "dog" and "fish".', "Two\nlines, and a \\ in them.", "[]"])
def test_a_question_with_quotes_and_lines_is_whole(text: str) -> None:
    made = samples_of(client(asked(text), completion(text, of="Client")), model(prompt("Be brief.", text)))

    assert made.single_turn == SingleTurnSample(user_input=text, response=text)


def test_a_client_has_its_conversation() -> None:
    (unit,) = units_of([client(*CLIENT, **{"spring.ai.chat.client.conversation.id": "conv-7"}), model(*MODEL)])

    assert unit.facts().conversation_id == "conv-7"


def test_numbers_of_tokens_are_read_from_texts() -> None:
    (unit,) = units_of([client(), model()])

    assert usage_of(unit) == TokenUsage(input_tokens=11, output_tokens=7)


@pytest.mark.parametrize("operation", ["execute_tool", "framework"], ids=["2.x", "1.x"])
def test_a_tool_has_its_name_its_arguments_and_its_result(operation: str) -> None:
    attributes = {
        "gen_ai.operation.name": operation,
        "spring.ai.tool.definition.name": "weather",
        "spring.ai.tool.call.id": "call-1",
        "spring.ai.tool.call.arguments": '{"city": "Paris"}',
        "spring.ai.tool.call.result": '"sunny in Paris"',
    }
    tool = step("tool_call", attributes, span_id=2)

    made = samples_of(client(*CLIENT), tool, model(*MODEL))

    assert made.multi_turn is not None
    assert made.multi_turn.user_input == [
        HumanMessage(content=QUESTION),
        AIMessage(tool_calls=[ToolCall(name="weather", args={"city": "Paris"}, id="call-1")]),
        ToolMessage(content="sunny in Paris", tool_call_id="call-1"),
        AIMessage(content=ANSWER),
    ]


def query(*records: Record) -> SpanData:
    attributes = {"db.system": "simple", "db.operation.name": "query", "db.vector.query.content": QUESTION}
    return step("vector_store", attributes, *records, span_id=2)


def test_the_documents_of_a_vector_store_are_contexts_and_the_question_is_the_clients() -> None:
    documents = 'Vector Store Query Response:\n["Paris is the capital.", "It has "two" rivers."]\n'
    augmented = f'{QUESTION}\n\nContext information is below.\n---\nParis is the capital.\nIt has "two" rivers.\n---\n'
    store = query(("VectorStoreQueryResponseObservationHandler", documents))

    made = samples_of(client(*CLIENT), store, model(prompt(augmented), completion(ANSWER)))

    contexts = ["Paris is the capital.", 'It has "two" rivers.']
    assert made.single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=contexts)


def test_documents_that_are_not_in_log_records_are_unknown() -> None:
    made = samples_of(client(*CLIENT), query(), model(*MODEL))

    assert made.single_turn == BOTH


def test_filling_a_vector_store_makes_no_unit() -> None:
    add = step("vector_store", {"db.operation.name": "add"}, span_id=1, parent_id=None)

    assert units_of([add, external({**FRAMEWORK, "gen_ai.operation.name": "embedding"}, SCOPE, parent_id=1)]) == []


def test_an_advisor_is_no_unit_of_its_own() -> None:
    advisor = step("advisor", {**FRAMEWORK, "spring.ai.advisor.name": "stream"}, span_id=2, parent_id=None)

    assert units_of([advisor]) == []
    assert [unit.root and unit.root.name for unit in units_of([advisor, model(parent_id=2)])] == ["chat"]


@pytest.mark.parametrize(
    "written",
    [
        {"gen_ai.prompt": f'["Be brief.", "{QUESTION}"]', "gen_ai.completion": f'["{ANSWER}"]'},
        {"gen_ai.prompt": f'["Say "yes".\nOr no.", "{QUESTION}"]', "gen_ai.completion": f'["{ANSWER}"]'},
        {"gen_ai.prompt": f'["{QUESTION}", "null", ""]', "gen_ai.completion": f'["{ANSWER}"]'},
        {"gen_ai.prompt": ["Be brief.", QUESTION], "gen_ai.completion": [ANSWER]},
    ],
)
def test_printed_texts_on_the_span_of_a_model_are_read(written: dict[str, Any]) -> None:
    made = samples_of(client(), external({**CHAT, **written}, SCOPE, parent_id=1))

    assert made.single_turn == BOTH
    assert made.multi_turn is None


def test_without_content_the_reason_names_the_switches_of_spring() -> None:
    (unit,) = units_of([client(), query(), model()])

    assert str(GenAIExtractor().extract(unit).reason) == "content is not on the spans (genai)"
    hints = [span.no_content.hint for span in unit.spans if span.no_content]
    assert len(hints) == 2
    assert all("log-prompt and log-completion of spring.ai.chat.observations" in hint for hint in hints)


def test_other_records_of_spring_have_no_content() -> None:
    handler = "ChatModelCompletionObservationHandler"
    bodies = ["Chat Model Completion:\n[]", "Chat Model Completion:", "", None, {"a": 1}]

    assert [content_in_log(f"org.springframework.ai.{handler}", body) for body in bodies] == [None] * len(bodies)
    assert content_in_log(f"my.app.{handler}", 'Mine:\n["a"]') is None
    assert content_in_log("org.springframework.ai.vectorstore.SimpleVectorStore", 'Calling:\n["a"]') is None


def test_a_tool_without_content_has_its_name() -> None:
    tool = step("tool_call", {**FRAMEWORK, "spring.ai.tool.definition.name": "weather"})

    assert content_of(tool) == {}
    assert units_of([tool])[0].root.attributes.get(semconv.TOOL_NAME) == "weather"  # type: ignore[union-attr]
