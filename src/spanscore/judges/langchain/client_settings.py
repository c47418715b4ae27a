"""What the client of a judge is made with that is given by name: its own address, its own key, its parameters."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from pydantic import SecretStr

from spanscore.config.credentials import HOW_TO_GIVE
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges.keys import takes_key

__all__ = ["ClientSettings", "client_settings"]

_OWN = ("model", "base_url")
_NO_KEY = "none"
"""Sent where a key has to be."""


class ClientSettings(TypedDict, total=False):
    """Keywords of ``judge()`` that are for a client's maker."""

    base_url: str | None
    api_key_env: str | None
    api_key_file: str | Path | None
    model_kwargs: Mapping[str, Any] | None


def client_settings(provider: str, given: ClientSettings) -> dict[str, Any]:
    """Return what a chat model is made with beside its name.

    A judge with an address of its own gets a key only if one is named: the application's is for another.

    Raises:
        ConfigurationError: a setting cannot be; a key is in no message.
        NotReadyError: the key is not where it should be.
    """
    made = _parameters(given.get("model_kwargs") or {})
    key = _key(given.get("api_key_env"), given.get("api_key_file"))
    address = given.get("base_url")
    if address is not None:
        made["base_url"] = _checked(address)
        key = key or (_NO_KEY if takes_key(provider) else None)
    if key is not None:
        made["api_key"] = SecretStr(key)
    return made


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name.endswith("api_key"):
            raise ConfigurationError(f"model_kwargs names {name!r}; {HOW_TO_GIVE}")
        if name in _OWN:
            raise ConfigurationError(f"model_kwargs names {name!r}, a setting of its own: write it beside model_kwargs")
    return dict(given)


def _checked(address: str) -> str:
    found = urlsplit(address)
    if found.username or found.password:
        raise ConfigurationError(f"base_url holds a password; {HOW_TO_GIVE}")
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ConfigurationError(f"base_url is {address!r}; it is http://… or https://…")
    return address


def _key(variable: str | None, file: str | Path | None) -> str | None:
    if variable is not None and file is not None:
        raise ConfigurationError("api_key_env and api_key_file are both given; one of them holds the key")
    if variable is not None:
        return _held(variable)
    return None if file is None else _read(Path(file))


def _held(variable: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", variable):  # which may be the key itself
        raise ConfigurationError(
            "api_key_env names no variable of the environment; write a name, such as JUDGE_API_KEY"
        )
    key = os.environ.get(variable, "").strip()
    if not key:
        named = f"{variable} is" if variable.isupper() else "it is"
        raise NotReadyError(f"api_key_env names a variable, but {named} not set in the environment")
    return key


def _read(file: Path) -> str:
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise NotReadyError(f"api_key_file: {file} cannot be read: {why}") from None
    if len(key.split()) != 1:
        raise NotReadyError(f"api_key_file: {file} holds {'more than a' if key else 'no'} key")
    return key
