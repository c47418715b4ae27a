"""Bearer tokens: a file or variable → the secret in it; no message shows one."""

from __future__ import annotations

from pathlib import Path

from spanscore.errors import ConfigurationError, NotReadyError

__all__ = ["bearer_token", "token_in_file"]


def bearer_token(secret: str | None, what: str) -> str:
    """Return a token without the spaces around it.

    Args:
        secret: as it was found; None = it was not.
        what: where it was looked for, for people.

    Raises:
        NotReadyError: it is not there.
        ConfigurationError: it is empty, or none that a header can carry.
    """
    if secret is None:
        raise NotReadyError(f"{what} is not there; it is to hold the token that clients send")
    if not secret.strip():
        raise ConfigurationError(f"{what} is empty; it is to hold the token that clients send")
    if not (secret.strip().isascii() and secret.strip().isprintable()):
        raise ConfigurationError(f"{what} holds what no header can carry; a token is of printable ASCII, on one line")
    return secret.strip()


def token_in_file(file: str | Path, key: str) -> str:
    """Return the token in a file.

    Args:
        key: of the configuration that names the file.

    Raises:
        NotReadyError: the file cannot be read.
        ConfigurationError: there is no token in it.
    """
    try:
        text = Path(file).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = None
    return bearer_token(text, f"{key}: the file {file}")
