"""Bearer tokens, keys and passwords: read from files and variables, and shown in no message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spanscore.errors import ConfigurationError, NotReadyError

__all__ = ["HOW_TO_GIVE", "bearer_token", "credentials_in", "may_be_credential", "token_in_file", "without_credentials"]


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


_NAMES = re.compile(
    r"(?:(?:api|access|secret|private|subscription|auth)[-_ ]?key|token|secret|passw(?:or)?d|authorization|credentials?)$",
    re.IGNORECASE,
)
"""At the end of a name: ``openai_api_key``, ``x-api-key``, ``client_secret``; not ``max_tokens`` or ``prompt_cache_key``."""
_LIKELY = re.compile(
    r"key|token(?!s)|secret|passw|passphrase|credential|authorization|bearer|cookie|(?<![a-z])auth(?![a-z])",
    re.IGNORECASE,
)
"""Anywhere in a name: what is shown may leave out too much. ``tokens`` are counted."""
_OF_A_URL = re.compile(r"(?<=//)[^/@\s]+(?=@)")
_HIDDEN = "…"
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*\}")
HOW_TO_GIVE = "write api_key_env: NAME (a variable of the environment that holds it) or api_key_file: PATH"


def may_be_credential(name: object) -> bool:
    """Whether what has this name could be a secret: then no message shows it."""
    return isinstance(name, str) and _LIKELY.search(name) is not None


def credentials_in(value: Any, place: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """Yield where in a section of a file a secret stands itself; one that the environment holds (``${NAME}``) is none."""
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        if _NAMES.search(str(name)) and isinstance(inner, str | int | float) and not _VARIABLE.search(str(inner)):
            yield (*place, name)
        else:
            yield from credentials_in(inner, (*place, name))


def without_credentials(value: Any) -> Any:
    """Return a plain value as it may be shown."""
    if isinstance(value, str):
        return _OF_A_URL.sub(_HIDDEN, value)
    if isinstance(value, Mapping):
        return {name: _HIDDEN if may_be_credential(name) else without_credentials(one) for name, one in value.items()}
    return [without_credentials(one) for one in value] if isinstance(value, list) else value
