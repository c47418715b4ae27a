"""Scopes: by its instrumentation scope, what a span is to us. All that is known of a span when it starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum, auto
from typing import Final

from spanscore import semconv
from spanscore.dialects.translations.registry import NOT_READ
from spanscore.runtime.log import log_once

__all__ = ["Role", "Scopes", "asks_nothing", "scope_notes"]

_OURS: Final = semconv.EVALUATOR_SCOPES | {semconv.CAPTURE_SCOPE}
_MOST: Final = 1_000
"""Different scopes remembered: a name that holds an id would make one per request."""
_VERSION: Final = re.compile(r"\.v\d+$")
"""What OpenLLMetry puts after a library: ``opentelemetry.instrumentation.openai.v1``."""
_LIBRARY: Final = {
    "llamaindex": "llama_index",
    "openai_v2": "openai",
    "openai-agents": "openai_agents",
    "pydantic-ai": "pydantic_ai",
}
"""Last part of a scope → the library that is meant by it."""
_FRAMEWORKS: Final = frozenset(
    {
        "agno",
        "autogen",
        "autogen_agentchat",
        "beeai",
        "crewai",
        "dspy",
        "google_adk",
        "haystack",
        "langchain",
        "llama_index",
        "openai_agents",
        "pydantic_ai",
        "smolagents",
        "strands",
    }
)
"""Libraries that call models on an application's behalf: what they ask of a model's client is a step of theirs."""
_MODEL_CLIENTS: Final = frozenset(
    {
        "anthropic",
        "bedrock",
        "cohere",
        "google_genai",
        "google_generativeai",
        "groq",
        "litellm",
        "mistralai",
        "ollama",
        "openai",
        "replicate",
        "together",
        "transformers",
        "vertexai",
        "watsonx",
    }
)
_NOT_READ_KINDS: Final = frozenset({"EMBEDDING", "RERANKER", "EVALUATOR", "GUARDRAIL"})
"""Kinds of OpenInference that ask and answer nothing."""
_NOT_READ_OTHERWISE: Final[Mapping[str, Sequence[object]]] = {
    semconv.REQUEST_TYPE: ("embedding", "rerank"),
    semconv.LANGSMITH_KIND: ("embedding",),
    "ai.operationId": (
        *("ai.embed", "ai.embed.doEmbed", "ai.embedMany", "ai.embedMany.doEmbed"),
        *("ai.rerank", "ai.rerank.doRerank"),
    ),
    "langfuse.observation.type": ("embedding", "evaluator"),
    "mlflow.spanType": ('"EMBEDDING"', '"EVALUATOR"'),
}
"""Where neither an operation nor a kind of OpenInference is named: attribute → what in it asks and answers nothing."""


class Role(Enum):
    """What a span of a scope is to us."""

    OURS = auto()
    IGNORED = auto()
    UNKNOWN = auto()
    """Nobody's that we know: a span of it is claimed where it has a GenAI operation when it starts."""
    CLAIMED = auto()
    MODEL_CLIENT = auto()
    """Claimed; at the top of its unit it is one only while no framework's instrumentation is at work."""


class Scopes:
    """Knows the role of each scope. Any thread: what a race computes twice is the same.

    Two instrumentations of one library tell of each run twice: the first of them that is seen is heard, the other is not.

    Args:
        known: whether some translation reads the spans of a scope.
        listed: beginnings of scopes whose top-most spans are units, whatever else is at work.
        ignored: beginnings of scopes that are not claimed.
        captures: whether our own handler records LangChain's runs.
        ours: scopes that are never claimed.
        place: where all this is at work, for people.

    Attributes:
        inner: scope → runs that were no units of their own, as a framework's instrumentation is at work.
        unheard: scope → the one that is heard instead.
    """

    def __init__(
        self,
        known: Callable[[str], bool],
        *,
        listed: Sequence[str] = (),
        ignored: Sequence[str] = (),
        captures: Callable[[], bool] = lambda: False,
        ours: Set[str] = _OURS,
        place: str = "this process",
    ) -> None:
        self._known = known
        self._listed = tuple(listed)
        self._ignored = tuple(ignored)
        self._captures = captures
        self._ours = ours
        self._place = place
        self._framework = ""
        self._heard: dict[str, str] = {}
        self._roles: dict[str, Role] = {}
        self.inner: Counter[str] = Counter()
        self.unheard: dict[str, str] = {}

    def role(self, scope: str) -> Role:
        """Return the role of a scope."""
        role = self._roles.get(scope)
        if role is not None:
            return role
        if len(self._roles) >= _MOST:
            self._roles.clear()
        return self._roles.setdefault(scope, self._role(scope))

    def has_framework(self) -> bool:
        """Whether a framework's instrumentation is at work, as far as is known."""
        if not self._framework and self._captures():
            self._framework = semconv.CAPTURE_SCOPE
        return bool(self._framework)

    def is_inner(self, scope: str) -> bool:
        """Whether a model client's span at the top is a step of some framework's run, which cannot be told which."""
        if not self.has_framework() or scope.startswith(self._listed):
            return False
        self.inner[scope] += 1
        if self.inner[scope] == 1:
            log_once(
                f"inner {scope}",
                f"spans of {scope} that stand alone are no units, as {self._framework} is at work in {self._place} and its"
                f" model calls cannot be told from others; units.scopes with {scope!r} makes a unit of each",
            )
        return True

    def _role(self, scope: str) -> Role:
        if scope in self._ours:
            return Role.OURS
        listed = scope.startswith(self._listed)
        if scope.startswith(self._ignored):
            return Role.IGNORED
        if not listed and not self._known(scope):
            return Role.UNKNOWN
        library = _library(scope)
        if not self._is_heard(library, scope):
            return Role.IGNORED
        if library in _FRAMEWORKS:
            self._framework = self._framework or scope
        return Role.MODEL_CLIENT if library in _MODEL_CLIENTS and not listed else Role.CLAIMED

    def _is_heard(self, library: str, scope: str) -> bool:
        if library == "langchain" and self._captures():
            heard = semconv.CAPTURE_SCOPE
        elif library in _FRAMEWORKS or library in _MODEL_CLIENTS:
            heard = self._heard.setdefault(library, scope)
        else:
            return True
        if heard != scope:
            self.unheard[scope] = heard
            ours = heard == semconv.CAPTURE_SCOPE
            way = "OnlineScorer(capture=False)" if ours else f"units.ignore_scopes with {heard!r}"
            log_once(
                f"unheard {scope}",
                f"{heard} and {scope} both trace {library} in {self._place}; each run is scored once, on the spans of {heard}."
                f" {way} has those of {scope} scored",
            )
        return heard == scope


def asks_nothing(operation: object, named: Callable[[str], object]) -> bool:
    """Whether what names itself so asks and answers nothing: nobody reads it, and it is no unit.

    Args:
        operation: GenAI's; None where there is none.
        named: name → any other attribute, likewise.
    """
    kind = named(semconv.OPENINFERENCE_KIND)
    if operation is not None or kind is not None:
        return operation in NOT_READ or kind in _NOT_READ_KINDS
    return any(named(name) in nothing for name, nothing in _NOT_READ_OTHERWISE.items())


def scope_notes(inner: Mapping[str, int], unheard: Mapping[str, str], *, where: str) -> list[str]:
    """Return what must be known of scopes that are not scored, for ``status()``.

    Args:
        inner: as of ``Scopes``; likewise ``unheard``.
        where: the framework is at work: ``here``.
    """
    told = [
        f"{runs:,} runs of {scope} are no units, as a framework is at work {where} whose model calls they may be; units.scopes"
        " lists those that are"
        for scope, runs in inner.items()
    ]
    return told + [f"{scope} is not read, as {by} traces the same" for scope, by in unheard.items()]


def _library(scope: str) -> str:
    if scope == semconv.CAPTURE_SCOPE:
        return "langchain"
    last = _VERSION.sub("", scope).rpartition(".")[2].lower()
    return _LIBRARY.get(last, last)
