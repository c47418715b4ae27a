"""LangChain, "Build a question answering application over a SQL database": write a query, execute it, answer."""

from __future__ import annotations

import sqlite3
from operator import itemgetter
from typing import Any, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langgraph.graph import START, StateGraph
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, sample, says

QUESTION = "How many employees are there?"
SQL = "SELECT COUNT(*) FROM employees"
ANSWER = "There are 2 employees."


class State(TypedDict):
    question: str
    query: str
    result: str
    answer: str


class QueryOutput(BaseModel):
    query: str


def execute(query: str) -> str:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE employees AS SELECT 'Ann' AS name UNION SELECT 'Bob'")
        return str(database.execute(query).fetchall())


def graph() -> Any:
    llm = says(calls("QueryOutput", query=SQL), ANSWER)

    def write_query(state: State) -> dict[str, Any]:
        return {
            "query": llm.with_structured_output(QueryOutput).invoke(f"Write SQL. Question: {state['question']}").query
        }

    def generate_answer(state: State) -> dict[str, Any]:
        prompt = f"Question: {state['question']}\nSQL Query: {state['query']}\nSQL Result: {state['result']}"
        return {"answer": llm.invoke(prompt).content}

    builder = StateGraph(State).add_sequence(
        [write_query, ("execute_query", lambda state: {"result": execute(state["query"])}), generate_answer]
    )
    builder.add_edge(START, "write_query")
    return builder.compile()


def chain() -> Any:
    llm = says(SQL, ANSWER)
    write_query = PromptTemplate.from_template("Write SQL. Question: {question}") | llm | StrOutputParser()
    answer = PromptTemplate.from_template("Question: {question}\nSQL: {query}\nResult: {result}") | llm
    return (
        RunnablePassthrough.assign(query=write_query).assign(result=itemgetter("query") | RunnableLambda(execute))
        | answer
        | StrOutputParser()
    )


def test_the_graphs_answer_is_no_query_and_no_result() -> None:
    assert asked(graph(), {"question": QUESTION}) == Judged(single_turn=sample(QUESTION, ANSWER), source="keys")


def test_the_chains_question_is_not_the_prompt_that_asks_for_a_query() -> None:
    assert asked(chain(), {"question": QUESTION}) == Judged(single_turn=sample(QUESTION, ANSWER), source="only_text")
