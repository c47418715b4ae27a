"""The lines to attach are few, and every example prints the output that the README promises."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.page import blocks
from tests.servers.openai_api import OpenAIServer, judged
from tests.servers.server import free_port

from spanscore.outputs.providers import NO_METRICS

ROOT = Path(__file__).parents[2]


def test_the_attach_block_fits_in_eight_lines():
    attach = next(text for language, text in blocks("README.md") if language == "python")

    assert len([line for line in attach.splitlines() if line.strip()]) <= 8


PRINTED = {
    "quickstart.py": ["faithfulness 0.50", "faithfulness 1.00"],
    "existing_otel.py": ["POST /ask", "evaluation faithfulness              0.0", "spanscore.verdict=fail"],
    "conversations.py": [
        "evaluation settled         1.0   pass  3 turns, ended: explicit",
        "evaluation user_feedback   0.0   fail  one unit",
    ],
    "langgraph_agent.py": ["execute_tool look_up", "'faithfulness': 1.0", "gen_ai.conversation.id=t-1", "trace "],
    "openinference_app.py": ["openinference.instrumentation.langchain  harbour                            0.0"],
    "openai_sdk_app.py": ["opentelemetry.instrumentation.openai.v1  openai.chat                        0.7"],
    "from_bad_answers_to_a_gate.py": [
        "cases are in cases.jsonl",
        "cases fell",
        "The gate's exit codes: 1 for the broken retriever, 0 for the mended one.",
    ],
    "from_a_message_to_a_better_judge.py": [
        "3 messages; the first is about trace ",
        "120 of 120 drawn cases have a label, by 1 annotator",
        "polite: kept. ",
        "The judge's mean is 0.28; it was 0.74.",
    ],
    "agent_quality.py": [
        "a wrong tool                      0.00                1.00                1.00",
        "a wrong argument                  1.00                0.00                1.00",
        "a loop                            1.00                1.00                0.25",
        "The worst trace: file://",
        "report.html#unit-1",
    ],
    "fastapi_app.py": ["founded by pirates. → trace ", "scored 2", "spanscore.verdict=fail"],
}


EXPORTING = {"fastapi_app.py"}
"""Examples without a provider of their own."""
PROGRESS = ("Collect: ", "Scoring ", "scored ")
COMMANDS = {"agent_quality.py", "from_bad_answers_to_a_gate.py", "from_a_message_to_a_better_judge.py"}
"""Examples that run commands, which print their progress on stderr."""
TRACED_BY = {"openinference_app.py": "openinference", "openai_sdk_app.py": "opentelemetry.instrumentation"}
"""Libraries that the tests of the lowest versions do not install."""


@pytest.mark.parametrize(
    "example", sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name[:5] != "test_")
)
def test_every_example_runs_without_key_or_server_and_says_where_to_look(example):
    if example in TRACED_BY:
        pytest.importorskip(TRACED_BY[example])
    nowhere = f"http://localhost:{free_port()}"  # the default address may be somebody's
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        env=clean | ({"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere} if example in EXPORTING else {}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    unreachable = f"spanscore: nothing can be exported to {nowhere}"
    due = unreachable if example in EXPORTING else f"spanscore: {NO_METRICS}"
    assert done.returncode == 0, done.stderr
    if example in COMMANDS:
        assert not [line for line in done.stderr.splitlines() if line and not line.startswith(PROGRESS)]
    else:
        assert [line.partition(" (")[0] for line in done.stderr.splitlines()] == [due]
    assert all(text in done.stdout for text in PRINTED[example]), done.stdout


@pytest.mark.parametrize(
    ("example", "library", "line"),
    [
        ("quickstart.py", "langchain_core", "pip install -e ."),
        ("existing_otel.py", "opentelemetry.sdk", "pip install -e ."),
        ("conversations.py", "langchain_core", "pip install -e ."),
        ("langgraph_agent.py", "langchain.agents", "pip install -e '.[demo]'"),
        ("from_bad_answers_to_a_gate.py", "langchain_core", "pip install -e '.[demo]'"),
        (
            "from_a_message_to_a_better_judge.py",
            "langchain_openai",
            "pip install -e '.[demo,openai,prometheus,report]'",
        ),
        ("agent_quality.py", "langchain.agents", "pip install -e '.[demo,checks,report]'"),
        ("fastapi_app.py", "fastapi", "pip install -e . fastapi httpx"),
        ("fastapi_app.py", "httpx", "pip install httpx"),
        (
            "openinference_app.py",
            "openinference.instrumentation.langchain",
            "pip install -e . openinference-instrumentation-langchain",
        ),
        ("openai_sdk_app.py", "openai", "pip install -e . openai opentelemetry-instrumentation-openai"),
    ],
)
def test_an_example_answers_with_the_pip_line_where_a_library_is_missing(example, library, line):
    without = f"import sys, runpy; sys.modules[{library!r}] = None; "
    done = subprocess.run(
        [sys.executable, "-c", without + f"runpy.run_path({str(ROOT / 'examples' / example)!r}, run_name='__main__')"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.startswith(library), done.stderr  # no traceback
    assert done.stderr.endswith(f" is not installed: {line}\n")


def test_the_quickstart_speaks_to_a_real_model_where_there_is_a_key(monkeypatch, capsys):
    with OpenAIServer(judged) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")

    assert "chat gpt-4o-mini" in capsys.readouterr().out
