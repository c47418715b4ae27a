"""Messages of a conversation: their speaker, messages made by a middleware, and the short way of messages of words alone."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from spanscore.core.codecs import langchain as render
from spanscore.core.codecs.messages import SYSTEM, TOOL, USER, sample_messages, text_message
from spanscore.core.codecs.snapshot import snapshot
from spanscore.core.codecs.text import MAX_CHARS

CALL = {"name": "search", "args": {"q": "x"}, "id": "1", "type": "tool_call"}
MESSAGES = [
    HumanMessage("What is the élan vital?"),
    HumanMessage("half of \ud83d it"),
    HumanMessage("hello", name="bob"),
    HumanMessage("x" * (MAX_CHARS + 1)),
    HumanMessage(""),
    HumanMessage([{"type": "text", "text": "blocks"}]),
    SystemMessage("Be brief."),
    AIMessage("Bergson's."),
    AIMessage("Let me see.", tool_calls=[CALL]),
    AIMessageChunk("a chunk"),
    ChatMessage("in a role", role="critic"),
    ToolMessage("found", tool_call_id="1"),
]


@pytest.mark.parametrize(
    "message", MESSAGES, ids=lambda message: f"{type(message).__name__}-{str(message.content)[:12]!a}"
)
def test_the_short_way_ends_where_the_long_one_does(message, monkeypatch):
    taken = snapshot([message])

    short = render.render_messages(taken)
    monkeypatch.setattr(render, "ROLES", {})

    assert short == render.render_messages(taken)
    assert len(short) == 1


@pytest.mark.parametrize(("role", "said"), [(USER, []), (SYSTEM, []), (TOOL, ["Never delete."])])
def test_what_a_middleware_made_is_said_by_nobody_but_answers_a_call(role: str, said: list[str]) -> None:
    message = {**text_message(role, "Never delete."), "lc_source": "hitl_interrupt_decision"}

    assert [one.content for one in sample_messages([message])] == said
