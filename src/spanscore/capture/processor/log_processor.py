"""The log record processor that joins content in an application's log records to the spans that the records belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk._logs import LogRecordProcessor

from spanscore.capture.processor.processor import SpanScorer
from spanscore.core.codecs.otlp_span import content_of_sdk_record
from spanscore.core.log import log_internal_error

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import ReadWriteLogRecord  # from 1.39 on; LogData before, with the same attributes


class ScoringLogRecordProcessor(LogRecordProcessor):
    """Joins prompts and answers in log records to the spans that the ``ScoringSpanProcessor`` of the same scorer receives.

    Some instrumentations write content into log records instead of spans. OpenTelemetry's do if
    ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` is ``EVENT_ONLY``; older versions write events such as
    ``gen_ai.user.message``::

        tracer_provider.add_span_processor(ScoringSpanProcessor(scorer))
        logger_provider.add_log_record_processor(ScoringLogRecordProcessor(scorer))

    A record is read on the thread that emits it, and waits in memory until its span has ended. The provider's other processors
    get all records unchanged. Records without content, and records of spans that will not be scored, are ignored.

    Args:
        scorer: scorer of the ``ScoringSpanProcessor``.
    """

    def __init__(self, scorer: SpanScorer) -> None:
        self._spans = scorer._external_spans

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        """Keep a record that has content. Does not block; never raises."""
        try:
            scope = log_record.instrumentation_scope
            content = content_of_sdk_record(log_record.log_record, "" if scope is None else scope.name)
            if content is not None:
                self._spans.keep_log(content)
        except Exception as error:  # noqa: BLE001
            log_internal_error("read a log record", error)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True, because this processor exports nothing."""
        return True

    def shutdown(self) -> None:
        """Do nothing, because the scorer ends with its own ``shutdown()``."""
