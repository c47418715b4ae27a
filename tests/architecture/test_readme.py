"""Every code block of the README runs, and the quickstart prints what it promises."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contracts.found import failing
from tests.live import QUESTION, rag
from tests.servers.openai_api import OpenAIServer, judged

from spanscore import OnlineScorer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_every_python_block_runs_in_order(monkeypatch):
    namespace = {"chain": rag(), "question": QUESTION}
    with OpenAIServer(judged) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        for block in blocks("python"):
            exec(compile(block.replace("sample_rate=0.1", "sample_rate=1.0"), "README.md", "exec"), namespace)
            assert namespace["scorer"].shutdown()

    assert len(blocks("python")) == 4
    assert not failing(namespace["TestRows"])


def test_the_attach_block_fits_in_eight_lines():
    assert len([line for line in blocks("python")[0].splitlines() if line.strip()]) <= 8


@pytest.mark.parametrize("block", blocks("yaml"), ids=["all of it", "a second judge"])
def test_a_configuration_block_makes_a_scorer(block, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "spanscore.yaml").write_text(block)

    OnlineScorer.from_config(tmp_path / "spanscore.yaml").shutdown()


PRINTED = {
    "quickstart.py": ["faithfulness 0.50", "faithfulness 1.00"],
    "existing_otel.py": ["POST /ask", "evaluation faithfulness              0.0", "spanscore.verdict=fail"],
    "langgraph_agent.py": ["execute_tool look_up", "'faithfulness': 1.0", "gen_ai.conversation.id=t-1", "trace "],
    "fastapi_app.py": ["founded by pirates. → trace ", "scored 2", "spanscore.verdict=fail"],
}


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_every_example_runs_without_key_or_server_and_says_where_to_look(example):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    due = "spanscore: nothing can be exported to http://localhost:4318" if example == "fastapi_app.py" else ""
    assert done.returncode == 0
    assert [line.partition(" (")[0] for line in done.stderr.splitlines()] == ([due] if due else [])
    assert all(text in done.stdout for text in PRINTED[example]), done.stdout


@pytest.mark.parametrize(
    ("example", "library", "line"),
    [
        ("quickstart.py", "langchain_core", "pip install -e ."),
        ("existing_otel.py", "opentelemetry.sdk", "pip install -e ."),
        ("langgraph_agent.py", "langchain.agents", "pip install -e '.[demo]'"),
        ("fastapi_app.py", "fastapi", "pip install -e . fastapi httpx"),
        ("fastapi_app.py", "httpx", "pip install httpx"),
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
