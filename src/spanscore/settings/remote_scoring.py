"""Units are taken in this process and scored in another one."""

from __future__ import annotations

from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import model_validator

from spanscore.settings.kafka import KafkaTopic
from spanscore.settings.kinds import AnyPath, PositiveSeconds, SettingsPart, WebAddress

__all__ = ["RemoteScoring"]


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
