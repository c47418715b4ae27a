"""The configuration of ``remote_scoring``: all keys are used, and ``check`` shows the effects."""

from __future__ import annotations

from collections.abc import Mapping
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
from spanscore.durable import carriers, confluent_kafka_carrier

TOPIC = {"brokers": ["broker-1:9092"], "topic": "unusual"}


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def written(folder: Path, remote_scoring: dict[str, Any], **more: Any) -> Path:
    """Return a configuration with a missing key for its judge and its embeddings."""
    file = folder / "spanscore.yaml"
    settings = {"judge": {"model": "openai:gpt-4o-mini"}, "metrics": ["faithfulness", "response_relevancy"]}
    file.write_text(
        yaml.safe_dump({**settings, "embeddings": "openai:small", "remote_scoring": remote_scoring, **more})
    )
    return file


def checked(file: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app("check"), ["check", str(file), *options], env={"COLUMNS": "300"})
    return done.exit_code, done.output


def test_what_is_said_of_an_endpoint_arrives_and_no_key_of_a_judge_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = {"endpoint": "http://127.0.0.1:4321", "token_file": str(token_file(tmp_path)), "timeout": "1500ms"}

    made = list[RemoteScoring]()

    class Carrier(carriers.OtlpCarrier):
        def __init__(self, settings: RemoteScoring) -> None:
            made.append(settings)
            super().__init__(settings)

    monkeypatch.setattr(carriers, "OtlpCarrier", Carrier)
    with OnlineScorer.from_config(written(tmp_path, endpoint), tracer_provider=a_trace().provider) as scorer:
        status = scorer.status()

    (settings,) = made
    assert (settings.endpoint, settings.token_file) == ("http://127.0.0.1:4321", endpoint["token_file"])
    assert settings.timeout == 1.5
    assert status.judges == {"faithfulness": "remote_scoring", "response_relevancy": "remote_scoring"}
    assert "units are sent to http://127.0.0.1:4321 for scoring" in status.notes


def test_what_is_said_of_a_topic_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[tuple[str, str]]()

    class Carrier(confluent_kafka_carrier.KafkaCarrier):
        def __init__(self, config: Mapping[str, Any], topic: str) -> None:
            made.append((topic, config["bootstrap.servers"]))
            super().__init__(config, topic)

    monkeypatch.setattr(confluent_kafka_carrier, "KafkaCarrier", Carrier)
    OnlineScorer.from_config(written(tmp_path, {"kafka": TOPIC}), tracer_provider=a_trace().provider).shutdown(2)

    assert made == [("unusual", "broker-1:9092")]


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

    code, output = checked(written(tmp_path, given))
    assert code == 2
    assert f"remote_scoring: {said}" in output


def test_check_says_where_content_goes_and_whether_others_can_read_it(tmp_path: Path) -> None:
    endpoint = {"endpoint": "http://user:planted@scorer:4318/otlp", "token_file": str(token_file(tmp_path))}

    code, output = checked(written(tmp_path, endpoint))

    assert code == 0
    assert "units are sent to http://scorer:4318/otlp for scoring, with their content, after the redactor" in output
    assert "remote_scoring.endpoint is not https: content and token travel as plain text" in output
    assert "planted" not in output
    assert TOKEN not in output


def test_check_says_that_the_token_is_not_here(tmp_path: Path) -> None:
    code, output = checked(written(tmp_path, {"endpoint": "https://scorer:4318", "token_file": "nowhere"}), "--ready")

    assert code == 3
    assert "remote_scoring.token_file: the file nowhere is missing" in output
    assert "plain text" not in output


def test_check_refuses_what_needs_scores_in_the_application(tmp_path: Path) -> None:
    endpoint = {"endpoint": "https://scorer:4318", "token_file": str(token_file(tmp_path))}

    code, output = checked(written(tmp_path, endpoint, sampling={"feedback": {"rate": 0.5}}))

    assert code == 2
    assert "sampling.feedback cannot be combined with remote_scoring" in output
