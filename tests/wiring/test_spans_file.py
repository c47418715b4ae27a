"""``spans_to``: an application's own spans as a file that the commands read, bounded and private."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.capture.processor.traced import SCOPE, TURN, Answered, Exported, ask
from tests.core.test_fork import in_child
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, a_line, rag
from typer.testing import CliRunner

from spanscore import OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.cli.main import app
from spanscore.config import Capture, Outputs
from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.files import LineFile
from spanscore.outputs import spans_file


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "spans.jsonl"


def call(scorer: OnlineScorer, question: str = QUESTION) -> Any:
    return rag().invoke(question, config={"callbacks": [scorer.handler]})


def by_id(lines: str) -> dict[Any, Any]:
    return {(span.trace_id, span.span_id): span for span in read_spans(lines.splitlines())}


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app(arguments[0]), list(arguments))


@pytest.mark.parametrize("content", [True, False])
def test_the_file_holds_the_spans_that_are_exported_and_nothing_else(out: Path, content: bool) -> None:
    with a_line(outputs=Outputs(spans_to=out), capture=Capture(content=content)) as (scorer, trace):
        call(scorer)
        assert scorer.flush(10)
        exported = by_id(json_line(trace.spans))

    assert by_id(out.read_text()) == exported
    assert {span.scope for span in exported.values()} == {semconv.CAPTURE_SCOPE, semconv.SCOPE}
    assert any("spanscore.score.grounded" in span.attributes for span in exported.values())
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert (ANSWER in out.read_text()) is content


def test_each_scorer_writes_its_own_spans_once(out: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    with a_line(outputs=Outputs(spans_to=out)) as (scorer, trace):
        with OnlineScorer([Grounded()], tracer_provider=trace.provider, outputs=Outputs(spans_to=other)) as beside:
            call(scorer)
            call(beside)
            call(beside)
        assert scorer.flush(10)
        ids = sorted((span.context.trace_id, span.context.span_id) for span in trace.spans)

    written = [(span.trace_id, span.span_id) for file in (out, other) for span in read_spans(file.open())]
    assert sorted(written) == ids
    assert len({trace_id for trace_id, _ in by_id(other.read_text())}) == 2


def test_status_counts_what_is_written_and_what_is_lost(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    missing = out.parent / "not there" / "spans.jsonl"
    with a_line(outputs=Outputs(spans_to=missing)) as (scorer, trace):
        assert call(scorer) == ANSWER
        assert scorer.flush(10)
        state = scorer.status().spans_file
        spans = len(trace.spans)

    assert state is not None
    assert (state.written, state.lost, state.fault) == (0, spans, "No such file or directory")
    assert f"{spans} lost (No such file or directory)" in str(scorer.status())
    assert f"spans cannot be written to {missing}: No such file or directory" in caplog.text


def test_once_the_folder_is_there_spans_are_written_again(out: Path) -> None:
    folder = out.parent / "later"
    with a_line(outputs=Outputs(spans_to=folder / "spans.jsonl")) as (scorer, _):
        call(scorer)
        assert scorer.flush(10)
        folder.mkdir()
        call(scorer)
        assert scorer.flush(10)
        state = scorer.status().spans_file

    assert state is not None
    assert state.written == state.lost > 0
    assert state.fault == ""


def test_a_disk_that_does_not_answer_loses_spans_and_holds_up_nobody(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans_file, "MOST_WAITING", 3)
    monkeypatch.setattr(LineFile, "append", lambda file, line: __import__("time").sleep(60))
    with a_line(outputs=Outputs(spans_to=out)) as (scorer, trace):
        for _ in range(3):
            assert call(scorer) == ANSWER
        scorer.flush(0.5)
        assert scorer.shutdown(2)
        state, spans = scorer.status().spans_file, len(trace.spans)

    assert state is not None
    assert state.written == 0
    assert spans > state.lost > 0


def test_the_file_and_the_one_before_it_are_bounded(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_file, "MAX_BYTES", 40_000)
    file = spans_file.SpansFile(out, json_line, max_bytes=40_000)
    with a_line() as (scorer, trace):
        call(scorer)
        assert scorer.flush(10)
        for _ in range(60):
            for span in trace.spans:
                file.on_end(span)
            file.flush(10)

    files = [out, out.with_name("spans.jsonl.1")]
    assert all(0 < one.stat().st_size <= 20_000 for one in files)
    assert all(list(read_spans(one.open())) for one in files)
    assert file.state().lost == 0


def test_a_batch_larger_than_the_file_may_be_is_written_in_parts(out: Path) -> None:
    with a_line() as (scorer, trace):
        call(scorer)
        assert scorer.flush(10)
        spans = trace.spans * 20
    file = spans_file.SpansFile(out, json_line, max_bytes=2 * len(json_line(spans)) // 3)

    for span in spans:
        file.on_end(span)
    file.flush(10)

    assert (file.state().written, file.state().lost) == (len(spans), 0)


_CHILD = """
import sys
from tests.live import Grounded, rag
from spanscore import OnlineScorer
with OnlineScorer([Grounded()], outputs={"spans_to": sys.argv[1]}) as scorer:
    for _ in range(30):
        rag().invoke("What?", config={"callbacks": [scorer.handler]})
"""


def test_processes_share_a_file(out: Path) -> None:
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    running = [subprocess.Popen([sys.executable, "-c", _CHILD, str(out)], env=environment) for _ in range(2)]

    assert [process.wait(60) for process in running] == [0, 0]
    assert all(json.loads(line)["resourceSpans"] for line in out.open())
    roots = [span for span in read_spans(out.open()) if span.parent_id is None]
    assert len(roots) == 60


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_its_own_spans_and_no_other_process_s(out: Path) -> None:
    with a_line(outputs=Outputs(spans_to=out)) as (scorer, _):
        call(scorer)
        assert scorer.flush(10)
        before = len(by_id(out.read_text()))
        child = os.fork()
        if child == 0:
            call(scorer)
            scorer.flush(10)
            state = scorer.status().spans_file
            os._exit(0 if state is not None and state.written == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    spans = list(read_spans(out.open()))
    assert len(spans) == len(by_id(out.read_text())) == 2 * before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_still_has_the_reason_why_no_span_reaches_the_file(out: Path) -> None:
    file = spans_file.SpansFile(out, json_line)
    file.attach_to(object())

    assert "not the SDK's" in file.state().fault
    assert in_child(lambda: f"{file.state().fault}|{file.readable_place()}") == f"{file.state().fault}|"


# --- spans that another instrumentation makes ---------------------------------------------------------------------------


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("rate", [1.0, 0.0])
def test_spans_of_another_instrumentation_are_in_the_file_once_with_their_scores(
    out: Path, wraps: bool, rate: float
) -> None:
    provider, exported = TracerProvider(), Exported()
    scorer = OnlineScorer(
        [Answered()],
        sample_rate=rate,
        capture=Capture(enabled=False, content=True),
        tracer_provider=provider,
        outputs=Outputs(spans_to=out),
    )
    inner = SimpleSpanProcessor(exported)
    provider.add_span_processor(ScoringSpanProcessor(scorer, inner) if wraps else ScoringSpanProcessor(scorer))
    if not wraps:
        provider.add_span_processor(inner)
    with provider.get_tracer("http").start_as_current_span("GET /"):
        ask(provider.get_tracer(SCOPE))
    assert scorer.flush(10)
    scorer.shutdown()

    spans = list(read_spans(out.open()))
    assert len(spans) == len(by_id(out.read_text()))
    assert sorted(span.name for span in spans) == ["agent", "agent chat 0", *["evaluation answered"] * bool(rate)]
    assert any("spanscore.score.answered" in span.attributes for span in spans if span.name == "agent") is bool(rate)
    assert "GET /" in exported.names
    assert QUESTION in out.read_text()


def test_without_content_no_text_of_another_instrumentation_gets_into_the_file(out: Path) -> None:
    provider, exported = TracerProvider(), Exported()
    scorer = OnlineScorer(
        [Answered()], capture=Capture(enabled=False), tracer_provider=provider, outputs=Outputs(spans_to=out)
    )
    provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(exported)))
    with provider.get_tracer(SCOPE).start_as_current_span("agent", attributes={semconv.OPERATION_NAME: "chat"}) as span:
        span.set_attributes({**TURN, "traceloop.entity.input": QUESTION, "their.own": [QUESTION], "their.count": 3})
        span.add_event("prompt", {"text": QUESTION})
        span.record_exception(ValueError(QUESTION))
    assert scorer.flush(10)
    scorer.shutdown()

    assert QUESTION not in out.read_text()
    assert ANSWER not in out.read_text()
    (root,) = [span for span in read_spans(out.open()) if span.name == "agent"]
    assert root.attributes["spanscore.score.answered"] == 1.0
    assert (root.attributes["their.count"], root.attributes[semconv.OPERATION_NAME]) == (3, "chat")


# --- the commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(out: Path, request: pytest.FixtureRequest) -> Path:
    with a_line(outputs=Outputs(spans_to=out), capture=Capture(content=request.param)) as (scorer, _):
        for _ in range(3):
            call(scorer)
        assert scorer.flush(10)
    return out


@pytest.mark.parametrize("written", [True, False], indirect=True)
def test_report_reads_the_file(written: Path) -> None:
    page = written.with_suffix(".html")

    result = run("report", str(written), "--out", str(page))

    assert result.exit_code == 0, result.output
    assert "grounded" in page.read_text()


@pytest.mark.parametrize("written", [True], indirect=True)
def test_collect_and_preview_read_the_file(written: Path) -> None:
    cases, config = written.with_name("cases.jsonl"), written.with_name("spanscore.yaml")
    config.write_text("metrics: [exact_match]\n")

    assert run("collect", str(written), "--when", "grounded>=0.5", "--out", str(cases)).exit_code == 0
    assert CONTEXT in cases.read_text()
    assert "3 units" in run("preview", str(config), str(written)).output


@pytest.mark.parametrize("written", [False], indirect=True)
def test_a_command_that_needs_texts_names_the_switch(written: Path) -> None:
    config = written.with_name("spanscore.yaml")
    config.write_text("metrics: [exact_match]\n")
    refused = run("collect", str(written), "--out", str(written.with_name("cases.jsonl")))

    assert "set Capture(content=True), in a file capture: {content: true}" in str(refused.exception)
    assert "set Capture(content=True)" in " ".join(run("preview", str(config), str(written)).output.split())


def test_compare_reads_the_files_of_two_releases(out: Path) -> None:
    other, config = out.with_name("other.jsonl"), out.with_name("spanscore.yaml")
    config.write_text("metrics: [faithfulness]\ncompare: {by: service.version}\n")
    for path in (out, other):
        with a_line(Grounded("faithfulness"), outputs=Outputs(spans_to=path)) as (scorer, _):
            call(scorer)

    result = run("compare", str(config), str(out), str(other), "--tolerance", "0.5")

    assert result.exit_code == 3, result.output
    assert "10 quarters of an hour that are needed" in result.output


def test_the_key_of_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    Path("spanscore.yaml").write_text("metrics: [exact_match]\noutputs: {spans_to: spans.jsonl}\n")
    with OnlineScorer.from_config("spanscore.yaml") as scorer:
        call(scorer)

    assert (tmp_path / "spans.jsonl").stat().st_size > 0
