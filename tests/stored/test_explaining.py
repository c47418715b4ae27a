"""``spanscore.explain``: the read spans of a trace, its root, the source of each field, and missing fields."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.cells import cell_len

import spanscore
from spanscore import Extract, SampleError
from spanscore.config import Units
from spanscore.core.span import NoContent
from spanscore.stored.traces import OtlpFiles
from spanscore.wiring.explained import ExplainedTrace

GENAI = "opentelemetry.instrumentation.openai_v2"
ASKED = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Who gets in free?"}]}])
SAID = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Children under twelve."}]}])
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
TALK = {**CHAT, "gen_ai.input.messages": ASKED, "gen_ai.output.messages": SAID}
TORN = {
    "openinference.span.kind": "CHAIN",
    "input.value": '{"topic": "tickets", "ask": "Who gets in free?"}',
    "output.value": "Children under twelve.",
}
ALIEN = {"acme.input": "Who gets in free?", "acme.output": "Children under twelve."}


def span(number: int, name: str, attributes: dict[str, Any], *, scope: str = GENAI, under: int = 0, **more: Any) -> str:
    """A line of OTLP-JSON with one span of trace 1; ``under``: number of its parent, 0 = it has none."""
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    ids = {"traceId": f"{1:032x}", "spanId": f"{number:016x}", **({"parentSpanId": f"{under:016x}"} if under else {})}
    times = {"startTimeUnixNano": str(10**18 + number), "endTimeUnixNano": str(10**18 + 1_000 - number)}
    one = {**ids, "name": name, "kind": 1, **times, "attributes": pairs, **more}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"scope": {"name": scope}, "spans": [one]}]}]})


USER_INPUT = "capture.extract.user_input (Extract(user_input=…))"


def explained(*lines: str, **options: Any) -> ExplainedTrace:
    (trace,) = spanscore.explain(lines, **options)
    return trace


def places(trace: ExplainedTrace) -> list[tuple[str, str | None, str | None, str | None]]:
    (unit,) = trace.units
    return [(part.field, part.text, part.span, part.attribute) for part in unit.parts if part.searched is None]


def test_each_part_of_a_sample_names_the_span_and_the_attribute_of_its_writer() -> None:
    root = {"openinference.span.kind": "CHAIN", "input.value": "Who gets in free?", "output.value": "Children."}
    found = {
        "openinference.span.kind": "RETRIEVER",
        "input.value": "free",
        "retrieval.documents.0.document.content": "Entry is free for children.",
    }
    scope = "openinference.instrumentation.langchain"
    trace = explained(
        span(1, "GET /", {"http.route": "/"}, scope="opentelemetry.instrumentation.asgi"),
        span(2, "chain", root, scope=scope, under=1),
        span(3, "search", found, scope=scope, under=2),
    )

    assert [(one.name, one.claimed_by, one.operation, one.unit) for one in trace.spans] == [
        ("GET /", None, None, None),
        ("chain", "openinference", "invoke_workflow", f"{2:016x}"),
        ("search", "openinference", "retrieval", f"{2:016x}"),
    ]
    assert (trace.units[0].root, trace.units[0].why) == (
        "chain",
        "topmost span that can hold a question and an answer: no span above it is read",
    )
    assert places(trace) == [
        ("user_input", "Who gets in free?", "chain", "input.value"),
        ("response", "Children.", "chain", "output.value"),
        ("retrieved_contexts", "Entry is free for children.", "search", "retrieval.documents.0.document.content"),
    ]
    assert (trace.units[0].outcome, trace.units[0].change, trace.change) == (None, [], [])


def test_a_tool_call_is_found_at_the_span_of_its_tool() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": ASKED, "gen_ai.output.messages": SAID}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "price_of",
        "gen_ai.tool.call.arguments": '{"ticket": "a child"}',
        "gen_ai.tool.call.result": "0",
    }
    trace = explained(span(1, "agent", agent), span(2, "price_of", tool, under=1))

    assert places(trace)[-1] == (
        "tool_calls",
        'price_of({"ticket": "a child"})',
        "price_of",
        "gen_ai.tool.call.arguments",
    )


def test_content_in_span_events_names_the_event() -> None:
    event = {
        "name": "gen_ai.user.message",
        "attributes": [{"key": "content", "value": {"stringValue": "Free for whom?"}}],
    }
    said = {
        "name": "gen_ai.choice",
        "attributes": [{"key": "message", "value": {"stringValue": "Children, all of them."}}],
    }
    trace = explained(span(1, "chat m", CHAT, events=[event, said]))

    assert [place[2:] for place in places(trace)] == [
        ("chat m", "event gen_ai.user.message: content"),
        ("chat m", "event gen_ai.choice: message"),
    ]


@pytest.mark.parametrize(
    ("lines", "options", "word"),
    [
        ([span(1, "chat m", CHAT)], {}, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
        ([span(1, "call", ALIEN, scope="acme")], {}, "units.translations"),
        ([span(1, "call", {**CHAT, **ALIEN}, scope="acme")], {}, "units.translations"),
        ([span(1, "GET /", {"http.route": "/"}, scope="acme")], {}, "SPAN_ONLY"),
        ([span(1, "embed", {"gen_ai.operation.name": "embeddings"})], {}, "SPAN_ONLY"),
        ([span(1, "chat m", TALK)], {"units": {"ignore_scopes": [GENAI]}}, "units.ignore_scopes excludes"),
        ([span(1, "chat m", TALK)], {"units": {"kinds": ["agent"]}}, "units.kinds"),
        ([span(1, "chain", TORN)], {}, "capture.extract.user_input (Extract(user_input=…)) names its place"),
        ([span(1, "chain", TORN)], {"extract": Extract(user_input="input.q")}, "capture.extract.user_input"),
        ([span(1, "chat m", {**CHAT, "gen_ai.input.messages": ASKED})], {}, "capture.extract.response"),
        ([span(1, "chat m", {**TALK, "gen_ai.output.messages": SAID[:40]})], {}, "ATTRIBUTE_VALUE_LENGTH_LIMIT"),
        ([span(2, "tool", {"gen_ai.operation.name": "execute_tool"}, under=1)], {}, "units.orphan_wait"),
        ([span(1, "chat m", CHAT, scope="spanscore.capture")], {}, "capture.content"),
        ([span(1, "evaluation x", CHAT, scope="spanscore")], {}, "the spans of the application"),
        (
            [
                span(1, "run", {"gen_ai.operation.name": "invoke_agent"}, scope="spanscore.capture", status={"code": 2}),
                span(2, "chat m", TALK, scope="spanscore.capture", under=1),
            ],
            {},
            "capture.score_failed",
        ),
        ([span(1, "run", {**TALK, "spanscore.run.end": "abandoned"}, scope="spanscore.capture")], {}, "score_abandoned"),
        ([span(1, "run", {**TALK, "spanscore.run.end": "cancelled"}, scope="spanscore.capture")], {}, "no setting changes"),
        ([span(1, "run", {**TALK, "spanscore.run.end": "interrupted"}, scope="spanscore.capture")], {}, "run that resumes"),
    ],
)  # fmt: skip
def test_a_trace_that_is_not_scored_names_the_switch_or_the_key(lines: list[str], options: Any, word: str) -> None:
    trace = explained(*lines, **options)

    changes = [*trace.change, *(change for unit in trace.units for change in unit.change)]
    assert word in " ".join(changes)


def test_of_a_question_that_cannot_be_distinguished_from_other_texts_the_keys_are_named_and_the_answer_is_not() -> None:
    (unit,) = explained(span(1, "chain", TORN)).units

    assert unit.change == ["capture.extract.user_input (Extract(user_input=…)) names its place: input.topic, input.ask"]
    assert [part.field for part in unit.parts] == ["user_input", "retrieved_contexts"]


def test_a_wrapper_of_the_application_that_would_make_one_unit_is_named() -> None:
    top = span(1, "answer", {"a": "b"}, scope="my_app.chat")
    lines = [top, span(2, "chat m", TALK, under=1), span(3, "chat m", TALK, under=1)]
    trace = explained(*lines)

    assert (len(trace.units), trace.change) == (
        2,
        ["units.scopes: [my_app.chat] makes one unit of these 2, with answer as its root"],
    )
    assert len(explained(*lines, units=Units(scopes=["my_app.chat"])).units) == 1


@pytest.mark.parametrize("apart", [{}, {"under": 1, "flags": 0x300}], ids=["no parent", "remote parent"])
def test_a_wrapper_above_some_units_alone_is_not_named(apart: dict[str, Any]) -> None:
    wrapper = span(1, "answer", {"a": "b"}, scope="my_app.chat")
    trace = explained(wrapper, span(2, "chat m", TALK, under=1), span(3, "chat m", TALK, **apart))

    assert (len(trace.units), trace.change) == (2, [])


def test_a_translation_of_the_user_that_raises_is_named_at_its_span() -> None:
    class Broken:
        name, scopes, signatures = "broken", ("acme",), ()

        def accepts(self, span: Any) -> bool:
            raise KeyError("a secret")

        def normalize(self, span: Any) -> Any:
            return replace(span, no_content=NoContent("", ""))

    trace = explained(span(1, "call", ALIEN, scope="acme"), units=Units(translations=[Broken()]))

    assert trace.spans[0].note == "raised KeyError"
    assert "secret" not in str(trace)


def test_without_texts_no_text_is_there_and_every_place_is() -> None:
    trace = explained(span(1, "chat m", TALK), texts=False)

    assert places(trace) == [
        ("user_input", None, "chat m", "gen_ai.input.messages"),
        ("response", None, "chat m", "gen_ai.output.messages"),
    ]
    assert "free" not in f"{trace} {trace.as_json()}"


def test_texts_are_redacted_and_their_places_still_found(tmp_path: Path) -> None:
    trace = explained(span(1, "chat m", TALK), redactor=lambda text: "…")

    assert places(trace)[0] == ("user_input", "…", "chat m", "gen_ai.input.messages")


def test_a_configuration_counts_and_an_option_replaces_its_key(tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text("judge: lexical\nmetrics: [faithfulness]\nunits: {kinds: [agent]}\n")

    assert explained(span(1, "chat m", TALK), config=config).units[0].outcome == "filtered"
    assert explained(span(1, "chat m", TALK), config=config, units=Units(kinds=["chat"])).units[0].outcome is None


def test_spans_of_the_sdk_and_of_a_store_are_explained_as_lines_are(tmp_path: Path) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer(GENAI).start_span("chat m", attributes=TALK).end()
    file = tmp_path / "spans.jsonl"
    file.write_text(span(1, "chat m", TALK))

    by_sdk, by_store = explained(*exporter.get_finished_spans()), explained(*OtlpFiles(file).traces())

    assert places(by_sdk) == places(by_store) == places(explained(span(1, "chat m", TALK)))


def test_a_line_that_is_no_request_is_refused() -> None:
    with pytest.raises(SampleError, match="item 1: not an OTLP trace request"):
        spanscore.explain(["no json"])


def test_the_tree_fits_80_columns_however_deep_and_whatever_names_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    deep = [span(n, f"step {n} 寿司 \x1b[31m " + "x" * 90, TALK, under=n - 1) for n in range(1, 60)]
    circle = [span(100, "a", TALK, under=101), span(101, "b", TALK, under=100)]

    shown = str(explained(*deep, *circle)).splitlines()

    assert max(map(cell_len, shown)) <= 80
    assert sum(line.strip().endswith(("genai", "genai, root")) for line in shown) == 61
    assert not [line for line in shown if "\x1b" in line]


def test_the_request_of_a_streamed_call_is_ignored_and_needs_no_change() -> None:
    request = {**CHAT, "request_data": '{"model": "m"}', "gen_ai.input.messages": ASKED, "logfire.span_type": "span"}

    trace = explained(span(1, "Chat Completion", request, scope="logfire.openai"))

    assert (trace.units, trace.change) == ([], [])
    assert trace.reason == (
        "request of a streamed call, ignored on purpose: Logfire writes the call with its answer on a log span, without a"
        " parent in a trace of its own: Chat Completion"
    )
