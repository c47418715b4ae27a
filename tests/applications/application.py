"""Runs an application with a scorer attached, and collects the samples that metrics get from each request.

The applications in this folder are written like the tutorials of LangChain and LangGraph, with models that answer as the test
requires. The expected samples are written by hand, as a person would choose them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from tests.live import a_line

from spanscore import semconv
from spanscore.config import Outputs
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.core.score import Score
from spanscore.metrics import BaseMetric, Finding
from spanscore.testing import MemorySink

SOURCE: Final = "spanscore.sample.source"


@dataclass(frozen=True)
class Judged:
    """The samples that one request gave to the metrics.

    If the request gave no such sample, ``single`` and ``multi`` stay None. ``source`` is the root's attribute. ``outcome`` is
    None if a metric got a sample; otherwise it is the outcome of the request, with its ``reason``.
    """

    single_turn: SingleTurnSample | None = None
    multi_turn: MultiTurnSample | None = None
    source: str | None = None
    outcome: str | None = None
    reason: str | None = None

    @property
    def conversation(self) -> str | None:
        """The conversation as text."""
        return None if self.multi_turn is None else self.multi_turn.pretty()


def judged(run: Callable[[RunnableConfig], Any], **options: Any) -> list[Judged]:
    """Run an application, and return the samples of each of its requests, in the order of their start.

    ``run`` gets a config with the scorer's callback and a thread's id; ``options`` are the scorer's.
    """
    sink, witnesses = MemorySink(), (Witness("single_turn"), Witness("multi_turn"))
    with a_line(*witnesses, outputs=Outputs(sinks=[sink]), **options) as (scorer, trace):
        run({"callbacks": [scorer.handler], "configurable": {"thread_id": "t"}})
        assert scorer.flush(10)
        return seen_of(trace.roots, sink, witnesses, scorer.status().reasons)


def seen_of(
    roots: Iterable[Any], sink: MemorySink, witnesses: tuple[Witness, Witness], reasons: Mapping[str, str]
) -> list[Judged]:
    """Return the samples of each request with a root among these spans, in the order of their start."""
    scores: dict[int, list[Score]] = defaultdict(list)  # those of a unit may come in several calls
    for unit, some in sink.emitted:
        scores[unit.key.span_id] += some
    began = sorted(roots, key=lambda root: root.start_time)
    return [_judged(root.attributes, scores[root.context.span_id], witnesses, reasons) for root in began]


def judged_once(run: Callable[[RunnableConfig], Any], **options: Any) -> Judged:
    """Run an application for one request, and return its samples."""
    [only] = judged(run, **options)
    return only


def asked(app: Runnable[Any, Any], given: Any) -> Judged:
    """Invoke an application once, and return its samples."""
    return judged_once(lambda config: app.invoke(given, config))


def sample(
    question: str | None, answer: str | None, contexts: list[str] | None = None, **more: Any
) -> SingleTurnSample:
    """The sample that a person would want judged."""
    return SingleTurnSample(user_input=question, response=answer, retrieved_contexts=contexts, **more)


# --- models that answer as a test requires --------------------------------------------------------------------------


class _InTurn(GenericFakeChatModel):
    """Returns its messages in turn, with or without tools."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


class _ByPrompt(BaseChatModel):
    """Returns the reply for the first text found in its prompt, in any order of calls."""

    replies: Mapping[str, str | AIMessage]

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    @property
    def _llm_type(self) -> str:
        return "by-prompt"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        asked = "\n".join(message.text for message in messages)
        said = next(reply for part, reply in self.replies.items() if part in asked)
        message = AIMessage(said) if isinstance(said, str) else said.model_copy()
        return ChatResult(generations=[ChatGeneration(message=message)])


def says(*messages: str | AIMessage) -> BaseChatModel:
    """A chat model that returns these replies in turn, once each, for applications with a fixed order of calls."""
    return _InTurn(messages=iter([AIMessage(said) if isinstance(said, str) else said for said in messages]))


def replies(said: Mapping[str, str | AIMessage]) -> BaseChatModel:
    """A chat model that searches its prompt for these texts in order, and returns the reply for the first match."""
    return _ByPrompt(replies=said)


def calls(name: str, identity: str = "call-1", /, **arguments: Any) -> AIMessage:
    """A model's message that calls one tool, or gives a structured answer (the tool then has the schema's name)."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": identity}])


# --- witnesses ----------------------------------------------------------------------------------------------------


class Witness(BaseMetric):
    """Keeps the samples of one kind; its score identifies the sample."""

    def __init__(self, kind: str) -> None:
        self.name = kind
        self.requires = {kind: ()}
        self.seen: list[Any] = []

    async def measure(self, sample: Any) -> Finding:
        self.seen.append(sample)
        return Finding(value=1.0, explanation=str(len(self.seen) - 1))

    def of(self, scores: Sequence[Score]) -> Any:
        """Return the sample that one of a request's scores is of."""
        scored = [
            int(score.explanation or 0) for score in scores if score.metric == self.name and score.value is not None
        ]
        return self.seen[scored[0]] if scored else None


def _judged(
    root: Mapping[str, Any], scores: Sequence[Score], witnesses: tuple[Witness, Witness], reasons: Mapping[str, str]
) -> Judged:
    single, multi = (witness.of(scores) for witness in witnesses)
    if single is None and multi is None:
        outcome = next((root[name] for name in root if name.startswith(semconv.METRIC_OUTCOME)), None)
        return Judged(source=root.get(SOURCE), outcome=outcome, reason=reasons.get(f"single_turn {outcome}"))
    return Judged(single_turn=single, multi_turn=multi, source=root.get(SOURCE))
