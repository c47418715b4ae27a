"""Claims of received spans and roles of roots, as far as their bytes show."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.capture.otlp.builders import FRAMEWORK, a_wire_span
from tests.traces.recordings import RECORDINGS, Recording

from spanscore import semconv
from spanscore.capture.otlp.claims import WireClaims, text_of
from spanscore.core.codecs.otlp_request import WireSpan, from_json, parse_request, span_data_of
from spanscore.pipeline.assembly import RootRole
from spanscore.samples.normalizers.registry import SpanNormalizers


def claims(**options: Any) -> WireClaims:
    return WireClaims(SpanNormalizers(), **options)


def is_claimed(span: WireSpan, by: WireClaims | None = None) -> bool:
    by = by or claims()
    _, marked, mostly = by.of(span.origin)
    claimed = marked is None or marked(span.raw, 0, len(span.raw)) is not None
    assert claimed or not mostly or mostly not in span.raw
    return claimed


@pytest.mark.parametrize(
    ("span", "claimed"),
    [
        ({"operation": None, "scope": FRAMEWORK}, True),
        ({"operation": None, "scope": semconv.CAPTURE_SCOPE}, True),
        ({"operation": None, "scope": semconv.SCOPE}, False),
        ({"operation": None, "scope": "spanscore.judge"}, False),
        ({"operation": None, "scope": "@opentelemetry/instrumentation-http", "http.route": "/chat"}, False),
        ({"operation": "chat", "scope": "nobody knows it"}, True),
        ({"operation": None, "scope": "nobody knows it", "openinference.span.kind": "CHAIN"}, True),
        ({"operation": None, "scope": "nobody knows it", "traceloop.entity.input": "{}"}, True),
        ({"operation": None, "scope": "nobody knows it", "db.statement": "x\ngen_ai.system"}, False),
    ],
)
def test_a_span_is_claimed_by_its_scope_or_by_what_betrays_it(span: dict[str, str], claimed: bool) -> None:
    assert is_claimed(a_wire_span(**span)) is claimed  # type: ignore[arg-type]


def test_what_most_claimed_spans_hold_is_known_of_scopes_that_are_not_alone() -> None:
    by, chat = claims(), a_wire_span("chat", scope="nobody knows it")

    assert by.of(chat.origin).usual_mark
    assert by.of(chat.origin).usual_mark in chat.raw
    assert by.of(a_wire_span("chat", scope=semconv.SCOPE).origin).usual_mark == b""


def test_scopes_that_are_ignored_are_not_claimed() -> None:
    assert not is_claimed(a_wire_span("chat", scope="mine.too"), claims(ignored=["mine"]))


@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_what_a_translation_reads_is_claimed_on_the_wire(recording: Recording) -> None:
    """Otherwise a unit over the network would lack spans that it has in process."""
    by, translator = claims(), SpanNormalizers()
    lines = recording.path.read_text(encoding="utf-8").splitlines()
    spans = [span for line in lines for span in parse_request(from_json(line.encode())).spans]

    read = [span for span in spans if translator.translate(span_data_of(span)) is not None]

    assert read
    assert all(is_claimed(span, by) for span in read)


def test_our_own_capture_is_read_before_another_instrumentation_of_langchain() -> None:
    by = claims()
    assert is_claimed(a_wire_span(scope=semconv.CAPTURE_SCOPE), by)

    assert not is_claimed(a_wire_span(scope=FRAMEWORK), by)
    assert by.superseded == {FRAMEWORK: semconv.CAPTURE_SCOPE}


def test_the_log_names_the_key_that_reads_another_instrumentation_instead_of_our_capture(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``capture=Capture(enabled=False)`` has no effect on received spans."""
    by = claims()
    with caplog.at_level(logging.INFO, logger="spanscore"):
        for scope in (semconv.CAPTURE_SCOPE, FRAMEWORK):
            is_claimed(a_wire_span(scope=scope), by)

    assert [record.getMessage().rpartition("instead, ")[2] for record in caplog.records] == [
        f"add {semconv.CAPTURE_SCOPE!r} to units.ignore_scopes"
    ]


@pytest.mark.parametrize(
    ("span", "role"),
    [
        ({"operation": "create_agent"}, RootRole.NEVER),
        ({"operation": "embeddings"}, RootRole.NEVER),
        ({"operation": None, "openinference.span.kind": "RERANKER"}, RootRole.NEVER),
        ({"operation": None, "scope": semconv.CAPTURE_SCOPE}, RootRole.NEVER),  # a sample made by hand
        ({"operation": "execute_tool"}, RootRole.STEP),
        ({"operation": None, "openinference.span.kind": "RETRIEVER"}, RootRole.STEP),
        ({"operation": None, "traceloop.span.kind": "tool"}, RootRole.STEP),
        ({"operation": "execute_tool", "scope": semconv.CAPTURE_SCOPE}, RootRole.ROOT),
        ({"operation": "chat"}, RootRole.ROOT),
        ({"operation": None, "openinference.span.kind": "CHAIN"}, RootRole.ROOT),
        ({"operation": None, "input.value": "2 + 2?"}, RootRole.ROOT),
        ({"operation": None, "gen_ai.system": "openai"}, RootRole.UNNAMED),
    ],
)
def test_the_role_of_a_span_at_the_top_is_read_from_its_bytes(span: dict[str, str], role: RootRole) -> None:
    assert claims().role(a_wire_span(**span)) is role  # type: ignore[arg-type]


@pytest.mark.parametrize("writer", ["in order", "from the end"])
def test_a_text_is_read_from_the_bytes_whichever_way_they_are_written(writer: str) -> None:
    key, value = b"\n\x15gen_ai.operation.name", b"\x12\x06\n\x04chat"
    raw = b"".join([b"J\x25", *([key, value] if writer == "in order" else [value, key]), b"A12345678"])

    assert text_of(raw, "gen_ai.operation.name") == "chat"
    assert text_of(raw, "openinference.span.kind") is None


@pytest.mark.parametrize("value", [b"", b"\x12", b"\x12\x06\n\x40chat", b"\x12\x02\x18\x01", b"\x12\x90\x01\n\x8d\x01"])
def test_what_is_no_short_text_is_none(value: bytes) -> None:
    assert text_of(b"\n\x15gen_ai.operation.name" + value, "gen_ai.operation.name") is None


@pytest.mark.parametrize("writer", ["in order", "the Collector"])
def test_of_a_span_in_its_request_nothing_around_it_is_read(writer: str) -> None:
    key, value, other = b"\n\x15gen_ai.operation.name", b"\x12\x06\n\x04chat", b"\x12\x06\n\x04tool"
    span = b"".join([key, value] if writer == "in order" else [value, key])
    body = b"".join([other, key, other, span, other, key, other])
    start = len(other + key + other)

    assert text_of(body, "gen_ai.operation.name", start, start + len(span)) == "chat"
    assert text_of(body, "gen_ai.operation.name", start, start + len(span) - 1) is None
    assert text_of(body, "openinference.span.kind", start, start + len(span)) is None


def test_a_resource_that_cannot_be_read_hides_no_span() -> None:
    span = a_wire_span("chat")

    assert is_claimed(span._replace(origin=span.origin._replace(resource=b"\xff")))


def test_names_from_the_wire_are_logged_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    by, shop = claims(), {"service.name": "shop\x1b[2J" + "x" * 1_000}

    by.found_by_content(a_wire_span("chat", scope="an.app\n\x1b[2J", resource=shop).origin)

    text = caplog.text + " ".join(by.notes())
    assert "an.app" in text
    assert "\x1b" not in text
    assert "x" * 300 not in text
