"""Gives the spans of Spring AI (1.x, 2.x) GenAI names, which the GenAI normalizer reads.

Models have GenAI names already. Clients, advisors, tools and vector stores have a kind, and other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spanscore import semconv
from spanscore.samples.normalizers.building import AttributeLookup

KIND: Final = "spring.ai.kind"
FRAMEWORK: Final = "framework"
"""Operation of clients and advisors, and in 1.x also of tools."""
_OPERATIONS: Final[Mapping[str, str]] = {
    "chat_client": semconv.INVOKE_WORKFLOW,
    "tool_call": semconv.EXECUTE_TOOL,
}
"""Kind → operation. A vector store is a retriever if it is queried; any other span with a kind is not read."""
_NOT_READ: Final = semconv.EMBEDDINGS
QUERY: Final = "db.vector.query.content"
_NAMES: Final[Mapping[str, str]] = {
    "spring.ai.chat.client.conversation.id": semconv.CONVERSATION_ID,
    "spring.ai.tool.definition.name": semconv.TOOL_NAME,
    "spring.ai.tool.call.id": semconv.TOOL_CALL_ID,
    "spring.ai.tool.call.arguments": semconv.TOOL_CALL_ARGUMENTS,
    "spring.ai.tool.call.result": semconv.TOOL_CALL_RESULT,
    QUERY: semconv.RETRIEVAL_QUERY,
}


def operation_of(attributes: AttributeLookup) -> str | None:
    """Return the operation of a span with a kind of Spring AI; None for every other span."""
    kind = attributes.get(KIND)
    if kind is None:
        return None
    return semconv.RETRIEVAL if QUERY in attributes else _OPERATIONS.get(str(kind), _NOT_READ)


def in_conventional_names(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the raw attributes of a span under GenAI names; unchanged without a kind of Spring AI."""
    operation = operation_of(raw)
    if operation is None:
        return raw
    return {_NAMES.get(name, name): value for name, value in raw.items()} | {semconv.OPERATION_NAME: operation}
