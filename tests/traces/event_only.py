"""An application on the OpenAI SDK with its content on spans or in log records, and the metrics that keep its samples.

A test runs it in a process of its own, with the switches of the instrumentation in the environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import NonRecordingSpan, set_span_in_context
from tests.traces.openai_app import programs

from spanscore import OnlineScorer, ScoringLogRecordProcessor, ScoringSpanProcessor, semconv
from spanscore.metrics import BaseMetric, Finding

ROOT: Final = Path(__file__).parents[2]
CALLS: Final = 7
"""Model calls of the application; each is a unit."""
SAMPLES: Final = 11
"""Samples of these calls: six of one turn, five conversations."""
SAMPLES_ENV: Final = "TESTS_SAMPLES_FILE"
METRICS: Final = [f"{__name__}:{name}" for name in ("Asked", "Talked")]
SCOPE: Final = "opentelemetry.instrumentation.genai.openai"
CONTENT: Final = (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES)
Record = tuple[str, Mapping[str, Any], Any]
"""Event name, attributes and body of a log record."""


class Asked(BaseMetric):
    """1 for every sample of one turn; appends it to the file that the environment names."""

    name = "asked"
    requires = {"single_turn": ()}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        _append(sample.model_dump_json(exclude_none=True))
        return Finding(value=1)


class Talked(Asked):
    """1 for every conversation; appends it to that file."""

    name = "talked"
    requires = {"multi_turn": ()}  # noqa: RUF012


def _append(line: str) -> None:
    with Path(os.environ[SAMPLES_ENV]).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


class MovedContent(SpanProcessor):
    """Moves the content of ended spans into log records, and passes the spans on."""

    def __init__(
        self, inner: SpanProcessor, loggers: LoggerProvider, records: Callable[[Mapping[str, str]], Iterator[Record]]
    ) -> None:
        self._inner, self._loggers, self._records = inner, loggers, records

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self._inner.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        attributes: Any = dict(span.attributes or {})
        content = {name: attributes.pop(name) for name in CONTENT if name in attributes}
        context = set_span_in_context(NonRecordingSpan(span.context))
        for name, of_record, body in self._records(content) if content else ():
            record = LogRecord(event_name=name, attributes=of_record, body=body, context=context)
            self._loggers.get_logger(SCOPE).emit(record)
        times = {"start_time": span.start_time, "end_time": span.end_time}
        parts = {"resource": span.resource, "kind": span.kind, "instrumentation_scope": span.instrumentation_scope}
        self._inner.on_end(ReadableSpan(span.name, span.context, span.parent, attributes=attributes, **parts, **times))


def older_records(content: Mapping[str, str]) -> Iterator[Record]:
    """Yield a record for each message, in the event family before ``gen_ai.client.inference.operation.details``."""
    for message in json.loads(content[semconv.INPUT_MESSAGES]):
        yield f"gen_ai.{message['role']}.message", {"gen_ai.system": "openai"}, _older_body(message)
    for index, message in enumerate(json.loads(content[semconv.OUTPUT_MESSAGES])):
        body = {"index": index, "finish_reason": message["finish_reason"]}
        said = {"role": message["role"], **_older_body(message)}
        yield "gen_ai.choice", {"gen_ai.system": "openai"}, {**body, "message": said}


def _older_body(message: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for part in message["parts"]:
        if part["type"] == "text":
            body["content"] = part["content"]
        elif part["type"] == "tool_call":
            function = {"name": part["name"], "arguments": json.dumps(part["arguments"])}
            body.setdefault("tool_calls", []).append({"id": part["id"], "type": "function", "function": function})
        else:
            body |= {"id": part["id"], "content": part["response"]}
    return body


def aws_records(content: Mapping[str, str]) -> Iterator[Record]:
    """Yield a record as AWS's distribution does: the attributes as they were, on the side that they belong to."""
    sides = {"input": ("user", semconv.INPUT_MESSAGES), "output": ("assistant", semconv.OUTPUT_MESSAGES)}
    body = {side: {"messages": [{"role": role, "content": content[name]}]} for side, (role, name) in sides.items()}
    yield SCOPE, {semconv.EVENT_NAME: SCOPE}, body


SPANS: Final = "SPAN_ONLY"
FORMS: Final = {SPANS: None, "EVENT_ONLY": None, "older": older_records, "aws": aws_records}
"""Places of the content: modes of the instrumentation, and forms of log records into which it is moved."""


def run(form: str, model: str, *, endpoint: str = "") -> None:
    """Run the application in a process of its own.

    Args:
        form: key of ``FORMS``.
        model: address of the model.
        endpoint: base of OTLP over HTTP that gets its spans and log records; empty = a scorer in its process reads them.
    """
    mode = SPANS if FORMS[form] else form
    switches = {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": mode,
    }
    command = [sys.executable, "-m", __name__, form, model, endpoint]
    subprocess.run(command, env={**os.environ, **switches}, cwd=ROOT, check=True, timeout=120)


def differing_samples(file: Path) -> dict[str, int]:
    """Return the samples that did not come equally often from every form, with their numbers.

    Args:
        file: holds the samples of one run in each form.
    """
    times = Counter(file.read_text(encoding="utf-8").splitlines())
    assert times.total() == SAMPLES * len(FORMS), times
    return {sample: number for sample, number in times.items() if number % len(FORMS)}


def main(form: str, model: str, endpoint: str) -> None:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    tracers, loggers = TracerProvider(), LoggerProvider()
    scorer = None if endpoint else OnlineScorer(metrics=[Asked(), Talked()], tracer_provider=tracers)
    if scorer is None:
        spans: Any = SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces"))
        loggers.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{endpoint}/v1/logs")))
    else:
        spans = ScoringSpanProcessor(scorer)
        loggers.add_log_record_processor(ScoringLogRecordProcessor(scorer))
    records = FORMS[form]
    tracers.add_span_processor(spans if records is None else MovedContent(spans, loggers, records))
    OpenAIInstrumentor().instrument(tracer_provider=tracers, logger_provider=loggers)
    loggers.get_logger("app").emit(LogRecord(body="a line like any other"))
    for program in programs(model).values():
        program()
    if scorer is not None:
        scorer.shutdown(30)
    tracers.shutdown()
    loggers.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
