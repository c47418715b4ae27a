"""Options → a demo that was played: the application, the scorer beside it, and what came of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langsmith import tracing_context
from opentelemetry.sdk.trace import ReadableSpan

from spanscore.config import Capture, Outputs, Rule, RuleCondition, Sampling
from spanscore.core.context import references
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.demo.chain import handbook_chain
from spanscore.demo.langchain_langgraph_agent import AGENT_NAME, TOPICS, ferry_agent
from spanscore.demo.library import Handbook
from spanscore.demo.offline_model import OfflineModel
from spanscore.demo.scenario import LEAST_REQUESTS, Request, requests
from spanscore.demo.times import spread
from spanscore.demo.tracing import Tracing, in_stretch
from spanscore.errors import ConfigurationError
from spanscore.judges import judge
from spanscore.judges.langchain.models import named_model
from spanscore.metrics.catalog.registry import create
from spanscore.protocols import Metric
from spanscore.scorer import OnlineScorer
from spanscore.wiring.status import Status

__all__ = ["Demo", "DemoOptions", "Played", "Tally"]

METRICS: Mapping[str, Mapping[str, Any]] = {
    "faithfulness": {"pass_at": 0.7},  # one statement in two that nothing supports is no pass
    "context_relevance": {},
    "response_relevancy": {},
    "topic_adherence": {},
}
"""Metric → its parameters."""
_AGENT_RULE = Rule(rate=1.0, name="every agent turn", when=RuleCondition(workflow=AGENT_NAME))
_ERROR_RULE = Rule(rate=1.0, name="errors", when=RuleCondition(any_error=True))
_BREATH = 40
"""Requests after which it waits for the scores: it asks faster than any judge answers, and nothing shall be turned away."""
_FLUSH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What can be chosen about a demo.

    Attributes:
        requests: at least 12.
        seed: the same seed gives the same requests, answers, ids, sampling decisions and scores (with the offline model).
        seconds: spread the requests over this time; None = as fast as they go, and what is shown and written has the times of
            live traffic (see ``times.py``); a backend gets the real ones either way.
        model: ``provider:name`` of a real model that answers and judges; None = offline.
        rate: share of the chain's runs that is scored, [0, 1]; a rule scores every turn of the agent.
        otlp: base URL of an OTLP/HTTP backend.
    """

    requests: int = 240
    seed: int = 7
    seconds: float | None = None
    model: str | None = None
    rate: float = 0.5
    otlp: str | None = None


@dataclass(slots=True)
class Tally:
    """A sink that counts: what the live line shows.

    Attributes:
        asked: requests so far.
        stretch: of the request under way.
        scored: scores with a value so far.
        failing: those that do not pass.
    """

    asked: int = 0
    stretch: str = ""
    scored: int = 0
    failing: int = 0

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Count them."""
        self.scored += sum(score.value is not None for score in scores)
        self.failing += sum(score.label == "fail" for score in scores)

    def shutdown(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a demo.

    Attributes:
        asked: requests that were made: fewer than asked for when interrupted.
        interrupted: whether Ctrl-C ended it.
        spans: all that were exported, in the order in which they ended; without ``seconds`` spread over time.
        status: the scorer's own account.
        model: who answered and judged, for people.
        deliveries: signal → how the last export to the backend went; empty without one.
        undelivered: the signals of which the backend lacks a part.
    """

    options: DemoOptions
    asked: int
    interrupted: bool
    spans: Sequence[ReadableSpan]
    status: Status
    model: str
    deliveries: dict[str, str]
    undelivered: Sequence[str]


class Demo:
    """The application with a scorer beside it, from set-up to end; a context manager, whose end ends the scorer.

    Raises:
        ConfigurationError: an option cannot be; the message names it.
        MissingExtraError: langchain, or the library of the model, is not installed.

    Attributes:
        scorer: what stands beside the application.
    """

    def __init__(self, options: DemoOptions) -> None:
        _check(options)
        self._options, self._tally = options, Tally()
        model = _model(options)
        self._handbook = Handbook(seed=options.seed)
        self._chain = handbook_chain(model, self._handbook)
        self._agent = ferry_agent(model, self._handbook)
        metrics = _metrics(model if options.model else "lexical")
        self._tracing = Tracing(options.seed, options.otlp)
        self.scorer = OnlineScorer(
            metrics,
            sampling=Sampling(rate=options.rate, rules=[_AGENT_RULE, _ERROR_RULE]),
            tracer_provider=self._tracing.tracer_provider,
            meter_provider=self._tracing.meter_provider,
            logger_provider=self._tracing.logger_provider,
            capture=Capture(content=True),  # the handbook is ours, and a trace without question and answer shows little
            outputs=Outputs(sinks=[self._tally]),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.scorer.shutdown()
        self._tracing.close()

    def play(self, watch: Callable[[Tally], None] = lambda _: None) -> Played:
        """Make the requests and wait for their scores. Blocks; Ctrl-C ends it with what there is.

        Args:
            watch: called after each request, on this thread.
        """
        # A demo's traffic belongs in no LangSmith project, whatever the environment says.
        with tracing_context(enabled=False):
            interrupted = self._ask_all(watch)
        self.scorer.flush(_FLUSH_S)
        self._tracing.flush()
        spans = self._tracing.spans()
        return Played(
            options=self._options,
            asked=self._tally.asked,
            interrupted=interrupted,
            spans=spans if self._options.seconds else spread(spans, self._options.requests, time.time_ns()),
            status=self.scorer.status(),
            model=self._options.model or "offline",
            deliveries={signal: exporter.last() for signal, exporter in self._tracing.exporters.items()},
            undelivered=self._tracing.list_undelivered(),
        )

    def _ask_all(self, watch: Callable[[Tally], None]) -> bool:
        """Make the requests; return whether Ctrl-C ended it."""
        options, tally, began = self._options, self._tally, time.monotonic()
        try:
            for request in requests(options.requests, options.seed):
                tally.stretch = request.stretch
                if options.seconds:
                    due = began + (request.number - 1) * options.seconds / options.requests
                    time.sleep(max(0.0, due - time.monotonic()))
                self._ask(request, {"callbacks": [self.scorer.handler]})
                tally.asked = request.number
                if request.number % _BREATH == 0:
                    self.scorer.flush(_FLUSH_S)
                watch(tally)
        except KeyboardInterrupt:
            return True
        return False

    def _ask(self, request: Request, config: RunnableConfig) -> None:
        self._handbook.broken = request.stretch == "during"
        with in_stretch(request.stretch):
            if request.thread is None:
                self._chain.invoke(request.question, config)
                return
            with references(reference_topics=TOPICS):
                said: Any = {"messages": [{"role": "user", "content": request.question}]}
                self._agent.invoke(said, {**config, "configurable": {"thread_id": request.thread}})


def _check(options: DemoOptions) -> None:
    if options.requests < LEAST_REQUESTS:
        raise ConfigurationError(f"--requests is {options.requests}; at least {LEAST_REQUESTS} make three stretches")
    if not 0.0 < options.rate <= 1.0:
        raise ConfigurationError(f"--rate is {options.rate:g}; it is above 0 and at most 1")
    if options.seconds is not None and options.seconds <= 0:
        raise ConfigurationError(f"--seconds is {options.seconds:g}; it is above 0")


def _model(options: DemoOptions) -> BaseChatModel:
    """Return the model that answers. A key in the environment is no wish to spend money: only ``--model`` is."""
    if options.model is None:
        return OfflineModel(seed=options.seed)
    made: BaseChatModel = named_model(options.model)
    return made


def _metrics(model: Any) -> list[Metric]:
    the_judge = judge(model)
    return [create(name, judge=the_judge, embeddings="lexical", **given) for name, given in METRICS.items()]
