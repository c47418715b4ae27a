"""The role of a span at the top of its unit, by its attributes as they came.

One table for spans of this process and for spans on the wire, of which only the bytes are searched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from spanscore import semconv
from spanscore.pipeline.assembly import RootRole, role_of_operation
from spanscore.samples.normalizers import genai, langfuse, logfire, mlflow, openinference, vercel_ai
from spanscore.samples.normalizers.building import AttributeLookup

__all__ = ["LOGFIRE", "root_role"]


def _roles(operations: Mapping[str, str]) -> Mapping[object, RootRole]:
    return {kind: role_of_operation(operation) for kind, operation in operations.items()}


_VERCEL: Final = (
    "ai.embed",
    "ai.embed.doEmbed",
    "ai.embedMany",
    "ai.embedMany.doEmbed",
    "ai.rerank",
    "ai.rerank.doRerank",
)
_ROLES: Final[Sequence[tuple[str, Mapping[object, RootRole]]]] = (
    (semconv.OPENINFERENCE_KIND, _roles(openinference.OPERATIONS)),
    (semconv.REQUEST_TYPE, _roles(genai.OPERATION_OF_TYPE)),
    (semconv.LANGSMITH_KIND, _roles(genai.OPERATION_OF_RUN)),
    (vercel_ai.CALL, _roles({name: vercel_ai.operation_of(name) for name in (*_VERCEL, "ai.toolCall")})),
    (langfuse.TYPE, _roles(langfuse.OPERATIONS)),
    (mlflow.TYPE, _roles({json.dumps(kind): operation for kind, operation in mlflow.OPERATIONS.items()})),
    (semconv.TRACELOOP_KIND, {"tool": RootRole.STEP}),
)
"""Attribute that names a kind of span → role by its value; a value that is not listed is a ROOT."""
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


_OF_KIND: Final[Mapping[object, RootRole]] = {"CHAIN": RootRole.ROOT, **_ROLES[0][1]}
"""Kind of OpenInference → role, for most of its spans."""
LOGFIRE: Final = "logfire"
"""Beginning of the scopes of Logfire's spans."""


def root_role(attributes: AttributeLookup, scope: str) -> RootRole:
    """Return the role of a claimed span of an instrumentation scope if no claimed span is above it."""
    operation = attributes.get(semconv.OPERATION_NAME)
    if operation is None and (role_of_kind := _OF_KIND.get(attributes.get(semconv.OPENINFERENCE_KIND))) is not None:
        return role_of_kind
    role = role_of_operation(operation)
    if role in (RootRole.NEVER, RootRole.STEP):
        return role
    if scope.startswith(LOGFIRE) and scope != logfire.AGENTS and logfire.is_streamed(attributes):
        return RootRole.NEVER
    for name, roles in _ROLES:
        kind = attributes.get(name)
        if kind is not None:
            return roles.get(kind, RootRole.ROOT)
        if role is RootRole.ROOT:  # besides an operation only OpenInference's kind counts
            return role
    return RootRole.ROOT if any(name in attributes for name in _CONTENT) else RootRole.UNNAMED
