"""The sections of services: where spans arrive, where a proxy sends them on, and how a worker ends."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from spanscore.config.kinds import Items, PositiveSeconds, Seconds, SettingsPart, Size, WebAddress

__all__ = ["ForwardSettings", "ListenAddress", "ServeSettings", "TlsSettings", "WorkerSettings", "listen_address"]

_ADDRESS: Final = r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})"


class ListenAddress(NamedTuple):
    """Where to listen.

    Attributes:
        host: name or number; of IPv6 without its brackets.
        port: 0 = any free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen_address(text: str) -> ListenAddress:
    """Read ``127.0.0.1:4317`` or ``[::1]:4317``.

    Raises:
        ValueError: it is none; the message says what is.
    """
    found = re.fullmatch(_ADDRESS, text)
    if found is None or int(found[2]) > _HIGHEST_PORT:
        raise ValueError(
            f"{text!r} is no address to listen on; write one as 127.0.0.1:4317 or [::1]:4317, or null for none"
        )
    return ListenAddress(found[1].strip("[]"), int(found[2]))


_HIGHEST_PORT: Final = 65_535


ListenOn = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),  # a port alone is no address
    AfterValidator(lambda text: str(listen_address(text))),
    WithJsonSchema({"type": "string", "pattern": f"^{_ADDRESS}$"}),
]
"""Address and port."""


class ForwardSettings(SettingsPart):
    """Where a proxy sends on what it received: OTLP over HTTP, whichever way it came.

    Attributes:
        endpoint: of the backend or Collector, without ``/v1/traces``. Spans go there as they came: no redactor changes them.
        headers: of a request that are sent on with it, in any case; all others end here.
        timeout: of one request; its client, who waits for the answer, should wait longer.
    """

    endpoint: WebAddress
    headers: Items[str] = ()
    timeout: PositiveSeconds = 10.0


class TlsSettings(SettingsPart):
    """Files of the server's certificate, as PEM.

    Attributes:
        cert: with the chain above it.
        key: its private key.
    """

    cert: str
    key: str


class RequestLimits(SettingsPart):
    """Sizes past which a request is refused for good.

    Attributes:
        request: of its body, as it came.
        inflated: of its body without compression.
    """

    request: Size = 16_000_000
    inflated: Size = 64_000_000


class ServeSettings(SettingsPart):
    """Where ``spanscore serve`` listens for OTLP.

    Attributes:
        grpc: address and port of OTLP over gRPC; null = none.
        http: of OTLP over HTTP, protobuf and JSON; null = none.
        mode: ``tee`` = a copy of the spans arrives, and only scores leave; ``proxy`` = spans are sent on, with their scores.
        forward: where to, of a proxy.
        tls: what clients check the server by; null = what they send travels as plain text.
        token_file: file that holds the bearer token that clients must send.
        token_env: variable that holds it.
        insecure: whether an address that others reach may be listened on without TLS or without a token.
        limits: sizes past which a request is refused.
        drain: how long a SIGTERM waits, in all: most of it for what is being scored, the rest for the scores to leave.
    """

    grpc: ListenOn | None = "127.0.0.1:4317"
    http: ListenOn | None = "127.0.0.1:4318"
    mode: Literal["tee", "proxy"] = "tee"
    forward: ForwardSettings | None = None
    tls: TlsSettings | None = None
    token_file: str | None = None
    token_env: str | None = None
    insecure: bool = False
    limits: RequestLimits = RequestLimits.model_construct()
    drain: Seconds = 30.0


class WorkerSettings(SettingsPart):
    """How ``spanscore worker`` ends.

    Attributes:
        drain: how long a SIGTERM waits, in all, for what is being scored; what is not scored by then another worker reads.
    """

    drain: Seconds = 30.0
