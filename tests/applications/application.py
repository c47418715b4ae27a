"""What an application's requests give to metrics: run it with a scorer attached, and get what was judged of each request.

The applications beside this file are written as the tutorials of LangChain and LangGraph write them, over models that say
what the test wants; what a person would want judged of them is written by hand.
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
    """What one request gave to the metrics.

    ``single`` and ``multi`` are None where it gave no such sample; ``source`` is the root's attribute; ``outcome`` is
    None where a metric got a sample, else how the request ended, with its ``reason``.
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
    """Run an application, and return what was judged of each of its requests, in the order in which they began.

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
    """Return what was judged of each of the requests that these spans are the roots of, in the order in which they began."""
    scores: dict[int, list[Score]] = defaultdict(list)  # those of a unit may come in several calls
    for unit, some in sink.emitted:
        scores[unit.key.span_id] += some
    began = sorted(roots, key=lambda root: root.start_time)
    return [_judged(root.attributes, scores[root.context.span_id], witnesses, reasons) for root in began]


def judged_once(run: Callable[[RunnableConfig], Any], **options: Any) -> Judged:
    """Run an application for one request, and return what was judged of it."""
    [only] = judged(run, **options)
    return only


def asked(app: Runnable[Any, Any], given: Any) -> Judged:
    """Invoke an application once, and return what was judged of it."""
    return judged_once(lambda config: app.invoke(given, config))


def sample(
    question: str | None, answer: str | None, contexts: list[str] | None = None, **more: Any
) -> SingleTurnSample:
    """The sample that a person would want judged."""
    return SingleTurnSample(user_input=question, response=answer, retrieved_contexts=contexts, **more)


# --- models that say what a test wants ----------------------------------------------------------------------------


class _InTurn(GenericFakeChatModel):
    """Says its messages in turn, with or without tools."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


class _ByPrompt(BaseChatModel):
    """Says what belongs to the first text that stands in its prompt: the same in whatever order it is asked."""

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
    """A chat model that says these in turn: once each, for applications that ask it in one order."""
    return _InTurn(messages=iter([AIMessage(said) if isinstance(said, str) else said for said in messages]))


def replies(said: Mapping[str, str | AIMessage]) -> BaseChatModel:
    """A chat model that looks for these texts in its prompt, in order, and says what belongs to the first it finds."""
    return _ByPrompt(replies=said)


def calls(name: str, identity: str = "call-1", /, **arguments: Any) -> AIMessage:
    """What a model says that calls one tool, or gives a structured answer (the tool is the schema's name then)."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": identity}])


# --- witnesses ----------------------------------------------------------------------------------------------------


class Witness(BaseMetric):
    """Keeps what it is given of one kind of sample; its score says which it was."""

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
