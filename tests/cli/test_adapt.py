"""``spanscore adapt``: a configuration's metric is translated into a file for review, which the configuration loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.servers.openai_api import OpenAIServer
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError, JudgeUnparseable

RUNNER = CliRunner()
FILE = Path("prompts/polite.de.json")


def translation(request: dict[str, Any]) -> str:
    return json.dumps({"instruction": "Urteile: ist die Antwort höflich? 1, wenn ja, sonst 0.", "texts": []})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configured(url: str, *, model: str = "openai:gpt-4o-mini", budget: Any = (), **parameters: Any) -> None:
    polite = {"name": "polite", "definition": "The response is polite.", **parameters}
    prices = {"gpt-4o-mini": {"input": 1, "output": 1}}
    judge = {"model": model, "base_url": url, "prices": prices, "budget": list(budget)}
    if model == "lexical":
        judge = {"model": model}
    Path("spanscore.yaml").write_text(
        json.dumps({"judge": judge, "metrics": [{"aspect_critic": polite}, "exact_match"]})
    )


def adapt(*options: str, metric: str = "polite", language: str = "german") -> Any:
    return RUNNER.invoke(app("adapt"), ["adapt", metric, "--language", language, *options])


def test_the_translation_is_printed_written_and_read_by_the_configuration(folder: Path) -> None:
    with OpenAIServer(translation) as server:
        configured(server.url)
        done = adapt("--out", "prompts/")
        configured(server.url, prompts={"file": str(FILE)})
        checked = RUNNER.invoke(app("check"), ["check", "spanscore.yaml"])

    assert done.exit_code == 0, done.output
    assert "polite: German prompts by gpt-4o-mini. Judge calls: 1, " in done.stdout
    assert "Urteile: ist die Antwort höflich?" in done.stdout
    assert f"prompts: {{file: {FILE}}}" in done.stderr
    assert checked.exit_code == 0, checked.output


def test_as_json_it_is_what_the_file_holds(folder: Path) -> None:
    with OpenAIServer(translation) as server:
        configured(server.url)
        done = adapt("--json")

    content = json.loads(FILE.read_text())
    assert json.loads(done.stdout) == content
    assert (content["language"], content["judge"], content["reviewed"]) == ("de", "gpt-4o-mini", False)


def test_a_lost_verdict_writes_no_file(folder: Path) -> None:
    with OpenAIServer(lambda _: '{"instruction": "Ist das höflich?", "texts": []}') as server:
        configured(server.url)
        done = adapt()

        assert len(server.requests) == 2
    assert isinstance(done.exception, JudgeUnparseable)
    assert "critique: the instruction lost 1, 0" in str(done.exception)
    assert not FILE.exists()


def test_a_spent_budget_ends_it_and_no_file_is_written(folder: Path) -> None:
    with OpenAIServer(lambda _: '{"instruction": "Ist das höflich?", "texts": []}') as server:
        configured(server.url, budget=[{"calls": 1, "per": "30d"}])
        done = adapt()

    assert done.exit_code == 3
    assert "the budget of 1 calls per 30d is spent" in done.stderr
    assert not FILE.exists()


def test_a_file_that_is_there_is_not_replaced(folder: Path) -> None:
    FILE.parent.mkdir()
    FILE.write_text("reviewed")
    with OpenAIServer(translation) as server:
        configured(server.url)
        done = adapt()

        assert server.requests == []
    assert "polite.de.json exists, and may be reviewed" in str(done.exception)
    assert FILE.read_text() == "reviewed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "polit"}, "METRIC polit: the configuration has no such metric; did you mean 'polite'?"),
        ({"metric": "exact_match"}, "it has no judge prompts of its own, so there is nothing to translate"),
        ({"language": "klingon"}, "language is 'klingon'"),
    ],
)
def test_wrong_input_is_reported_before_a_judge_is_asked(folder: Path, options: Any, message: str) -> None:
    with OpenAIServer(translation) as server:
        configured(server.url)
        done = adapt(**options)

        assert server.requests == []
    assert isinstance(done.exception, ConfigurationError)
    assert message in str(done.exception)


def test_the_offline_judge_is_refused(folder: Path) -> None:
    with OpenAIServer(translation) as server:
        configured(server.url, model="lexical")
        done = adapt()

        assert server.requests == []
    assert "the offline judge cannot translate; give a model" in str(done.exception)
