"""Bearer tokens, API keys and passwords: reads tokens from files, and hides secrets in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from spanscore.errors import ConfigurationError, NotReadyError

Place: TypeAlias = tuple[int | str, ...]
"""Keys and positions, from the top of the tree down."""


def bearer_token(secret: str | None, what: str) -> str:
    """Return a bearer token without surrounding spaces.

    Args:
        secret: the text that was read; None = its file or variable is missing.
        what: name of the file or variable, for the message.

    Raises:
        NotReadyError: the token is missing.
        ConfigurationError: the token is empty, or has characters that an HTTP header cannot carry.
    """
    if secret is None:
        raise NotReadyError(f"{what} is missing; it must hold the token that clients send")
    if not secret.strip():
        raise ConfigurationError(f"{what} is empty; it must hold the token that clients send")
    if not (secret.strip().isascii() and secret.strip().isprintable()):
        raise ConfigurationError(
            f"{what} has characters that a header cannot carry; a token is printable ASCII on one line"
        )
    return secret.strip()


def token_in_file(file: str | Path, key: str) -> str:
    """Return the bearer token in a file.

    Args:
        file: path of the file.
        key: key of the configuration that names the file, for the message.

    Raises:
        NotReadyError: the file cannot be read.
        ConfigurationError: the file has no token.
    """
    try:
        text = Path(file).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = None
    return bearer_token(text, f"{key}: the file {file}")


def public_address(url: str) -> str:
    """Return an address for messages: without user, password, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


_POSSIBLE_CREDENTIAL_NAME = re.compile(
    r"key|token(?!s)|secret|passw|passphrase|credential|authorization|bearer|cookie|(?<![a-z])auth(?![a-z])",
    re.IGNORECASE,
)
"""Parts of names that may be secrets: messages may hide too much. ``tokens`` are counts and are shown."""
_CREDENTIALS_IN_URL = re.compile(r"(?<=//)[^/@\s]+(?=@)")
_HIDDEN = "…"
HOW_TO_GIVE = "write api_key_env: NAME (a variable of the environment that holds it) or api_key_file: PATH"


def may_be_credential(name: object) -> bool:
    """Return whether the value of this name could be a secret; messages do not show such values."""
    return isinstance(name, str) and _POSSIBLE_CREDENTIAL_NAME.search(name) is not None


def without_credentials(value: Any) -> Any:
    """Return a plain value with its secrets hidden, for a message."""
    if isinstance(value, str):
        return _CREDENTIALS_IN_URL.sub(_HIDDEN, value)
    if isinstance(value, Mapping):
        return {key: _HIDDEN if may_be_credential(key) else without_credentials(inner) for key, inner in value.items()}
    return [without_credentials(item) for item in value] if isinstance(value, list) else value
