"""``spanscore report``."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from tests.outputs.builders import score, unit
from tests.outputs.memory import Memory
from typer.testing import CliRunner

from spanscore.cli.main import app, main
from spanscore.core.codecs.otlp import json_line
from spanscore.errors import ConfigurationError
from spanscore.outputs.score_spans import EvaluationSpans


def stored(*values: float) -> str:
    memory = Memory()
    for value in values:
        EvaluationSpans(memory.providers).emit(unit(), [score(value=value)])
    spans: list[ReadableSpan] = list(memory.spans)
    return json_line(spans)


def test_file_becomes_a_page_and_its_finding_a_line(tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").write_text(stored(0.25), encoding="utf-8")
    out = tmp_path / "page.html"

    result = CliRunner().invoke(
        app("report"), ["report", str(tmp_path / "spans.jsonl"), "--out", str(out), "--title", "shop"]
    )

    assert result.exit_code == 0, result.output
    assert "faithfulness is 0.25 on 1 score" in result.output
    assert "shop" in out.read_text(encoding="utf-8")


def test_spans_may_come_by_stdin(tmp_path: Path) -> None:
    result = CliRunner().invoke(app("report"), ["report", "-", "-o", str(tmp_path / "page.html")], input=stored(0.25))

    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").is_file()


def test_bytes_that_are_not_utf_8_do_not_end_the_reading_of_stdin(tmp_path: Path) -> None:
    spans = stored(0.25).encode().replace(b"{", b'{"note":"\xff",', 1)

    result = CliRunner().invoke(app("report"), ["report", "-", "-o", str(tmp_path / "page.html")], input=spans)

    assert result.exit_code == 0, result.output
    assert "faithfulness is 0.25 on 1 score" in result.output


def test_a_path_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").write_text(stored(0.25), encoding="utf-8")
    path = tmp_path / "spans.jsonl" / "spans.jsonl"

    with pytest.raises(ConfigurationError, match=r"spans\.jsonl: Not a directory"):
        CliRunner().invoke(app("report"), ["report", str(path)], catch_exceptions=False)


def test_file_without_scores_says_so(tmp_path: Path) -> None:
    memory = Memory()
    memory.providers.tracer_provider.get_tracer("app").start_span("unscored").end()
    unscored = json_line(list(memory.spans))

    result = CliRunner().invoke(app("report"), ["report", "-", "-o", str(tmp_path / "page.html")], input=unscored)

    assert result.exit_code == 0
    assert "no scored spans" in result.output


@pytest.mark.parametrize("text", ["", '{"resourceSpans": []}\n', '{"a": 1}\n'])
def test_a_file_without_spans_is_refused_and_leaves_a_page_alone(text: str, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("the page of yesterday")

    with pytest.raises(ConfigurationError, match="- holds no spans: it must have OTLP-JSON lines"):
        CliRunner().invoke(app("report"), ["report", "-", "-o", str(out)], input=text, catch_exceptions=False)

    assert out.read_text() == "the page of yesterday"


def test_spans_that_are_not_valid_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    two = stored(0.25) + stored(0.5).replace('"traceId":"', '"traceId":"zz')

    result = CliRunner().invoke(app("report"), ["report", "-", "-o", str(tmp_path / "page.html")], input=two)

    assert result.exit_code == 0, result.output
    assert "faithfulness is 0.25 on 1 score" in result.output
    assert "-: 1 invalid, left out: a trace id that is not 16 bytes (1)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["no-such-file.jsonl"], "no-such-file.jsonl"),
        (["lines.jsonl"], "lines.jsonl: line 1 is not an OTLP trace request"),
        (["cases.jsonl"], "cases.jsonl holds no spans"),
        (["spans.jsonl", "--out", "no-such-folder/page.html"], "no-such-folder"),
        (["spans.jsonl", "--out", "."], "--out"),
    ],
)
def test_what_a_person_did_wrong_is_said_without_a_traceback(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "lines.jsonl").write_text("not JSON\n")
    (tmp_path / "cases.jsonl").write_text('{"user_input": "q", "response": "a"}\n')
    (tmp_path / "spans.jsonl").write_text(stored(0.25), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["spanscore", "report", *arguments])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert expected in capsys.readouterr().err
