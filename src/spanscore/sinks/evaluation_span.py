"""One span per score: child of the unit's span and linked to it, at its end, with an id that any replica would choose too.

Late scores arrive this way, and backends that cannot wait for a held root see no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, Tracer, get_current_span

from spanscore import semconv
from spanscore.core.codecs.text import safe_text, wire_values
from spanscore.core.sample import Annotation
from spanscore.core.score import Score, id_of, score_attributes
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.otel.deferred_span import readable_span
from spanscore.otel.providers import Providers
from spanscore.otel.scope import scope
from spanscore.otel.span_factory import PresetSpanFactory
from spanscore.sinks.annotation_span import AnnotationSpans
from spanscore.sinks.emission import (
    context_of,
    error_type_of,
    evaluator_type,
    judge_model_of,
    result_attributes,
    unit_facts,
)

__all__ = ["EvaluationSpans"]

_INTERNAL = SpanKind.INTERNAL
_UNSET = Status(StatusCode.UNSET)
_LASTS_NS = 1_000
"""Of a span that ends where it starts Jaeger mends the end, with a warning; then it ends after its parent, with another."""


class EvaluationSpans:
    """Writes evaluation spans through the application's own tracer provider.

    Nothing is written for a unit whose trace is not sampled, as its parent is nowhere to be seen.

    Args:
        providers: gives the tracer of the scope ``spanscore``.
        content: whether explanations, which quote prompts and answers, may be exported.
    """

    def __init__(self, providers: Providers, content: bool = False) -> None:
        self._providers = providers
        self._content = content
        self._labels = AnnotationSpans(providers)
        self._chosen: PresetSpanFactory | None = None
        self._latest: tuple[Any, Any] = (None, None)

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Write a span per score."""
        root = unit.root
        if root is None or not root.sampled:
            return
        tracer, of_unit = self._providers.tracer(semconv.SCOPE), unit_facts(unit, root)
        for score in scores:
            identity = score.id or id_of(score, unit)
            span_id, attributes = int(identity[:16], 16), self._attributes(of_unit, unit, score, identity)
            if root.resource is None or not hasattr(tracer, "span_processor"):
                self._start_and_end(tracer, unit, score, span_id, attributes)
            else:
                resource = self._resource_of(root.resource)
                tracer.span_processor.on_end(_hand_built(unit, score, span_id, attributes, resource))

    def label(self, label: Annotation) -> None:
        """Write a span for what somebody said; none where nobody knows of which unit."""
        self._labels.write(label)

    def shutdown(self) -> None:
        """Hold nothing back: the spans are with the tracer provider."""

    def _start_and_end(
        self, tracer: Tracer, unit: Unit, score: Score, span_id: int, attributes: dict[str, Any]
    ) -> None:
        root = unit.root
        assert root is not None
        self._chosen = chosen = self._chosen or PresetSpanFactory.of(tracer)
        name, context = f"{semconv.EVALUATION} {score.metric}", context_of(root)
        above = get_current_span(context).get_span_context()
        links, start_ns = _links(unit, above), _start_ns(root)
        if chosen is not None and above.is_valid and not chosen.watched and chosen.keeps(above):
            ids = chosen.ids_of(above, above.trace_id, span_id, above.trace_state)
            chosen.finish(name, ids, above, _INTERNAL, attributes, _status(score), start_ns, root.end_ns, links)
            return
        start = tracer.start_span if chosen is None else partial(chosen.start_span, span_id=span_id)
        span = start(name, context=context, kind=_INTERNAL, attributes=attributes, links=links, start_time=start_ns)
        if score.outcome.failed:
            span.set_status(_status(score))
        span.end(end_time=root.end_ns)

    def _resource_of(self, attributes: Mapping[str, Any]) -> Any:
        """Return the resource of a scored application; spans of one share theirs, and to make it is half of a span's cost."""
        known, resource = self._latest
        if known is not attributes:
            from spanscore.otel.hashed_resource import HashedResource

            resource = HashedResource(dict(attributes))
            self._latest = attributes, resource
        return resource

    def _attributes(self, of_unit: Mapping[str, Any], unit: Unit, score: Score, identity: str) -> dict[str, Any]:
        result = result_attributes(score, content=self._content)
        return wire_values(
            {
                **of_unit,
                **score_attributes(score),
                **result,
                **_openinference(score, result),
                **_ours(score, identity),
                **_judge(score),
                **_session(unit),
            }
        )


_NAME, _SCORE, _LABEL, _EXPLANATION, _ANNOTATOR, _IDENTIFIER = (
    semconv.OPENINFERENCE_EVALUATION + name
    for name in ("name", "score", "label", "explanation", "annotator_kind", "identifier")
)


def _openinference(score: Score, result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        semconv.OPERATION_NAME: semconv.EVALUATION,
        semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_EVALUATOR,
        _NAME: score.metric,
        _SCORE: result[semconv.EVALUATION_SCORE_VALUE],
        _LABEL: score.label,
        _EXPLANATION: result[semconv.EVALUATION_EXPLANATION],
        _ANNOTATOR: "LLM" if evaluator_type(score) == "llm_judge" else "CODE",
        _IDENTIFIER: score.evaluator_version or score.version,
    }


def _ours(score: Score, identity: str) -> dict[str, Any]:
    return {
        semconv.VERDICT: None if score.is_shadow else score.label,
        semconv.METRIC_VERSION: score.version,
        semconv.METRIC_RANGE: None if score.range is None else [float(bound) for bound in score.range],
        semconv.METRIC_PASS_AT: None if score.range is None else float(score.scale.pass_at),
        semconv.QUALITY: None if score.quality is None else float(score.quality),
        semconv.SAMPLING_RULE: score.rule,
        semconv.JUDGE_SELF_CONTRADICTIONS_ATTRIBUTE: score.contradictions or None,
        semconv.SCORE_ID: identity,
        semconv.SCORE_REVISION: score.revision,
    }


def _session(unit: Unit) -> dict[str, Any]:
    session = unit.session
    return {} if session is None else {semconv.SESSION_TURNS: session.turns, semconv.SESSION_END: session.end}


def _links(unit: Unit, root: SpanContext) -> list[Link]:
    """Return links to what was scored: the unit's span, or those of a session's turns."""
    turns = () if unit.session is None else unit.session.links
    return [Link(root, {}), *(Link(_other(root, turn), {}) for turn in turns if turn != unit.key)]


def _other(near: SpanContext, key: UnitKey) -> SpanContext:
    return SpanContext(key.trace_id, key.span_id, is_remote=True, trace_flags=near.trace_flags)


def _judge(score: Score) -> dict[str, Any]:
    model, usage = {semconv.REQUEST_MODEL: judge_model_of(score)}, score.usage
    if not usage.calls:
        return model
    return model | {
        semconv.JUDGE_INPUT_TOKENS: usage.input_tokens,
        semconv.JUDGE_OUTPUT_TOKENS: usage.output_tokens,
        semconv.JUDGE_COST_USD: None if usage.cost_usd is None else float(usage.cost_usd),
        semconv.JUDGE_CALLS_ATTRIBUTE: len(usage.calls),
        semconv.JUDGE_CACHED_CALLS: usage.cached_calls,
        semconv.JUDGE_INPUT_TRUNCATED_RATIO: float(usage.input_truncated_ratio),
        semconv.JUDGE_DURATION_ATTRIBUTE: float(usage.duration_s),
    }


def _start_ns(root: SpanData) -> int:
    return max(root.start_ns, root.end_ns - _LASTS_NS)


def _status(score: Score) -> Status:
    """ERROR is for an evaluation that failed, never for a low score. Its reason holds no content."""
    if not score.outcome.failed:
        return _UNSET
    return Status(StatusCode.ERROR, safe_text(score.reason or error_type_of(score) or ""))


def _hand_built(unit: Unit, score: Score, span_id: int, attributes: dict[str, Any], resource: Any) -> Any:
    """Build a span with the resource of the scored application, which a tracer of this process cannot give."""
    root = unit.root
    assert root is not None
    parent = get_current_span(context_of(root)).get_span_context()
    return readable_span()(
        name=f"{semconv.EVALUATION} {score.metric}",
        context=SpanContext(parent.trace_id, span_id, False, parent.trace_flags, parent.trace_state),
        parent=parent,
        resource=resource,
        attributes=attributes,
        links=_links(unit, parent),
        kind=_INTERNAL,
        status=_status(score),
        start_time=_start_ns(root),
        end_time=root.end_ns,
        instrumentation_scope=_scope(),
    )


@cache
def _scope() -> Any:
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    return InstrumentationScope(*scope())
