"""Messages of words alone take a short way; they come out as on the long one."""

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from spanscore.core.codecs import langchain as render
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
