"""Prompts with more in them than the question: examples, languages, a history, and several inputs."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate, MessagesPlaceholder
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, calls, sample, says
from tests.applications.calling import called

# --- LangChain, "How to use few shot examples in chat models" -------------------------------------------------------
# The examples belong to the prompt, not to the conversation.

EXAMPLES = [{"input": "I hate you, die!", "output": "toxic"}, {"input": "What a nice day.", "output": "fine"}]
COMMENT = "Thank you for your help."


def few_shot_examples() -> Any:
    one = ChatPromptTemplate.from_messages([("human", "{input}"), ("ai", "{output}")])
    return FewShotChatMessagePromptTemplate(example_prompt=one, examples=EXAMPLES)


def classifier(*history: Any) -> Any:
    messages = [("system", "Is the comment toxic?"), few_shot_examples(), *history, ("human", "{input}")]
    return ChatPromptTemplate.from_messages(messages) | says("fine") | StrOutputParser()


@pytest.mark.parametrize("given", [{"input": COMMENT}, COMMENT])
def test_examples_are_no_turns_of_the_user(given: Any) -> None:
    seen = asked(classifier(), given)

    assert seen.single_turn == sample(COMMENT, "fine")
    assert seen.multi_turn is None


def test_beside_examples_the_turns_before_are_still_the_users() -> None:
    history = [HumanMessage("Good morning."), AIMessage("fine")]

    seen = asked(classifier(MessagesPlaceholder("history")), {"input": COMMENT, "history": history})

    assert seen.single_turn == sample(COMMENT, "fine")
    assert seen.conversation == f"Human: Good morning.\nAI: fine\nHuman: {COMMENT}\nAI: fine"


# --- A prompt with user data: name and tone are in the system part, the user's message is the human part ------------

GIVEN = {"customer_name": "Ann", "tone": "kind", "message": "Where is my parcel?"}
PERSONAL_ANSWER = "Dear Ann, it is on its way."


class PersonalState(TypedDict, total=False):
    customer_name: str
    tone: str
    message: str
    reply: str


def personal_chain() -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You speak with {customer_name}. Be {tone}."), ("human", "{message}")]
    )
    return prompt | says(PERSONAL_ANSWER) | StrOutputParser()


def graph() -> Any:
    llm = says(PERSONAL_ANSWER)

    def answer(state: PersonalState) -> dict[str, Any]:
        system = SystemMessage(f"You speak with {state['customer_name']}. Be {state['tone']}.")
        return {"reply": llm.invoke([system, HumanMessage(state["message"])]).content}

    builder = StateGraph(PersonalState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile()


def test_what_the_human_says_in_the_prompt_is_the_question() -> None:
    assert asked(personal_chain(), GIVEN) == Judged(
        single_turn=sample("Where is my parcel?", PERSONAL_ANSWER), source="matched"
    )


def test_so_it_is_in_a_graph() -> None:
    assert asked(graph(), GIVEN) == Judged(single_turn=sample("Where is my parcel?", PERSONAL_ANSWER), source="matched")


# --- LangChain, "Few-shot prompting with tool calling": the examples call tools, and their results are in the prompt

TOOL_QUESTION = "What is 119 times 8 minus 20?"
TOOL_ANSWER = "It is 932."


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


def tool_examples() -> list[Any]:
    return [
        HumanMessage("What's the product of 317253 and 128472?", name="example_user"),
        calls("multiply", "e1", a=317253, b=128472),
        ToolMessage("40758127416", tool_call_id="e1"),
        AIMessage("The product is 40758127416.", name="example_assistant"),
    ]


def chain_with_examples(model: Any) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Use tools for math."), *tool_examples(), ("human", "{query}")]
    )
    return prompt | model


def test_the_calls_of_examples_were_never_made() -> None:
    seen = asked(chain_with_examples(says(TOOL_ANSWER)), {"query": TOOL_QUESTION})

    assert seen.single_turn == sample(TOOL_QUESTION, TOOL_ANSWER)
    assert seen.multi_turn is None


def test_beside_examples_only_the_call_that_was_made_is_seen() -> None:
    model = says(calls("multiply", "m1", a=119, b=8)).bind_tools([multiply])
    app = (
        chain_with_examples(model) | (lambda message: multiply.invoke(message.tool_calls[0])) | (lambda _: TOOL_ANSWER)
    )

    seen = asked(app, {"query": TOOL_QUESTION})

    assert seen.single_turn == sample(TOOL_QUESTION, TOOL_ANSWER)
    assert called(seen.multi_turn) == [("multiply", {"a": 119, "b": 8})]


# --- LangChain, "Build a simple LLM application with chat models and prompt templates" ------------------------------
# A text and the language it shall have.


def translator(said: str) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Translate the following from English into {language}"), ("user", "{text}")]
    )
    return prompt | says(said) | StrOutputParser()


def test_what_the_user_says_in_the_prompt_is_the_question_and_not_the_language() -> None:
    assert asked(translator("ciao!"), {"language": "Italian", "text": "hi!"}) == Judged(
        single_turn=sample("hi!", "ciao!"), source="matched"
    )


def test_a_known_key_beside_two_languages_is_the_question() -> None:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You translate {input_language} to {output_language}."), ("human", "{input}")]
    )
    given = {"input_language": "English", "output_language": "German", "input": "I love programming."}

    assert asked(prompt | says("Ich liebe Programmieren."), given) == Judged(
        single_turn=sample("I love programming.", "Ich liebe Programmieren."), source="keys"
    )


# --- A support desk for every language: the question is translated, answered, and the answer translated back --------

SUPPORT_QUESTION = "Wann öffnet das Büro?"
SUPPORT_ANSWER = "Um neun Uhr."


class SupportState(TypedDict):
    customer_message: str
    in_english: str
    answered: str
    reply: str


def support(output_schema: type) -> Any:
    llm = says("When does the office open?", "At nine.", SUPPORT_ANSWER)

    def ask(key: str, prompt: str, of: str) -> Any:
        return lambda state: {key: llm.invoke(f"{prompt}: {state[of]}").content}

    builder = StateGraph(SupportState, output_schema=output_schema).add_sequence(
        [
            ("translate", ask("in_english", "Translate into English", "customer_message")),
            ("answer", ask("answered", "Answer", "in_english")),
            ("translate_back", ask("reply", "Translate into German", "answered")),
        ]
    )
    builder.add_edge(START, "translate")
    return builder.compile()


class Reply(TypedDict):
    reply: str


def test_the_one_text_that_is_let_out_is_the_answer() -> None:
    assert asked(support(Reply), {"customer_message": SUPPORT_QUESTION}) == Judged(
        single_turn=sample(SUPPORT_QUESTION, SUPPORT_ANSWER), source="only_text"
    )


def test_where_the_whole_state_is_let_out_all_that_was_said_is_given() -> None:
    assert asked(support(SupportState), {"customer_message": SUPPORT_QUESTION}) == Judged(
        single_turn=sample(
            SUPPORT_QUESTION, '{"in_english":"When does the office open?","answered":"At nine.","reply":"Um neun Uhr."}'
        ),
        source="object",
    )


# --- A prompt with a placeholder for the turns before ---------------------------------------------------------------
# The caller gives them with each request, under a key of its choice.

TRANSLATE = "Translate 'I love programming' to French."
TRANSLATED = "J'adore la programmation."
HISTORY_QUESTION = "What did you just say?"
HISTORY_ANSWER = "I said 'J'adore la programmation.'"
HISTORIES: list[list[Any]] = [
    [HumanMessage(TRANSLATE), AIMessage(TRANSLATED)],
    [("human", TRANSLATE), ("ai", TRANSLATED)],
    [{"role": "user", "content": TRANSLATE}, {"role": "assistant", "content": TRANSLATED}],
]


@pytest.mark.parametrize("history", HISTORIES, ids=["messages", "tuples", "dicts"])
@pytest.mark.parametrize("key", ["chat_history", "history", "messages_so_far"])
def test_the_turns_that_the_caller_gives_are_the_users(key: str, history: list[Any]) -> None:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be helpful."), MessagesPlaceholder(key), ("human", "{question}")]
    )
    app = prompt | says(HISTORY_ANSWER) | StrOutputParser()

    seen = asked(app, {key: history, "question": HISTORY_QUESTION})

    assert seen.single_turn == sample(HISTORY_QUESTION, HISTORY_ANSWER)
    assert seen.conversation == f"Human: {TRANSLATE}\nAI: {TRANSLATED}\nHuman: {HISTORY_QUESTION}\nAI: {HISTORY_ANSWER}"


# --- A prompt, a model, a parser: the user's words come under whatever key the prompt's variable has ----------------

KEYS_QUESTION = "How high is the tower?"
KEYS_ANSWER = "62 metres."
KEYS = [
    *("question", "query", "input", "user_input"),
    *("user_question", "prompt", "text", "message", "topic", "q", "user_query", "request", "frage"),
]


def keys_chain(key: str) -> Any:
    prompt = ChatPromptTemplate.from_template(f"You are a guide of the city. Answer this: {{{key}}}")
    return prompt | says(KEYS_ANSWER)


@pytest.mark.parametrize("key", KEYS)
def test_the_value_is_the_question_and_not_the_rendered_prompt(key: str) -> None:
    assert asked(keys_chain(key) | StrOutputParser(), {key: KEYS_QUESTION}) == Judged(
        single_turn=sample(KEYS_QUESTION, KEYS_ANSWER), source="only_text"
    )


@pytest.mark.parametrize("key", ["user_input", "topic"])
def test_it_is_where_the_models_message_is_the_answer(key: str) -> None:
    assert asked(keys_chain(key), {key: KEYS_QUESTION}) == Judged(
        single_turn=sample(KEYS_QUESTION, KEYS_ANSWER), source="keys" if key == "user_input" else "only_text"
    )
