"""The properties of a topic's client: those of the configuration, with name and password from files that no message quotes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from spanscore.config.durable import KafkaSecurity, KafkaSettings, KafkaTopic, confluent_config
from spanscore.errors import ConfigurationError, NotReadyError

BROKERS = ["broker-1:9092", "[::1]:9093"]


def test_brokers_are_reached_in_plain_text_by_default() -> None:
    config = confluent_config(KafkaSettings(brokers=BROKERS))

    assert config["bootstrap.servers"] == "broker-1:9092,[::1]:9093"
    assert config["security.protocol"] == "PLAINTEXT"
    assert not [name for name in config if name.startswith(("sasl", "ssl"))]


def test_name_and_password_come_from_their_files(tmp_path: Path) -> None:
    name, password, ca = (tmp_path / file for file in ("name", "password", "ca.pem"))
    name.write_text("reader\n")
    password.write_text("s3cret\n")
    ca.write_text("-----BEGIN CERTIFICATE-----")
    security = KafkaSecurity(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username_file=str(name),
        password_file=str(password),
        ca=str(ca),
    )

    config = confluent_config(KafkaTopic(brokers=BROKERS, security=security))

    assert {"sasl.username": "reader", "sasl.password": "s3cret", "sasl.mechanism": "SCRAM-SHA-512"}.items() <= (
        config.items()
    )
    assert config["ssl.ca.location"] == str(ca)
    assert "s3cret" not in repr(security)


@pytest.mark.parametrize(
    ("held", "kind"), [(None, NotReadyError), ("", ConfigurationError), ("a\nb", ConfigurationError)]
)
def test_a_password_that_is_none_is_reported_by_its_file(
    held: str | None, kind: type[Exception], tmp_path: Path
) -> None:
    (tmp_path / "name").write_text("reader")
    file = tmp_path / "password"
    if held is not None:
        file.write_text(held)
    security = KafkaSecurity(protocol="SASL_SSL", username_file=str(tmp_path / "name"), password_file=str(file))

    with pytest.raises(kind, match=r"kafka\.security\.password_file: the file .*/password"):
        confluent_config(KafkaTopic(brokers=BROKERS, security=security))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"brokers": []}, "at least 1"),
        ({"brokers": ["http://broker:9092"]}, "no broker"),
        ({"brokers": BROKERS, "topic": "otlp spans"}, "no topic"),
        ({"brokers": BROKERS, "security": {"protocol": "SASL_SSL"}}, "needs username_file and password_file"),
        ({"brokers": BROKERS, "security": {"username_file": "name"}}, "read only with protocol: SASL_SSL"),
        ({"brokers": BROKERS, "security": {"ca": "ca.pem"}}, "read only with protocol: SSL"),
    ],
)
def test_what_cannot_be_is_said(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        KafkaSettings.model_validate(given)


def test_properties_of_the_client_are_passed_on_and_secrets_come_from_their_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    given = {
        "ssl.certificate.location": "/run/secrets/tls.crt",
        "ssl.key.password": {"file": str(secret)},
        "sasl.oauthbearer.method": "oidc",
        "socket.keepalive.enable": True,
        "socket.timeout.ms": 5_000,
    }
    security = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}
    topic = KafkaTopic.model_validate({"brokers": BROKERS, "client": given, "security": security})

    config = confluent_config(topic)

    assert config.items() >= {**given, "ssl.key.password": "s3cret", "sasl.mechanism": "OAUTHBEARER"}.items()
    assert "s3cret" not in repr(topic)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("group.id", "another", "spanscore's own"),
        ("enable.auto.commit", True, "spanscore's own"),
        ("sasl.username", "reader", "set by security"),
        ("ssl.key.password", "s3cret", "{file: PATH}"),
        ("sasl.oauthbearer.client.secret", "s3cret", "{file: PATH}"),
    ],
)
def test_a_property_that_is_ours_or_a_secret_is_refused(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        KafkaTopic.model_validate({"brokers": BROKERS, "client": {name: value}})
