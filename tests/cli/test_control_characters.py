"""Control characters in a file have no effect in the terminal that shows it."""

from __future__ import annotations

import ast
import json
from io import StringIO
from pathlib import Path

import pytest
from rich.table import Table
from tests.cli.test_report import stored
from typer.testing import CliRunner

import spanscore
from spanscore.cli.main import app, main
from spanscore.core.terminal import Terminal

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202e"
SHOWN = r"\x1b]0;owned\x07\x9b2J\u202e"
ACTING = {"\x1b", "\x07", "\x9b", "\u202e"}
SOURCE = Path(spanscore.__file__).parent


def test_a_cell_and_a_line_are_shown_with_escapes_and_the_terminals_own_colours_stay() -> None:
    terminal = Terminal(file=StringIO(), width=90, force_terminal=True, highlight=False)
    table = Table("metric")
    table.add_row(HOSTILE)

    with terminal.capture() as capture:
        terminal.print(table, f"[bold]{HOSTILE}[/]")

    assert capture.get().count(SHOWN) == 2
    assert "\x1b[1m" in capture.get()


def test_what_a_configuration_holds_is_checked_without_acting(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"
    rule = '{name: "\\e]0;owned\\a\\x9b2J\\u202e", when: {status: error}, rate: 1}'
    file.write_text(f"metrics: [exact_match]\nsampling: {{rules: [{rule}]}}")

    result = CliRunner().invoke(app("check"), ["check", str(file)])

    assert result.exit_code == 0
    assert SHOWN.replace(r"\x07", "") in result.stdout
    assert not ACTING & set(result.stdout)


def test_nor_do_the_spans_of_a_report(tmp_path: Path) -> None:
    spans = stored(0.25).replace("faithfulness", "faith\\u001b[2Jfulness")

    result = CliRunner().invoke(app("report"), ["report", "-", "-o", str(tmp_path / "page.html")], input=spans)

    assert r"faith\x1b[2Jfulness" in result.stdout
    assert "\x1b" not in result.stdout + (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_error_is_reported_without_acting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.yaml").write_text('metrics: ["\\e[2J\\a"]')
    monkeypatch.setattr("sys.argv", ["spanscore", "rules", str(tmp_path / "odd.yaml")])

    with pytest.raises(SystemExit):
        main()

    assert "\x1b[2J" not in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_there_is_no_other_console(file: Path) -> None:
    imported = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    consoles = [
        node for node in imported if node.module == "rich.console" for name in node.names if name.name == "Console"
    ]

    assert not consoles or file.name == "terminal.py"


FORGED = "relevancy 0.99 on 1 score\r\nFAKE: all is well"


@pytest.mark.parametrize(
    "command",
    [
        ["report", "-", "-o", "page.html"],
        ["collect", "spans.jsonl", "--when", "faithfulness<0.5", "--out", "cases.jsonl"],
        ["calibrate", "labels.jsonl", "-m", "faithfulness", "--scores", "spans.jsonl"],
    ],
    ids=lambda command: command[0],
)
def test_a_name_in_a_span_writes_no_line_of_its_own(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spans = stored(0.25).replace("faithfulness", json.dumps(FORGED)[1:-1])
    Path("spans.jsonl").write_text(spans)
    Path("labels.jsonl").write_text(json.dumps({"trace_id": "1" * 32, "span_id": "1" * 16, "human": True}))

    result = CliRunner().invoke(app(command[0]), command, input=spans)

    lines = [*result.output.splitlines(), *str(result.exception or "").splitlines()]
    assert not [line for line in lines if line.startswith("FAKE")]


def test_the_id_of_a_case_writes_no_line_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, response in (("good.jsonl", "a"), ("bad.jsonl", "b")):
        Path(file).write_text(json.dumps({"id": FORGED, "response": response, "reference": "a"}))
    command = ["-m", "exact_match", "--baseline", "base.jsonl"]

    CliRunner().invoke(app("evaluate"), ["evaluate", "good.jsonl", *command, "--update-baseline"])
    result = CliRunner().invoke(app("evaluate"), ["evaluate", "bad.jsonl", *command])

    assert "1 case fell" in result.output
    assert not [line for line in result.output.splitlines() if line.strip("│ ").startswith("FAKE")]
