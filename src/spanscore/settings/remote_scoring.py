"""RemoteScoring: units are taken in this process and scored in another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator

from spanscore.errors import ConfigurationError
from spanscore.settings.durations import seconds_of
from spanscore.settings.kafka import KafkaTopic
from spanscore.settings.kinds import PositiveSeconds, SettingsPart, WebAddress, is_web_address

__all__ = ["RemoteScoring", "RemoteScoringSettings", "remote_scoring_in"]

_TIMEOUT_S: Final = 5.0


class RemoteScoringSettings(SettingsPart):
    """Units are taken in this process, and scored in another one: a ``spanscore serve``, or the workers of a topic.

    Attributes:
        endpoint: of a serve's OTLP over HTTP, without ``/v1/traces``: https, as prompts, answers and the token go there.
        token_file: file that holds its bearer token; read again for each request, so that it can be changed.
        timeout: of one request.
        kafka: the topic, in place of endpoint and token: brokers, topic and security, as in the section of that name.
    """

    endpoint: WebAddress | None = None
    token_file: Annotated[str, Field(min_length=1)] | None = None
    timeout: PositiveSeconds = _TIMEOUT_S
    kafka: KafkaTopic | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if told := _wrong(self.endpoint, self.token_file, self.kafka):
            raise ValueError(told)
        return self


@dataclass(frozen=True, slots=True)
class RemoteScoring:
    """Units are taken in this process, and scored in another one: a ``spanscore serve``, or the workers of a topic.

    Args:
        endpoint: of a serve's OTLP over HTTP, without ``/v1/traces``: https, as prompts, answers and the token go there.
        token_file: file that holds its bearer token; read again for each request, so that it can be changed.
        timeout: of one request: seconds, or a text such as ``"5s"``.
        kafka: the topic, in place of these three: ``{"brokers": ["broker-1:9092"], "topic": "otlp_spans"}``, with the keys
            that it has in a configuration.

    Raises:
        ConfigurationError: one of them cannot be.
    """

    endpoint: str | None = None
    token_file: str | Path | None = None
    timeout: float | str = _TIMEOUT_S
    kafka: KafkaTopic | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if told := _wrong(self.endpoint, self.token_file, self.kafka):
            raise ConfigurationError(f"remote_scoring: {told}")
        if self.endpoint is not None and not is_web_address(self.endpoint):
            raise ConfigurationError("remote_scoring.endpoint is no address of the web; write https://scorer:4318")
        if self.timeout_s <= 0:
            raise ConfigurationError(f"remote_scoring.timeout is {self.timeout}; allowed is above 0")
        _ = self.topic

    @property
    def shown(self) -> str:
        """Where units go, for people: without user, password and query."""
        if self.topic is not None:
            return f"the topic {self.topic.topic}"
        parts = urlsplit(self.endpoint or "")
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()

    @property
    def topic(self) -> KafkaTopic | None:
        """The topic that they go to; None where it is an endpoint."""
        if self.kafka is None or isinstance(self.kafka, KafkaTopic):
            return self.kafka
        try:
            return KafkaTopic.model_validate(dict(self.kafka))
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(["remote_scoring.kafka", *map(str, fault["loc"])])
            raise ConfigurationError(f"{where}: {fault['msg']}") from None

    @property
    def timeout_s(self) -> float:
        """How long one request may take, seconds."""
        try:
            return seconds_of(self.timeout) if isinstance(self.timeout, str) else self.timeout
        except ValueError as error:
            raise ConfigurationError(f"remote_scoring.timeout: {error}") from None


def remote_scoring_in(given: RemoteScoringSettings | None) -> RemoteScoring | None:
    """Return what a configuration says of it."""
    return None if given is None else RemoteScoring(given.endpoint, given.token_file, given.timeout, given.kafka)


def _wrong(endpoint: object, token_file: object, kafka: object) -> str:
    """Return what does not fit together; empty where all does."""
    if (endpoint is None) == (kafka is None):
        return "give endpoint, of a spanscore serve, or kafka, a topic"
    if endpoint is not None and token_file is None:
        return "endpoint needs token_file: a serve believes what was decided here only with its token"
    if str(endpoint).rstrip("/").endswith("/v1/traces"):
        return "endpoint is the address without /v1/traces, which is added"
    return "token_file is of endpoint, and kafka has security" if kafka is not None and token_file is not None else ""
