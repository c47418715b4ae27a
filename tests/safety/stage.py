"""The stage of the host safety suite: one scene without spanscore and with it, and the differences that the host notices.

A hazard gives the scorer in the host and the host's actions. The two plays may differ by one log line of spanscore per cause.
They may not differ in answers, exceptions, stdout and stderr, and no unit may be lost uncounted.
"""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor, TracerProvider
from tests.live import CONTEXT, EXTERNAL, QUESTION, Grounded, a_trace, rag

from spanscore import OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.core import log
from spanscore.outputs.provider_introspection import processors_beside

EXIT_S = 5.0
"""The promise: an end takes at most this."""


@dataclass
class Hazard:
    """A fault, and its required signs.

    Attributes:
        metrics: of the scorer, made anew per play.
        options: of the scorer; may open servers on the stack.
        chain: chain that the host runs.
        inputs: one run each.
        outcomes: outcomes of each metric's units, if they are known beforehand.
        log_beginning: beginning of the one required log line; empty = no line, or one that depends on the time of the end.
        calls: extra work of the host, after its runs.
        traced: whether another instrumentation traces the host, with the scorer behind it in a ``ScoringSpanProcessor``.
    """

    metrics: Callable[[], Sequence[Any]] = lambda: [Grounded()]
    options: Callable[[ExitStack], dict[str, Any]] = lambda _: {}
    chain: Callable[[], Any] = rag
    inputs: Sequence[Any] = (QUESTION,) * 3
    outcomes: dict[str, int] | None = None
    log_beginning: str = ""
    own_providers: bool = False
    quick: bool = False
    traced: bool = False
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Seen:
    """The observations of a host."""

    answers: list[Any]
    printed: tuple[str, str]
    logged: list[tuple[str, str]]
    status: Any = None
    end_s: float = 0.0
    trace: Any = None


class _LogRecorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, logging.Formatter("%(message)s").format(record)))


def play(hazard: Hazard, capture: Any, *, scored: bool) -> Seen:
    """Run the host once; with a scorer: to the end of its shutdown."""
    capture.readouterr()
    log.forget_causes()  # of other scenes, or of a first try of this one
    recorder = _LogRecorder()
    logging.getLogger().addHandler(recorder)
    gc.freeze()  # collecting only the play's garbage is ten times faster
    try:
        with ExitStack() as stack:
            seen = _scored(hazard, stack) if scored else Seen(_answers(hazard, None), ("", ""), [])
            gc.collect()  # asyncio logs forgotten tasks now
            seen.printed, seen.logged = capture.readouterr(), recorder.lines
            return seen
    finally:
        gc.unfreeze()
        logging.getLogger().removeHandler(recorder)


def assert_unharmed(hazard: Hazard, capture: Any) -> Seen:
    """Play twice and compare; return the play with spanscore."""
    alone = play(hazard, capture, scored=False)
    seen = play(hazard, capture, scored=True)

    ours = [line for line in seen.logged if line not in alone.logged]
    assert seen.answers == alone.answers
    assert seen.printed == alone.printed
    assert {name for name, _ in ours} <= {"spanscore"}, ours
    assert len(set(ours)) == len(ours), ours
    assert not hazard.log_beginning or [line.startswith(hazard.log_beginning) for _, line in ours] == [True], ours
    assert seen.end_s <= EXIT_S
    _assert_nothing_lost(hazard, seen.status)
    return seen


def _assert_nothing_lost(hazard: Hazard, status: Any) -> None:
    for metric, eligible in status.eligible.items():
        outcomes = status.outcomes[metric]
        assert (eligible, status.pending[metric]) == (len(hazard.inputs), 0), status
        assert sum(outcomes.values()) == eligible, status
        if hazard.outcomes is not None:
            assert outcomes == hazard.outcomes, status.reasons
    assert status.queue[0] == 0, "places of the queue are not given back"


def _scored(hazard: Hazard, stack: ExitStack) -> Seen:
    options = dict(hazard.options(stack))
    trace = options.pop("trace", None) or a_trace()
    if hazard.traced:
        return _scored_behind(hazard, trace, options)
    if not hazard.own_providers:
        options = {"tracer_provider": trace.provider, "meter_provider": MeterProvider(), **options}
    scorer = OnlineScorer(list(hazard.metrics()), **options)
    try:
        answers = _answers(hazard, scorer)
        scorer.flush(0.3 if hazard.quick else 3.0)
    finally:
        began = time.monotonic()
        scorer.shutdown(timeout=1.5)
        took_s = time.monotonic() - began
    return Seen(answers, ("", ""), [], scorer.status(), took_s, trace)


def _scored_behind(hazard: Hazard, trace: Any, options: dict[str, Any]) -> Seen:
    """Play a host that is traced already: its provider's exporter is wrapped by the processor."""
    exits = SynchronousMultiSpanProcessor()
    for processor in processors_beside(trace.provider.get_tracer("any").start_span("any")):
        exits.add_span_processor(processor)
    provider = TracerProvider()
    scorer = OnlineScorer(list(hazard.metrics()), tracer_provider=provider, meter_provider=MeterProvider(), **options)
    provider.add_span_processor(ScoringSpanProcessor(scorer, exits))
    try:
        answers = _traced_answers(hazard, provider.get_tracer(EXTERNAL))
        scorer.flush(0.3 if hazard.quick else 3.0)
    finally:
        began = time.monotonic()
        scorer.shutdown(timeout=1.5)
        took_s = time.monotonic() - began
    return Seen(answers, ("", ""), [], scorer.status(), took_s, trace)


def _traced_answers(hazard: Hazard, tracer: Any) -> list[Any]:
    chain = hazard.chain()
    return [_answer(lambda given=given: _traced(tracer, chain, given, hazard.more)) for given in hazard.inputs]


def _traced(tracer: Any, chain: Any, given: Any, more: dict[str, Any]) -> Any:
    """Run like an instrumentation of the GenAI conventions: the turn is on the root, the documents on a retriever."""
    with tracer.start_as_current_span("chain", attributes={semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW}) as root:
        with tracer.start_as_current_span("found", attributes={semconv.OPERATION_NAME: semconv.RETRIEVAL}) as found:
            found.set_attribute(semconv.RETRIEVAL_DOCUMENTS, json.dumps([{"content": CONTEXT, "id": "doc-1"}]))
        answer = chain.invoke(given, config={**more})
        root.set_attribute(semconv.INPUT_MESSAGES, _said("user", given))
        root.set_attribute(semconv.OUTPUT_MESSAGES, _said("assistant", answer))
        return answer


def _said(role: str, text: Any) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": str(text)}]}])


def _answers(hazard: Hazard, scorer: OnlineScorer | None) -> list[Any]:
    chain, config = hazard.chain(), {} if scorer is None else {"callbacks": [scorer.handler]}
    return [
        _answer(lambda given=given: chain.invoke(given, config={**config, **hazard.more})) for given in hazard.inputs
    ]


def _answer(run: Callable[[], Any]) -> Any:
    """Return the host's result: an answer in comparable form, or the class of the exception."""
    try:
        answer = run()
    except BaseException as error:
        return type(error)
    return answer if isinstance(answer, str) else type(answer)
