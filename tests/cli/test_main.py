"""The command line in a shell: closed pipes, pipes without UTF-8, and unwanted colours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app, command_names, main
from spanscore.outputs.scope import version

COMMAND = [sys.executable, "-c", "from spanscore.cli.main import main; main()"]
LONG = "metrics: [" + ", ".join(f"{{exact_match: {{name: m{n}_{'x' * 100}}}}}" for n in range(700)) + "]"


def spanscore(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "80", **environment}
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["table", "json"])
def test_a_reader_that_has_seen_enough_causes_no_traceback(tmp_path: Path, more: list[str]) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text(LONG)  # more than a pipe holds
    command = [*COMMAND, "check", str(file), *more]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        first = process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()

    assert first
    assert complaints == ""


def test_a_pipe_that_is_not_utf_8_gets_what_it_can_take(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text("metrics: [exact_match]")

    done = spanscore("check", file, PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert "exact_match" in done.stdout
    assert "can be used" in " ".join(done.stdout.split())  # wherever a long path makes it wrap


def test_a_program_can_read_what_it_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text("metrics: [exact_match]")

    done = spanscore("check", file, "--json", FORCE_COLOR="1")

    assert json.loads(done.stdout)["ok"]


@pytest.mark.parametrize("command", ["metrics", "check", "rules"])
def test_a_narrow_terminal_cuts_no_name(tmp_path: Path, command: str) -> None:
    file = tmp_path / "spanscore.yaml"
    name = "answers_in_the_words_of_the_documents_that_were_found"
    file.write_text(f"metrics: [{{exact_match: {{name: {name}}}}}]\nalerts: {{{name}: {{baseline: 0.8}}}}")
    arguments = {"metrics": ["--online"], "check": [str(file)], "rules": [str(file), "--out", str(tmp_path / "out")]}

    output = CliRunner().invoke(app(command), [command, *arguments[command]], env={"COLUMNS": "50"}).stdout

    assert output
    assert "…" not in output.replace("reference=…", "")


@pytest.mark.parametrize("command", ["", *command_names()])
def test_help_says_no_word_in_pieces_at_80_columns(command: str) -> None:
    result = CliRunner().invoke(app(), [*filter(None, [command]), "--help"], env={"COLUMNS": "80"})

    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert not re.search(r"[\w-]…", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["evaluate", "nowhere.jsonl", "-m", "exact_match"], "Scoring nowhere.jsonl: loading libraries …"),
        (["demo", "--requests", "3"], "Loading LangChain and OpenTelemetry; then 3 requests are answered and scored …"),
    ],
    ids=["evaluate", "demo"],
)
def test_the_first_line_is_there_before_anything_heavy_is_loaded(arguments: list[str], line: str) -> None:
    loads = [sys.executable, "-X", "importtime", "-c", "from spanscore.cli.main import main; main()"]

    before, found, after = in_a_terminal([*loads, *arguments]).partition(line)

    heavy = [f" {name}\n" for name in ("langchain_core", "opentelemetry.sdk", "numpy", "spanscore.metrics")]
    assert found
    assert not [name for name in heavy if name in before]
    assert [name for name in heavy if name in after]


def in_a_terminal(command: list[str]) -> str:
    """Return the output of a command in a terminal, both streams in their order."""
    mine, its = pytest.importorskip("pty").openpty()
    text = bytearray()
    with subprocess.Popen(command, stdout=its, stderr=its, env={**os.environ, "COLUMNS": "200"}):
        os.close(its)
        with suppress(OSError):  # its end
            while read := os.read(mine, 65_536):
                text += read
    os.close(mine)
    return text.decode().replace("\r\n", "\n")


OWN = "from spanscore.metrics import metric\n\n@metric(requires=['response'])\ndef brief(sample) -> bool:\n    return True\n"
NAMING_IT = {
    "check": ["check", "spanscore.yaml"],
    "rules": ["rules", "spanscore.yaml", "--out", "rules"],
    "score": ["evaluate", "samples.jsonl", "--config", "spanscore.yaml"],
    "score alone": ["evaluate", "samples.jsonl", "-m", "my_own:brief"],
    "metrics": ["metrics", "--metric", "my_own:brief"],
}


@pytest.mark.parametrize("arguments", NAMING_IT.values(), ids=[*NAMING_IT])
def test_a_metric_of_a_module_in_the_working_directory_is_found(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "my_own.py").write_text(OWN)
    (tmp_path / "queue.py").write_text("raise RuntimeError('taken for the one of Python')")
    (tmp_path / "spanscore.yaml").write_text("metrics: ['my_own:brief']")
    (tmp_path / "samples.jsonl").write_text('{"response": "Madrid."}')

    done = spanscore(*arguments, cwd=tmp_path, PYTHONSAFEPATH="1")  # as the command that pip makes begins

    assert (done.returncode, "brief" in done.stdout) == (0, True), done.stderr


def test_the_version_is_printed() -> None:
    done = spanscore("--version")

    assert (done.stdout, done.returncode) == (f"spanscore {version()}\n", 0)


def test_the_overview_is_that_of_the_commands_and_loads_none_of_them() -> None:
    loads = [sys.executable, "-X", "importtime", "-c", "from spanscore.cli.main import main; main()", "--help"]
    done = subprocess.run(loads, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}, check=True)

    result = CliRunner().invoke(app(), ["--help"], env={"COLUMNS": "80"})

    assert done.stdout.partition("╭─ Start")[2] == result.stdout.partition("╭─ Start")[2] != ""
    assert "rich" in done.stderr
    assert not [
        name for name in ("langchain_core", "opentelemetry", "numpy", "pydantic") if f" {name}\n" in done.stderr
    ]


def test_ctrl_c_while_a_command_is_loaded_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spanscore.cli.main.import_module", interrupted)
    monkeypatch.setattr(sys, "argv", ["spanscore", "check"])
    monkeypatch.setattr(sys, "path", [*sys.path])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 130


def test_a_command_behind_a_double_dash_runs() -> None:
    assert "live traffic" in spanscore("--", "metrics", "--online").stdout
