"""Sections of what outlives or leaves the process: the spool, a Kafka topic, and remote scoring."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from spanscore.config.kinds import (
    AnyPath,
    FrozenDict,
    Items,
    PositiveSeconds,
    SettingsPart,
    Size,
    Table,
    WebAddress,
)
from spanscore.errors import ConfigurationError, NotReadyError

__all__ = ["KafkaSecurity", "KafkaSettings", "KafkaTopic", "RemoteScoring", "Spool", "ValueInFile", "confluent_config"]

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
        max_open_age: how long spans whose root does not come hold back their partition; then their unit is ``incomplete``.
    """

    logs_topic: TopicName | None = None
    group: str = Field(default="spanscore", min_length=1)
    key: Literal["trace", "conversation"] = "trace"
    max_open_age: PositiveSeconds = 600.0

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


class RemoteScoring(SettingsPart):
    """Units are taken in this process, and scored in another one: a ``spanscore serve``, or the workers of a topic.

    Attributes:
        endpoint: address of a serve's OTLP over HTTP, without ``/v1/traces``: https, as prompts, answers and the token go
            there.
        token_file: file that holds its bearer token; read again for each request, so that it can be changed.
        timeout: time of one request.
        kafka: the topic, in place of endpoint and token: brokers, topic and security, as in the section of that name.
    """

    section: ClassVar[str] = "remote_scoring"
    endpoint: WebAddress | None = None
    token_file: AnyPath | None = None
    timeout: PositiveSeconds = 5.0
    kafka: KafkaTopic | None = None

    @model_validator(mode="after")
    def _check_destination(self) -> Self:
        if (self.endpoint is None) == (self.kafka is None):
            raise ValueError("give endpoint, of a spanscore serve, or kafka, a topic")
        if self.endpoint is not None and self.token_file is None:
            raise ValueError("endpoint needs token_file: a serve believes what was decided here only with its token")
        if self.endpoint is not None and self.endpoint.rstrip("/").endswith("/v1/traces"):
            raise ValueError("endpoint is the address without /v1/traces, which is added")
        if self.kafka is not None and self.token_file is not None:
            raise ValueError("token_file is of endpoint, and kafka has security")
        return self

    @property
    def shown(self) -> str:
        """Where units go, for people: without user, password and query."""
        if self.kafka is not None:
            return f"the topic {self.kafka.topic}"
        parts = urlsplit(self.endpoint or "")
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


class Spool(SettingsPart):
    """A file in which units wait for their scores: what is in it outlives the process, and other processes may score it.

    It holds prompts and answers, as the redactor leaves them; only its owner may read it, and what is done is wiped. A unit's
    sampling decision goes along: the process that scores it draws no second time.

    Attributes:
        path: path of the file, on a disk of this machine, seen from the working directory; made where it is not there.
        sync: ``full``: what is in it survives the loss of power. ``normal``: the end of the process alone, ``kill -9`` too; a
            unit costs a third.
        max_bytes: size of the file; past it units are ``queue_full``.
        max_age: age after which a unit in it is ``expired``.
        lease: time after which the units of a process that has stopped are others'; of one that has ended they are at once.
        allow_network_disk: whether it may lie on one, where locks hold only if the server is right.
        score_here: whether this process scores: its own units, and those that no other does. ``false``: it captures and writes,
            and ``spanscore worker`` scores; then units end ``delegated`` here.
    """

    section: ClassVar[str] = "spool"
    path: AnyPath
    sync: Literal["full", "normal"] = "full"
    max_bytes: Size = 1_000_000_000
    max_age: PositiveSeconds = 7 * 86_400.0
    lease: PositiveSeconds = 60.0
    allow_network_disk: bool = False
    score_here: bool = True
