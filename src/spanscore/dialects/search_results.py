"""Documents that stand in a prompt as blocks of their own: Anthropic's ``search_result``, of a user or in a tool's result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spanscore.core.codecs.messages import USER, joined, role_of
from spanscore.dialects.documents import Retrieved
from spanscore.dialects.view import View, is_human

__all__ = ["search_results"]

_KIND = "search_result"


def search_results(view: View) -> list[list[Retrieved]]:
    """Return the documents in the last prompt's blocks, from its last human message on, as of one retrieval, if it has any."""
    run = view.models[-1] if view.models else None
    found: list[Retrieved] = []
    for message in reversed(run.asked) if run is not None and run.may_hold(_KIND) else ():
        parts = message.get("parts", message.get("content"))
        if type(parts) is list and not (len(parts) == 1 and type(parts[0]) is dict and parts[0].get("type") == "text"):
            found[:0] = _documents(parts)
        if role_of(message["role"]) == USER and is_human(message):
            break
    return [found] if found else []


def _documents(parts: list[Any]) -> Iterator[Retrieved]:
    """Give the documents in the blocks of parts, also of parts that are results of tools."""
    for part in parts:
        kind = part.get("type") if type(part) is dict else None
        if kind == "tool_call_response" and type(part.get("response")) is list:
            yield from _documents(part["response"])
        elif kind == _KIND:
            text, source = joined(part.get("content")), part.get("source")
            if isinstance(text, str) and text:
                yield Retrieved(text, source if isinstance(source, str) and source else None)
