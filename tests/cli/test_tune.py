"""``spanscore tune``: labels become a file that the configuration loads; the content to be sent is printed first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.metrics.kit.classroom import HABIT, Pupil, labels
from tests.servers.openai_api import OpenAIServer
from typer.testing import CliRunner

from spanscore.cli._evaluate_run import PausedAccounts
from spanscore.cli.main import app
from spanscore.errors import ConfigurationError
from spanscore.metrics import AspectCritic
from spanscore.wiring.accounts import Accounts

RUNNER = CliRunner()


def answer(request: dict[str, Any]) -> str:
    """Judge as a ``Pupil`` does, by the texts that a model is sent."""
    question, *examples = request["messages"][-1]["content"].split("Example:\n")
    taught = any(HABIT in example and '"verdict": 0' in example for example in examples)
    return json.dumps({"reason": "", "verdict": int("please" in question or (HABIT in question and not taught))})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    lines = [
        json.dumps({**one.sample.model_dump(exclude_none=True), "human": one.human}) for one in labels(60) if one.sample
    ]
    Path("labels.jsonl").write_text("\n".join(lines))
    return tmp_path


def configured(url: str, *, budget: Any = (), **parameters: Any) -> None:
    polite = {"name": "polite", "definition": "The response is polite.", **parameters}
    prices = {"gpt-4o-mini": {"input": 1, "output": 1}}
    judge = {"model": "openai:gpt-4o-mini", "base_url": url, "prices": prices, "budget": list(budget)}
    Path("spanscore.yaml").write_text(
        json.dumps({"judge": judge, "metrics": [{"aspect_critic": polite}, "exact_match"]})
    )


def fit(*options: str) -> Any:
    return RUNNER.invoke(app("tune"), ["tune", "spanscore.yaml", "labels.jsonl", *options])


def test_what_will_be_sent_is_printed_and_the_configuration_loads_the_file(folder: Path) -> None:
    with OpenAIServer(answer) as server:
        configured(server.url)
        done = fit("--metric", "polite", "--candidates", "2")
        configured(server.url, prompts={"file": "fitted.json"})
        checked = RUNNER.invoke(app("check"), ["check", "spanscore.yaml"])

    assert done.exit_code == 0, done.output
    assert "Sent with every question from now on, as demonstrations (they contain your users' texts):" in done.stdout
    assert f'"response": "{HABIT} Answer' in done.stdout
    assert "60 labels are few" in done.stderr
    assert "USD" in done.stderr
    assert checked.exit_code == 0, checked.output


def test_a_budget_that_is_spent_ends_it_and_nothing_is_written(folder: Path) -> None:
    with OpenAIServer(answer) as server:
        configured(server.url, budget=[{"calls": 30, "per": "30d"}])
        done = fit("--metric", "polite", "--candidates", "2")

        assert len(server.requests) == 30
    assert done.exit_code == 3
    assert "the budget of 30 calls per 30d is spent: nothing was sent. Nothing was written." in done.stderr
    assert not Path("fitted.json").exists()


def test_a_rewriter_is_paid_from_the_same_budget(folder: Path) -> None:
    def judging(request: dict[str, Any]) -> str:
        return (
            answer(request) if "You improve" not in json.dumps(request) else json.dumps({"instruction": "Be strict."})
        )

    with OpenAIServer(judging) as server:
        configured(server.url, budget=[{"calls": 20, "per": "30d"}])
        done = fit("--metric", "polite", "--rewriter", "openai:gpt-4o-mini", "--demonstrations", "0")

        assert len(server.requests) <= 20
    assert done.exit_code == 3


def test_as_json_it_is_what_the_file_holds(folder: Path) -> None:
    with OpenAIServer(lambda _: '{"reason": "", "verdict": 1}') as server:
        configured(server.url)
        done = fit("--metric", "polite", "--json", "--out", "none.json")

    held = json.loads(Path("none.json").read_text())
    assert json.loads(done.stdout) == held
    assert (held["kept"], held["prompts"], held["evaluator_version"]) == (False, {}, held["evaluator_version_before"])
    assert AspectCritic(Pupil(), name="polite", definition="The response is polite.", prompts={"file": "none.json"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "polit"], "the configuration has no such metric; did you mean 'polite'?"),
        (["--metric", "exact_match"], "it has no judge prompts of its own, so there is nothing to tune"),
        (["--metric", "polite", "--out", "nowhere/fitted.json"], "the folder nowhere does not exist"),
        (["--metric", "polite", "--out", "."], ". cannot be written: it is a folder; name a file in it"),
        (["--metric", "polite", "--redactor", "nothing:redact"], "finds no module 'nothing'"),
        (["--metric", "polite", "--rewriter", "nobody:model"], "--rewriter: 'nobody:model'"),
    ],
)
def test_what_is_wrong_is_reported_before_anybody_is_asked(folder: Path, options: list[str], message: str) -> None:
    with OpenAIServer(answer) as server:
        configured(server.url)
        done = fit(*options)

        assert isinstance(done.exception, ConfigurationError)
        assert message in str(done.exception)
        assert server.requests == []
    assert not Path("fitted.json").exists()


def test_a_redactor_runs_on_what_is_sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("privacy_of_fit.py").write_text("def redact(text):\n    return text.replace('Question', '[what]')\n")
    monkeypatch.syspath_prepend(folder)
    with OpenAIServer(answer) as server:
        configured(server.url)
        done = fit("--metric", "polite", "--candidates", "1", "--redactor", "privacy_of_fit:redact")

        assert done.exit_code == 0, done.output
        assert server.requests
        assert "Question" not in json.dumps(server.requests)


def test_the_bar_watches_whether_the_judge_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[str] = []

    def noting(accounts: Accounts) -> PausedAccounts:
        watched.extend(str(one.account) for one in accounts.states())
        return PausedAccounts(accounts)

    monkeypatch.setattr("spanscore.cli._prompt_run.PausedAccounts", noting)
    with OpenAIServer(answer) as server:
        configured(server.url)
        assert fit("--metric", "polite", "--out", "fitted.json").exit_code == 0

    assert len(watched) == 1
