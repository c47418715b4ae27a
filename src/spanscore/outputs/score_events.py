"""Scores → log events ``gen_ai.evaluation.result``, and scores → instruments with exemplars."""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns

from opentelemetry.context import Context

from spanscore import semconv
from spanscore.core.codecs.text import wire_values
from spanscore.core.sample import Annotation
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import (
    annotation_attributes,
    context_above,
    context_of,
    result_attributes,
    unit_facts,
)

# One log event per score, ``gen_ai.evaluation.result``, in the context of the scored span: the OpenTelemetry convention.


class EvaluationEvents:
    """Writes evaluation events through the application's logger provider.

    Also for units whose trace is not sampled: the event carries the trace's flags. None for a score that supersedes another, or
    will be superseded.

    Args:
        providers: gives the logger of the scope ``spanscore``.
        content: whether explanations, which quote prompts and answers, may be exported.
    """

    def __init__(self, providers: Providers, content: bool = False) -> None:
        self._providers = providers
        self._content = content

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Write an event per score."""
        root = unit.root
        if root is None:
            return
        logger = self._providers.logger()
        if hasattr(logger, "enabled") and not logger.enabled(
            event_name=semconv.EVALUATION_EVENT
        ):  # not in early versions
            return
        from opentelemetry._logs import SeverityNumber

        context, facts = context_of(root), unit_facts(unit, root)
        response_id = root.attributes.get(semconv.RESPONSE_ID)
        for score in scores:
            if score.revision or unit.is_provisional:  # an event has no revision: a sum of events would count it twice
                continue
            probability = None if score.probability is None else float(score.probability)
            own = {semconv.RESPONSE_ID: response_id, semconv.SAMPLING_PROBABILITY: probability}
            result = result_attributes(score, content=self._content)
            logger.emit(
                timestamp=root.end_ns,
                observed_timestamp=time_ns(),
                context=context,
                event_name=semconv.EVALUATION_EVENT,
                attributes=wire_values(facts | result | own),
                severity_number=SeverityNumber.WARN if score.outcome.failed else SeverityNumber.INFO,
            )

    def label(self, label: Annotation) -> None:
        """Write an event for what somebody said, in its unit's context where that is known; a changed one has its revision."""
        from opentelemetry._logs import SeverityNumber

        self._providers.logger().emit(
            timestamp=label.when_ns,
            context=Context() if label.unit is None else context_above(label.unit),
            event_name=semconv.EVALUATION_EVENT,
            attributes=wire_values(annotation_attributes(label)),
            severity_number=SeverityNumber.INFO,
        )

    def shutdown(self) -> None:
        """Hold nothing back: the events are with the logger provider."""


class Instruments:
    """Feeds the telemetry; also from units that are not sampled or lost their root, which give no exemplar.

    Args:
        telemetry: the scorer's instruments; they outlive this sink, as the last collection comes after it.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Count each score that is not in the sums of another process."""
        root = unit.root
        context = None if root is None else context_of(root)
        for score in (score for score in scores if not score.counted):
            self._telemetry.record(unit, score, context)

    def label(self, label: Annotation) -> None:
        """Count a unit's label once, and each change of it."""
        said = ((semconv.EVALUATION_SCORE_LABEL, label.text),) if label.text else ()
        name = semconv.ANNOTATION_CHANGES if label.revision else semconv.ANNOTATIONS
        self._telemetry.count(name, ((semconv.EVALUATION_NAME, label.name), *said))

    def shutdown(self) -> None:
        """Hold nothing back: the telemetry outlives it."""
