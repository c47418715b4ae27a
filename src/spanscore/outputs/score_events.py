"""Two sinks: one writes a log event per score, ``gen_ai.evaluation.result``; one adds scores to the OpenTelemetry metrics."""

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
    context_of,
    context_of_key,
    result_attributes,
    unit_facts,
)


class EvaluationEvents:
    """Writes events by OpenTelemetry's conventions, through the application's logger provider.

    The event of a score has the context of the unit's root span and the time of its end. Units of unsampled traces get events,
    too, with the flags of their traces. Failed evaluations have the severity WARN. A score gets no event if it replaces another
    score, is provisional, or belongs to a unit without a root. A label with an unknown time has no timestamp.

    Args:
        providers: provides the logger of the scope ``spanscore``.
        content: whether explanations of scores, which quote prompts and answers, may be exported. Labels arrive without their
            comments if content may not be exported.
    """

    def __init__(self, providers: Providers, content: bool = False) -> None:
        self._providers = providers
        self._content = content

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Write one event per score."""
        root = unit.root
        if root is None:
            return
        logger = self._providers.logger()
        is_enabled = getattr(logger, "enabled", None)  # missing in early versions of the API
        if is_enabled is not None and not is_enabled(event_name=semconv.EVALUATION_EVENT):
            return
        from opentelemetry._logs import SeverityNumber

        context, facts = context_of(root), unit_facts(unit, root)
        response_id = root.attributes.get(semconv.RESPONSE_ID)
        for score in scores:
            if score.revision or unit.is_provisional:  # a sum over events would count the unit twice
                continue
            probability = None if score.probability is None else float(score.probability)
            attributes = facts | result_attributes(score, content=self._content)
            attributes |= {semconv.RESPONSE_ID: response_id, semconv.SAMPLING_PROBABILITY: probability}
            logger.emit(
                timestamp=root.end_ns,
                observed_timestamp=time_ns(),
                context=context,
                event_name=semconv.EVALUATION_EVENT,
                attributes=wire_values(attributes),
                severity_number=SeverityNumber.WARN if score.outcome.failed else SeverityNumber.INFO,
            )

    def label(self, label: Annotation) -> None:
        """Write an event for a label, in its unit's context if that is known; a changed label has its revision."""
        from opentelemetry._logs import SeverityNumber

        self._providers.logger().emit(
            timestamp=label.when_ns,
            context=Context() if label.unit is None else context_of_key(label.unit),
            event_name=semconv.EVALUATION_EVENT,
            attributes=wire_values(annotation_attributes(label)),
            severity_number=SeverityNumber.INFO,
        )

    def shutdown(self) -> None:
        """Do nothing, because the logger provider has the events."""


class Instruments:
    """Adds scores to the sums of a scorer. It also gets scores that another process exported but did not add (``Score.sent``).

    Units of unsampled traces, and units without a root, get no exemplar.

    Args:
        telemetry: instruments of the scorer, which outlive this sink because the last collection comes later.
    """

    takes_sent = True

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Add each score that is not in the sums of another process (``Score.counted``)."""
        root = unit.root
        context = None if root is None else context_of(root)
        for score in (score for score in scores if not score.counted):
            self._telemetry.record(unit, score, context)

    def label(self, label: Annotation) -> None:
        """Count a unit's label once, and each change of it."""
        value = ((semconv.EVALUATION_SCORE_LABEL, label.text),) if label.text else ()
        name = semconv.ANNOTATION_CHANGES if label.revision else semconv.ANNOTATIONS
        self._telemetry.count(name, ((semconv.EVALUATION_NAME, label.name), *value))

    def shutdown(self) -> None:
        """Do nothing, because the telemetry outlives this sink."""
