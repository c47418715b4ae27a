"""Content in log records is judged as the same content on the spans: over the wire, in the process, and from a file."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry import trace
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as log_export
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.live import ANSWER, QUESTION, Grounded, a_line, a_trace, identity_holds

import spanscore
from spanscore import ScoringLogRecordProcessor, ScoringSpanProcessor, semconv
from spanscore.capture.log_content import LogContent
from spanscore.config import Units
from spanscore.core.codecs.otlp_span import ContentRecord, content_in_logs
from spanscore.core.codecs.spring_ai import LOGGERS
from spanscore.metrics import Finding
from spanscore.scorer import receivers_of
from spanscore.service.otlp_endpoint import LOGS, TRACES, ExportHandler, ExportRequest

GENAI = "opentelemetry.instrumentation.openai_v2"
OPENINFERENCE = "openinference.instrumentation.langchain"
IN_MEMORY: Any = getattr(log_export, "InMemoryLogRecordExporter", None) or log_export.InMemoryLogExporter  # before 1.39
ENDLESS = Units(idle_timeout=3_600)
INFLATED = 10_000_000


class Asked(Grounded):
    """1 for every answer; keeps the samples."""

    requires = {"single_turn": ("user_input", "response")}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("asked")

    async def measure(self, sample: Any) -> Finding:
        self._seen.append((sample.user_input, sample.response))
        return Finding(value=1.0)


Record = tuple[str, Mapping[str, Any], Any]
"""Event, attributes and body of a log record."""


def said(role: str, text: str) -> list[dict[str, Any]]:
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def details() -> list[Record]:
    held = {semconv.INPUT_MESSAGES: said("user", QUESTION), semconv.OUTPUT_MESSAGES: said("assistant", ANSWER)}
    return [(semconv.DETAILS_EVENT, {semconv.OPERATION_NAME: "chat", **held}, None)]


def older() -> list[Record]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}
    return [
        ("gen_ai.user.message", {"gen_ai.system": "openai"}, {"content": QUESTION}),
        ("gen_ai.choice", {"gen_ai.system": "openai"}, choice),
    ]


def older_without_event_name() -> list[Record]:
    return [("", {**held, semconv.EVENT_NAME: name}, body) for name, held, body in older()]


def of_aws(question: str = QUESTION, answer: str = ANSWER, scope: str = GENAI) -> list[Record]:
    sides = {"input": [{"role": "user", "content": question}], "output": [{"role": "assistant", "content": answer}]}
    body = {side: {"messages": messages} for side, messages in sides.items()}
    return [(scope, {semconv.EVENT_NAME: scope}, body)]


def of_aws_with_genai_attributes() -> list[Record]:
    return of_aws(json.dumps(said("user", QUESTION)), json.dumps(said("assistant", ANSWER)))


def of_spring_ai() -> list[Record]:
    handlers = "org.springframework.ai.chat.observation.ChatModel"
    return [
        (f"{handlers}CompletionObservationHandler", {}, f'Chat Model Completion:\n["{ANSWER}"]\n'),
        (
            f"{handlers}PromptContentObservationHandler",
            {},
            f'Chat Model Prompt Content:\n["{QUESTION}"]\n',
        ),
    ]


FORMS = [details, older, older_without_event_name, of_aws, of_aws_with_genai_attributes, of_spring_ai]


@dataclass
class Application:
    """An application with traced model calls and its content in log records."""

    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    logs: Any = field(default_factory=IN_MEMORY)

    def __post_init__(self) -> None:
        self.tracers, self.loggers = TracerProvider(), LoggerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))

    def call(self, records: list[Record], scope: str = GENAI, **attributes: str) -> None:
        """Call a model once."""
        held = attributes or {semconv.OPERATION_NAME: "chat", semconv.REQUEST_MODEL: "m", "gen_ai.system": "openai"}
        span = self.tracers.get_tracer(scope).start_span("chat m", attributes=held)
        context = trace.set_span_in_context(span)
        for name, of_record, body in records:
            is_logger = name.startswith(LOGGERS)  # a record of a logger has no event name
            event_name = None if is_logger else name or None
            record = LogRecord(event_name=event_name, attributes=of_record, body=body, context=context)
            self.loggers.get_logger(name if is_logger else scope).emit(record)
        span.end()

    def spans_sent(self) -> bytes:
        return bytes(encode_spans(self.spans.get_finished_spans()).SerializeToString())

    def logs_sent(self) -> bytes:
        return bytes(encode_logs(self.logs.get_finished_logs()).SerializeToString())


def received(scorer: Any, units: Units = ENDLESS) -> Any:
    """Return the export handler of a scorer, which takes spans and logs."""
    return ExportHandler(receivers_of(scorer).otlp_spans(units), max_inflated_bytes=INFLATED)


def take_logs(handler: Any, body: bytes) -> None:
    assert handler.answer(ExportRequest(LOGS, body)).status == 200


@pytest.mark.parametrize("first", ["spans", "logs"])
@pytest.mark.parametrize("form", FORMS)
def test_over_the_wire_records_are_joined_to_their_spans_whichever_come_first(
    form: Callable[[], list[Record]], first: str
) -> None:
    metric, application = Asked(), Application()
    application.call(form())
    with a_line(metric) as (scorer, _):
        handler = received(scorer)
        send = [
            lambda: handler.answer(ExportRequest(TRACES, application.spans_sent())),
            lambda: take_logs(handler, application.logs_sent()),
        ]
        for each in send if first == "spans" else reversed(send):
            each()
        assert scorer.shutdown(10)
        rows, status = str(scorer.status()), scorer.status()

    assert metric.seen == [(QUESTION, ANSWER)]
    assert status.outcomes["asked"] == {"scored": 1}
    assert f"{len(form())} joined to their span" in " ".join(rows.split())


@pytest.mark.parametrize("form", FORMS)
def test_in_the_process_a_log_record_processor_joins_them(form: Callable[[], list[Record]]) -> None:
    metric, application = Asked(), Application()
    with a_line(metric, trace=a_trace()) as (scorer, _):
        application.tracers.add_span_processor(ScoringSpanProcessor(scorer))
        application.loggers.add_log_record_processor(ScoringLogRecordProcessor(scorer))
        application.call(form())
        assert scorer.flush(10)

    assert metric.seen == [(QUESTION, ANSWER)]


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_in_a_file_lines_of_logs_are_joined(form: Callable[[], list[Record]], in_memory: bool, tmp_path: Path) -> None:
    from spanscore.config.tree import ScorerSettings
    from spanscore.stored.traces import OtlpFiles, StoredTrace
    from spanscore.stored.unit_reading import UnitReader

    application = Application()
    application.call(form())
    requests = encode_logs(application.logs.get_finished_logs()), encode_spans(application.spans.get_finished_spans())
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(as_json(request)) + "\n" for request in requests))
    traces = [*OtlpFiles(tmp_path / "spans.jsonl", most_bytes=10**9 if in_memory else 1).traces()]
    assert all(isinstance(found, StoredTrace) for found in traces)
    (stored,) = [unit for found in traces for unit in UnitReader(ScorerSettings()).units(found)]  # type: ignore[arg-type]
    (span,) = stored.unit.spans

    assert (text_of(span, semconv.INPUT_MESSAGES), text_of(span, semconv.OUTPUT_MESSAGES)) == (QUESTION, ANSWER)


@pytest.mark.parametrize("form", FORMS)
def test_an_explanation_names_the_log_record_s_span(form: Callable[[], list[Record]]) -> None:
    application = Application()
    application.call(form())
    requests = encode_logs(application.logs.get_finished_logs()), encode_spans(application.spans.get_finished_spans())

    (explained,) = spanscore.explain(json.dumps(as_json(request)) for request in requests)

    taken = {part.field: (part.text, part.span) for part in explained.units[0].parts if part.searched is None}
    assert taken == {"user_input": (QUESTION, "chat m"), "response": (ANSWER, "chat m")}
    assert explained.units[0].change == []


def text_of(span: Any, name: str) -> str:
    (message,) = span.attributes[name]
    return str(message["parts"][0]["content"])


def as_json(request: Any) -> dict[str, Any]:
    """Return a request as OTLP-JSON, ids in hex."""
    found = MessageToDict(request, use_integers_for_enums=True)

    def with_hex(holder: Any) -> None:
        from base64 import b64decode

        for name, value in list(holder.items()):
            if name in {"traceId", "spanId", "parentSpanId"}:
                holder[name] = b64decode(value).hex()
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict):
                    with_hex(one)

    with_hex(found)
    return found


def test_what_aws_moved_from_a_chain_s_span_is_its_question_and_answer() -> None:
    metric, application = Asked(), Application()
    records = of_aws(json.dumps({"question": QUESTION}), json.dumps({"output": ANSWER}), OPENINFERENCE)
    application.call(records, OPENINFERENCE, **{"openinference.span.kind": "CHAIN"})
    with a_line(metric) as (scorer, _):
        handler = received(scorer)
        handler.answer(ExportRequest(TRACES, application.spans_sent()))
        take_logs(handler, application.logs_sent())
        assert scorer.shutdown(10)

    assert metric.seen == [(QUESTION, ANSWER)]


def test_content_on_the_spans_is_left_as_it_is() -> None:
    metric, application = Asked(), Application()
    on_span = {semconv.OPERATION_NAME: "chat", semconv.REQUEST_MODEL: "m"}
    for name, role, text in (
        (semconv.INPUT_MESSAGES, "user", "Here?"),
        (semconv.OUTPUT_MESSAGES, "assistant", "Here."),
    ):
        on_span[name] = json.dumps(said(role, text))
    application.call(of_aws(), **on_span)
    with a_line(metric) as (scorer, _):
        handler = received(scorer)
        take_logs(handler, application.logs_sent())
        handler.answer(ExportRequest(TRACES, application.spans_sent()))
        assert scorer.shutdown(10)

    assert metric.seen == [("Here?", "Here.")]


def test_a_unit_whose_records_had_not_come_says_so_and_they_are_counted() -> None:
    metric, application, other = Asked(), Application(), Application()
    other.call(details())
    application.call(details())
    with a_line(metric) as (scorer, _):
        handler = received(scorer, Units(idle_timeout=0.05))
        take_logs(handler, other.logs_sent())  # of a span that never comes
        handler.answer(ExportRequest(TRACES, application.spans_sent()))
        assert scorer.flush(10)
        take_logs(handler, application.logs_sent())
        status = scorer.status()
        reason = scorer.explain(f"{application.spans.get_finished_spans()[0].context.trace_id:032x}")[0]
        assert identity_holds(scorer)

    assert status.outcomes["asked"] == {"no_sample": 1}
    assert "content is in log records, which had not arrived" in str(reason)
    assert "0 joined to their span, 2 waiting for it" in " ".join(str(status).split())


def test_records_of_traces_that_sampling_left_out_are_not_kept() -> None:
    application = Application()
    application.call(details())
    with a_line(Asked(), sample_rate=0.0) as (scorer, _):
        handler = received(scorer)
        take_logs(handler, application.logs_sent())

        assert "content in log records" not in str(scorer.status())


def test_hostile_records_stay_within_the_memory() -> None:
    clock = [0]
    store = LogContent(1_000_000, 60_000_000_000, lambda: clock[0])
    for number in range(1, 10_001):
        store.add([ContentRecord((number, 1), "s", ("e", {"a": "x" * 600}), 1_000)])
    counts = store.counts()
    assert counts is not None
    assert (counts.waiting, counts.dropped) == (1_000, 9_000)

    clock[0] = 60_000_000_001
    counts = store.counts()
    assert counts is not None
    assert (counts.joined, counts.waiting, counts.unjoined, counts.dropped) == (0, 0, 1_000, 9_000)


@pytest.mark.parametrize("part", [{}, {"a": 1}, [], 1, "", 0.5, {"parts": [{"type": "text", "content": "x" * 40}]}])
def test_hostile_records_take_the_memory_that_is_counted(part: Any) -> None:
    """The values are small on the network and large in memory, such as empty maps."""
    record = encoded(100, AnyValue(array_value=ArrayValue(values=[any_value(part)] * 20)))
    store = LogContent(most := 800_000, 60_000_000_000)
    for batch in range(30):
        store.add(one._replace(ids=(batch + 1, one.ids[1])) for one in content_in_logs(record))
    counts = store.counts()

    assert counts is not None
    assert counts.waiting + counts.dropped == 3_000
    assert 0 < counts.waiting < 3_000
    assert memory_of(store) < 1.1 * most


def memory_of(root: object) -> int:
    """Return the bytes of an object and of all objects that it refers to, without code."""
    reached, waiting = {id(root): root}, [root]
    while waiting:
        for each in gc.get_referents(waiting.pop()):
            if id(each) not in reached and not isinstance(each, type | FunctionType | ModuleType):
                reached[id(each)] = each
                waiting.append(each)
    return sum(map(sys.getsizeof, reached.values()))


def any_value(value: Any) -> AnyValue:
    if isinstance(value, dict):
        pairs = [KeyValue(key=key, value=any_value(held)) for key, held in value.items()]
        return AnyValue(kvlist_value=KeyValueList(values=pairs))
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
    return AnyValue(**{{str: "string_value", int: "int_value", float: "double_value"}[type(value)]: value})


def encoded(records: int, content: AnyValue) -> bytes:
    """Return a request of log records, each of a span of its own, with this content."""
    request = ExportLogsServiceRequest()
    scope_logs = request.resource_logs.add().scope_logs.add()
    for number in range(1, records + 1):
        record = scope_logs.log_records.add(event_name=semconv.DETAILS_EVENT)
        record.trace_id, record.span_id = bytes([1]) * 16, number.to_bytes(8)
        record.attributes.add(key=semconv.INPUT_MESSAGES, value=content)
    return bytes(request.SerializeToString())


@pytest.mark.parametrize(
    "body", [None, "", 7, [1], {"input": 3}, {"input": {"messages": 5}}, {"input": {"messages": [5]}}]
)
@pytest.mark.parametrize("name", [semconv.DETAILS_EVENT, "gen_ai.user.message", "gen_ai.choice", GENAI])
def test_a_record_in_no_known_form_harms_nobody(name: str, body: Any) -> None:
    application = Application()
    application.call([(name, {"a": "b"}, body)])
    with a_line(Asked()) as (scorer, _):
        handler = received(scorer)
        take_logs(handler, application.logs_sent())
        handler.answer(ExportRequest(TRACES, application.spans_sent()))
        assert scorer.shutdown(10)

        assert sum(scorer.status().outcomes["asked"].values()) == 1


def test_a_record_without_a_span_holds_no_content_for_any() -> None:
    application = Application()
    record = LogRecord(event_name=semconv.DETAILS_EVENT, attributes={semconv.INPUT_MESSAGES: "[]"})
    application.loggers.get_logger(GENAI).emit(record)

    assert content_in_logs(application.logs_sent()) == []
