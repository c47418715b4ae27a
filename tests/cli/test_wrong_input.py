"""Commands on files report wrong input in one clear sentence with the right exit code, and lose nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore import semconv
from spanscore.cli.main import app, main
from spanscore.testing import ScriptedJudge

FACT = "The ferry to Oslo sails at nine."
CONFIG = "metrics: [faithfulness]\njudge: {model: lexical}\nsampling: {rate: 0.5}\n"
COLLECT, PREVIEW, REPLAY = ("collect",), ("preview", "config.yaml"), ("replay", "config.yaml", "--dry-run")
SCORE = ("evaluate", "samples.jsonl", "-m", "faithfulness")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with right and wrong files, made once."""
    folder = tmp_path_factory.mktemp("input")
    spans = folder / "spans.jsonl"
    runner = CliRunner()
    assert runner.invoke(app("demo"), ["demo", "--requests", "12", "--out", str(spans)]).exit_code == 0
    requests = [json.loads(line) for line in spans.open()]
    _write(folder / "bare.jsonl", *map(_without_content, requests))
    samples = [
        {"id": f"case-{place}", "user_input": "When?", "retrieved_contexts": [FACT], "response": FACT}
        for place in range(4)
    ]
    _write(folder / "samples.jsonl", *samples)
    _write(folder / "questions.jsonl", *({"id": one["id"], "user_input": "When?"} for one in samples))
    _write(folder / "renamed.jsonl", *({**one, "id": f"other-{place}"} for place, one in enumerate(samples)))
    _write(folder / "anonymous.jsonl", *({**one, "id": None} for one in samples))
    files = {
        "empty.jsonl": "",
        "broken.jsonl": '{"resourceSpans": [\nno JSON\n',
        "half.jsonl": f"no JSON\n{(folder / 'samples.jsonl').read_text()}",
        "half_spans.jsonl": f"{spans.read_text()}no JSON\n",
        "config.yaml": CONFIG,
        "misspelt.yaml": CONFIG.replace("faithfulness", "faithfulnes"),
        "torn.yaml": "metrics: [faithfulness\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    baseline = str(folder / "base.jsonl")
    arguments = ["evaluate", str(folder / "samples.jsonl"), "-m", "faithfulness", "--baseline", baseline]
    assert runner.invoke(app("evaluate"), [*arguments, "--update-baseline"]).exit_code == 0
    rows = [json.loads(line) for line in (folder / "base.jsonl").open()]
    _write(folder / "old.jsonl", *({**row, "version": "0", "evaluator_version": "an older one"} for row in rows))
    return folder


def _write(file: Path, *records: Any) -> None:
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def _without_content(request: dict[str, Any]) -> dict[str, Any]:
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span["attributes"] = [one for one in span["attributes"] if not semconv.is_content(one["key"])]
    return request


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def ran(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Run the command line as a shell does; return exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["spanscore", *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    return int(ended.value.code or 0), output.out, output.err


REFUSED: dict[tuple[str, ...], str] = {
    (*COLLECT, "none.jsonl", "--out", "x.jsonl"): "none.jsonl is not a file or folder; a source is one, or jaeger:http",
    (*COLLECT, "empty.jsonl", "--out", "x.jsonl"): "empty.jsonl holds no spans: a file has lines of OTLP-JSON",
    (*COLLECT, "samples.jsonl", "--out", "x.jsonl"): "samples.jsonl holds no spans: a file has lines of OTLP-JSON",
    (*COLLECT, "folder", "--out", "x.jsonl"): "folder holds no file that ends with .jsonl",
    (*COLLECT, "broken.jsonl", "--out", "x.jsonl"): "broken.jsonl line 1: not an OTLP trace request",
    (*COLLECT, "bare.jsonl", "--out", "x.jsonl"): "12 units, none with content: capture.content was off",
    (
        *COLLECT,
        "spans.jsonl",
        "--when",
        "truth<1",
        "--out",
        "x.jsonl",
    ): "none with a score of truth; there are scores of",
    (*COLLECT, "spans.jsonl", "--when", "faithfulness", "--out", "x.jsonl"): "is no condition; write for example",
    (*COLLECT, "spans.jsonl", "--when", "faithfulness<low", "--out", "x.jsonl"): "is no condition; write for example",
    (*COLLECT, "spans.jsonl", "--when", "faithfulness<0", "--out", "x.jsonl"): "no condition holds for any of them",
    (
        *COLLECT,
        "spans.jsonl",
        "--out",
        "nowhere/x.jsonl",
    ): "nowhere/x.jsonl cannot be written: the folder nowhere does not",
    (*COLLECT, "spans.jsonl", "--out", "folder"): "folder cannot be written: it is a folder; name a file in it",
    (*COLLECT, "spans.jsonl", "--out", "spans.jsonl"): "--out spans.jsonl is read by this command; choose another file",
    (*COLLECT, ".", "--out", "half.jsonl"): "--out half.jsonl is read by this command; choose another file",
    (
        *COLLECT,
        "spans.jsonl",
        "--redactor",
        "nothing",
        "--out",
        "x.jsonl",
    ): "none is built in. Your own is written",
    (*COLLECT, "spans.jsonl", "--since", "monday", "--out", "x.jsonl"): "'monday' is not a time; write how long ago",
    (
        *COLLECT,
        "spans.jsonl",
        "--since",
        "1h",
        "--until",
        "7d",
        "--out",
        "x.jsonl",
    ): "--until 7d is not after --since 1h",
    (*COLLECT, "spans.jsonl", "--config", "none.yaml", "--out", "x.jsonl"): "there is no configuration file none.yaml",
    (*PREVIEW, "none.jsonl"): "none.jsonl is not a file or folder; a source is one, or jaeger:http",
    (*PREVIEW, "empty.jsonl"): "empty.jsonl holds no spans: a file has lines of OTLP-JSON",
    (*PREVIEW, "samples.jsonl"): "samples.jsonl holds no spans: a file has lines of OTLP-JSON",
    (*PREVIEW, "folder"): "folder holds no file that ends with .jsonl",
    (
        *PREVIEW,
        "broken.jsonl",
    ): "nothing in it could be read; the first: broken.jsonl line 1: not an OTLP trace request",
    (*PREVIEW, "spans.jsonl", "--since", "1h", "--until", "7d"): "--until 7d is not after --since 1h",
    (*PREVIEW, "spans.jsonl", "--until", "2001-01-01"): "none of its 12 units began between --since and --until",
    (*PREVIEW, "jaeger:http://127.0.0.1:9"): "has no service; write jaeger:http://127.0.0.1:9?service=",
    (*REPLAY, "empty.jsonl"): "empty.jsonl holds no spans: a file has lines of OTLP-JSON",
    (*REPLAY, "samples.jsonl", "--json"): "samples.jsonl holds no spans: a file has lines of OTLP-JSON",
    (
        *REPLAY,
        "broken.jsonl",
        "--since",
        "1h",
    ): "nothing in it could be read; the first: broken.jsonl line 1: not an OTLP trace request",
    ("preview", "none.yaml", "spans.jsonl"): "there is no configuration file none.yaml",
    ("preview", "misspelt.yaml", "spans.jsonl"): "unknown metric 'faithfulnes': did you mean 'faithfulness'",
    ("preview", "torn.yaml", "spans.jsonl"): "is no YAML: a list that [ begins is not closed",
    ("evaluate", "none.jsonl", "-m", "faithfulness"): "none.jsonl cannot be read: No such file",
    ("evaluate", "empty.jsonl", "-m", "faithfulness"): "empty.jsonl holds no samples",
    ("evaluate", "broken.jsonl", "-m", "faithfulness"): "none of 2 records is a sample",
    ("evaluate", "spans.jsonl", "-m", "faithfulness"): "it has spans, not a sample; spanscore collect makes samples",
    ("evaluate", "samples.jsonl", "-m", "faithfulnes"): "unknown metric 'faithfulnes': did you mean 'faithfulness'",
    ("evaluate", "samples.jsonl"): "name the metrics: --metrics",
    (*SCORE, "--baseline", "none.jsonl"): "none.jsonl is not there; --update-baseline writes it from this run",
    (*SCORE, "--baseline", "empty.jsonl"): "empty.jsonl holds no rows to compare with; --update-baseline writes it",
    (*SCORE, "--baseline", "samples.jsonl"): "samples.jsonl holds other lines than rows that spanscore has written",
    (*SCORE, "--baseline", "folder"): "folder: results are written as .jsonl or .csv",
    (*SCORE, "--baseline", "base.jsonl", "--max-drop", "faithfulness"): "write a metric and a number from 0 to 1",
    (*SCORE, "--baseline", "base.jsonl", "--max-drop", "faithfulness=3"): "write a metric and a number from 0 to 1",
    (*SCORE, "--baseline", "base.jsonl", "--max-drop", "faithfulness=nan"): "write a metric and a number from 0 to 1",
    (*SCORE, "--baseline", "base.jsonl", "--max-drop", "truth=0.1"): "names 'truth', which is not scored",
    (*SCORE, "--max-drop", "faithfulness=0.1"): "--max-drop needs a baseline to fall from",
    (*SCORE, "--min", "faithfulness=90 %"): "write a metric and a number from 0 to 1",
    (*SCORE, "--max-unscored", "5"): "it is a share, from 0 to 1",
    (*SCORE, "--update-baseline"): "--update-baseline writes the file that --baseline names; name one",
    (*SCORE, "--min", "faithfulness=0.5", "--junit", "nowhere/x.xml"): "nowhere/x.xml cannot be written: the folder",
    (*SCORE, "--min", "faithfulness=0.5", "--junit", "folder"): "folder cannot be written: it is a folder",
    (*SCORE, "--baseline", "nowhere/x.jsonl", "--update-baseline"): "nowhere/x.jsonl cannot be written: the folder",
    (*SCORE, "--out", "nowhere/x.jsonl"): "nowhere/x.jsonl cannot be written: the folder nowhere does not exist",
    (
        *SCORE,
        "--out",
        "samples.jsonl",
        "--no-resume",
    ): "--out samples.jsonl is read by this command; choose another file",
    (*SCORE, "--report", "samples.jsonl"): "--report samples.jsonl is read by this command; choose another file",
    (*SCORE, "--min", "faithfulness=0.5", "--junit", "samples.jsonl"): "--junit samples.jsonl is read by this command",
    (*SCORE, "--report", "folder"): "folder cannot be written: it is a folder; name a file in it",
    ("report", "spans.jsonl", "--out", "spans.jsonl"): "--out spans.jsonl is read by this command",
    (
        "calibrate",
        "samples.jsonl",
        "-m",
        "faithfulness",
        "--out",
        "samples.jsonl",
    ): "samples.jsonl is read by this command",
    ("tune", "config.yaml", "samples.jsonl", "-m", "faithfulness", "--out", "config.yaml"): "is read by this command",
    (
        "evaluate",
        "renamed.jsonl",
        "-m",
        "faithfulness",
        "--baseline",
        "base.jsonl",
    ): "no case of this run is in the baseline",
    ("evaluate", "samples.jsonl", "-m", "exact_match", "--baseline", "base.jsonl", "--max-drop", "exact_match=0.1"): (
        "names 'exact_match', but the baseline has no score of it; it has scores of faithfulness; --update-baseline"
    ),
}
"""Arguments → text on standard error; the exit code is 2."""


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_wrong_input_is_refused_in_a_sentence_before_anything_is_asked_or_written(
    arguments: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = ScriptedJudge()
    monkeypatch.setattr("spanscore.cli._evaluate_run.make_judge", lambda named: judge)
    before = {file: file.read_bytes() for file in here.iterdir() if file.is_file()}

    code, out, error = ran(arguments, monkeypatch, capsys)

    assert (code, out) == (2, "")
    assert REFUSED[arguments] in error
    assert "Traceback" not in error
    assert all(line.strip() for line in error.splitlines())
    assert judge.calls == []
    assert {file: file.read_bytes() for file in here.iterdir() if file.is_file()} == before


PARTLY_WRONG: dict[tuple[str, ...], tuple[int, str]] = {
    (*COLLECT, "half_spans.jsonl", "--out", "{tmp}/x.jsonl"): (0, "not read: half_spans.jsonl line"),
    (*COLLECT, "spans.jsonl", "--when", "truth<1", "--when", "faithfulness>=0", "--out", "{tmp}/x.jsonl"): (
        0,
        "no unit has a score of truth; there are scores of",
    ),
    (*COLLECT, "spans.jsonl", "--sample", "1", "--out", "{tmp}/x.jsonl"): (0, "1 case is in"),
    (*PREVIEW, "half_spans.jsonl"): (0, "not read: half_spans.jsonl line"),
    (*REPLAY, "spans.jsonl", "--until", "2001-01-01"): (0, "12 traces with 0 units; 12 more outside the time"),
    (*PREVIEW, "bare.jsonl"): (0, "12 units, none with content: capture.content was off"),
    ("evaluate", "half.jsonl", "-m", "faithfulness"): (0, "Not read, line 1: not valid JSON"),
    ("evaluate", "questions.jsonl", "-m", "faithfulness", "--min", "faithfulness=0.5"): (3, "not known"),
    (
        "evaluate",
        "questions.jsonl",
        "-m",
        "faithfulness",
        "--baseline",
        "base.jsonl",
        "--max-drop",
        "faithfulness=0.1",
    ): (
        3,
        "of them had a score in the baseline",
    ),
    ("evaluate", "anonymous.jsonl", "-m", "faithfulness", "--baseline", "base.jsonl"): (
        0,
        "cases are identified by line, as some have no id",
    ),
    (*SCORE, "--baseline", "old.jsonl"): (0, "the baseline is of another version or judge"),
}
"""Arguments → exit code, and text on standard output about partial results."""


@pytest.mark.parametrize("arguments", PARTLY_WRONG, ids=" ".join)
def test_what_is_wrong_in_part_is_reported_and_the_rest_is_done(
    arguments: tuple[str, ...],
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, expected = PARTLY_WRONG[arguments]

    found = ran(tuple(one.format(tmp=tmp_path) for one in arguments), monkeypatch, capsys)

    assert found[0] == code
    assert expected in " ".join(found[1].split())


def test_every_command_says_that_it_is_at_work(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "x.jsonl")
    for arguments in ((*COLLECT, "spans.jsonl", "--out", out), (*PREVIEW, "spans.jsonl"), SCORE):
        code, plain, error = ran((*arguments, "--json"), monkeypatch, capsys)

        assert (code, error.split(":")[1].split(" …")[0]) == (0, " loading libraries")
        assert json.loads(plain)


@pytest.mark.parametrize("command", ["collect", "preview", "evaluate"])
def test_help_shows_an_example_and_fits_a_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    output = CliRunner().invoke(app(command), [command, "--help"]).stdout

    assert f"spanscore {command} " in output.split("Usage")[1].split("\n", 1)[1]
    assert all(len(line) <= 80 for line in output.splitlines())
