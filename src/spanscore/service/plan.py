"""Reads the section ``serve``: addresses, token and certificate, and the description and errors that ``check`` prints.

No port is opened.
"""

from __future__ import annotations

import hmac
import os
import ssl
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from urllib.parse import urlsplit

from spanscore import semconv
from spanscore.config.credentials import bearer_token, public_address, token_in_file
from spanscore.config.serving import ListenAddress, ServeSettings, TlsSettings, listen_address
from spanscore.errors import ConfigurationError, MissingExtraError, NotReadyError
from spanscore.outputs.exporters import own_endpoints

_SCHEME = "bearer "
_ANY_HOST = ("0.0.0.0", "::")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_STOP_S = 5.0
"""Shortest time, at shutdown, to answer received requests."""


def addresses(serve: ServeSettings) -> dict[str, ListenAddress]:
    """Return ``grpc`` and ``http`` → address; a disabled listener is left out."""
    listeners = {"grpc": serve.grpc, "http": serve.http}
    return {name: listen_address(text) for name, text in listeners.items() if text is not None}


def stop_s_of(serve: ServeSettings) -> int:
    """Return how long a shutdown waits for received requests, in s: as long as a proxy's backend may take.

    The time is at most ``drain``, but at least 5 s.

    A request that is cut off is sent again, and spans that the backend has accepted meanwhile would be duplicated.
    """
    waits_s = serve.forward.timeout + 1 if serve.mode == "proxy" and serve.forward is not None else 0
    return ceil(max(_STOP_S, min(waits_s, serve.drain)))


def describe_serve(serve: ServeSettings) -> Iterator[str]:
    """Yield lines on the listeners and the mode of ``serve``."""
    where = ", ".join(f"{name} {address}" for name, address in addresses(serve).items())
    security = "tls" if serve.tls else "plain text", "a token" if serve.token_file or serve.token_env else "no token"
    yield f"spanscore serve: {where or 'no listener'} ({', '.join(security)})"
    yield describe_mode(serve)


def problems(serve: ServeSettings) -> Iterator[ConfigurationError]:
    """Yield the errors of a configuration, and missing parts of this environment, before any port is opened."""
    listening = addresses(serve)
    if not listening:
        yield ConfigurationError(
            "serve.grpc and serve.http are both null: no request could arrive; give one an address"
        )
    if serve.mode == "proxy" and serve.forward is None:
        yield ConfigurationError(
            "serve.mode: proxy has nothing to forward to; give serve.forward.endpoint, or mode: tee"
        )
    yield from _find_unprotected(serve, listening)
    for check in (lambda: token_of(serve), lambda: serve.tls and certificate(serve.tls)):
        try:
            check()
        except ConfigurationError as error:  # ``NotReadyError`` is a subclass
            yield error
    lacking = [library for library in ("grpc", "httptools", "uvicorn", "uvloop") if find_spec(library) is None]
    if lacking:  # the extra installs all of them
        yield MissingExtraError(lacking[0], "serve")


def refuse_own_endpoint(listening: Mapping[str, ListenAddress], serve: ServeSettings) -> None:
    """Refuse a listener at the address to which scores, or a proxy's spans, are sent, because these would return in a loop.

    Raises:
        ConfigurationError: the addresses are equal; the message names the setting to change.
    """
    variable = f"{semconv.OTLP_ENDPOINT_ENV_PREFIX}ENDPOINT"
    for name, address in listening.items():
        if serve.forward is not None and serve.mode == "proxy" and _is_listener(serve.forward.endpoint, address):
            raise ConfigurationError(
                f"serve.forward.endpoint: {serve.forward.endpoint} is serve.{name} itself; give the address of the backend"
            )
        for signal, endpoint in own_endpoints().items():
            if _is_listener(endpoint, address):
                raise ConfigurationError(
                    f"serve.{name}: scores ({signal}) would be sent to {endpoint}, which is this listener ({address}). "
                    f"Set {variable} to the backend or Collector for scores, or let serve.{name} listen elsewhere"
                )


def describe_mode(serve: ServeSettings) -> str:
    """Return a line with the destination of the spans."""
    if serve.mode == "tee":
        return "mode tee: a copy of the spans arrives, and only scores leave"
    where = "nowhere" if serve.forward is None else public_address(serve.forward.endpoint)
    line = f"mode proxy: spans are sent on to {where}, with their scores"
    forwarded = () if serve.forward is None else [name.strip().lower() for name in serve.forward.headers]
    if (serve.token_file or serve.token_env) and "authorization" in forwarded:
        line += "; the token that clients send here goes there, too (serve.forward.headers: authorization)"
    return line


def _find_unprotected(serve: ServeSettings, listening: Mapping[str, ListenAddress]) -> Iterator[ConfigurationError]:
    """Yield an error for each listener that other machines reach without TLS or without a token."""
    protections = {"tls": serve.tls, "a token": serve.token_file or serve.token_env}
    missing = " and ".join(name for name, setting in protections.items() if not setting)
    for name, address in listening.items():
        if missing and not serve.insecure and not is_loopback(address.host):
            yield ConfigurationError(
                f"serve.{name}: {address} can be reached by others, without {missing}; give serve.tls and serve.token_file, "
                "or insecure: true if something else guards it"
            )


def _is_listener(endpoint: str, address: ListenAddress) -> bool:
    try:
        parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:  # no address: the exporter reports it
        return False
    if port != address.port or not address.port:
        return False
    host = parts.hostname or ""
    listens_locally = is_loopback(address.host) or address.host in _ANY_HOST
    return host == address.host or (listens_locally and (is_loopback(host) or host in _ANY_HOST))


def is_loopback(host: str) -> bool:
    """Return whether a host name or an address is of this machine."""
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


# --- token and certificate ------------------------------------------------------------------------------------------


class BearerToken:
    """The token that a client must send, without surrounding spaces. ``repr`` does not show it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def is_in(self, header: str) -> bool:
        """Return whether an ``Authorization`` header has the token; compared in constant time."""
        token = header[len(_SCHEME) :].strip() if header[: len(_SCHEME)].lower() == _SCHEME else ""
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._secret)


def token_of(serve: ServeSettings) -> BearerToken | None:
    """Return the token that clients must send; None = no token is needed.

    Raises:
        ConfigurationError: the token is configured twice, is empty, or cannot be sent in a header.
        NotReadyError: the file or variable does not exist.
    """
    if serve.token_file and serve.token_env:
        raise ConfigurationError("serve.token_file and serve.token_env: give one of them")
    if serve.token_env:
        what = f"serve.token_env: the variable {serve.token_env}"
        return BearerToken(bearer_token(os.environ.get(serve.token_env), what))
    if serve.token_file:
        return BearerToken(token_in_file(serve.token_file, "serve.token_file"))
    return None


def certificate(tls: TlsSettings) -> tuple[bytes, bytes]:
    """Return the private key and the certificate, as PEM.

    Raises:
        NotReadyError: a file cannot be read.
        ConfigurationError: the files are not a key and its certificate.
    """
    for name, file in (("cert", tls.cert), ("key", tls.key)):
        if not os.access(file, os.R_OK) or not Path(file).is_file():
            raise NotReadyError(f"serve.tls.{name}: the file {file} cannot be read")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(tls.cert, tls.key, password=_refuse)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "the key has a password"
        raise ConfigurationError(
            f"serve.tls: {tls.cert} and {tls.key} are not a certificate and its key in PEM ({reason})"
        ) from None
    return Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()


def _refuse() -> str:
    """Refuse a key with a password, for which OpenSSL would prompt on the terminal, and wait."""
    raise ValueError("the key has a password")
