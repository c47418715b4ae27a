"""langgraph-swarm: two agents hand the conversation over to each other; the active one answers the next turn, too."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_swarm import create_handoff_tool, create_swarm
from tests.applications.application import calls, judged, sample, says
from tests.applications.calling import called_by

TO_BOB, HELLO = "I'd like to speak to Bob.", "Ahoy! Bob here."
SUM, RESULT = "What's 5 + 7?", "Let me get Alice to add. 5 + 7 is 12."


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def swarm() -> Any:
    alice_says = says(calls("transfer_to_bob", "a1"), calls("add", "a2", a=5, b=7), RESULT)
    alice = create_agent(alice_says, tools=[add, create_handoff_tool(agent_name="bob")], name="alice")
    bob_says = says(HELLO, calls("transfer_to_alice", "b1"))
    bob = create_agent(bob_says, tools=[create_handoff_tool(agent_name="alice")], name="bob")
    return create_swarm([alice, bob], default_active_agent="alice").compile(checkpointer=InMemorySaver())


def test_a_conversation_goes_on_with_whoever_is_active() -> None:
    app = swarm()

    def two_turns(config: RunnableConfig) -> None:
        app.invoke({"messages": [{"role": "user", "content": TO_BOB}]}, config)
        app.invoke({"messages": [{"role": "user", "content": SUM}]}, config)

    first, second = judged(two_turns)

    assert (first.single_turn, second.single_turn) == (sample(TO_BOB, HELLO), sample(SUM, RESULT))
    assert second.conversation == (
        f"Human: {TO_BOB}\nTools:\n  transfer_to_bob: {{}}\nToolOutput: Successfully transferred to bob\nAI: {HELLO}\n"
        f"Human: {SUM}\nTools:\n  transfer_to_alice: {{}}\nToolOutput: Successfully transferred to alice\n"
        f"Tools:\n  add: {{'a': 5, 'b': 7}}\nToolOutput: 12\nAI: {RESULT}"
    )
    assert called_by(second.multi_turn) == [
        ("alice", "transfer_to_bob"),
        ("bob", "transfer_to_alice"),
        ("alice", "add"),
    ]
