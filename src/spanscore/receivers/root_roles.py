"""The role of a span at the top of its unit, by its attributes as they came.

One table for spans of this process and for spans on the wire, of which only the bytes are searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from spanscore import semconv
from spanscore.units.roots import RootRole, role_of_operation

__all__ = ["LOGFIRE", "root_role"]

_ROLES: Final[Sequence[tuple[str, Mapping[object, RootRole]]]] = (
    (
        semconv.OPENINFERENCE_KIND,
        {
            **dict.fromkeys(("EMBEDDING", "RERANKER", "EVALUATOR", "GUARDRAIL"), RootRole.NEVER),
            **dict.fromkeys(("RETRIEVER", "TOOL"), RootRole.STEP),
        },
    ),
    (semconv.REQUEST_TYPE, dict.fromkeys(("embedding", "rerank"), RootRole.NEVER)),
    (
        semconv.LANGSMITH_KIND,
        {"embedding": RootRole.NEVER, **dict.fromkeys(("tool", "retriever"), RootRole.STEP)},
    ),
    (
        "ai.operationId",
        {
            **dict.fromkeys(("ai.embed", "ai.embed.doEmbed", "ai.embedMany", "ai.embedMany.doEmbed"), RootRole.NEVER),
            **dict.fromkeys(("ai.rerank", "ai.rerank.doRerank"), RootRole.NEVER),
            "ai.toolCall": RootRole.STEP,
        },
    ),
    (
        "langfuse.observation.type",
        {
            **dict.fromkeys(("embedding", "evaluator", "guardrail"), RootRole.NEVER),
            **dict.fromkeys(("tool", "retriever"), RootRole.STEP),
        },
    ),
    (
        "mlflow.spanType",
        {
            **dict.fromkeys(('"EMBEDDING"', '"EVALUATOR"', '"RERANKER"'), RootRole.NEVER),
            **dict.fromkeys(('"TOOL"', '"RETRIEVER"'), RootRole.STEP),
        },
    ),
    (semconv.TRACELOOP_KIND, {"tool": RootRole.STEP}),
)
"""Attribute that names a kind of span → its values that are no ROOT."""
_CONTENT: Final = (
    *(
        semconv.INPUT_MESSAGES,
        semconv.OUTPUT_MESSAGES,
        semconv.PROMPT,
        semconv.COMPLETION,
        f"{semconv.PROMPT}.0.content",
    ),
    *(semconv.INPUT_VALUE, semconv.OUTPUT_VALUE, semconv.TRACELOOP_INPUT, semconv.TRACELOOP_OUTPUT, "request_data"),
    *("pydantic_ai.all_messages", "all_messages_events", "langfuse.observation.input", "langfuse.observation.output"),
    *("mlflow.spanInputs", "mlflow.spanOutputs", "gcp.vertex.agent.llm_request"),
)
"""Attributes that hold a question or an answer: a span with one of them, and no attribute that names its kind, is a ROOT."""


_OF_KIND: Final[Mapping[object, RootRole]] = {**dict.fromkeys(("CHAIN", "LLM", "AGENT"), RootRole.ROOT), **_ROLES[0][1]}
"""Kind of OpenInference → role, for most of its spans."""
LOGFIRE: Final = "logfire"
"""Beginning of the scopes of Logfire's spans."""
_REQUEST: Final = "request_data"
_ANSWERED: Final = ("response_data", semconv.OUTPUT_MESSAGES, semconv.RESPONSE_ID, semconv.RESPONSE_FINISH_REASONS)


class AttributeLookup(Protocol):
    """Attributes of a span as they came: a mapping, or the bytes that they are in."""

    def get(self, name: str, /) -> object:
        """Return the value of an attribute; None = there is none, or it is no short text."""

    def __contains__(self, name: str, /) -> bool:
        """Whether there is such an attribute."""


def root_role(attributes: AttributeLookup, scope: str) -> RootRole:
    """Return the role of a claimed span of an instrumentation scope if no claimed span is above it."""
    operation = attributes.get(semconv.OPERATION_NAME)
    if operation is None and (known := _OF_KIND.get(attributes.get(semconv.OPENINFERENCE_KIND))) is not None:
        return known
    role = role_of_operation(operation)
    if role in (RootRole.NEVER, RootRole.STEP):
        return role
    if scope.startswith(LOGFIRE) and _is_streamed(attributes):
        return RootRole.NEVER
    for name, roles in _ROLES:
        kind = attributes.get(name)
        if kind is not None:
            return roles.get(kind, RootRole.ROOT)
        if role is RootRole.ROOT:  # besides an operation only OpenInference's kind counts
            return role
    return RootRole.ROOT if any(name in attributes for name in _CONTENT) else RootRole.UNNAMED


def _is_streamed(attributes: AttributeLookup) -> bool:
    """Whether a span is that of a request whose answer is streamed: Logfire has both on a span of its own."""
    return _REQUEST in attributes and not any(name in attributes for name in _ANSWERED)
