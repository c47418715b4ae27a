"""LangGraph's functional API: ``@entrypoint`` and ``@task`` in place of a graph."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from tests.applications.application import Judged, asked, judged_once, replies, sample, says

ESSAY = "An essay about cats."


def essay_workflow() -> Any:
    llm = says(ESSAY, "9 of 10, well written.")

    @task
    def write_essay(topic: str) -> str:
        return llm.invoke(f"Write an essay about topic: {topic}").content

    @task
    def grade_essay(essay: str) -> str:
        return llm.invoke(f"Grade this essay: {essay}").content

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(topic: str) -> dict[str, Any]:
        essay = write_essay(topic).result()
        return {"essay": essay, "passed": grade_essay(essay).result().startswith("9")}

    return workflow


def parallel_workflow() -> Any:
    llm = replies({"joke": "Cats laugh.", "poem": "O cat, o hat."})

    @task
    async def call_llm(prompt: str) -> str:
        return (await llm.ainvoke(prompt)).content

    @entrypoint()
    async def workflow(topic: str) -> str:
        joke, poem = await asyncio.gather(call_llm(f"A joke about {topic}"), call_llm(f"A poem about {topic}"))
        return f"JOKE: {joke} POEM: {poem}"

    return workflow


def test_a_text_is_the_question_and_the_only_text_of_what_is_returned_the_answer() -> None:
    seen = judged_once(lambda config: essay_workflow().invoke("cat", config))

    assert seen == Judged(single_turn=sample("cat", ESSAY), source="only_text")


def test_what_is_put_together_of_parallel_tasks_is_the_answer() -> None:
    seen = judged_once(lambda config: asyncio.run(parallel_workflow().ainvoke("cats", config)))

    assert seen == Judged(single_turn=sample("cats", "JOKE: Cats laugh. POEM: O cat, o hat."), source="only_text")


def test_an_entrypoint_of_several_inputs_is_asked_under_the_key_its_prompt_holds() -> None:
    llm = says("Cats laugh.")

    @entrypoint()
    def workflow(given: dict[str, Any]) -> str:
        return llm.invoke(f"Tell a joke about {given['subject']}").content

    assert asked(workflow, {"subject": "cats", "requested_by": "ann@example.org"}) == Judged(
        single_turn=sample("cats", "Cats laugh."), source="matched"
    )
