"""``spanscore check`` of metrics that score whole conversations."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanscore import OnlineScorer
from spanscore.cli.main import app

REMOTE_SCORING = "remote_scoring: {endpoint: 'http://127.0.0.1:4318', token_file: /dev/null}"
TALKS = "metrics: [exact_match, {agent_goal_accuracy: {per: session}}]\n"


def checked(path: Path, text: str) -> tuple[int, str]:
    (path / "scorer.yaml").write_text(text)
    result = CliRunner().invoke(app(), ["check", str(path / "scorer.yaml")], env={"COLUMNS": "110"})
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("replicas", "presumes"),
    [("one", "this one process"), ("sticky", "reach the same process"), ("any", "any process may have any turn")],
)
def test_it_tells_what_is_presumed_of_replicas_wherever_a_session_metric_is(
    tmp_path: Path, replicas: str, presumes: str
) -> None:
    code, output = checked(tmp_path, f"{TALKS}sessions: {{replicas: {replicas}}}")

    assert code == 0
    assert f"sessions.replicas: {replicas} presumes that" in output
    assert presumes in output
    assert "of sessions" in output


def test_without_a_session_metric_it_says_nothing_of_them(tmp_path: Path) -> None:
    assert "sessions" not in checked(tmp_path, "metrics: [exact_match]\nsessions: {idle_timeout: 1m}")[1]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("metrics: [{exact_match: {per: session}}]", "scores no conversation"),
        (
            "metrics: [{agent_goal_accuracy: {per: turn}}]",
            "metrics.agent_goal_accuracy.per is 'turn'; allowed are unit",
        ),
        (
            "metrics: [{agent_goal_accuracy: {per: session, shadow: 'openai:m'}}]",
            "second judges are asked only about units",
        ),
        (f"{TALKS}sessions: {{replicas: many}}", "sessions.replicas"),
        (f"{TALKS}sessions: {{idle_timeout: 0}}", "sessions.idle_timeout"),
        (f"{TALKS}{REMOTE_SCORING}", "sessions.metrics cannot be combined with remote_scoring"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key_by_check_and_at_the_start(
    tmp_path: Path, text: str, fault: str
) -> None:
    code, output = checked(tmp_path, text)

    assert (code, fault in output) == (2, True), output
    with pytest.raises(Exception, match=fault[:20]):
        OnlineScorer.from_config(tmp_path / "scorer.yaml").shutdown(0)


def test_a_file_makes_session_metrics_with_rates_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "scorer.yaml").write_text(
        f"{TALKS}judge: {{model: lexical}}\nsampling: {{rate: 1, rates: {{agent_goal_accuracy: 0.25}}}}"
    )
    with OnlineScorer.from_config(tmp_path / "scorer.yaml") as scorer:
        status = scorer.status()

    assert list(status.eligible) == ["exact_match", "agent_goal_accuracy"]
    assert status.rates["agent_goal_accuracy"] == (0.25, 0.25)
    assert status.sessions is not None
