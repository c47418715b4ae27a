"""A file that cannot be read ends no command with a traceback: the fault is a line that names the file or the line in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import SpanscoreError

DEEP, NEARLY = ("[" * depth + "]" * depth for depth in (100_000, 900))
CALL = f'{{"type": "ai", "tool_calls": [{{"name": "a", "args": {{"x": {NEARLY}}}}}]}}'
FILES: dict[str, bytes] = {
    "deep": f'{{"user_input": {DEEP}, "human": true}}\n'.encode(),
    "nearly as deep": f'{{"user_input": {NEARLY}, "human": true}}\n'.encode(),
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep arguments": f'{{"user_input": [{CALL}]}}'.encode(),
    "a deep list as text": f'{{"contexts": "{DEEP}"}}'.encode(),
    "a long number": b'{"user_input": ' + b"1" * 6_000 + b"}",
    "Latin-1": '{"user_input": "café", "human": true}'.encode("latin-1"),
    "bytes": bytes(range(256)),
    "a long cell": b"line,key\n1," + b"x" * 200_000,
}
READERS: dict[str, Callable[[str], list[str]]] = {
    "score": lambda file: ["evaluate", file, "-m", "exact_match"],
    "--baseline": lambda file: ["evaluate", "good.jsonl", "-m", "exact_match", "--baseline", file],
    "--out": lambda file: ["evaluate", "good.jsonl", "-m", "exact_match", "--out", file],
    "labels": lambda file: ["annotations", "import", file],
    "calibrate": lambda file: ["calibrate", file, "-m", "polite"],
    "--scores": lambda file: ["calibrate", "good.jsonl", "-m", "polite", "--scores", file],
    "fit": lambda file: ["tune", "spanscore.yaml", file, "-m", "polite"],
    "--calibration": lambda file: ["report", "good.jsonl", "--calibration", file],
    "prompts": lambda file: ["check", "prompts.yaml"],
    "check": lambda file: ["check", file],
    "replay": lambda file: ["replay", "spanscore.yaml", file, "--dry-run"],
}
CONFIG = "judge: {model: lexical}\nmetrics: [{aspect_critic: {name: polite, definition: It is polite%s}}]\n"


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv"])
@pytest.mark.parametrize("reader", READERS)
def test_what_cannot_be_read_is_reported_in_a_line(
    reader: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = f"bad{ending}"
    Path("good.jsonl").write_text('{"user_input": "q", "response": "a", "reference": "a", "human": true}\n')
    Path("spanscore.yaml").write_text(CONFIG % "")
    Path("prompts.yaml").write_text(CONFIG % f", prompts: {{file: {file}}}")

    for held in FILES.values():
        Path(file).write_bytes(held)
        command = READERS[reader](file)
        ended = CliRunner().invoke(app(command[0]), command)
        assert ended.exception is None or isinstance(ended.exception, SpanscoreError | SystemExit), ended.exception


def test_a_line_that_is_nested_too_deep_is_named_and_the_others_are_scored(tmp_path: Path) -> None:
    good = b'{"response": "a", "reference": "a"}\n'
    (tmp_path / "a.jsonl").write_bytes(FILES["deep"] + good + FILES["nearly as deep"])

    result = CliRunner().invoke(app("evaluate"), ["evaluate", str(tmp_path / "a.jsonl"), "-m", "exact_match"])

    assert "Not read, line 1: not valid JSON: nested too deep" in result.stdout
    assert "Not read, line 3: a field is nested deeper than 100 levels" in result.stdout
    assert "1 of 1" in result.stdout
