"""The sections of services: ``serve`` (listen addresses, proxy, limits) and ``worker``."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from spanscore.config.kinds import AnyPath, Items, PositiveSeconds, Seconds, SettingsPart, Size, WebAddress

_ADDRESS: Final = r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})"


class ListenAddress(NamedTuple):
    """An address to listen on.

    Attributes:
        host: host name or IP address; IPv6 without brackets.
        port: port number; 0 = any free port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen_address(text: str) -> ListenAddress:
    """Parse a listen address such as ``127.0.0.1:4317`` or ``[::1]:4317``.

    Raises:
        ValueError: the text is not an address; the message shows two examples.
    """
    match = re.fullmatch(_ADDRESS, text)
    if match is None or int(match[2]) > _HIGHEST_PORT:
        raise ValueError(
            f"{text!r} is no address to listen on; write one such as 127.0.0.1:4317 or [::1]:4317, or null to disable it"
        )
    return ListenAddress(match[1].strip("[]"), int(match[2]))


_HIGHEST_PORT: Final = 65_535


ListenOn = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),  # a port alone is not an address
    AfterValidator(lambda text: str(listen_address(text))),
    WithJsonSchema({"type": "string", "pattern": f"^{_ADDRESS}$"}),
]
"""Address and port."""


class ForwardSettings(SettingsPart):
    """The backend to which a proxy forwards requests: always by OTLP over HTTP.

    Attributes:
        endpoint: address of the backend or Collector, without ``/v1/traces``. Spans are forwarded unchanged: no redactor
            applies.
        headers: names of the client's headers that are forwarded, in upper or lower case; all other headers are removed.
        timeout: time limit of one request; the client waits for the backend's response, so the client's limit should be longer.
    """

    endpoint: WebAddress
    headers: Items[str] = ()
    timeout: PositiveSeconds = 10.0


class TlsSettings(SettingsPart):
    """PEM files of the server's certificate.

    Attributes:
        cert: path of the certificate and its chain.
        key: path of the certificate's private key.
    """

    cert: str
    key: str


class RequestLimits(SettingsPart):
    """Size limits; a larger request is rejected permanently.

    Attributes:
        request: size of the body as received.
        inflated: size of the body after decompression.
    """

    request: Size = 16_000_000
    inflated: Size = 64_000_000


class ServeSettings(SettingsPart):
    """The listeners of ``spanscore serve``, which receives OTLP.

    Attributes:
        grpc: address and port for OTLP over gRPC; null = disabled.
        http: address and port for OTLP over HTTP, protobuf and JSON; null = disabled.
        mode: with ``tee``, a copy of the spans arrives, and only scores are exported. With ``proxy``, spans are forwarded with
            their scores.
        forward: backend to which a proxy forwards requests.
        tls: server certificate; null = unencrypted connections.
        token_file: path of a file with the bearer token that clients must send.
        token_env: environment variable with the bearer token that clients must send.
        insecure: whether an address that other machines reach may be used without TLS or without a token.
        limits: size limits of a request.
        drain: time for shutdown after a SIGTERM: most of this time is for units that are being scored, the last part for the
            export of scores.
    """

    grpc: ListenOn | None = "127.0.0.1:4317"
    http: ListenOn | None = "127.0.0.1:4318"
    mode: Literal["tee", "proxy"] = "tee"
    forward: ForwardSettings | None = None
    tls: TlsSettings | None = None
    token_file: AnyPath | None = None
    token_env: Annotated[str, Field(min_length=1)] | None = None
    insecure: bool = False
    limits: RequestLimits = RequestLimits.model_construct()
    drain: Seconds = 30.0


class WorkerSettings(SettingsPart):
    """The shutdown of ``spanscore worker``.

    Attributes:
        drain: time for shutdown after a SIGTERM. Units that are unscored by then are read by another worker.
    """

    drain: Seconds = 30.0
