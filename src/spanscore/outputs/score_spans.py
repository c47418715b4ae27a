"""Sinks that write scores, human labels and judge calls as OpenTelemetry spans, and the attributes of scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, USER, text_message
from spanscore.core.codecs.text import safe_text, to_wire, wire_values
from spanscore.core.printable import shorten
from spanscore.core.sample import Annotation
from spanscore.core.score import JudgeCall, JuryVotes, Scale, Score, Transcript, id_of, score_attributes
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.outputs.providers import Providers
from spanscore.outputs.spans import PresetSpanFactory, emit_finished

_COPIED = (semconv.CONVERSATION_ID, semconv.WORKFLOW_NAME, semconv.AGENT_NAME, semconv.PROMPT_VERSION)
"""Attributes of the unit's span that its evaluation spans have, too: a query may group by them and read no other span."""

EXPLANATION_MAX_CHARS = 2000
"""Longest explanation, because some backends cut or refuse long attributes. An explanation begins with the counts."""
_last_context: list[tuple[SpanData | None, Context]] = [(None, Context())]
"""The last span of ``context_of`` with its context, because each sink of a unit needs the same one."""


def span_context_of(span: SpanData) -> SpanContext:
    """Return the OpenTelemetry context of an ended span, with its sampling flags, which its children inherit."""
    return SpanContext(
        trace_id=span.trace_id,
        span_id=span.span_id,
        is_remote=False,
        trace_flags=TraceFlags(span.trace_flags),
        trace_state=TraceState.from_header([span.trace_state]) if span.trace_state else None,
    )


def context_of(span: SpanData) -> Context:
    """Return a context that contains only this span, as the current one; the same object for all sinks of a unit."""
    last, context = _last_context[0]
    if last is not span:
        context = set_span_in_context(NonRecordingSpan(span_context_of(span)), Context())
        _last_context[0] = span, context
    return context


def span_context_of_key(key: UnitKey) -> SpanContext:
    """Return the OpenTelemetry context of a unit's span from its ids alone, as a sampled span of another process."""
    return SpanContext(*key, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def context_of_key(key: UnitKey) -> Context:
    """Return a context that contains only the span with this key, as the current one."""
    return set_span_in_context(NonRecordingSpan(span_context_of_key(key)), Context())


def annotation_attributes(human_label: Annotation) -> dict[str, Any]:
    """Return the attributes that a human label's span and its event share; None values are removed later."""
    return {
        semconv.EVALUATION_NAME: human_label.name,
        semconv.EVALUATION_SCORE_VALUE: human_label.quality,
        semconv.EVALUATION_SCORE_LABEL: human_label.text,
        semconv.EVALUATION_EXPLANATION: human_label.comment and shorten(human_label.comment, EXPLANATION_MAX_CHARS),
        semconv.EVALUATOR_ID: human_label.name,
        semconv.EVALUATOR_TYPE: "human",
        semconv.ANNOTATOR: human_label.annotator,
        semconv.FEEDBACK_KEY: human_label.key,
        semconv.SCORE_ID: human_label.id,
        semconv.SCORE_REVISION: human_label.revision,
    }


def unit_facts(unit: Unit, root: SpanData) -> dict[str, Any]:
    """Return the attributes by which backends group the scores of a unit. Its evaluation spans and events have them."""
    facts = {name: root.attributes[name] for name in _COPIED if name in root.attributes}
    target = facts.get(semconv.AGENT_NAME) or facts.get(semconv.WORKFLOW_NAME)
    if unit.inner is not None:
        facts |= unit.inner.attributes
    return facts | {semconv.EVALUATION_TARGET: target, semconv.SCORED_REQUEST_MODEL: unit.request_model}


def result_attributes(score: Score, *, content: bool) -> dict[str, Any]:
    """Return the attributes of an evaluation's span and event; None values are removed later.

    The explanation, or the reason for an absent value, is included only with ``content``.
    """
    return {
        semconv.EVALUATION_NAME: score.metric,
        semconv.EVALUATOR_ID: score.metric,
        semconv.EVALUATOR_VERSION: score.evaluator_version or None,
        semconv.EVALUATOR_TYPE: evaluator_type(score),
        semconv.JUDGE_MODEL: score.judge_model or next((call.model for call in score.usage.calls if call.model), None),
        semconv.METRIC_KIND: score.kind,
        semconv.METRIC_DIRECTION: None if score.scale.categories else score.direction,
        semconv.EVALUATION_SCORE_VALUE: score.number,
        semconv.EVALUATION_SCORE_LABEL: score.exported_label,
        semconv.EVALUATION_EXPLANATION: explanation_of(score) if content else None,
        semconv.EVALUATION_SOURCE: score.source,
        semconv.ERROR_TYPE: error_type_of(score),
        semconv.OUTCOME: None if score.value is not None else str(score.outcome),
        semconv.APPLICABLE: score.applies,
        semconv.SAMPLING_THRESHOLD: None if score.threshold is None else f"{score.threshold:014x}",
    }


def explanation_of(score: Score) -> str | None:
    """Return the explanation of a score, or the reason for its absent value, at most ``EXPLANATION_MAX_CHARS``.

    Either may quote prompts and answers. None = there is no text.
    """
    text = score.explanation or score.reason
    return text and shorten(text, EXPLANATION_MAX_CHARS)


def evaluator_type(score: Score) -> str:
    """Return ``llm_judge`` if a model was called, otherwise ``deterministic``."""
    return "llm_judge" if score.judge_model or score.usage.calls else "deterministic"


def annotator_kind(score: Score) -> str:
    """Return OpenInference's kind of the annotator: ``LLM`` if a model was called, otherwise ``CODE``."""
    return "LLM" if evaluator_type(score) == "llm_judge" else "CODE"


def error_type_of(score: Score) -> str | None:
    """Return the reason of a failed evaluation; None for one that did not fail."""
    return (score.error_type or str(score.outcome)) if score.outcome.failed else None


_LASTS_NS = 1_000
"""Duration of an evaluation span. It is not 0, because Jaeger warns of a span with equal start and end."""
_INTERNAL = SpanKind.INTERNAL
_UNSET = Status(StatusCode.UNSET)
_NAME, _SCORE, _LABEL, _EXPLANATION, _ANNOTATOR, _IDENTIFIER = (
    semconv.OPENINFERENCE_EVALUATION + name
    for name in ("name", "score", "label", "explanation", "annotator_kind", "identifier")
)


class EvaluationSpans:
    """Writes one span per score and per human label, through the application's own tracer provider.

    The span of a score is a child of the unit's span, and ends with it. Its id is computed from the score's id, so that it is
    the same in every replica. These spans also carry scores that come after the export of the unit's span. The scores of an
    unsampled trace get no spans, because their parent is not exported.

    The span of a label is a child of the unit's span, too, but has the time of the label. The last label of a unit, name and
    annotator is valid.

    Args:
        providers: provides the tracer of the scope ``spanscore``.
        content: whether explanations, which quote prompts and answers, may be exported.
    """

    def __init__(self, providers: Providers, content: bool = False) -> None:
        self._providers = providers
        self._content = content
        self._factory: PresetSpanFactory | None = None
        self._last_resource: tuple[Any, Any] = (None, None)  # attributes, and their resource

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Write one span per score."""
        root = unit.root
        if root is None or not root.sampled:
            return
        tracer, of_unit = self._providers.tracer(semconv.SCOPE), unit_facts(unit, root)
        for score in scores:
            identity = score.id or id_of(score, unit)
            span_id, attributes = int(identity[:16], 16), self._attributes(of_unit, unit, score, identity)
            self._write(tracer, unit, root, score, span_id, attributes)

    def label(self, label: Annotation) -> None:
        """Write a span for a label; a label without a known unit gets no span."""
        if label.unit is None:
            return
        shared = annotation_attributes(label)
        attributes = {
            semconv.OPERATION_NAME: semconv.EVALUATION,
            semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_EVALUATOR,
            _NAME: label.name,
            _SCORE: label.quality,
            _LABEL: label.text,
            _EXPLANATION: shared[semconv.EVALUATION_EXPLANATION],
            _ANNOTATOR: semconv.ANNOTATOR_HUMAN,
            _IDENTIFIER: label.annotator,
            **shared,
            semconv.SCORE + label.name: label.quality,
            semconv.LABEL + label.name: label.text,
            semconv.QUALITY: label.quality,
        }
        tracer = self._providers.tracer(semconv.SCOPE)
        self._factory = self._factory or PresetSpanFactory.of(tracer)
        own_id = int(label.id[:16], 16)
        start = tracer.start_span if self._factory is None else partial(self._factory.start_span, span_id=own_id)
        start_ns = time_ns() if label.when_ns is None else label.when_ns
        span = start(
            f"{semconv.EVALUATION} {label.name}",
            context=context_of_key(label.unit),
            kind=_INTERNAL,
            attributes=wire_values(attributes),
            links=[Link(span_context_of_key(label.unit), {})],
            start_time=start_ns,
        )
        span.end(end_time=start_ns + _LASTS_NS)

    def shutdown(self) -> None:
        """Do nothing, because the tracer provider has the spans."""

    def _write(
        self, tracer: Tracer, unit: Unit, root: SpanData, score: Score, span_id: int, attributes: dict[str, Any]
    ) -> None:
        """Write the span of a score.

        With the SDK's tracer, the finished span is made at once, unless a processor reads spans at their start. A span with a
        resource of its own is always made this way, because the tracer would give it the resource of this process.
        """
        name, context = f"{semconv.EVALUATION} {score.metric}", context_of(root)
        start_ns = max(root.start_ns, root.end_ns - _LASTS_NS)
        parent, status = get_current_span(context).get_span_context(), _status(score)
        links, resource = _links(unit, parent), self._resource_of(root.resource)
        self._factory = factory = self._factory or PresetSpanFactory.of(tracer)
        if factory is not None and (resource is not None or (not factory.watched and factory.keeps(parent))):
            own = SpanContext(parent.trace_id, span_id, False, parent.trace_flags, parent.trace_state)
            end_ns = root.end_ns
            emit_finished(tracer, name, own, parent, _INTERNAL, attributes, status, start_ns, end_ns, links, resource)
            return
        start = tracer.start_span if factory is None else partial(factory.start_span, span_id=span_id)
        span = start(name, context=context, kind=_INTERNAL, attributes=attributes, links=links, start_time=start_ns)
        if score.outcome.failed:
            span.set_status(status)
        span.end(end_time=root.end_ns)

    def _resource_of(self, attributes: Mapping[str, Any] | None) -> Any:
        """Return the resource with these attributes; None for None. It is kept, because it is half of a span's cost."""
        last, resource = self._last_resource
        if attributes is None or last is attributes:
            return None if attributes is None else resource
        from spanscore.core.codecs.sdk import HashedResource

        self._last_resource = attributes, HashedResource(dict(attributes))
        return self._last_resource[1]

    def _attributes(self, of_unit: Mapping[str, Any], unit: Unit, score: Score, identity: str) -> dict[str, Any]:
        result, usage, session = result_attributes(score, content=self._content), score.usage, unit.session
        attributes = {
            **of_unit,
            **score_attributes(score),
            **result,
            semconv.OPERATION_NAME: semconv.EVALUATION,
            semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_EVALUATOR,
            _NAME: score.metric,
            _SCORE: result[semconv.EVALUATION_SCORE_VALUE],
            _LABEL: score.exported_label,
            _EXPLANATION: result[semconv.EVALUATION_EXPLANATION],
            _ANNOTATOR: annotator_kind(score),
            _IDENTIFIER: score.evaluator_version or score.version,
            semconv.VERDICT: None if score.is_shadow else score.label,
            semconv.METRIC_VERSION: score.version,
            **_scale_attributes(score.scale),
            semconv.QUALITY: None if score.quality is None else float(score.quality),
            semconv.SAMPLING_RULE: score.rule,
            semconv.JUDGE_SELF_CONTRADICTIONS_ATTRIBUTE: score.contradictions or None,
            semconv.SCORE_ID: identity,
            semconv.SCORE_REVISION: score.revision,
            semconv.REQUEST_MODEL: result[semconv.JUDGE_MODEL],
        }
        if usage.calls:
            attributes |= {
                semconv.JUDGE_INPUT_TOKENS: usage.input_tokens,
                semconv.JUDGE_OUTPUT_TOKENS: usage.output_tokens,
                semconv.JUDGE_COST_USD: None if usage.cost_usd is None else float(usage.cost_usd),
                semconv.JUDGE_CALLS_ATTRIBUTE: len(usage.calls),
                semconv.JUDGE_CACHED_CALLS: usage.cached_calls,
                semconv.JUDGE_INPUT_TRUNCATED_RATIO: float(usage.input_truncated_ratio),
                semconv.JUDGE_IMAGES_NOT_SHOWN: usage.images_not_shown or None,
                semconv.JUDGE_DURATION_ATTRIBUTE: float(usage.duration_s),
            }
        attributes |= _jury_attributes(score.jury)
        if session is not None:
            attributes |= {semconv.SESSION_TURNS: session.turns, semconv.SESSION_END: session.end}
        return wire_values(attributes)


def _scale_attributes(scale: Scale) -> dict[str, Any]:
    return {
        semconv.METRIC_RANGE: None if scale.range is None else [float(bound) for bound in scale.range],
        semconv.METRIC_CATEGORIES: list(scale.categories) or None,
        semconv.METRIC_PASS_AT: None if scale.range is None else float(scale.pass_at),
    }


def _jury_attributes(jury: JuryVotes | None) -> dict[str, Any]:
    if jury is None:
        return {}
    return {
        semconv.JURY_SIZE: len(jury.models),
        semconv.JURY_MODELS: list(jury.models) or None,
        semconv.JURY_VALUES: list(jury.values) or None,
        semconv.JURY_LEFT_OUT: list(jury.left_out) or None,
        semconv.JURY_DISAGREEMENT: jury.disagreement,
    }


def _links(unit: Unit, root: SpanContext) -> list[Link]:
    """Return links to the scored spans: the unit's span, or those of a session's turns."""
    turns = () if unit.session is None else (turn for turn in unit.session.links if turn != unit.key)
    others = (SpanContext(*turn, is_remote=True, trace_flags=root.trace_flags) for turn in turns)
    return [Link(context, {}) for context in (root, *others)]


def _status(score: Score) -> Status:
    """Return ERROR for a failed evaluation, never for a low score. The description contains no content."""
    if not score.outcome.failed:
        return _UNSET
    return Status(StatusCode.ERROR, safe_text(score.reason or error_type_of(score) or ""))


class JudgeSpans:
    """Writes one span per request to a judge through the application's own tracer provider, to debug an evaluator.

    The requests for a score form a separate trace, because their spans would make the scored trace longer. The id of the trace
    is the score's id (``spanscore.score.id`` on the evaluation span), and each of its spans is linked to the evaluation span.
    Each attempt of a question has a span with its own time, error and cost, so that the sums over a trace are the figures of
    its evaluation span.

    The head sampler is not called for these spans, because it has already decided about the scored trace: scores of a sampled
    trace get all of them, scores of an unsampled trace none.

    Args:
        providers: provides the tracer of the scope ``spanscore.judge``.
        to_evaluation: whether evaluation spans are written, to which judge spans can link; otherwise they link to the unit's
            span.
    """

    def __init__(self, providers: Providers, *, to_evaluation: bool = True) -> None:
        self._providers = providers
        self._to_evaluation = to_evaluation
        self._factory: PresetSpanFactory | None = None

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Write one span per call of each score."""
        root = unit.root
        if root is None or not root.sampled:
            return
        target = scored = span_context_of(root)
        for score in scores:
            identity = score.id or id_of(score, unit)
            if self._to_evaluation:
                span_id = int(identity[:16], 16)
                target = SpanContext(scored.trace_id, span_id, False, scored.trace_flags, scored.trace_state)
            for call, transcript in _transcripts(score.usage.calls):
                self._write(score, call, transcript, identity, target)

    def shutdown(self) -> None:
        """Do nothing, because the tracer provider has the spans."""

    def _write(self, score: Score, call: JudgeCall, transcript: Transcript, identity: str, target: SpanContext) -> None:
        attributes = wire_values(_judge_call_attributes(score, call, transcript) | {semconv.SCORE_ID: identity})
        span = self._start(int(identity, 16), attributes)(
            f"{attributes[semconv.OPERATION_NAME]} {transcript.asked_model or call.model}".rstrip(),
            context=Context(),
            kind=SpanKind.CLIENT if transcript.provider and not call.cached else SpanKind.INTERNAL,
            attributes=attributes,
            links=[Link(target, {})],
            start_time=transcript.ended_ns - max(_LASTS_NS, int(call.duration_s * 1e9)),
        )
        if call.error_type is not None:
            span.set_status(Status(StatusCode.ERROR, safe_text(transcript.trouble or call.error_type)))
        span.end(end_time=transcript.ended_ns)

    def _start(self, trace_id: int, attributes: Mapping[str, Any]) -> Any:
        """Return a function that starts a sampled span of a trace; if the tracer is not the SDK's, of a new trace."""
        tracer = self._providers.tracer(semconv.JUDGE_SCOPE)
        self._factory = self._factory or PresetSpanFactory.of(tracer)
        if self._factory is None:
            return tracer.start_span
        from opentelemetry.sdk.trace.sampling import Decision, SamplingResult

        sampling = SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return partial(self._factory.start_span, trace_id=trace_id, sampling=sampling)


def _transcripts(calls: Sequence[JudgeCall]) -> Iterator[tuple[JudgeCall, Transcript]]:
    """Yield calls with their transcripts; of several attempts of a question, only the last transcript has the question."""
    later: set[tuple[str, str]] = set()  # questions of later calls
    pairs: list[tuple[JudgeCall, Transcript]] = []
    for call in reversed(calls):
        transcript = call.transcript
        if transcript is not None:
            question = transcript.system, transcript.user
            is_repeated = question in later and not transcript.answer
            pairs.append((call, transcript.without_question() if is_repeated else transcript))
            later.add(question)
    yield from reversed(pairs)


def _judge_call_attributes(score: Score, call: JudgeCall, transcript: Transcript) -> dict[str, Any]:
    answered = call.error_type is None or bool(transcript.finish or transcript.answer)
    return {
        semconv.OPERATION_NAME: transcript.operation,
        semconv.PROVIDER_NAME: transcript.provider or None,
        semconv.REQUEST_MODEL: transcript.asked_model or None,
        semconv.RESPONSE_MODEL: call.model if answered and call.model else None,
        semconv.RESPONSE_FINISH_REASONS: None if transcript.finish is None else [transcript.finish],
        **_usage(call),
        semconv.ERROR_TYPE: call.error_type,
        semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_KINDS[transcript.operation],
        semconv.EVALUATION_NAME: score.metric,
        semconv.EVALUATOR_VERSION: score.evaluator_version or None,
        semconv.EVALUATION_SOURCE: score.source,
        semconv.JUDGE_STEP: call.step,
        semconv.JUDGE_CACHED_CALLS: int(call.cached),
        semconv.JUDGE_INPUT_TRUNCATED_RATIO: float(call.input_truncated_ratio) or None,
        semconv.JUDGE_IMAGES_NOT_SHOWN: call.images_not_shown or None,
        semconv.JUDGE_COST_USD: None if call.cost_usd is None else float(call.cost_usd),
        **_content(transcript),
    }


def _usage(call: JudgeCall) -> dict[str, Any]:
    """Return the attributes with the tokens of a call; empty if the provider did not report them."""
    if call.estimated or not (call.input_tokens or call.output_tokens):
        return {}
    return {
        semconv.USAGE_INPUT_TOKENS: call.input_tokens,
        semconv.USAGE_OUTPUT_TOKENS: call.output_tokens,
        semconv.USAGE_CACHE_READ_INPUT_TOKENS: call.cached_input_tokens or None,
        semconv.USAGE_CACHE_CREATION_INPUT_TOKENS: call.cache_write_tokens or None,
    }


def _content(transcript: Transcript) -> dict[str, Any]:
    answer = {**text_message(ASSISTANT, transcript.answer), "finish_reason": transcript.finish or "unknown"}
    system = [{"type": "text", "content": transcript.system}]
    return {
        semconv.SYSTEM_INSTRUCTIONS: to_wire(system) if transcript.system else None,
        semconv.INPUT_MESSAGES: to_wire([text_message(USER, transcript.user)]) if transcript.user else None,
        semconv.OUTPUT_MESSAGES: to_wire([answer]) if transcript.answer else None,
    }
