"""Authentication for ``serve``: the bearer token of clients, and the certificate of the listeners."""

from __future__ import annotations

import hmac
import os
import ssl
from pathlib import Path

from spanscore.config.credentials import bearer_token, token_in_file
from spanscore.config.serving import ServeSettings, TlsSettings
from spanscore.errors import ConfigurationError, NotReadyError

_SCHEME = "bearer "


class BearerToken:
    """The token that a client must send. ``repr`` does not show it.

    Args:
        secret: token without surrounding spaces.
    """

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
