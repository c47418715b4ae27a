"""The configuration of ``remote_scoring``: all keys are used, and ``check`` shows the effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.durable.application import TOKEN, token_file
from tests.live import a_trace
from typer.testing import CliRunner

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli.main import app
from spanscore.config import RemoteScoring

TOPIC = {"brokers": ["broker-1:9092"], "topic": "unusual"}


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def written(folder: Path, remote_scoring: dict[str, Any], **more: Any) -> Path:
    """Return a configuration with a missing key for its judge and its embeddings."""
    file = folder / "spanscore.yaml"
    told = {"judge": {"model": "openai:gpt-4o-mini"}, "metrics": ["faithfulness", "response_relevancy"]}
    file.write_text(yaml.safe_dump({**told, "embeddings": "openai:small", "remote_scoring": remote_scoring, **more}))
    return file


def checked(file: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app(), ["check", str(file), *options], env={"COLUMNS": "300"})
    return done.exit_code, done.output


def test_what_is_said_of_an_endpoint_arrives_and_no_key_of_a_judge_is_needed(tmp_path: Path) -> None:
    endpoint = {"endpoint": "http://127.0.0.1:4321", "token_file": str(token_file(tmp_path)), "timeout": "1500ms"}

    with OnlineScorer.from_config(written(tmp_path, endpoint), tracer_provider=a_trace().provider) as scorer:
        carrier: Any = scorer._line.handover._carrier  # type: ignore[union-attr]
        status = scorer.status()

    assert (carrier._endpoint, carrier._token_file) == ("http://127.0.0.1:4321", endpoint["token_file"])
    assert carrier._settings.timeout == 1.5
    assert status.judges == {"faithfulness": "remote_scoring", "response_relevancy": "remote_scoring"}
    assert "units are sent to http://127.0.0.1:4321 for scoring" in status.notes


def test_what_is_said_of_a_topic_arrives(tmp_path: Path) -> None:
    with OnlineScorer.from_config(written(tmp_path, {"kafka": TOPIC}), tracer_provider=a_trace().provider) as scorer:
        carrier: Any = scorer._line.handover._carrier  # type: ignore[union-attr]

    assert (carrier._topic, carrier._config["bootstrap.servers"]) == ("unusual", "broker-1:9092")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give endpoint, of a spanscore serve, or kafka, a topic"),
        ({"endpoint": "https://scorer:4318"}, "endpoint needs token_file"),
        (
            {"endpoint": "https://scorer:4318/v1/traces", "token_file": "t"},
            "leave /v1/traces out of endpoint",
        ),
        ({"endpoint": "https://scorer:4318", "token_file": "t", "kafka": TOPIC}, "give endpoint, of a spanscore serve"),
        ({"kafka": TOPIC, "token_file": "t"}, "token_file is for endpoint"),
    ],
)
def test_what_does_not_fit_together_is_refused_alike_in_both_places(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"remote_scoring: {said}"):
        RemoteScoring(**given)

    code, told = checked(written(tmp_path, given))
    assert code == 2
    assert f"remote_scoring: {said}" in told


def test_check_says_where_content_goes_and_whether_others_can_read_it(tmp_path: Path) -> None:
    endpoint = {"endpoint": "http://user:planted@scorer:4318/otlp", "token_file": str(token_file(tmp_path))}

    code, told = checked(written(tmp_path, endpoint))

    assert code == 0
    assert "units are sent to http://scorer:4318/otlp for scoring, with their content, after the redactor" in told
    assert "remote_scoring.endpoint is not https: content and token travel as plain text" in told
    assert "planted" not in told
    assert TOKEN not in told


def test_check_says_that_the_token_is_not_here(tmp_path: Path) -> None:
    code, told = checked(written(tmp_path, {"endpoint": "https://scorer:4318", "token_file": "nowhere"}), "--ready")

    assert code == 3
    assert "remote_scoring.token_file: the file nowhere is missing" in told
    assert "plain text" not in told


def test_check_refuses_what_needs_scores_in_the_application(tmp_path: Path) -> None:
    endpoint = {"endpoint": "https://scorer:4318", "token_file": str(token_file(tmp_path))}

    code, told = checked(written(tmp_path, endpoint, sampling={"feedback": {"rate": 0.5}}))

    assert code == 2
    assert "sampling.feedback cannot be combined with remote_scoring" in told
