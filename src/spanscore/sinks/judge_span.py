"""One span per call of a judge: for those who debug an evaluator, and want to read what its judge was asked.

The calls of a score make a trace of their own, whose id is the score's (``spanscore.score.id`` on the evaluation span), and
each is linked to the evaluation span: below it they would stretch the trace that was scored. A call is one request: each
attempt of a question has a span, with its own time, error and bill, so that the waits between them are seen, and the spans of
a trace add up to what the evaluation span says of the score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, USER, text_message
from spanscore.core.codecs.text import safe_text, to_wire, wire_values
from spanscore.core.score import JudgeCall, Score, Transcript, id_of
from spanscore.core.span import Unit
from spanscore.otel.providers import Providers
from spanscore.otel.span_factory import PresetSpanFactory
from spanscore.sinks.emission import span_context_of

__all__ = ["JudgeSpans"]

_LASTS_NS = 1_000
"""At least, as evaluation spans: Jaeger warns of a span that ends where it starts."""


class JudgeSpans:
    """Writes what judges were asked through the application's own tracer provider.

    Nothing is written for a unit whose trace is not sampled, and of the others all: the head sampler would decide by dice about
    a trace of its own, and has decided about the one that was scored.

    Args:
        providers: gives the tracer of the scope ``spanscore.judge``.
        to_evaluation: whether there are evaluation spans to link to; else it is the unit's span.
    """

    def __init__(self, providers: Providers, *, to_evaluation: bool = True) -> None:
        self._providers = providers
        self._to_evaluation = to_evaluation
        self._chosen: PresetSpanFactory | None = None

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Write a span per call of each score."""
        root = unit.root
        if root is None or not root.sampled:
            return
        scored = span_context_of(root)
        for score in scores:
            identity = score.id or id_of(score, unit)
            target = _with_span_id(scored, int(identity[:16], 16)) if self._to_evaluation else scored
            for call, said in _told_once(score.usage.calls):
                self._write(score, call, said, identity, target)

    def shutdown(self) -> None:
        """Hold nothing back: the spans are with the tracer provider."""

    def _write(self, score: Score, call: JudgeCall, said: Transcript, identity: str, target: SpanContext) -> None:
        attributes = wire_values(_attributes(score, call, said) | {semconv.SCORE_ID: identity})
        span = self._start(int(identity, 16), attributes)(
            f"{attributes[semconv.OPERATION_NAME]} {said.asked_model or call.model}".rstrip(),
            context=Context(),
            kind=SpanKind.CLIENT if said.provider and not call.cached else SpanKind.INTERNAL,
            attributes=attributes,
            links=[Link(target, {})],
            start_time=said.ended_ns - max(_LASTS_NS, int(call.duration_s * 1e9)),
        )
        if call.error_type is not None:
            span.set_status(Status(StatusCode.ERROR, safe_text(said.trouble or call.error_type)))
        span.end(end_time=said.ended_ns)

    def _start(self, trace_id: int, attributes: Mapping[str, Any]) -> Any:
        """Return what starts a sampled span of that trace; of a tracer that is not the SDK's, one of any."""
        tracer = self._providers.tracer(semconv.JUDGE_SCOPE)
        self._chosen = self._chosen or PresetSpanFactory.of(tracer)
        if self._chosen is None:
            return tracer.start_span
        from opentelemetry.sdk.trace.sampling import Decision, SamplingResult

        sampling = SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return partial(self._chosen.start_span, trace_id=trace_id, sampling=sampling)


def _told_once(calls: Sequence[JudgeCall]) -> Iterator[tuple[JudgeCall, Transcript]]:
    """Yield calls with their transcripts; the question of several attempts stands on the last of them."""
    later: set[tuple[str, str]] = set()
    told: list[tuple[JudgeCall, Transcript]] = []
    for call in reversed(calls):
        said = call.transcript
        if said is not None:
            question = said.system, said.user
            is_told = question in later and not said.answer
            told.append((call, said.without_question() if is_told else said))
            later.add(question)
    yield from reversed(told)


def _attributes(score: Score, call: JudgeCall, said: Transcript) -> dict[str, Any]:
    answered = call.error_type is None or bool(said.finish or said.answer)
    return {
        semconv.OPERATION_NAME: said.operation,
        semconv.PROVIDER_NAME: said.provider or None,
        semconv.REQUEST_MODEL: said.asked_model or None,
        semconv.RESPONSE_MODEL: call.model if answered and call.model else None,
        semconv.RESPONSE_FINISH_REASONS: None if said.finish is None else [said.finish],
        **_usage(call),
        semconv.ERROR_TYPE: call.error_type,
        semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_KINDS[said.operation],
        semconv.EVALUATION_NAME: score.metric,
        semconv.EVALUATOR_VERSION: score.evaluator_version or None,
        semconv.EVALUATION_SOURCE: score.source,
        semconv.JUDGE_STEP: call.step,
        semconv.JUDGE_CACHED_CALLS: int(call.cached),
        semconv.JUDGE_INPUT_TRUNCATED_RATIO: float(call.input_truncated_ratio) or None,
        semconv.JUDGE_COST_USD: None if call.cost_usd is None else float(call.cost_usd),
        **_content(said),
    }


def _usage(call: JudgeCall) -> dict[str, Any]:
    """Return the tokens that were told: those of a call that was given up are an estimate, and no usage."""
    if call.estimated or not (call.input_tokens or call.output_tokens):
        return {}
    cached = call.cached_input_tokens or None
    counted = {semconv.USAGE_INPUT_TOKENS: call.input_tokens, semconv.USAGE_OUTPUT_TOKENS: call.output_tokens}
    return {**counted, semconv.USAGE_CACHE_READ_INPUT_TOKENS: cached}


def _content(said: Transcript) -> dict[str, Any]:
    return {
        semconv.SYSTEM_INSTRUCTIONS: to_wire([{"type": "text", "content": said.system}]) if said.system else None,
        semconv.INPUT_MESSAGES: to_wire([text_message(USER, said.user)]) if said.user else None,
        semconv.OUTPUT_MESSAGES: to_wire([_answer(said)]) if said.answer else None,
    }


def _answer(said: Transcript) -> dict[str, Any]:
    return {**text_message(ASSISTANT, said.answer), "finish_reason": said.finish or "unknown"}


def _with_span_id(scored: SpanContext, span_id: int) -> SpanContext:
    return SpanContext(scored.trace_id, span_id, False, scored.trace_flags, scored.trace_state)
