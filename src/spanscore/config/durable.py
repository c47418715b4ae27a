"""Sections for data that outlives or leaves the process: ``spool``, ``kafka`` and ``remote_scoring``."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from spanscore.config.credentials import public_address
from spanscore.config.kinds import AnyPath, FrozenDict, Items, PositiveSeconds, SettingsPart, Size, Table, WebAddress
from spanscore.errors import ConfigurationError, NotReadyError

_BROKER: Final = r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):\d{1,5}"
_SILENT: Final = logging.Logger("spanscore.kafka", logging.CRITICAL + 1)
"""A logger that logs nothing. Without a logger, the client writes to stderr."""
_TOPIC: Final = r"[A-Za-z0-9._-]{1,249}"
_CLIENT: Final = re.compile(
    r"(enable\.)?(sasl|ssl)\.|(https|socket|reconnect|broker|connections)\.|client\.(rack|dns\.)"
)
"""Properties of librdkafka for the connection to brokers. spanscore sets the properties that select the data."""
_SECURITY: Final = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location")
_SECRET: Final = re.compile(r"(password|secret|passphrase|ssl\.key\.pem|oauthbearer\.config)$")


def _broker(text: str) -> str:
    if re.fullmatch(_BROKER, text) is None:
        raise ValueError(f"{text!r} is no broker; write its host and port, such as broker-1:9092")
    return text


def _topic(text: str) -> str:
    if re.fullmatch(_TOPIC, text) is None or text in {".", ".."}:
        raise ValueError(f"{text!r} is no topic; write at most 249 letters, digits, dots, _ and -")
    return text


Broker = Annotated[str, AfterValidator(_broker), WithJsonSchema({"type": "string", "pattern": f"^{_BROKER}$"})]
TopicName = Annotated[str, AfterValidator(_topic), WithJsonSchema({"type": "string", "pattern": f"^{_TOPIC}$"})]


class ValueInFile(SettingsPart):
    """A value in a separate file, for secrets.

    Attributes:
        file: path of a file with one line of text.
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
    """Authentication between client and brokers. Secrets are in files, never in the configuration.

    Attributes:
        protocol: protocol of the connection: plain text or TLS (``SSL``); ``SASL_`` adds name and password.
        mechanism: SASL mechanism. ``PLAIN`` sends the password itself, so use it only with ``SASL_SSL``. ``OAUTHBEARER`` has no
            name and password; ``client`` names the server that issues its tokens.
        username_file: file with the user name; needed with ``SASL_…``, except with ``OAUTHBEARER``.
        password_file: file with the password; needed with ``username_file``.
        ca: PEM file of the certificate authorities that check the brokers' certificates; null = the system's authorities.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "PLAIN"
    username_file: str | None = None
    password_file: str | None = None
    ca: str | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        files = [name for name in ("username_file", "password_file") if getattr(self, name) is not None]
        has_password = self.mechanism != "OAUTHBEARER"
        if files and not has_password:
            raise ValueError(f"{files[0]} is not read with mechanism: OAUTHBEARER")
        if self.protocol.startswith("SASL_") and has_password and len(files) < len(("name", "password")):
            raise ValueError(f"protocol: {self.protocol} needs username_file and password_file")
        if files and not self.protocol.startswith("SASL_"):
            raise ValueError(f"{files[0]} is read only with protocol: SASL_SSL or SASL_PLAINTEXT, not {self.protocol}")
        if self.ca is not None and not self.protocol.endswith("SSL"):
            raise ValueError(f"ca is read only with protocol: SSL or SASL_SSL, not {self.protocol}")
        return self


class KafkaTopic(SettingsPart):
    """A topic of OTLP requests, as the Collector's ``kafka`` exporter writes them: ``otlp_proto``, partitioned by trace.

    Attributes:
        brokers: host and port of some brokers; the client discovers the other brokers.
        topic: name of the topic.
        security: authentication between client and brokers; by default plain text without a user name.
        client: further properties of librdkafka (``ssl.…``, ``sasl.oauthbearer.…``, ``socket.…``) → their values; a secret is
            ``{file: PATH}``.
    """

    brokers: Annotated[Items[Broker], Field(min_length=1)]
    topic: TopicName = "otlp_spans"
    security: KafkaSecurity = KafkaSecurity.model_construct()
    client: ClientProperties = Field(default_factory=FrozenDict)


class KafkaSettings(KafkaTopic):
    """The topic that ``spanscore worker`` reads. Other commands ignore it.

    Attributes:
        logs_topic: topic of OTLP log records, whose content is joined to the spans. Each worker reads all its partitions.
            null = no topic.
        group: name of the consumer group that shares the topic's partitions. All its workers must have one configuration.
        key: key of the topic's messages. ``trace`` is the trace id, as the Collector writes it. ``conversation`` is the id of
            the conversation, so that one worker reads all its turns; several workers need it for metrics of conversations.
        max_open_age: time for which spans without their root hold back their partition; then their unit is ``incomplete``.
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
    """Return the properties with which a client of librdkafka reaches a topic's brokers. They include the password: do not log
    them.

    Args:
        topic: the topic, its brokers and their security.
        at: section that has the topic, for messages.

    Raises:
        NotReadyError: a file cannot be read.
        ConfigurationError: a file for the name or the password is empty.
    """
    security = topic.security
    config: dict[str, Any] = {
        "bootstrap.servers": ",".join(topic.brokers),
        "security.protocol": security.protocol,
        "client.id": "spanscore",
        "log_level": 0,
        "logger": _SILENT,  # errors that matter also arrive as errors, and are logged once
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
    """Units are sampled in this process and scored in another process: a ``spanscore serve``, or the workers of a topic.

    Attributes:
        endpoint: address of OTLP over HTTP of a ``spanscore serve``, without ``/v1/traces``. Use https: prompts, answers and
            the token are sent to it. Exactly one of ``endpoint`` and ``kafka`` is given.
        token_file: file with the bearer token of the ``endpoint``, which needs it. The file is read for each request, so it can
            be replaced.
        timeout: time limit of one request.
        kafka: topic that replaces ``endpoint`` and ``token_file``: brokers, topic and security, as in the section ``kafka``.
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
            raise ValueError(
                "endpoint needs token_file: spanscore serve accepts sampling decisions only with its token"
            )
        if self.endpoint is not None and self.endpoint.rstrip("/").endswith("/v1/traces"):
            raise ValueError("leave /v1/traces out of endpoint; spanscore adds it")
        if self.kafka is not None and self.token_file is not None:
            raise ValueError("token_file is for endpoint only; with kafka, write kafka.security")
        return self

    @property
    def shown(self) -> str:
        """The destination of units, for messages: without user, password and query."""
        return public_address(self.endpoint or "") if self.kafka is None else f"the topic {self.kafka.topic}"


class Spool(SettingsPart):
    """A file in which units wait for their scores. The units survive the end of the process, and other processes may score
    them.

    The file holds prompts and answers, as returned by the redactor. Only its owner may read it, and finished units are wiped.
    The sampling decision of a unit is stored with it: the process that scores it does not sample again.

    Attributes:
        path: path of the file, on a local disk, relative to the working directory; a missing file is created.
        sync: with ``full``, units survive a power failure. With ``normal``, units survive ``kill -9`` of the process;
            writing a unit takes a third of the time.
        max_bytes: size of the file; units beyond it are ``queue_full``.
        max_age: age at which a unit in the file is ``expired``.
        lease: time after which other processes may take the units of a process that hangs. Units of an ended process are free
            immediately.
        allow_network_disk: whether the file may be on a network disk, whose locks depend on a correct server.
        score_here: whether this process scores its own units and units without an owner. With ``false`` it only captures units
            and writes them to the file; ``spanscore worker`` scores them, and they end here as ``delegated``.
    """

    section: ClassVar[str] = "spool"
    path: AnyPath
    sync: Literal["full", "normal"] = "full"
    max_bytes: Size = 1_000_000_000
    max_age: PositiveSeconds = 7 * 86_400.0
    lease: PositiveSeconds = 60.0
    allow_network_disk: bool = False
    score_here: bool = True
