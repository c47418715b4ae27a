"""langchain-classic, `AgentExecutor`: the agent of before LangGraph, with tools called by messages or written in its text."""

from __future__ import annotations

from typing import Any

from langchain_classic.agents import AgentExecutor, create_react_agent, create_tool_calling_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.tools import tool
from tests.applications.application import asked, calls, sample, says

QUESTION = "What is the value of magic_function(3)?"
ANSWER = "magic_function(3) is 5."
REACT = """Answer with these tools: {tools}

Use this format:
Question: the input question
Thought: what to do
Action: one of [{tool_names}]
Action Input: its input
Observation: its result
Thought: I now know the final answer
Final Answer: the answer

Question: {input}
Thought:{agent_scratchpad}"""


@tool
def magic_function(number: int) -> int:
    """Apply a magic function to a number."""
    return int(number) + 2


def tool_calling_executor() -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [
            ("system", "You are a helpful assistant."),
            ("placeholder", "{chat_history}"),
            ("human", "{input}"),
            ("placeholder", "{agent_scratchpad}"),
        ]
    )
    agent = create_tool_calling_agent(says(calls("magic_function", number=3), ANSWER), [magic_function], prompt)
    return AgentExecutor(agent=agent, tools=[magic_function], stream_runnable=False)


def test_an_executors_call_is_part_of_the_turn() -> None:
    seen = asked(tool_calling_executor(), {"input": QUESTION})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation == (
        f"Human: {QUESTION}\nTools:\n  magic_function: {{'number': 3}}\nToolOutput: 5\nAI: {ANSWER}"
    )


def test_the_turns_before_stand_before_it() -> None:
    history = [HumanMessage("My name is Bob."), AIMessage("Hello Bob!")]

    seen = asked(tool_calling_executor(), {"input": QUESTION, "chat_history": history})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation == (
        "Human: My name is Bob.\nAI: Hello Bob!\n"
        f"Human: {QUESTION}\nTools:\n  magic_function: {{'number': 3}}\nToolOutput: 5\nAI: {ANSWER}"
    )


def test_a_call_that_stands_in_the_models_text_is_one() -> None:
    model = says(
        "I need the function.\nAction: magic_function\nAction Input: 3",
        f"I now know the final answer\nFinal Answer: {ANSWER}",
    )
    agent = create_react_agent(model, [magic_function], PromptTemplate.from_template(REACT))

    seen = asked(AgentExecutor(agent=agent, tools=[magic_function], stream_runnable=False), {"input": QUESTION})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation is not None
    assert seen.conversation.startswith(f"Human: {QUESTION}\nTools:\n  magic_function: ")
    assert seen.conversation.endswith(f"ToolOutput: 5\nAI: {ANSWER}")
