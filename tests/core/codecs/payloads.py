"""JSON-like payloads for property tests, with the things that break readers: lone surrogates, NaN, odd keys, markers."""

from __future__ import annotations

from hypothesis import strategies as st

WORDS = st.sampled_from(
    [
        *("role", "parts", "content", "type", "text", "tool_call", "tool_call_response", "id", "name", "arguments"),
        *("user", "human", "assistant", "ai", "tool", "system", "messages", "question", "input", "answer", "output"),
        *("context", "documents", "docs", "page_content", "Command", "resume", "response", "result", "__interrupt__"),
    ]
)
TEXTS = WORDS | st.text(st.characters(), max_size=8)  # lone surrogates included
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS


def payloads(max_leaves: int = 12) -> st.SearchStrategy[object]:
    """Any nesting of lists, dicts and scalars."""
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=max_leaves,
    )


PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_call", "tool_call_response", "reasoning", "blob"]) | SCALARS},
    optional={
        "content": SCALARS,
        "id": SCALARS,
        "name": SCALARS,
        "arguments": payloads(4),
        "response": payloads(4),
        "result": payloads(4),
    },
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "critic"])},
    optional={"parts": st.lists(PARTS | SCALARS, max_size=3) | SCALARS, "content": payloads(4), "name": SCALARS},
)
"""Almost GenAI messages: the right keys with any values."""
