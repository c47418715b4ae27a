"""Decides whether a span is claimed, by its scope (``Role``), and whether it is a root, by its attributes (``RootRole``)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import Final

from spanscore import semconv
from spanscore.core.log import log_once
from spanscore.pipeline.assembly import RootRole, role_of_operation
from spanscore.samples.normalizers import (
    genai,
    genkit,
    langfuse,
    logfire,
    mastra,
    mlflow,
    openinference,
    spring_ai,
    vercel_ai,
)
from spanscore.samples.normalizers.building import AttributeLookup


def _roles(operations: Mapping[str, str]) -> Mapping[object, RootRole]:
    return {kind: role_of_operation(operation) for kind, operation in operations.items()}


_OPENINFERENCE_ROLES: Final[Mapping[object, RootRole]] = _roles(openinference.OPERATIONS)
_VERCEL: Final = (
    *("ai.embed", "ai.embed.doEmbed", "ai.embedMany", "ai.embedMany.doEmbed"),
    *("ai.rerank", "ai.rerank.doRerank", "ai.toolCall"),
)
_ROLES: Final[Sequence[tuple[str, Mapping[object, RootRole]]]] = (
    (semconv.REQUEST_TYPE, _roles(genai.OPERATION_OF_TYPE)),
    (semconv.LANGSMITH_KIND, _roles(genai.OPERATION_OF_RUN)),
    (vercel_ai.CALL, _roles({name: vercel_ai.operation_of(name) for name in _VERCEL})),
    (langfuse.TYPE, _roles(langfuse.OPERATIONS)),
    (mlflow.TYPE, _roles({json.dumps(kind): operation for kind, operation in mlflow.OPERATIONS.items()})),
    (semconv.TRACELOOP_KIND, {"tool": RootRole.STEP}),
    (genkit.SUBTYPE, _roles(genkit.OPERATIONS)),
    (genkit.TYPE, {}),
    (mastra.TYPE, {}),
)
"""Attribute with the kind of a span → role by its value as on the wire (MLflow's is JSON); any other value is a ROOT."""
_CONTENT: Final = (
    *(semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.PROMPT, semconv.COMPLETION),
    f"{semconv.PROMPT}.0.content",
    *(semconv.INPUT_VALUE, semconv.OUTPUT_VALUE, semconv.TRACELOOP_INPUT, semconv.TRACELOOP_OUTPUT, "request_data"),
    *("pydantic_ai.all_messages", "all_messages_events", "langfuse.observation.input", "langfuse.observation.output"),
    *("mlflow.spanInputs", "mlflow.spanOutputs", "gcp.vertex.agent.llm_request"),
)
"""Attributes with a question or an answer. A span with one of them, and without an attribute for its kind, is a ROOT.
The most frequent are first, because each is a search in the bytes of a span."""
LOGFIRE: Final = "logfire"
"""Prefix of the scopes of Logfire's spans."""


def root_role(attributes: AttributeLookup, scope: str) -> RootRole:
    """Return the role of a topmost claimed span. ``attributes`` may be the undecoded bytes of the span."""
    operation = attributes.get(semconv.OPERATION_NAME)
    if operation in (None, spring_ai.FRAMEWORK):
        operation = spring_ai.operation_of(attributes) or operation
    role = role_of_operation(operation)
    if role in (RootRole.NEVER, RootRole.STEP):
        return role
    kind = attributes.get(semconv.OPENINFERENCE_KIND)
    if kind is not None:  # overrides the role ROOT of an operation
        return _OPENINFERENCE_ROLES.get(kind, RootRole.ROOT)
    if scope.startswith(LOGFIRE) and scope != logfire.AGENTS and logfire.is_streamed_request(attributes):
        return RootRole.NEVER  # the answer of a streamed request is on a separate log span, so this span has no answer
    return role if role is RootRole.ROOT else _role_of_kind(attributes, scope)


def _role_of_kind(attributes: AttributeLookup, scope: str) -> RootRole:
    """Return the role of a span without an operation of the conventions."""
    if scope == langfuse.SCOPE and langfuse.is_retrieval(attributes):
        return RootRole.STEP
    for name, roles in _ROLES:
        value = attributes.get(name)
        if value is not None:
            return roles.get(value, RootRole.ROOT)
    return RootRole.ROOT if any(name in attributes for name in _CONTENT) else RootRole.UNNAMED


_MAX_SCOPES: Final = 1_000
"""Maximum number of remembered scopes, because scope names that contain an id would add one per request."""
_VERSION: Final = re.compile(r"\.v\d+$")
"""Suffix of OpenLLMetry's scopes after the library: ``opentelemetry.instrumentation.openai.v1``."""
_LIBRARY_ALIASES: Final = {
    "llamaindex": "llama_index",
    "openai_v2": "openai",
    "openai-agents": "openai_agents",
    "pydantic-ai": "pydantic_ai",
}
"""Last part of a scope → name of the library, if the two differ."""
_LIBRARIES: Final = frozenset(
    {
        *("agno", "autogen", "autogen_agentchat", "beeai", "crewai", "dspy", "google_adk", "haystack", "langchain"),
        *("llama_index", "openai_agents", "pydantic_ai", "smolagents", "strands"),
        *("anthropic", "bedrock", "cohere", "google_genai", "google_generativeai", "groq", "litellm", "mistralai"),
        *("ollama", "openai", "replicate", "together", "transformers", "vertexai", "watsonx"),
    }
)
"""Libraries that several instrumentations trace."""
_GENERAL: Final = ("opentelemetry.instrumentation.", "@opentelemetry/instrumentation-", "io.opentelemetry.")
"""Prefixes of general instrumentations. If no normalizer names such a scope, it traces a web server, a database or the like."""


class Role(Enum):
    """The role of a scope's spans."""

    OURS = auto()
    """A scope in ``Scopes.ours``. Its spans are never claimed."""
    IGNORED = auto()
    """A scope in `units.ignore_scopes`, or a second scope of a library that is read already. Its spans are not claimed."""
    GENERAL = auto()
    """A scope of a general instrumentation, treated like UNKNOWN. An open span of it is not expected to become a root."""
    UNKNOWN = auto()
    """A scope that no normalizer names. Its spans are claimed by their attributes."""
    CLAIMED = auto()
    """A scope that a normalizer names, or that `units.scopes` lists. All its spans are claimed."""


@dataclass(eq=False, repr=False)
class Scopes:
    """The role of each scope. Thread-safe: two threads that race compute the same role.

    If two instrumentations trace one of ``_LIBRARIES``, the scope seen first is read, and the other is ignored. While a handler
    of spanscore records LangChain's runs, LangChain's other scopes are ignored.

    Attributes:
        names_scope: function that returns whether a normalizer names a scope.
        listed: prefixes of further scopes to claim (`units.scopes`).
        ignored: prefixes of scopes that are not claimed (`units.ignore_scopes`).
        records_langchain: function that returns whether a handler of spanscore records LangChain's runs now. It is called once
            for each scope of LangChain, at the scope's first span.
        own_scopes: scopes that are never claimed.
        place: name of the traced process in messages.
        roles: scope → its role, for the scopes that were looked up.
        seen_listed: prefixes of `listed` with which the scope of at least one span began.
        superseded: ignored scope → the scope of the same library that is read instead.
        by_content: unlisted scopes of which a span became a unit's root because of its GenAI attributes.
    """

    names_scope: Callable[[str], bool]
    _: KW_ONLY
    listed: Sequence[str] = ()
    ignored: Sequence[str] = ()
    records_langchain: Callable[[], bool] = lambda: False
    own_scopes: Set[str] = semconv.OWN_SCOPES
    place: str = "this process"

    def __post_init__(self) -> None:
        self._read_scopes: dict[str, str] = {}  # library → the scope that is read
        self.roles: dict[str, Role] = {}
        self.seen_listed: set[str] = set()
        self.superseded: dict[str, str] = {}
        self.by_content: set[str] = set()

    def role(self, scope: str) -> Role:
        """Return the role of a scope."""
        role = self.roles.get(scope)
        if role is not None:
            return role
        if len(self.roles) >= _MAX_SCOPES:
            self.roles.clear()
        return self.roles.setdefault(scope, self._role(scope))

    def found_by_content(self, scope: str) -> None:
        """Record that a span of a scope that no normalizer names is the root of a unit; the first one is logged."""
        if scope in self.by_content or len(self.by_content) >= _MAX_SCOPES:
            return
        self.by_content.add(scope)
        log_once(
            f"by content {scope}",
            f"spans of scope {scope!r} in {self.place} have GenAI attributes and are scored. To leave them out, add"
            f" {scope!r} to units.ignore_scopes",
        )

    def _role(self, scope: str) -> Role:
        if scope in self.own_scopes:
            return Role.OURS
        listed = [name for name in self.listed if scope.startswith(name)]
        self.seen_listed.update(listed)
        if scope.startswith(tuple(self.ignored)):
            return Role.IGNORED
        if not listed and not self.names_scope(scope):
            return Role.GENERAL if scope.startswith(_GENERAL) else Role.UNKNOWN
        return Role.CLAIMED if self._is_read(library_of(scope), scope) else Role.IGNORED

    def _is_read(self, library: str, scope: str) -> bool:
        """Return whether a scope is the one that is read for its library; log a scope that is not."""
        if library == "langchain" and self.records_langchain():
            read_scope = semconv.CAPTURE_SCOPE
        elif library in _LIBRARIES:
            read_scope = self._read_scopes.setdefault(library, scope)
        else:
            return True
        if read_scope != scope:
            self.superseded[scope] = read_scope
            is_handler = read_scope == semconv.CAPTURE_SCOPE and read_scope in self.own_scopes  # not for received spans
            remedy = (
                "set capture=Capture(enabled=False)" if is_handler else f"add {read_scope!r} to units.ignore_scopes"
            )
            log_once(
                f"superseded {scope}",
                f"{read_scope} and {scope} both trace {library} in {self.place}. "
                f"Each run is scored once, on the spans of {read_scope}."
                f" To score the spans of {scope} instead, {remedy}",
            )
        return read_scope == scope


def scope_notes(listed: Sequence[str], processes: Iterable[Scopes]) -> list[str]:
    """Return the notes on scopes for `status()`: read by content, superseded, or listed but without spans.

    ``listed`` are the prefixes of scopes that the configuration names, and ``processes`` the scopes of each traced process.
    """
    all_scopes = [*processes]
    by_content = sorted({scope for scopes in all_scopes for scope in scopes.by_content.copy()})
    superseded = {scope: by for scopes in all_scopes for scope, by in scopes.superseded.copy().items()}
    seen = {name for scopes in all_scopes for name in scopes.seen_listed.copy()}
    notes = [f"{scope} is scored, as its spans have GenAI attributes" for scope in by_content]
    notes += [f"{scope} is not read, because {by} traces the same library" for scope, by in superseded.items()]
    missing = [name for name in listed if name not in seen]
    return notes + [f"units.scopes lists {name!r}, but no span so far has a scope with this prefix" for name in missing]


def library_of(scope: str) -> str:
    """Return the name of the library that an instrumentation's scope traces."""
    if scope == semconv.CAPTURE_SCOPE:
        return "langchain"
    last = _VERSION.sub("", scope).rpartition(".")[2].lower()
    return _LIBRARY_ALIASES.get(last, last)
