"""The section ``kafka``: a topic of OTLP spans, and how ``spanscore worker`` reads it; and what librdkafka is told of it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.settings.kinds import FrozenDict, Items, PositiveSeconds, Seconds, SettingsPart, Table

__all__ = ["KafkaSecurity", "KafkaSettings", "KafkaTopic", "ValueInFile", "confluent_config"]

_BROKER: Final = r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):\d{1,5}"
_SILENT: Final = logging.Logger("spanscore.kafka", logging.CRITICAL + 1)
_TOPIC: Final = r"[A-Za-z0-9._-]{1,249}"
_CLIENT: Final = re.compile(
    r"(enable\.)?(sasl|ssl)\.|(https|socket|reconnect|broker|connections)\.|client\.(rack|dns\.)"
)
"""Properties of librdkafka by which a client reaches brokers; its other properties decide what is read, and are ours."""
_SECURITY: Final = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location")
_SECRET: Final = re.compile(r"(password|secret|passphrase|ssl\.key\.pem|oauthbearer\.config)$")


def _broker(text: str) -> str:
    if re.fullmatch(_BROKER, text) is None:
        raise ValueError(f"{text!r} is no broker; write its host and port, as broker-1:9092")
    return text


def _topic(text: str) -> str:
    if re.fullmatch(_TOPIC, text) is None or text in {".", ".."}:
        raise ValueError(f"{text!r} is no topic; its name is of at most 249 letters, digits, dots, _ and -")
    return text


Broker = Annotated[str, AfterValidator(_broker), WithJsonSchema({"type": "string", "pattern": f"^{_BROKER}$"})]
TopicName = Annotated[str, AfterValidator(_topic), WithJsonSchema({"type": "string", "pattern": f"^{_TOPIC}$"})]


class ValueInFile(SettingsPart):
    """A value that stands in a file of its own, as a secret does.

    Attributes:
        file: path of the file; it holds one line of text.
    """

    file: str


def _client(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in properties.items():
        if name in _SECURITY:
            raise ValueError(f"{name} is set by security; write it there")
        if _CLIENT.match(name) is None:
            raise ValueError(
                f"{name} is spanscore's own; properties of ssl., sasl., socket. and the like are passed on"
            )
        if _SECRET.search(name) and not isinstance(value, ValueInFile):
            raise ValueError(f"{name} is a secret; write {{file: PATH}}")
    return properties


_ClientJson: Final = {"type": "object", "additionalProperties": {"type": ["boolean", "number", "string", "object"]}}
ClientProperties = Annotated[
    Table[str, bool | int | float | str | ValueInFile], AfterValidator(_client), WithJsonSchema(_ClientJson)
]


class KafkaSecurity(SettingsPart):
    """How the brokers know the client, and the client the brokers. Secrets stand in files, never here.

    Attributes:
        protocol: of the connection: plain text or TLS (``SSL``), and with ``SASL_`` a name and a password.
        mechanism: of name and password; ``PLAIN`` sends the password itself, and so wants ``SASL_SSL``. ``OAUTHBEARER`` has
            neither: ``client`` names the server of its tokens.
        username_file: file that holds the name.
        password_file: file that holds the password.
        ca: file of the authorities, as PEM, by which the brokers' certificates are checked; null = those of the system.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "PLAIN"
    username_file: str | None = None
    password_file: str | None = None
    ca: str | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [name for name in ("username_file", "password_file") if getattr(self, name) is not None]
        has_password = self.mechanism != "OAUTHBEARER"
        if given and not has_password:
            raise ValueError(f"{given[0]} is not read with mechanism: OAUTHBEARER")
        if self.protocol.startswith("SASL_") and has_password and len(given) < len(("name", "password")):
            raise ValueError(f"protocol: {self.protocol} needs username_file and password_file")
        if given and not self.protocol.startswith("SASL_"):
            raise ValueError(f"{given[0]} is read only with protocol: SASL_SSL or SASL_PLAINTEXT, not {self.protocol}")
        if self.ca is not None and not self.protocol.endswith("SSL"):
            raise ValueError(f"ca is read only with protocol: SSL or SASL_SSL, not {self.protocol}")
        return self


class KafkaTopic(SettingsPart):
    """A topic of OTLP requests, as the Collector's ``kafka`` exporter writes them: ``otlp_proto``, by trace.

    Attributes:
        brokers: some of them, host and port each; the others are learned from these.
        topic: its name.
        security: how brokers and client know each other; without it in plain text, without a name.
        client: further properties of librdkafka (``ssl.…``, ``sasl.oauthbearer.…``, ``socket.…``) → their values; a secret is
            ``{file: PATH}``.
    """

    brokers: Annotated[Items[Broker], Field(min_length=1)]
    topic: TopicName = "otlp_spans"
    security: KafkaSecurity = KafkaSecurity.model_construct()
    client: ClientProperties = Field(default_factory=FrozenDict)


class KafkaSettings(KafkaTopic):
    """The topic that ``spanscore worker`` reads; nothing else reads it.

    Attributes:
        logs_topic: topic of OTLP log records whose content is joined to the spans; each worker reads all of it; null = none.
        group: name of the group that shares the topic's partitions; its workers must have one configuration.
        key: the key of the topic's messages. ``trace``: the trace id, as the Collector writes it; ``conversation``: the id of
            the conversation, so that one worker reads all its turns. Metrics of conversations need it with several workers.
        protocol: of the group: ``consumer`` (KIP-848, brokers from 4.0), ``classic``, or ``auto``: the first that it has.
        max_open_age: how long spans whose root does not come hold back their partition; then their unit is ``incomplete``.
        revoke_timeout: how long a partition that goes to another worker waits for the scores of what was read of it.
    """

    logs_topic: TopicName | None = None
    group: str = Field(default="spanscore", min_length=1)
    key: Literal["trace", "conversation"] = "trace"
    protocol: Literal["auto", "consumer", "classic"] = "auto"
    max_open_age: PositiveSeconds = 600.0
    revoke_timeout: Seconds = 5.0

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        if self.logs_topic == self.topic:
            raise ValueError(
                f"logs_topic: {self.topic} is the topic of the spans; log records need a topic of their own"
            )
        return self


def confluent_config(topic: KafkaTopic, at: str = "kafka") -> dict[str, Any]:
    """Return what a client of librdkafka must be told to reach a topic's brokers. It holds the password: never to be shown.

    Args:
        topic: which.
        at: where that stands in the configuration, for messages.

    Raises:
        NotReadyError: a file cannot be read.
        ConfigurationError: one that holds a name or a password is empty.
    """
    security = topic.security
    config: dict[str, Any] = {
        "bootstrap.servers": ",".join(topic.brokers),
        "security.protocol": security.protocol,
        "client.id": "spanscore",
        "log_level": 0,
        "logger": _SILENT,  # it would write to stderr: what matters comes as an error, and is told once
    }
    if security.ca is not None:
        config["ssl.ca.location"] = str(_readable(security.ca, f"{at}.security.ca"))
    for name, value in topic.client.items():
        config[name] = _held(value.file, f"{at}.client.{name}") if isinstance(value, ValueInFile) else value
    if security.protocol.startswith("SASL_"):
        config["sasl.mechanism"] = security.mechanism
    if security.username_file is not None and security.password_file is not None:
        config["sasl.username"] = _held(security.username_file, f"{at}.security.username_file")
        config["sasl.password"] = _held(security.password_file, f"{at}.security.password_file")
    return config


def _held(file: str, key: str) -> str:
    try:
        text = _readable(file, key).read_text("utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise ConfigurationError(f"{key}: the file {file} does not hold one line of text")
    return text


def _readable(file: str, key: str) -> Path:
    if not os.access(file, os.R_OK) or not Path(file).is_file():
        raise NotReadyError(f"{key}: the file {file} cannot be read")
    return Path(file)
