"""``gen_ai.evaluation.result`` arrives through a real Collector with every field that the reference names for an event."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import time_ns
from types import ModuleType
from typing import Any

import pytest
from docs.reference.telemetry import ATTRIBUTES
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from tests.outputs.builders import END_NS, failed, score, unit
from tests.servers.server import free_port, poll

from spanscore import semconv
from spanscore.core.span import InnerGroup
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_events import EvaluationEvents

pytestmark = pytest.mark.server

OF_PEOPLE = {"ANNOTATOR", "FEEDBACK_KEY"}


def test_the_event_of_a_score_has_every_field(collector: ModuleType, tmp_path: Path) -> None:
    http, written = free_port(), tmp_path / "logs.jsonl"
    (config := tmp_path / "collector.yaml").write_text(
        f"receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{http}'}}}}}}}}\n"
        f"exporters: {{file: {{path: '{written}'}}}}\n"
        "service: {pipelines: {logs: {receivers: [otlp], exporters: [file]}}}\n"
    )
    of_unit: dict[str, Any] = {
        semconv.AGENT_NAME: "helper",
        semconv.CONVERSATION_ID: "c1",
        semconv.PROMPT_VERSION: "2",
        semconv.RESPONSE_ID: "r1",
        semconv.REQUEST_MODEL: "gpt-x",
    }
    judged = score(judge_model="judge", source="shadow", applies=True, explanation="why")
    before = time_ns()
    with collector.running(tmp_path, config):
        loggers = LoggerProvider(shutdown_on_exit=False)
        loggers.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"http://127.0.0.1:{http}/v1/logs")))
        EvaluationEvents(Providers(logger_provider=loggers), content=True).emit(
            replace(unit(**of_unit), inner=InnerGroup("tool", "search")), [judged, failed()]
        )
        loggers.shutdown()
        records: list[Any] = poll(lambda: _records(written), deadline_s=20, what="two log records in the file")

    events = [{pair["key"]: pair["value"] for pair in record["attributes"]} for record in records]
    wanted = {name: where for name, (_, where, _) in ATTRIBUTES.items() if "event" in where.split(", ")}
    present = {*events[0], *events[1]}
    assert [name for name in wanted.keys() - OF_PEOPLE if getattr(semconv, name) not in present] == []
    assert {record["eventName"] for record in records} == {semconv.EVALUATION_EVENT}
    assert {int(record["timeUnixNano"]) for record in records} == {END_NS}
    assert all(before <= int(record["observedTimeUnixNano"]) <= time_ns() for record in records)


def _records(file: Path) -> list[Any]:
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""  # the last line may still be written
    batches = (json.loads(line)["resourceLogs"] for line in whole.splitlines())
    found = [
        record for batch in batches for one in batch for scope in one["scopeLogs"] for record in scope["logRecords"]
    ]
    return found if len(found) == 2 else []
